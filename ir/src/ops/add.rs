use super::{OpDef, same};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `y = a + b`, equal shapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {}

impl OpDef for Add {
    fn arity(&self) -> usize {
        2
    }

    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        same("Add", ins[0], ins[1])?;
        Ok(ins[0].to_vec())
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        ins[0].add(ins[1])
    }
}
