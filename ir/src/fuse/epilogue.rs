use super::only_use;
use crate::graph::{Graph, Node, NodeId};
use crate::ops::{Act, Op};

/// Residual inputs that an epilogue adds at most: a skip and a fused path.
const MAX_RESIDUALS: usize = 2;

/// `act(linear(x)) == linear{act}(x)`, the same for a convolution; ReLU and GELU.
pub(super) fn activation(graph: &mut Graph, id: NodeId, uses: &[u32]) -> Option<Node> {
    let node = graph.node(id);
    let act = match node.op {
        Op::Relu(_) => Act::Relu,
        Op::Gelu(_) => Act::Gelu,
        _ => return None,
    };
    let producer = graph.node(node.ins[0]);
    let op = match &producer.op {
        Op::Linear(l) if l.act == Act::None && l.residuals == 0 => {
            Op::Linear(crate::ops::Linear { act, ..l.clone() })
        }
        // Patch-sized kernels have no epilogue; a GELU after a convolution occurs in no model of the family.
        Op::Conv2d(c)
            if c.act == Act::None
                && c.residuals == 0
                && c.pointwise.is_none()
                && c.kernel <= 3
                && act == Act::Relu =>
        {
            Op::Conv2d(crate::ops::Conv2d { act, ..c.clone() })
        }
        _ => return None,
    };
    only_use(uses, node.ins[0]).then(|| Node {
        op,
        ins: producer.ins.clone(),
        weights: producer.weights.clone(),
        ..node.clone()
    })
}

/// `f(x) + r == f{residual}(x, r)` for a linear, a convolution or an MLP `f`.
pub(super) fn residual(graph: &mut Graph, id: NodeId, uses: &[u32]) -> Option<Node> {
    let node = graph.node(id);
    let Op::Add(_) = node.op else { return None };
    let absorb = |producer: NodeId, other: NodeId| {
        let from = graph.node(producer);
        let mut op = from.op.clone();
        let residuals = match &mut op {
            Op::Linear(l) => &mut l.residuals,
            Op::Mlp(m) => &mut m.residuals,
            Op::Conv2d(c) if c.kernel <= 3 => &mut c.residuals,
            _ => return None,
        };
        if *residuals == MAX_RESIDUALS || !only_use(uses, producer) {
            return None;
        }
        *residuals += 1;
        let ins = from.ins.iter().copied().chain([other]).collect();
        Some(Node { op, ins, weights: from.weights.clone(), ..node.clone() })
    };
    // The later operand first: it is the branch, the earlier one the skip.
    let (early, late) = (node.ins[0].min(node.ins[1]), node.ins[0].max(node.ins[1]));
    absorb(late, early).or_else(|| absorb(early, late))
}
