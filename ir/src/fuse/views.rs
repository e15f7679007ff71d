use super::forward;
use crate::graph::{Graph, Node, NodeId};
use crate::ops::{Concat, Op, Slice};
use std::collections::HashMap;

/// `[f(a); f(b)] == f([a; b])` along the batch axis: where both views go through the same op with the same weights and have
/// the same shape, they go as one batch of two, so that each weight is read once.
///
/// Starts where the two images enter and goes on as long as all inputs are batched already; a `Slice` gives each view back to
/// whoever reads it alone.
pub(super) fn batch(graph: &mut Graph) {
    let mut by_name: HashMap<String, NodeId> =
        graph.ids().map(|id| (graph.node(id).name.clone(), id)).collect();
    let mut batched: HashMap<NodeId, (NodeId, usize)> = HashMap::new();
    // Where each node is to stand: new ones beside those that they come from.
    let mut key: Vec<u32> = graph.ids().map(|id| id.0).collect();
    let mut pairs = vec![];
    for first in graph.ids().collect::<Vec<_>>() {
        let a = graph.node(first).clone();
        let Some(base) = a.name.strip_suffix("#0") else { continue };
        let Some(&second) = by_name.get(&format!("{base}#1")) else { continue };
        let b = graph.node(second).clone();
        // With one axis only, stacking would lengthen the values instead of making them two.
        let fits = a.op == b.op
            && a.weights == b.weights
            && a.shape == b.shape
            && a.shape.len() > 1
            && !by_name.contains_key(base)
            && !matches!(a.op, Op::Input(_) | Op::Concat(_) | Op::Slice(_));
        let ins = fits.then(|| pair_up(graph, &a, &b, &mut batched, &mut by_name)).flatten();
        key.resize(graph.nodes.len(), first.0);
        let Some(ins) = ins else { continue };
        let Ok(both) = graph.push(base, a.op, ins, a.weights, a.span) else { continue };
        key.resize(graph.nodes.len(), first.0);
        by_name.insert(base.into(), both);
        batched.insert(first, (both, 0));
        batched.insert(second, (both, 1));
        pairs.push((both, [first, second]));
    }
    for (both, views) in pairs {
        for (view, id) in views.into_iter().enumerate() {
            let old = graph.node(id).clone();
            let len = old.shape[0];
            let op = Slice { axis: 0, start: view * len, len }.into();
            *graph.node_mut(id) = Node { op, ins: vec![both], weights: vec![], ..old };
            key[id.0 as usize] = views[1].0;
        }
    }
    join_views(graph);
    graph.compact_by(|id| key[id.0 as usize]);
}

/// The batched inputs of a pair: those already batched, or the two images stacked.
fn pair_up(
    graph: &mut Graph,
    a: &Node,
    b: &Node,
    batched: &mut HashMap<NodeId, (NodeId, usize)>,
    by_name: &mut HashMap<String, NodeId>,
) -> Option<Vec<NodeId>> {
    let mut ins = vec![];
    for (&i, &j) in a.ins.iter().zip(&b.ins) {
        let both = match (batched.get(&i), batched.get(&j)) {
            (Some(&(x, 0)), Some(&(y, 1))) if x == y => x,
            (None, None) if graph.inputs().any(|n| n == i) && graph.inputs().any(|n| n == j) => {
                let name = format!("{}+{}", graph.node(i).name, graph.node(j).name);
                if graph.shape(i).len() < 2 || by_name.contains_key(&name) {
                    return None;
                }
                let both = graph.push(name.clone(), Concat { axis: 0 }, vec![i, j], vec![], None).ok()?;
                // Whatever else reads the two images reads the same stack.
                batched.extend([(i, (both, 0)), (j, (both, 1))]);
                by_name.insert(name, both);
                both
            }
            _ => return None,
        };
        ins.push(both);
    }
    Some(ins)
}

/// `[slice₀(x); slice₁(x)] == x`: a tap of both views reads the batch itself.
fn join_views(graph: &mut Graph) {
    for id in graph.ids().collect::<Vec<_>>() {
        let node = graph.node(id);
        let Op::Concat(Concat { axis: 0 }) = node.op else { continue };
        let (a, b) = (graph.node(node.ins[0]), graph.node(node.ins[1]));
        let (Op::Slice(sa), Op::Slice(sb)) = (&a.op, &b.op) else { continue };
        let whole = a.ins[0];
        let halves = (sa.axis, sb.axis, sa.start, sb.start) == (0, 0, 0, sa.len)
            && sa.len + sb.len == graph.shape(whole)[0];
        if halves && a.ins == b.ins {
            forward(graph, id, whole);
        }
    }
}
