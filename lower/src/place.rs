//! Layouts of all values, their buffers, and the steps that connect them.

use crate::select::Selected;
use std::collections::HashMap;
use ttc_ir::plan::{Buf, BufId, Const, ConstId, Layout, Order, Pack, Step};
use ttc_ir::tensor::DType;
use ttc_ir::weight::{Expr, Weight, WeightId};
use ttc_ir::{Graph, Math, Op};
use ttc_kernels::Wanted;

/// A value's layout and the reason for its element type.
pub(crate) struct Placed {
    pub layout: Layout,
    pub why: &'static str,
}

/// Element types: a value that is only an operand of products is stored as one; what is added, normalised or given to the
/// caller keeps f32, for rounding would accumulate there.
pub(crate) fn layouts(graph: &Graph, choices: &[(Selected, Order)], math: Math) -> Vec<Placed> {
    let mut exact: Vec<bool> = vec![false; graph.nodes.len()];
    graph.inputs().for_each(|id| exact[id.0 as usize] = true);
    graph.outputs.iter().for_each(|(_, id)| exact[id.0 as usize] = true);
    // Backwards, so that what a view's readers want is known when its source is reached.
    for id in graph.ids().collect::<Vec<_>>().into_iter().rev() {
        for (input, &source) in graph.node(id).ins.iter().enumerate() {
            exact[source.0 as usize] |= match &choices[id.0 as usize].0 {
                Some((_, choice, step)) => choice.exact[input] || *step == Math::F32,
                None => exact[id.0 as usize],
            };
        }
    }
    // Forwards, so that a view has the type of its source.
    let mut placed: Vec<Placed> = vec![];
    for id in graph.ids() {
        let at = id.0 as usize;
        let view_of = graph.node(id).ins.first().filter(|_| choices[at].0.is_none());
        let dtype = match view_of {
            Some(source) => placed[source.0 as usize].layout.dtype,
            None if exact[at] => DType::F32,
            None => math.operand(),
        };
        let why = match (math, dtype) {
            (Math::F32, _) => "",
            (_, DType::F32) => "; kept f32: added, normalised or an output",
            _ => "; stored bf16: only products read it",
        };
        placed.push(Placed { layout: Layout { order: choices[at].1, dtype }, why });
    }
    placed
}

/// One buffer a node. A view's `offset` is relative to its owner until memory is placed.
pub(crate) fn buffers(graph: &Graph, layouts: &[Placed]) -> (Vec<Buf>, Vec<BufId>) {
    let mut bufs: Vec<Buf> = vec![];
    for id in graph.ids() {
        let node = graph.node(id);
        let layout = layouts[id.0 as usize].layout;
        let view = crate::is_view(&node.op) && layouts[node.ins[0].0 as usize].layout.dtype == layout.dtype;
        let same_bytes = view
            && (matches!(node.op, Op::Slice(_))
                || layouts[node.ins[0].0 as usize].layout.order != layout.order);
        let (of, offset) = match (&node.op, same_bytes) {
            (_, false) => (None, 0),
            (op, true) => {
                let source = node.ins[0].0 as usize;
                let start = match op {
                    Op::Slice(slice) => {
                        slice.start * node.shape[1..].iter().product::<usize>() * layout.dtype.bytes()
                    }
                    _ => 0,
                };
                let before = if bufs[source].of.is_some() { bufs[source].offset } else { 0 };
                (Some(bufs[source].of.unwrap_or(BufId(source as u32))), before + start as u64)
            }
        };
        bufs.push(Buf { name: node.name.clone(), shape: node.shape.clone(), layout, offset, of });
    }
    let ids = (0..bufs.len() as u32).map(BufId).collect();
    (bufs, ids)
}

/// The schedule, with the weights and packed constants that it reads.
pub(crate) fn steps(
    graph: &Graph,
    choices: Vec<(Selected, Order)>,
    layouts: &[Placed],
    buf_of: &[BufId],
    plan_math: Math,
) -> (Vec<Step>, Vec<Weight>, Vec<Const>) {
    let mut weights = graph.weights.clone();
    let mut consts: Vec<Const> = vec![];
    let mut known: HashMap<(WeightId, Pack, DType), ConstId> = HashMap::new();
    let mut steps = vec![];
    for (id, (selected, _)) in graph.ids().zip(choices) {
        let Some((kernel, choice, math)) = selected else { continue };
        let node = graph.node(id);
        let mut ids = vec![];
        for wanted in &choice.consts {
            let (weight, pack, dtype) = match *wanted {
                Wanted::Weight { index, pack, dtype } => (node.weights[index], pack, dtype),
                Wanted::RopeTable { base, positions, d } => {
                    (rope_table(&mut weights, base, positions, d), Pack::RowMajor, DType::F32)
                }
            };
            let next = ConstId(consts.len() as u32);
            ids.push(*known.entry((weight, pack, dtype)).or_insert_with(|| {
                consts.push(Const { weight, pack, dtype });
                next
            }));
        }
        steps.push(Step {
            name: node.name.clone(),
            kernel: kernel.name().to_string(),
            op: node.op.clone(),
            ins: node.ins.iter().map(|i| buf_of[i.0 as usize]).collect(),
            out: buf_of[id.0 as usize],
            consts: ids,
            math,
            why: format!("{}{}{}", choice.why, layouts[id.0 as usize].why, precision_why(math, plan_math)),
        });
    }
    (steps, weights, consts)
}

fn precision_why(step: Math, plan: Math) -> &'static str {
    if step == plan { "" } else { "; f32 products: little work, and its rounding would reach everything" }
}

fn rope_table(weights: &mut Vec<Weight>, base: f32, positions: usize, d: usize) -> WeightId {
    let table = Weight {
        name: format!("rope {positions}x{d} base {base}"),
        shape: vec![2, positions, d],
        expr: Expr::RopeTable { base, d },
    };
    let at = weights.iter().position(|w| *w == table).unwrap_or_else(|| {
        weights.push(table);
        weights.len() - 1
    });
    WeightId(at as u32)
}
