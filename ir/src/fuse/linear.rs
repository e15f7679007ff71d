use super::only_use;
use crate::graph::{Graph, Node, NodeId};
use crate::ops::{Act, Linear, Mlp, Op};
use crate::weight::Expr;
use std::collections::BTreeMap;

/// `linear(layer_norm(x)) == linear{norm}(x)` with `W' = W · diag γ`, `b' = b + W · β`.
///
/// Only where every reader of the normalised value is a linear: otherwise it must be computed anyway.
pub(super) fn fold_norm(graph: &mut Graph, id: NodeId, _: &[u32]) -> Option<Node> {
    let node = graph.node(id).clone();
    let Op::Linear(linear @ Linear { norm: None, .. }) = &node.op else { return None };
    let source = node.ins[0];
    let Op::LayerNorm(norm) = &graph.node(source).op else { return None };
    let readers = graph.nodes.iter().filter(|n| n.ins.contains(&source));
    if !readers.clone().all(|n| matches!(n.op, Op::Linear(_)) && n.ins[1..].iter().all(|&i| i != source))
        || graph.outputs.iter().any(|(_, id)| *id == source)
    {
        return None;
    }
    let op = Linear { norm: Some(norm.eps), ..linear.clone() }.into();
    let (x, affine) = (graph.node(source).ins[0], graph.node(source).weights.clone());
    let (w, bias) = (node.weights[0], node.weights[1]);
    let named = |graph: &Graph, id: crate::WeightId| graph.weights[id.0 as usize].name.clone();
    let (w_name, bias_name) = (format!("{}·γ", named(graph, w)), format!("{}+W·β", named(graph, bias)));
    let shape = graph.weights[w.0 as usize].shape.clone();
    let folded = graph.weight(w_name, shape.clone(), Expr::ScaleColumns { w, gamma: affine[0] });
    let folded_bias =
        graph.weight(bias_name, vec![shape[0]], Expr::FoldBias { w, beta: affine[1], bias: Some(bias) });
    let ins = [x].into_iter().chain(node.ins[1..].iter().copied()).collect();
    Some(Node { op, ins, weights: vec![folded, folded_bias], ..node })
}

/// `[linear_a(x) | linear_b(x)] == linear_ab(x)` with the rows of both weights, for plain linears that only attention reads:
/// it finds its part by channel offset. Joins a layer's self-attention q, k, v with the keys and values that the other
/// branch's cross-attention takes from the same stream.
pub(super) fn share_input(graph: &mut Graph) {
    let mut groups: BTreeMap<(NodeId, Option<u32>), Vec<NodeId>> = BTreeMap::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let Op::Linear(Linear { act: Act::None, residuals: 0, norm, .. }) = &node.op else { continue };
        let mut readers = graph.nodes.iter().filter(|n| n.ins.contains(&id)).peekable();
        let output = graph.outputs.iter().any(|(_, out)| *out == id);
        if !output && readers.peek().is_some() && readers.all(|n| matches!(n.op, Op::Attention(_))) {
            groups.entry((node.ins[0], norm.map(f32::to_bits))).or_default().push(id);
        }
    }
    for members in groups.into_values().filter(|m| m.len() > 1) {
        join(graph, &members);
    }
}

/// Puts one linear with all the rows in the place of the first member.
fn join(graph: &mut Graph, members: &[NodeId]) {
    let nodes: Vec<Node> = members.iter().map(|&m| graph.node(m).clone()).collect();
    let name = joined_name(&nodes);
    let outs: Vec<usize> = nodes.iter().map(|n| n.shape[n.shape.len() - 1]).collect();
    let out = outs.iter().sum();
    let mut weights = vec![];
    for part in 0..2 {
        let parts: Vec<_> = nodes.iter().map(|n| n.weights[part]).collect();
        let mut shape = graph.weights[parts[0].0 as usize].shape.clone();
        shape[0] = out;
        let suffix = ["weight", "bias"][part];
        weights.push(graph.weight(format!("{name}.{suffix}"), shape, Expr::ConcatRows(parts)));
    }
    let Op::Linear(first) = &nodes[0].op else { unreachable!("members are linears") };
    let mut shape = nodes[0].shape.clone();
    *shape.last_mut().expect("a linear has axes") = out;
    let joined =
        Node { name, op: Linear { out, ..first.clone() }.into(), weights, shape, ..nodes[0].clone() };
    let target = members[0];
    *graph.node_mut(target) = joined;
    let start = |id: NodeId| {
        let at = members.iter().position(|&m| m == id)?;
        Some(outs[..at].iter().sum::<usize>())
    };
    for node in &mut graph.nodes {
        let Op::Attention(attention) = &mut node.op else { continue };
        let at = [&mut attention.at.0, &mut attention.at.1, &mut attention.at.2];
        for (input, at) in node.ins.iter_mut().zip(at) {
            if let Some(start) = start(*input) {
                *input = target;
                *at += start;
            }
        }
    }
    // The first member's own value is now a part of a wider one.
    graph.names.retain(|_, id| !members.contains(id));
}

/// `a.qkv+b.projk+projv`: members of one module after the first go by their last part.
fn joined_name(nodes: &[Node]) -> String {
    let mut name = nodes[0].name.clone();
    for pair in nodes.windows(2) {
        let parent = |n: &Node| n.name.rsplit_once('.').map(|(p, _)| p.to_string());
        let (before, now) = (parent(&pair[0]), parent(&pair[1]));
        let short = pair[1].name.rsplit('.').next().unwrap_or_default();
        name = format!("{name}+{}", if before == now { short } else { &pair[1].name });
    }
    name
}

/// `linear₂(gelu(linear₁(x))) + r == mlp(x, r)`.
pub(super) fn mlp(graph: &mut Graph, id: NodeId, uses: &[u32]) -> Option<Node> {
    let node = graph.node(id);
    let Op::Linear(Linear { out, norm: None, act: Act::None, residuals }) = node.op else { return None };
    let first = graph.node(node.ins[0]);
    let Op::Linear(Linear { out: hidden, norm, act: Act::Gelu, residuals: 0 }) = first.op else {
        return None;
    };
    if !only_use(uses, node.ins[0]) {
        return None;
    }
    let ins = [first.ins[0]].into_iter().chain(node.ins[1..].iter().copied()).collect();
    let weights = first.weights.iter().chain(&node.weights).copied().collect();
    Some(Node { op: Mlp { hidden, out, norm, residuals }.into(), ins, weights, ..node.clone() })
}
