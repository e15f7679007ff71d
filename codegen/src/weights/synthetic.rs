//! Weights made from a seed, bit for bit the same everywhere.
//!
//! The value of element `i` depends on the seed, the tensor's name and `i` only: splitmix64 started from the seed
//! and the FNV-1a hash of the name gives 24 bits, read as `u` in [-1, 1); the value is `offset + amp * u`. Offset and
//! amplitude follow from name and shape and are chosen so that activations keep a natural size through the net.

use rayon::prelude::*;

use super::error::{WeightError, WeightErrorKind};
use super::names::canonical_name;

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Makes any tensor of any net of the family from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticWeights {
    pub seed: u64,
}

impl SyntheticWeights {
    /// One tensor, row-major. An alias gives the same values as the tensor's other name.
    ///
    /// # Errors
    /// A name and shape the recipe has no rule for, or a tensor that does not fit in memory.
    pub fn read_f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, WeightError> {
        let name = canonical_name(name);
        let (offset, amp) = law(&name, shape)?;
        let mut values = zeros(&name, shape)?;
        let start = self.seed ^ fnv1a(name.as_bytes());
        // 64 Ki values a task: enough to pay for a task, and it stays in the cache.
        const CHUNK: usize = 1 << 16;
        values.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, values)| {
            let first = (chunk * CHUNK) as u64;
            for (i, value) in values.iter_mut().enumerate() {
                // Two roundings, never a fused multiply-add: that is part of the recipe.
                *value = offset + amp * unit(start, first + i as u64);
            }
        });
        Ok(values)
    }

    /// `synthetic:0xSEED`.
    pub fn digest(&self) -> String {
        format!("synthetic:{:#018x}", self.seed)
    }
}

/// Element `i`'s number in [-1, 1): a multiple of 2^-23, so exact.
#[inline]
fn unit(start: u64, i: u64) -> f32 {
    let mut z = start.wrapping_add((i.wrapping_add(1)).wrapping_mul(GOLDEN_GAMMA));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    const HALF: i32 = 1 << 23;
    ((z >> 40) as i32 - HALF) as f32 * (1.0 / HALF as f32)
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Offset and amplitude of a tensor.
pub(super) fn law(name: &str, shape: &[usize]) -> Result<(f32, f32), WeightError> {
    if name.ends_with(".bias") || name == "mask_token" {
        return Ok((0.0, 0.05));
    }
    let no_rule = || {
        WeightError::new(
            WeightErrorKind::NoRecipe,
            format!("no synthetic values for `{name}` {shape:?}"),
            "the recipe knows `*.bias`, `mask_token`, and `*.weight` of 1, 2 or 4 dimensions",
            "check the name and shape in the model, or give weights that have this tensor",
        )
    };
    let module = name.strip_suffix(".weight").ok_or_else(no_rule)?;
    let transposed = ["act_postprocess.0.1", "act_postprocess.1.1"].iter().any(|m| module.ends_with(m));
    let fan_in = match *shape {
        [_] => return Ok((1.0, 0.1)),
        [_, inputs] => inputs,
        // A transposed convolution stores its inputs first, and each output pixel sees one tap of each.
        [inputs, ..] if shape.len() == 4 && transposed => inputs,
        [_, inputs, h, w] => inputs.saturating_mul(h).saturating_mul(w),
        _ => return Err(no_rule()),
    };
    Ok((0.0, (gain(module) * (3.0 / fan_in as f64).sqrt()) as f32))
}

/// Attention is sharpened, residual branches and outputs are damped, so that depth neither fades nor explodes.
fn gain(module: &str) -> f64 {
    let is = |names: &[&str]| names.iter().any(|n| module == *n || module.ends_with(&format!(".{n}")));
    if is(&["patch_embed.proj"]) {
        3.0
    } else if is(&["attn.qkv", "cross_attn.projq", "cross_attn.projk"]) {
        1.5
    } else if is(&["attn.proj", "cross_attn.proj", "mlp.fc2", "dpt.head.4"]) {
        0.35
    } else if is(&["downstream_head1.proj", "downstream_head2.proj", "head_local_features.fc2"]) {
        0.7
    } else {
        1.0
    }
}

fn zeros(name: &str, shape: &[usize]) -> Result<Vec<f32>, WeightError> {
    let too_large = || {
        WeightError::new(
            WeightErrorKind::NoRecipe,
            format!("no memory for `{name}` {shape:?}"),
            "the tensor does not fit in memory",
            "check its shape in the model",
        )
    };
    let n = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).ok_or_else(too_large)?;
    let mut values = Vec::new();
    values.try_reserve_exact(n).map_err(|_| too_large())?;
    values.resize(n, 0.0);
    Ok(values)
}
