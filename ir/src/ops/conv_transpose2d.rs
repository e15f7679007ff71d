use super::{OpDef, map4};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Transposed convolution with kernel = stride, so without overlap.
///
/// `x`: `[B, C, H, W]`; `W`: `[C, out, k, k]`; `b`: `[out]`;
/// `y[o, k·i+a, k·j+b] = Σ_c x[c, i, j] · W[c, o, a, b] + b[o]`: `[B, out, k·H, k·W]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvTranspose2d {
    pub out: usize,
    pub kernel: usize,
}

impl OpDef for ConvTranspose2d {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [b, _, h, w] = map4(ins[0])?;
        Ok(vec![b, self.out, h.saturating_mul(self.kernel), w.saturating_mul(self.kernel)])
    }

    fn weights(&self, ins: &[&[usize]]) -> Vec<(&'static str, Vec<usize>)> {
        vec![("weight", vec![ins[0][1], self.out, self.kernel, self.kernel]), ("bias", vec![self.out])]
    }

    fn flops(&self, ins: &[&[usize]], out: &[usize]) -> u64 {
        super::product(&[2, out[0], out[1], out[2], out[3], ins[0][1]])
    }

    fn eval(&self, ins: &[&Tensor], weights: &[&Tensor]) -> Tensor {
        let [b, c, h, w] = map4(&ins[0].shape).expect("inferred");
        let k = self.kernel;
        let mut y = Tensor::zeros([b, self.out, h * k, w * k]);
        for (i, y) in y.data.iter_mut().enumerate() {
            let (ox, oy) = (i % (w * k), i / (w * k) % (h * k));
            let (o, batch) = (i / (w * k * h * k) % self.out, i / (w * k * h * k * self.out));
            *y = weights[1].data[o]
                + (0..c)
                    .map(|ch| {
                        ins[0].data[((batch * c + ch) * h + oy / k) * w + ox / k]
                            * weights[0].data[((ch * self.out + o) * k + oy % k) * k + ox % k]
                    })
                    .sum::<f32>();
        }
        y
    }
}
