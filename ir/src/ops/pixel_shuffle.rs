use super::{OpDef, map4};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Channel `c·by² + a·by + b` of cell `(i, j)` becomes channel `c` of pixel `(i·by + a, j·by + b)`:
/// `[B, C·by², h, w] → [B, C, h·by, w·by]` (Shi et al. 2016).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PixelShuffle {
    pub by: usize,
}

impl OpDef for PixelShuffle {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [b, c, h, w] = map4(ins[0])?;
        let cell = self.by.saturating_mul(self.by);
        match self.by > 0 && c % cell == 0 {
            true => Ok(vec![b, c / cell, h * self.by, w * self.by]),
            false => Err(format!("expected channels divisible by {0}x{0}, got {c}", self.by)),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let [b, c, h, w] = map4(&ins[0].shape).expect("inferred");
        let by = self.by;
        let mut y = Tensor::zeros([b, c / (by * by), h * by, w * by]);
        for (i, y) in y.data.iter_mut().enumerate() {
            let (x, row) = (i % (w * by), i / (w * by) % (h * by));
            let plane = i / (w * by * h * by); // batch and channel together
            let channel = plane * by * by + row % by * by + x % by;
            *y = ins[0].data[(channel * h + row / by) * w + x / by];
        }
        y
    }
}
