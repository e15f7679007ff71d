//! Plan and weights to artifact bytes.
//!
//! An artifact is one safetensors file: the packed constants as tensors `const.NNNNN`, each a whole number of cache lines, and the
//! manifest as a tensor of RON text. The data starts at a cache line, so a mapped file is used in place.

mod emit;
pub mod weights;

pub use emit::{EmitError, Progress, artifact_bytes, emit};
