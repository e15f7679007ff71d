use super::{OpDef, tokens};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Tokens in row-major order laid out as a map: `[B, h·w, C] → [B, C, h, w]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToMap {
    pub h: usize,
    pub w: usize,
}

impl OpDef for ToMap {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [b, n, c] = tokens(ins[0])?;
        match n == self.h.saturating_mul(self.w) {
            true => Ok(vec![b, c, self.h, self.w]),
            false => Err(format!("expected {}x{} tokens, got {n}", self.h, self.w)),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let [b, n, c] = tokens(&ins[0].shape).expect("inferred");
        Tensor::new([b, c, self.h, self.w], transpose_last_two(&ins[0].data, n, c))
    }
}

/// `[.., rows, cols] → [.., cols, rows]`.
pub(crate) fn transpose_last_two(x: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    let matrices = x.chunks_exact(rows * cols);
    matrices.flat_map(|m| (0..rows * cols).map(move |i| m[i % rows * cols + i / rows])).collect()
}
