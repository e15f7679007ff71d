use super::OpDef;
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `y = x / √d`, the scale of dot-product attention for head dimension `d`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    pub d: usize,
}

impl Scale {
    pub fn factor(&self) -> f32 {
        1.0 / (self.d as f32).sqrt()
    }
}

impl OpDef for Scale {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        Ok(ins[0].to_vec())
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let factor = self.factor();
        ins[0].map(|x| x * factor)
    }
}
