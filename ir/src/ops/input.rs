use super::OpDef;
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// A tensor that the caller gives. It has no inputs and is never evaluated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub shape: Vec<usize>,
}

impl OpDef for Input {
    fn arity(&self) -> usize {
        0
    }

    fn infer(&self, _: &[&[usize]]) -> Result<Vec<usize>, String> {
        Ok(self.shape.clone())
    }

    fn eval(&self, _: &[&Tensor], _: &[&Tensor]) -> Tensor {
        unreachable!("inputs are given, not evaluated")
    }
}
