//! Executes artifacts. Links no compiler: what was decided at compile time is data here.

mod artifact;
mod bytes;
mod cpu;
mod error;

pub use artifact::Artifact;
pub use bytes::Bytes;
pub use cpu::{Executor, Options, Report, default_threads};
pub use error::RuntimeError;
pub use ttc_kernels::cpu::{Isa, IsaError};
