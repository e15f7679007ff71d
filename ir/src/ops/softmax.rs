use super::OpDef;
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `yᵢ = exp(xᵢ − max x) / Σⱼ exp(xⱼ − max x)` over the last axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Softmax {}

impl OpDef for Softmax {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        Ok(ins[0].to_vec())
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let mut y = ins[0].clone();
        for row in y.data.chunks_exact_mut(ins[0].last()) {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter_mut().for_each(|v| *v = (*v - max).exp());
            let sum = row.iter().map(|&v| f64::from(v)).sum::<f64>();
            row.iter_mut().for_each(|v| *v = (f64::from(*v) / sum) as f32);
        }
        y
    }
}
