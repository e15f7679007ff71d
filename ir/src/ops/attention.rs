use super::{MatMul, MergeHeads, OpDef, Softmax, SplitHeads, is_default, tokens};
use crate::tensor::{Tensor, dims};
use serde::{Deserialize, Serialize};

/// Multi-head attention on token-major projections:
/// `y = merge(softmax(rope(q) · rope(k)ᵀ / √d) · v)` (Vaswani et al. 2017).
///
/// `q`: `[B, Nq, ·]`, `k`, `v`: `[B, Nk, ·]`, each found at a channel offset of its input so that packed projections are
/// read in place; `y`: `[B, Nq, heads·d]`. Made by fusion; model files write the parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    pub heads: usize,
    pub d: usize,
    /// First channel of q, k and v in their inputs.
    pub at: (usize, usize, usize),
    #[serde(default, skip_serializing_if = "is_default")]
    pub rope: Option<Rope>,
}

/// RoPE2D of an [`Attention`]: grids of the query and key tokens, height and width.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    pub base: f32,
    pub q: (usize, usize),
    pub k: (usize, usize),
}

impl Rope {
    /// Number of positions that a table must cover.
    pub fn positions(&self) -> usize {
        self.q.0.max(self.q.1).max(self.k.0).max(self.k.1)
    }
}

impl OpDef for Attention {
    fn arity(&self) -> usize {
        3
    }

    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let ([b, nq, cq], [bk, nk, ck], [bv, nv, cv]) = (tokens(ins[0])?, tokens(ins[1])?, tokens(ins[2])?);
        let width = self.heads.saturating_mul(self.d);
        let inside = |at: usize, channels: usize| at.saturating_add(width) <= channels;
        let inside = inside(self.at.0, cq) && inside(self.at.1, ck) && inside(self.at.2, cv);
        if b != bk || b != bv || nk != nv || !inside {
            return Err(format!(
                "expected equal batches, as many keys as values and {width} channels from {:?}, got {}, {}, {}",
                self.at,
                dims(ins[0]),
                dims(ins[1]),
                dims(ins[2])
            ));
        }
        if let Some(r) = &self.rope
            && (r.q.0.saturating_mul(r.q.1) != nq
                || r.k.0.saturating_mul(r.k.1) != nk
                || !self.d.is_multiple_of(4))
        {
            return Err(format!("expected {nq} query and {nk} key positions, got grids {:?} and {:?}", r.q, r.k));
        }
        Ok(vec![b, nq, width])
    }

    fn flops(&self, ins: &[&[usize]], out: &[usize]) -> u64 {
        super::product(&[4, out[0], out[1], out[2], ins[1][1]])
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let split = |x: &Tensor, at: usize| {
            let [b, n, c] = tokens(&x.shape).expect("inferred");
            let width = self.heads * self.d;
            let rows = x.data.chunks_exact(c).flat_map(|row| &row[at..at + width]).copied().collect();
            SplitHeads { heads: self.heads, part: 0, of: 1 }.eval(&[&Tensor::new([b, n, width], rows)], &[])
        };
        let (mut q, mut k, v) = (split(ins[0], self.at.0), split(ins[1], self.at.1), split(ins[2], self.at.2));
        if let Some(rope) = &self.rope {
            super::rope2d::rotate(&mut q, rope.q, rope.base);
            super::rope2d::rotate(&mut k, rope.k, rope.base);
        }
        let scores = MatMul { transpose_b: true }.eval(&[&q, &k], &[]);
        let weights = Softmax {}.eval(&[&super::Scale { d: self.d }.eval(&[&scores], &[])], &[]);
        MergeHeads {}.eval(&[&MatMul { transpose_b: false }.eval(&[&weights, &v], &[])], &[])
    }
}
