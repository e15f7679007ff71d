use super::{Act, OpDef, add_residuals, check_residuals, is_default, map4};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `y = pointwise(act(conv(pre(x)) + b)) + Σ r`: a square convolution with zero padding.
///
/// `x`: `[B, C, H, W]`; `W`: `[out, C, k, k]`; `b`: `[out]`; `y`: `[B, out, H', W']` with
/// `H' = (H + 2·pad − k) / stride + 1`, or with `pointwise` its channels instead of `out`.
/// `pre` is ReLU (`pre_relu`), then bilinear x2 upsampling (`upsample`). Model files use `out`, `kernel`, `stride`,
/// `pad` and `bias`; the rest is set by fusion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2d {
    pub out: usize,
    pub kernel: usize,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub stride: usize,
    #[serde(default, skip_serializing_if = "is_default")]
    pub pad: usize,
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub bias: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub pre_relu: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub upsample: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub act: Act,
    /// Output channels of a following 1x1 convolution with bias.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pointwise: Option<usize>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub residuals: usize,
}

fn one() -> usize {
    1
}
fn is_one(n: &usize) -> bool {
    *n == 1
}
fn yes() -> bool {
    true
}
fn is_yes(b: &bool) -> bool {
    *b
}

impl Conv2d {
    /// A plain convolution.
    pub fn new(out: usize, kernel: usize, stride: usize, pad: usize) -> Conv2d {
        Conv2d {
            out,
            kernel,
            stride,
            pad,
            bias: true,
            pre_relu: false,
            upsample: false,
            act: Act::None,
            pointwise: None,
            residuals: 0,
        }
    }

    /// A bare 1x1 convolution: nothing before, nothing after, a map over the channels only.
    pub fn is_pointwise(&self) -> bool {
        *self == Conv2d { bias: self.bias, ..Conv2d::new(self.out, 1, 1, 0) }
    }

    /// Height and width of the map that the kernel slides over.
    fn source(&self, h: usize, w: usize) -> (usize, usize) {
        if self.upsample { (2 * h, 2 * w) } else { (h, w) }
    }
}

impl OpDef for Conv2d {
    fn arity(&self) -> usize {
        self.residuals.saturating_add(1)
    }

    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [b, _, h, w] = map4(ins[0])?;
        let (h, w) = self.source(h, w);
        let padded = |n: usize| n.saturating_add(self.pad.saturating_mul(2));
        if self.stride == 0 || self.kernel == 0 || padded(h.min(w)) < self.kernel {
            return Err(format!(
                "expected stride >= 1 and a map of at least {} minus 2x{} a side, got {h}x{w} and stride {}",
                self.kernel, self.pad, self.stride
            ));
        }
        let side = |n: usize| (padded(n) - self.kernel) / self.stride + 1;
        let out = vec![b, self.pointwise.unwrap_or(self.out), side(h), side(w)];
        check_residuals(&ins[1..], &out)?;
        Ok(out)
    }

    fn weights(&self, ins: &[&[usize]]) -> Vec<(&'static str, Vec<usize>)> {
        let mut weights = vec![("weight", vec![self.out, ins[0][1], self.kernel, self.kernel])];
        if self.bias {
            weights.push(("bias", vec![self.out]));
        }
        if let Some(n) = self.pointwise {
            weights.push(("pointwise.weight", vec![n, self.out, 1, 1]));
            weights.push(("pointwise.bias", vec![n]));
        }
        weights
    }

    fn flops(&self, ins: &[&[usize]], out: &[usize]) -> u64 {
        let per_output = ins[0][1] * self.kernel * self.kernel + self.pointwise.unwrap_or(0);
        super::product(&[2, out[0], out[2], out[3], self.out, per_output])
    }

    fn eval(&self, ins: &[&Tensor], weights: &[&Tensor]) -> Tensor {
        let mut x = ins[0].clone();
        if self.pre_relu {
            x = x.map(super::relu::relu);
        }
        if self.upsample {
            x = super::upsample::bilinear(&x, 2);
        }
        let bias = self.bias.then(|| weights[1]);
        let mut y = self.convolve(&x, weights[0], bias).map(|v| self.act.apply(v));
        if let Some(n) = self.pointwise {
            let at = 1 + usize::from(self.bias);
            y = Conv2d::new(n, 1, 1, 0).convolve(&y, weights[at], Some(weights[at + 1]));
        }
        add_residuals(y, &ins[1..])
    }
}

impl Conv2d {
    fn convolve(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let [b, c, h, w] = map4(&x.shape).expect("inferred");
        let (k, s) = (self.kernel, self.stride);
        let (oh, ow) = ((h + 2 * self.pad - k) / s + 1, (w + 2 * self.pad - k) / s + 1);
        let mut y = Tensor::zeros([b, self.out, oh, ow]);
        for (plane, y) in y.data.chunks_exact_mut(oh * ow).enumerate() {
            let (batch, o) = (plane / self.out, plane % self.out);
            y.fill(bias.map_or(0.0, |bias| bias.data[o]));
            for tap in 0..c * k * k {
                let (i, ky, kx) = (tap / (k * k), tap / k % k, tap % k);
                let tap_weight = weight.data[o * c * k * k + tap];
                let x = &x.data[(batch * c + i) * h * w..][..h * w];
                for oy in 0..oh {
                    let Some(iy) = (oy * s + ky).checked_sub(self.pad).filter(|&iy| iy < h) else { continue };
                    for ox in 0..ow {
                        if let Some(ix) = (ox * s + kx).checked_sub(self.pad).filter(|&ix| ix < w) {
                            y[oy * ow + ox] += tap_weight * x[iy * w + ix];
                        }
                    }
                }
            }
        }
        y
    }
}
