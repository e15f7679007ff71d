use super::{Act, OpDef, add_residuals, check_residuals, is_default};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `y = act(norm(x) · Wᵀ + b) + Σ r`, over the last axis.
///
/// `x`: `[..., in]`; `W`: `[out, in]`; `b`: `[out]`; residuals `r` and `y`: `[..., out]`.
/// `norm` is the mean-0, variance-1 normalisation of each row *without* affine, which fusion folds into `W`
/// and `b`: `LN(x)·Wᵀ + b = x̂·(W·diag γ)ᵀ + (b + W·β)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    pub out: usize,
    /// Epsilon of the row normalisation before the product.
    #[serde(default, skip_serializing_if = "is_default")]
    pub norm: Option<f32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub act: Act,
    /// Number of further inputs that are added after the activation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub residuals: usize,
}

impl OpDef for Linear {
    fn arity(&self) -> usize {
        self.residuals.saturating_add(1)
    }

    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        infer(ins, self.out)
    }

    fn weights(&self, ins: &[&[usize]]) -> Vec<(&'static str, Vec<usize>)> {
        let inner = ins[0][ins[0].len() - 1];
        vec![("weight", vec![self.out, inner]), ("bias", vec![self.out])]
    }

    fn flops(&self, ins: &[&[usize]], out: &[usize]) -> u64 {
        super::product(out).saturating_mul(super::product(&[2, ins[0][ins[0].len() - 1]]))
    }

    fn eval(&self, ins: &[&Tensor], weights: &[&Tensor]) -> Tensor {
        let x = match self.norm {
            Some(eps) => super::layer_norm::normalise(ins[0], eps),
            None => ins[0].clone(),
        };
        let y = affine(&x, weights[0], Some(weights[1])).map(|v| self.act.apply(v));
        add_residuals(y, &ins[1..])
    }
}

/// The first input's shape with `out` channels, which every residual must have too.
pub(crate) fn infer(ins: &[&[usize]], out: usize) -> Result<Vec<usize>, String> {
    let mut shape = ins[0].to_vec();
    *shape.last_mut().ok_or("expected at least one axis")? = out;
    check_residuals(&ins[1..], &shape)?;
    Ok(shape)
}

/// `x · Wᵀ + b` over the last axis; the one reference matrix product with weights.
pub(crate) fn affine(x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let (inner, out) = (x.last(), w.shape[0]);
    let mut data = Vec::with_capacity(x.data.len() / inner * out);
    for row in x.data.chunks_exact(inner) {
        data.extend((0..out).map(|n| {
            dot(row, &w.data[n * inner..(n + 1) * inner]) + bias.map_or(0.0, |b| b.data[n])
        }));
    }
    let mut shape = x.shape.clone();
    *shape.last_mut().expect("a tensor has at least one axis") = out;
    Tensor::new(shape, data)
}

/// Eight partial sums, so that the compiler may vectorise the reference too.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a8.remainder().iter().zip(b8.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a8.zip(b8) {
        for lane in 0..8 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}
