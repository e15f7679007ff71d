use super::OpDef;
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Batched product of two activations: `y = a · b`, or `a · bᵀ` with `transpose_b`.
///
/// `a`: `[B, heads, M, K]`; `b`: `[B, heads, K, N]` (transposed: `[B, heads, N, K]`); `y`: `[B, heads, M, N]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatMul {
    #[serde(default)]
    pub transpose_b: bool,
}

impl MatMul {
    fn dims(&self, a: &[usize], b: &[usize]) -> Result<[usize; 4], String> {
        let (&[b0, h0, m, k], &[b1, h1, r, c]) = (a, b) else {
            return Err("expected two [batch, head, row, column]".into());
        };
        let (k1, n) = if self.transpose_b { (c, r) } else { (r, c) };
        if (b0, h0, k) != (b1, h1, k1) {
            return Err(format!("expected equal batch, heads and inner length, got {a:?} and {b:?}"));
        }
        Ok([b0 * h0, m, k, n])
    }
}

impl OpDef for MatMul {
    fn arity(&self) -> usize {
        2
    }

    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [_, m, _, n] = self.dims(ins[0], ins[1])?;
        Ok(vec![ins[0][0], ins[0][1], m, n])
    }

    fn flops(&self, ins: &[&[usize]], out: &[usize]) -> u64 {
        super::product(&[2, out[0], out[1], out[2], out[3], ins[0][3]])
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let [batch, m, k, n] = self.dims(&ins[0].shape, &ins[1].shape).expect("inferred");
        let mut data = Vec::with_capacity(batch * m * n);
        for g in 0..batch {
            let b = &ins[1].data[g * k * n..(g + 1) * k * n];
            let columns: Vec<f32> = match self.transpose_b {
                true => b.to_vec(),
                false => (0..n * k).map(|i| b[(i % k) * n + i / k]).collect(),
            };
            for row in ins[0].data[g * m * k..(g + 1) * m * k].chunks_exact(k) {
                data.extend(columns.chunks_exact(k).map(|column| super::linear::dot(row, column)));
            }
        }
        Tensor::new([ins[0].shape[0], ins[0].shape[1], m, n], data)
    }
}
