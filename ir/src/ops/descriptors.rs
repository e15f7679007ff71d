use super::{OpDef, map4};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Local descriptors from raw head output (MASt3R): channels `start..start+len` of each pixel divided by their
/// Euclidean norm. `[B, C, H, W] → [B, H, W, len]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Descriptors {
    pub start: usize,
    pub len: usize,
}

impl OpDef for Descriptors {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [b, c, h, w] = map4(ins[0])?;
        match self.start.saturating_add(self.len) <= c {
            true => Ok(vec![b, h, w, self.len]),
            false => Err(format!("expected at least {} channels, got {c}", self.start.saturating_add(self.len))),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let [b, c, h, w] = map4(&ins[0].shape).expect("inferred");
        let mut data = Vec::with_capacity(b * h * w * self.len);
        for pixel in 0..b * h * w {
            let at = |channel: usize| ins[0].data[(pixel / (h * w) * c + channel) * h * w + pixel % (h * w)];
            let v = (self.start..self.start + self.len).map(at);
            let norm = v.clone().map(|x| x * x).sum::<f32>().sqrt();
            // A zero vector stays zero instead of turning into NaN.
            data.extend(v.map(|x| x / norm.max(1e-12)));
        }
        Tensor::new([b, h, w, self.len], data)
    }
}
