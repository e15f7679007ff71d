//! Rewrites of the graph that are exact in real arithmetic, each a small function with its law above it.
//!
//! A rule looks at one node and returns what to put in its place; it reads only values that already come earlier, so no
//! order changes. What a rewrite makes useless is dropped by [`Graph::compact`]. A value that something else
//! reads too (a tap, say) stays computed by its own node beside the fused one.

mod attention;
mod conv;
mod epilogue;
mod linear;
mod views;

use crate::diag::Diag;
use crate::graph::{Graph, Node, NodeId};

/// A local rewrite: the node to put at `id`. `uses` counts the readers of every node.
type Rule = fn(graph: &mut Graph, id: NodeId, uses: &[u32]) -> Option<Node>;

/// How a pass goes about it.
enum Pass {
    /// A rule tried at every node until it applies nowhere.
    Local(Rule),
    /// A function over the whole graph.
    Whole(fn(&mut Graph)),
}

/// Every pass in the order in which they run.
const PASSES: &[(&str, Pass)] = &[
    ("drop crops", Pass::Whole(conv::drop_crops)),
    ("attention", Pass::Local(attention::attention)),
    ("batch the views", Pass::Whole(views::batch)),
    ("pointwise before upsample", Pass::Whole(conv::pointwise_before_upsample)),
    ("activation epilogue", Pass::Local(epilogue::activation)),
    ("relu prologue", Pass::Local(conv::relu_prologue)),
    ("residual epilogue", Pass::Local(epilogue::residual)),
    ("fold norm", Pass::Local(linear::fold_norm)),
    ("share input", Pass::Whole(linear::share_input)),
    ("mlp", Pass::Local(linear::mlp)),
    ("upsample prologue", Pass::Local(conv::upsample_prologue)),
    ("pointwise epilogue", Pass::Local(conv::pointwise_epilogue)),
];

/// Runs every pass; after each the graph is verified.
pub fn fuse(mut graph: Graph) -> Result<Graph, Vec<Diag>> {
    graph.compact();
    for (name, pass) in PASSES {
        match pass {
            Pass::Local(rule) => to_fixed_point(&mut graph, *rule),
            Pass::Whole(run) => {
                run(&mut graph);
                graph.compact();
            }
        }
        graph.verify().map_err(|problems| {
            problems
                .into_iter()
                .map(|d| Diag { what: format!("after pass `{name}`: {}", d.what), ..d })
                .collect::<Vec<_>>()
        })?;
    }
    Ok(graph)
}

fn to_fixed_point(graph: &mut Graph, rule: Rule) {
    loop {
        let uses = graph.uses();
        let mut changed = false;
        for id in graph.ids() {
            if let Some(node) = rule(graph, id, &uses) {
                *graph.node_mut(id) = node;
                changed = true;
            }
        }
        if !changed {
            return;
        }
        graph.compact();
    }
}

/// Makes every reader of `from` read `to`.
fn forward(graph: &mut Graph, from: NodeId, to: NodeId) {
    let ins = graph.nodes.iter_mut().flat_map(|n| &mut n.ins);
    let outputs = graph.outputs.iter_mut().map(|(_, id)| id);
    ins.chain(outputs).chain(graph.names.values_mut()).filter(|id| **id == from).for_each(|id| *id = to);
}

/// A node that nothing but the reader at hand reads.
fn only_use(uses: &[u32], id: NodeId) -> bool {
    uses[id.0 as usize] == 1
}
