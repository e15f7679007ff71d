use crate::graph::{Graph, Node, NodeId};
use crate::ops::attention::Rope;
use crate::ops::{Attention, Op, SplitHeads};

/// `merge(softmax(R(split q) · R(split k)ᵀ / √d) · split v) == attention(q, k, v)`, with RoPE2D `R` on both or on neither.
pub(super) fn attention(graph: &mut Graph, id: NodeId, uses: &[u32]) -> Option<Node> {
    let merge = graph.node(id);
    let Op::MergeHeads(_) = merge.op else { return None };
    let sole = |id: NodeId| (uses[id.0 as usize] == 1).then(|| graph.node(id));
    let mix = sole(merge.ins[0])?;
    let weights = sole(*mix.ins.first()?)?;
    let scores = sole(*weights.ins.first()?)?;
    let qk = sole(*scores.ins.first()?)?;
    let (Op::MatMul(pv), Op::Softmax(_), Op::Scale(scale), Op::MatMul(product)) =
        (&mix.op, &weights.op, &scores.op, &qk.op)
    else {
        return None;
    };
    let (q, q_grid) = unrope(graph, qk.ins[0]);
    let (k, k_grid) = unrope(graph, qk.ins[1]);
    let (q_src, q_split) = split(graph, q)?;
    let (k_src, k_split) = split(graph, k)?;
    let (v_src, v_split) = split(graph, mix.ins[1])?;
    let &[_, heads, _, d] = graph.shape(q) else { return None };
    let rope = match (q_grid, k_grid) {
        (None, None) => None,
        (Some((q, base)), Some((k, base_k))) if base == base_k => Some(Rope { base, q, k }),
        _ => return None,
    };
    if pv.transpose_b
        || !product.transpose_b
        || scale.d != d
        || k_split.heads != heads
        || v_split.heads != heads
        || graph.shape(mix.ins[1])[3] != d
    {
        return None;
    }
    let at = (q_split.part * heads * d, k_split.part * heads * d, v_split.part * heads * d);
    let op = Attention { heads, d, at, rope }.into();
    Some(Node { op, ins: vec![q_src, k_src, v_src], ..merge.clone() })
}

type Grid = ((usize, usize), f32);

fn unrope(graph: &Graph, id: NodeId) -> (NodeId, Option<Grid>) {
    match &graph.node(id).op {
        Op::Rope2d(r) => (graph.node(id).ins[0], Some(((r.h, r.w), r.base))),
        _ => (id, None),
    }
}

fn split(graph: &Graph, id: NodeId) -> Option<(NodeId, &SplitHeads)> {
    match &graph.node(id).op {
        Op::SplitHeads(split) => Some((graph.node(id).ins[0], split)),
        _ => None,
    }
}
