use super::OpDef;
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Heads side by side in the channels: `[B, heads, N, d] → [B, N, heads·d]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergeHeads {}

impl OpDef for MergeHeads {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let &[b, heads, n, d] = ins[0] else { return Err("expected [batch, head, token, channel]".into()) };
        Ok(vec![b, n, heads * d])
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let &[b, heads, n, d] = &ins[0].shape[..] else { unreachable!("inferred") };
        let mut out = Tensor::zeros([b, n, heads * d]);
        for batch in 0..b {
            for head in 0..heads {
                for token in 0..n {
                    let from = ((batch * heads + head) * n + token) * d;
                    let to = (batch * n + token) * heads * d + head * d;
                    out.data[to..to + d].copy_from_slice(&ins[0].data[from..from + d]);
                }
            }
        }
        out
    }
}
