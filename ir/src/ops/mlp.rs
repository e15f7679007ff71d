use super::{OpDef, add_residuals, is_default};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `y = GELU(norm(x) · W1ᵀ + b1) · W2ᵀ + b2 + Σ r`: a transformer block's feed-forward part.
///
/// `x`: `[..., in]`; `W1`: `[hidden, in]`; `W2`: `[out, hidden]`; residuals and `y`: `[..., out]`.
/// `norm` as in [`Linear`](super::Linear). Made by fusion; model files write the two linears.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mlp {
    pub hidden: usize,
    pub out: usize,
    #[serde(default, skip_serializing_if = "is_default")]
    pub norm: Option<f32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub residuals: usize,
}

impl OpDef for Mlp {
    fn arity(&self) -> usize {
        self.residuals.saturating_add(1)
    }

    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        super::linear::infer(ins, self.out)
    }

    fn weights(&self, ins: &[&[usize]]) -> Vec<(&'static str, Vec<usize>)> {
        let inner = ins[0][ins[0].len() - 1];
        vec![
            ("fc1.weight", vec![self.hidden, inner]),
            ("fc1.bias", vec![self.hidden]),
            ("fc2.weight", vec![self.out, self.hidden]),
            ("fc2.bias", vec![self.out]),
        ]
    }

    fn flops(&self, ins: &[&[usize]], out: &[usize]) -> u64 {
        let rows = out.iter().product::<usize>() / self.out;
        super::product(&[2, rows, self.hidden, ins[0][ins[0].len() - 1] + self.out])
    }

    fn eval(&self, ins: &[&Tensor], weights: &[&Tensor]) -> Tensor {
        let x = match self.norm {
            Some(eps) => super::layer_norm::normalise(ins[0], eps),
            None => ins[0].clone(),
        };
        let hidden = super::linear::affine(&x, weights[0], Some(weights[1])).map(super::gelu::gelu);
        add_residuals(super::linear::affine(&hidden, weights[2], Some(weights[3])), &ins[1..])
    }
}
