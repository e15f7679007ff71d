use super::OpDef;
use crate::tensor::Tensor;
use crate::weight::rope_table;
use serde::{Deserialize, Serialize};

/// Rotary position embedding in two dimensions (Su et al. 2021; the 2D form of CroCo v2, 2023).
///
/// `x`: `[B, heads, h·w, d]`; token `t` stands at row `t / w`, column `t % w`. The first half of the channels turns with
/// the row, the second with the column. Inside a half, channel `j` pairs with channel `j + d/4`, at frequency `base^(-4j/d)`:
/// `(a, b) → (a cos − b sin, b cos + a sin)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope2d {
    pub h: usize,
    pub w: usize,
    pub base: f32,
}

impl OpDef for Rope2d {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let &[_, _, n, d] = ins[0] else { return Err("expected [batch, head, token, channel]".into()) };
        if n != self.h.saturating_mul(self.w) || d % 4 != 0 {
            return Err(format!(
                "expected {}x{} = {} tokens and a head dimension divisible by 4, got {n} and {d}",
                self.h,
                self.w,
                self.h.saturating_mul(self.w)
            ));
        }
        Ok(ins[0].to_vec())
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let mut y = ins[0].clone();
        rotate(&mut y, (self.h, self.w), self.base);
        y
    }
}

/// Turns every token of `x` (`[B, heads, h·w, d]`) in place.
pub(crate) fn rotate(x: &mut Tensor, (h, w): (usize, usize), base: f32) {
    let q = x.last() / 4;
    let positions = h.max(w);
    let table = rope_table(base, positions, q);
    for (t, token) in x.data.chunks_exact_mut(4 * q).enumerate() {
        let t = t % (h * w);
        for (half, position) in [t / w, t % w].into_iter().enumerate() {
            for j in 0..q {
                let (i, k) = (half * 2 * q + j, half * 2 * q + j + q);
                let (cos, sin) = (table[position * q + j], table[(positions + position) * q + j]);
                let (a, b) = (token[i], token[k]);
                token[i] = a * cos - b * sin;
                token[k] = b * cos + a * sin;
            }
        }
    }
}
