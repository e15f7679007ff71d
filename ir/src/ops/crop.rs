use super::{OpDef, map4};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// The top-left `h` x `w` of a map: `[B, C, H, W] → [B, C, h, w]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crop {
    pub h: usize,
    pub w: usize,
}

impl OpDef for Crop {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [b, c, h, w] = map4(ins[0])?;
        match self.h <= h && self.w <= w {
            true => Ok(vec![b, c, self.h, self.w]),
            false => Err(format!("expected a map of at least {}x{}, got {h}x{w}", self.h, self.w)),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let [b, c, h, w] = map4(&ins[0].shape).expect("inferred");
        let planes = ins[0].data.chunks_exact(h * w);
        let rows = planes.flat_map(|plane| plane.chunks_exact(w).take(self.h).flat_map(|row| &row[..self.w]));
        Tensor::new([b, c, self.h, self.w], rows.copied().collect())
    }
}
