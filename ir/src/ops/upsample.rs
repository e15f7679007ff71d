use super::{OpDef, map4};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Bilinear upsampling by an integer factor with `align_corners = true`: output `i` reads the source at
/// `i · (in − 1) / (out − 1)`. `[B, C, H, W] → [B, C, by·H, by·W]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upsample {
    pub by: usize,
}

impl OpDef for Upsample {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [b, c, h, w] = map4(ins[0])?;
        Ok(vec![b, c, h.saturating_mul(self.by), w.saturating_mul(self.by)])
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        bilinear(ins[0], self.by)
    }
}

/// Source index, next index and weight of the next, for output `i` of `out` over `n` samples.
fn tap(i: usize, n: usize, out: usize) -> (usize, usize, f32) {
    if out <= 1 {
        return (0, 0, 0.0);
    }
    let x = i as f32 * ((n - 1) as f32 / (out - 1) as f32);
    let low = (x as usize).min(n - 1);
    (low, (low + 1).min(n - 1), x - low as f32)
}

pub(crate) fn bilinear(x: &Tensor, by: usize) -> Tensor {
    let [b, c, h, w] = map4(&x.shape).expect("inferred");
    let (oh, ow) = (h * by, w * by);
    let mut data = Vec::with_capacity(b * c * oh * ow);
    for plane in x.data.chunks_exact(h * w) {
        for oy in 0..oh {
            let (y0, y1, fy) = tap(oy, h, oh);
            for ox in 0..ow {
                let (x0, x1, fx) = tap(ox, w, ow);
                let top = plane[y0 * w + x0] * (1.0 - fx) + plane[y0 * w + x1] * fx;
                let bottom = plane[y1 * w + x0] * (1.0 - fx) + plane[y1 * w + x1] * fx;
                data.push(top * (1.0 - fy) + bottom * fy);
            }
        }
    }
    Tensor::new([b, c, oh, ow], data)
}
