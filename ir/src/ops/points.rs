use super::{OpDef, map4};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Pointmap from raw head output, DUSt3R's `exp` depth mode: with `v` = channels 0 to 2 of a pixel and `d = |v|`,
/// `p = v / max(d, 1e-8) · expm1(d)`. `[B, C >= 3, H, W] → [B, H, W, 3]`, in the units of the network (up to scale).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Points {}

impl OpDef for Points {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [b, c, h, w] = map4(ins[0])?;
        match c >= 3 {
            true => Ok(vec![b, h, w, 3]),
            false => Err(format!("expected at least 3 channels, got {c}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let [b, c, h, w] = map4(&ins[0].shape).expect("inferred");
        let mut data = Vec::with_capacity(b * h * w * 3);
        for pixel in 0..b * h * w {
            let at = |channel: usize| ins[0].data[(pixel / (h * w) * c + channel) * h * w + pixel % (h * w)];
            let v = [at(0), at(1), at(2)];
            let d = v.iter().map(|x| x * x).sum::<f32>().sqrt();
            let scale = d.exp_m1() / d.max(1e-8);
            data.extend(v.map(|x| x * scale));
        }
        Tensor::new([b, h, w, 3], data)
    }
}
