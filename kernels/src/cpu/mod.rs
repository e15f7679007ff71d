//! The numeric cores of the CPU backend: functions over slices that know nothing of graphs or plans.
//!
//! Every function takes a [`Ctx`] (instruction set, workers, scratch memory) and one struct of operands. None
//! allocates; each has a `*_scratch_bytes` companion that says how much scratch a worker needs. Images are
//! channels-last, `[batch, row, column, channel]`, except where said. Sums are f32 in a fixed order: results
//! do not depend on the number of threads.

mod attention;
mod conv;
mod ctx;
mod data;
mod finish;
mod gemm;
mod heads;
mod isa;
mod math;
mod pack;
mod pixels;
mod pointwise;
mod resample;
mod rows;
mod shuffle;
mod simd;
mod tile;

pub use attention::{Attention, Heads, Rope, attention, attention_scratch_bytes};
pub use conv::{Conv3x3, ConvShape, conv3x3, conv3x3_scratch_bytes};
pub use ctx::{Aligned, Ctx};
pub use data::{Data, DataMut, Dst, Math, PANEL, Packed, Src};
pub use gemm::{Gemm, Mlp, gemm, gemm_scratch_bytes, mlp, mlp_scratch_bytes};
pub use isa::{ISA_ENV, Isa, IsaError};
pub use math::Act;
pub use pack::*;
pub use pixels::{
    ConvTranspose, PatchEmbed, Pointwise, conv_transpose, conv_transpose_scratch_bytes, patch_embed,
    patch_embed_scratch_bytes,
};
pub use pointwise::{LayerNorm, activate, add, confidence, descriptors, gelu, layer_norm, points, relu};
pub use resample::{Upsample2, upsample2, upsample2_scratch_bytes};
pub use shuffle::{PixelShuffle, pixel_shuffle};
