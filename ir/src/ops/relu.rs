use super::OpDef;
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `y = max(x, 0)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relu {}

impl OpDef for Relu {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        Ok(ins[0].to_vec())
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        ins[0].map(relu)
    }
}

pub(crate) fn relu(x: f32) -> f32 {
    x.max(0.0)
}
