//! Graph to plan: fuse, choose kernels and layouts, schedule, place every value. Pure functions; each decision says why.

pub mod cost;
mod memory;
mod place;
mod select;

use ttc_ir::diag::Diag;
use ttc_ir::fuse::fuse;
use ttc_ir::plan::{Draft, Target};
use ttc_ir::{Graph, Math, Op, Plan};

/// What to compile for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    pub target: Target,
    pub math: Math,
}

/// The plan of a model graph. The schedule is the graph's topological order.
pub fn compile(graph: &Graph, options: Options) -> Result<Plan, Vec<Diag>> {
    let graph = fuse(graph.clone())?;
    let choices = select::select(&graph, options.math);
    let layouts = place::layouts(&graph, &choices, options.math);
    let (bufs, buf_of) = place::buffers(&graph, &layouts);
    let (steps, weights, consts) = place::steps(&graph, choices, &layouts, &buf_of, options.math);
    let ports = |ids: Vec<(String, ttc_ir::NodeId)>| {
        ids.into_iter().map(|(n, id)| (n, buf_of[id.0 as usize])).collect()
    };
    let mut draft = Draft {
        name: graph.name.clone(),
        source: graph.source.clone(),
        target: options.target,
        math: options.math,
        inputs: ports(graph.inputs().map(|id| (graph.node(id).name.clone(), id)).collect()),
        outputs: ports(graph.outputs.clone()),
        bufs,
        steps,
        weights,
        consts,
        arena_bytes: 0,
    };
    memory::place(&mut draft);
    draft.verify()
}

/// Values that are another value's bytes under another shape: they cost no step.
fn is_view(op: &Op) -> bool {
    matches!(op, Op::ToMap(_) | Op::ToTokens(_)) || matches!(op, Op::Slice(s) if s.axis == 0)
}
