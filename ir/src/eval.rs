//! Runs a graph with the ops' reference definitions: slow, plain, the standard everything else is held to.

use crate::graph::{Graph, NodeId};
use crate::ops::Op;
use crate::tensor::Tensor;
use crate::weight::{Load, WeightId, materialise};

/// Evaluates every output. `inputs` in the order of [`Graph::inputs`]; `load(name, shape)` reads a checkpoint tensor.
pub fn eval<E>(graph: &Graph, inputs: &[Tensor], load: Load<E>) -> Result<Vec<(String, Tensor)>, E> {
    let mut values: Vec<Option<Tensor>> = vec![None; graph.nodes.len()];
    let mut left = graph.uses();
    let mut inputs = inputs.iter();
    for id in graph.ids() {
        let node = graph.node(id);
        let value = if matches!(node.op, Op::Input(_)) {
            inputs.next().expect("one tensor an input").clone()
        } else {
            let mut weight = |&w: &WeightId| {
                let shape = graph.weights[w.0 as usize].shape.clone();
                materialise(&graph.weights, w, load).map(|data| Tensor::new(shape, data))
            };
            let weights = node.weights.iter().map(&mut weight).collect::<Result<Vec<_>, E>>()?;
            let ins: Vec<&Tensor> = node.ins.iter().map(|i| value_of(&values, *i)).collect();
            node.op.eval(&ins, &weights.iter().collect::<Vec<_>>())
        };
        values[id.0 as usize] = Some(value);
        for i in &node.ins {
            left[i.0 as usize] -= 1;
            if left[i.0 as usize] == 0 {
                values[i.0 as usize] = None;
            }
        }
    }
    Ok(graph.outputs.iter().map(|(name, id)| (name.clone(), value_of(&values, *id).clone())).collect())
}

fn value_of(values: &[Option<Tensor>], id: NodeId) -> &Tensor {
    values[id.0 as usize].as_ref().expect("a value lives until its last reader has run")
}
