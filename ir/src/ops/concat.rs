use super::OpDef;
use crate::tensor::{Tensor, dims};
use serde::{Deserialize, Serialize};

/// Two tensors one after the other along `axis`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    pub axis: usize,
}

impl OpDef for Concat {
    fn arity(&self) -> usize {
        2
    }

    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        let rest = |s: &[usize]| s.iter().enumerate().filter(|&(i, _)| i != self.axis).map(|(_, &n)| n).collect::<Vec<_>>();
        if ins[0].len() != ins[1].len() || self.axis >= ins[0].len() || rest(ins[0]) != rest(ins[1]) {
            return Err(format!(
                "expected shapes that differ along axis {} only, got {} and {}",
                self.axis,
                dims(ins[0]),
                dims(ins[1])
            ));
        }
        let mut out = ins[0].to_vec();
        out[self.axis] += ins[1][self.axis];
        Ok(out)
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        let run = |t: &Tensor| t.shape[self.axis..].iter().product::<usize>();
        let (a, b) = (ins[0].data.chunks_exact(run(ins[0])), ins[1].data.chunks_exact(run(ins[1])));
        let data = a.zip(b).flat_map(|(a, b)| a.iter().chain(b)).copied().collect();
        let mut shape = ins[0].shape.clone();
        shape[self.axis] += ins[1].shape[self.axis];
        Tensor::new(shape, data)
    }
}
