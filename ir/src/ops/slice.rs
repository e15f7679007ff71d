use super::OpDef;
use crate::tensor::{Tensor, dims};
use serde::{Deserialize, Serialize};

/// Entries `start..start+len` of `axis`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    pub axis: usize,
    pub start: usize,
    pub len: usize,
}

impl OpDef for Slice {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let mut out = ins[0].to_vec();
        let end = self.start.saturating_add(self.len);
        match out.get_mut(self.axis) {
            Some(n) if end <= *n => *n = self.len,
            _ => return Err(format!("expected axis {} of at least {}, got {}", self.axis, end, dims(ins[0]))),
        }
        Ok(out)
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let mut shape = ins[0].shape.clone();
        let inner: usize = shape[self.axis + 1..].iter().product();
        let runs = ins[0].data.chunks_exact(shape[self.axis] * inner);
        let data = runs.flat_map(|run| &run[self.start * inner..(self.start + self.len) * inner]).copied().collect();
        shape[self.axis] = self.len;
        Tensor::new(shape, data)
    }
}
