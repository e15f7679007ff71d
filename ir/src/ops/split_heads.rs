use super::{OpDef, tokens};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Part `part` of `of` equal parts of the channels, cut into heads: `[B, N, of·heads·d] → [B, heads, N, d]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitHeads {
    pub heads: usize,
    #[serde(default)]
    pub part: usize,
    #[serde(default = "one")]
    pub of: usize,
}

fn one() -> usize {
    1
}

impl OpDef for SplitHeads {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let [b, n, c] = tokens(ins[0])?;
        let parts = self.of.saturating_mul(self.heads);
        if self.part >= self.of || self.heads == 0 || c % parts != 0 {
            return Err(format!(
                "expected part < of and channels divisible by of·heads, got part {} of {}, {} heads, {c} channels",
                self.part, self.of, self.heads
            ));
        }
        Ok(vec![b, self.heads, n, c / self.of / self.heads])
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let [b, n, c] = tokens(&ins[0].shape).expect("inferred");
        let d = c / self.of / self.heads;
        let mut data = Vec::with_capacity(b * n * self.heads * d);
        for batch in 0..b {
            for head in 0..self.heads {
                for token in 0..n {
                    let at = (batch * n + token) * c + (self.part * self.heads + head) * d;
                    data.extend_from_slice(&ins[0].data[at..at + d]);
                }
            }
        }
        Tensor::new([b, self.heads, n, d], data)
    }
}
