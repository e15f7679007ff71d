use super::OpDef;
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `y = (x − mean) / √(var + eps) · γ + β` over the last axis, with the biased variance.
///
/// `x`, `y`: `[..., C]`; `γ` (`weight`), `β` (`bias`): `[C]`. Ba, Kiros, Hinton 2016.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    pub eps: f32,
}

impl OpDef for LayerNorm {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        Ok(ins[0].to_vec())
    }

    fn weights(&self, ins: &[&[usize]]) -> Vec<(&'static str, Vec<usize>)> {
        let c = ins[0][ins[0].len() - 1];
        vec![("weight", vec![c]), ("bias", vec![c])]
    }

    fn eval(&self, ins: &[&Tensor], weights: &[&Tensor]) -> Tensor {
        let mut y = normalise(ins[0], self.eps);
        for row in y.data.chunks_exact_mut(ins[0].last()) {
            for ((v, g), b) in row.iter_mut().zip(&weights[0].data).zip(&weights[1].data) {
                *v = *v * g + b;
            }
        }
        y
    }
}

/// Each row of the last axis brought to mean 0 and variance 1; sums in f64.
pub(crate) fn normalise(x: &Tensor, eps: f32) -> Tensor {
    let mut y = x.clone();
    for row in y.data.chunks_exact_mut(x.last()) {
        let n = row.len() as f64;
        let mean = row.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let var = row.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
        let inv = 1.0 / (var + f64::from(eps)).sqrt();
        row.iter_mut().for_each(|v| *v = ((f64::from(*v) - mean) * inv) as f32);
    }
    y
}
