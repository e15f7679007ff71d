use super::{OpDef, map4, to_map::transpose_last_two};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// A map read as tokens in row-major order: `[B, C, h, w] → [B, h·w, C]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToTokens {}

impl OpDef for ToTokens {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [b, c, h, w] = map4(ins[0])?;
        Ok(vec![b, h * w, c])
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let [b, c, h, w] = map4(&ins[0].shape).expect("inferred");
        Tensor::new([b, h * w, c], transpose_last_two(&ins[0].data, c, h * w))
    }
}
