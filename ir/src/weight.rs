//! Weights: tensors named by the checkpoint, and exact algebra over them.

use serde::{Deserialize, Serialize};

/// Index into [`Graph::weights`](crate::Graph::weights) or [`Plan::weights`](crate::Plan::weights).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WeightId(pub u32);

/// A tensor known at compile time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weight {
    /// The official state-dict name for [`Expr::Load`], a description otherwise.
    pub name: String,
    pub shape: Vec<usize>,
    pub expr: Expr,
}

/// How a weight's values come about. Operands come earlier in the same list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Expr {
    /// Read from the checkpoint under the weight's name.
    Load,
    /// `w · diag(gamma)`: `w` is `[out, in]`, `gamma` `[in]`.
    ScaleColumns { w: WeightId, gamma: WeightId },
    /// `bias + w · beta`: `w` is `[out, in]`, `beta` `[in]`; without a bias it counts as 0.
    FoldBias { w: WeightId, beta: WeightId, bias: Option<WeightId> },
    /// The operands one after the other along axis 0.
    ConcatRows(Vec<WeightId>),
    /// `[2, positions, d]`: cosines, then sines, of `position * base^(-j/d)` for `j` in `0..d`;
    /// RoPE2D, where `d` is a quarter of the head dimension.
    RopeTable { base: f32, d: usize },
}

impl Expr {
    pub fn operands(&self) -> Vec<WeightId> {
        match self {
            Expr::Load | Expr::RopeTable { .. } => vec![],
            Expr::ScaleColumns { w, gamma } => vec![*w, *gamma],
            Expr::FoldBias { w, beta, bias } => [*w, *beta].into_iter().chain(*bias).collect(),
            Expr::ConcatRows(parts) => parts.clone(),
        }
    }
}

/// Reads a checkpoint tensor by name and shape.
pub type Load<'a, E> = &'a mut dyn FnMut(&str, &[usize]) -> Result<Vec<f32>, E>;

/// Computes weight `id`, reading checkpoint tensors with `load(name, shape)`.
///
/// Sums run in f64, so that folding costs no more than one f32 rounding.
pub fn materialise<E>(weights: &[Weight], id: WeightId, load: Load<E>) -> Result<Vec<f32>, E> {
    let weight = &weights[id.0 as usize];
    Ok(match &weight.expr {
        Expr::Load => load(&weight.name, &weight.shape)?,
        Expr::ScaleColumns { w, gamma } => {
            let gamma = materialise(weights, *gamma, load)?;
            let mut w = materialise(weights, *w, load)?;
            w.chunks_exact_mut(gamma.len())
                .for_each(|row| row.iter_mut().zip(&gamma).for_each(|(w, g)| *w *= g));
            w
        }
        Expr::FoldBias { w, beta, bias } => {
            let beta = materialise(weights, *beta, load)?;
            let w = materialise(weights, *w, load)?;
            let bias = bias.map(|b| materialise(weights, b, load)).transpose()?;
            let row_sum =
                |row: &[f32]| row.iter().zip(&beta).map(|(&w, &b)| f64::from(w) * f64::from(b)).sum::<f64>();
            w.chunks_exact(beta.len())
                .enumerate()
                .map(|(i, row)| (row_sum(row) + bias.as_ref().map_or(0.0, |b| f64::from(b[i]))) as f32)
                .collect()
        }
        Expr::ConcatRows(parts) => {
            let mut out = Vec::with_capacity(weight.shape.iter().product());
            for &part in parts {
                out.extend(materialise(weights, part, load)?);
            }
            out
        }
        Expr::RopeTable { base, d } => rope_table(*base, weight.shape[1], *d),
    })
}

/// `[2, positions, d]`: cosines then sines, angles computed in f64.
pub fn rope_table(base: f32, positions: usize, d: usize) -> Vec<f32> {
    let angle = |p: usize, j: usize| p as f64 * f64::from(base).powf(-(j as f64) / d as f64);
    let at = |f: fn(f64) -> f64| (0..positions * d).map(move |i| f(angle(i / d, i % d)) as f32);
    at(f64::cos).chain(at(f64::sin)).collect()
}
