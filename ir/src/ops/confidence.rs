use super::{OpDef, map4};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Confidence from raw head output, DUSt3R's `exp` confidence mode: `floor + exp(c)`, `c` = one channel.
/// `[B, C, H, W] → [B, H, W]`; greater means surer, not calibrated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confidence {
    pub channel: usize,
    pub floor: f32,
}

impl OpDef for Confidence {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [b, c, h, w] = map4(ins[0])?;
        match self.channel < c {
            true => Ok(vec![b, h, w]),
            false => Err(format!("expected more than {} channels, got {c}", self.channel)),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let [b, c, h, w] = map4(&ins[0].shape).expect("inferred");
        let planes = ins[0].data.chunks_exact(h * w).skip(self.channel).step_by(c);
        Tensor::new([b, h, w], planes.flatten().map(|c| self.floor + c.exp()).collect())
    }
}
