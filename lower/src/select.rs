//! Which kernel computes each node, and in which order its output is stored.

use crate::is_view;
use ttc_ir::plan::Order;
use ttc_ir::{Graph, Math, Op};
use ttc_kernels::{Choice, Kernel, Site};

/// A node's kernel and precision, or None for inputs and views.
pub(crate) type Selected = Option<(&'static dyn Kernel, Choice, Math)>;

/// One entry a node: how it is computed, and the order of its output.
pub(crate) fn select(graph: &Graph, math: Math) -> Vec<(Selected, Order)> {
    let mut chosen: Vec<(Selected, Order)> = vec![];
    for node in &graph.nodes {
        let orders: Vec<Order> = node.ins.iter().map(|i| chosen[i.0 as usize].1).collect();
        let entry = match &node.op {
            Op::Input(_) => (None, Order::RowMajor),
            // Tokens and a channels-last map are the same bytes.
            Op::ToMap(_) if orders[0] == Order::RowMajor => (None, Order::ChannelsLast),
            Op::ToTokens(_) if orders[0] == Order::ChannelsLast => (None, Order::RowMajor),
            op if is_view(op) && !matches!(op, Op::ToMap(_) | Op::ToTokens(_)) => (None, orders[0]),
            op => {
                let ins = graph.in_shapes(node);
                let math = precision(op, &orders, math);
                let (kernel, choice) =
                    ttc_kernels::select(&Site { op, ins: &ins, out: &node.shape, orders: &orders, math });
                let order = choice.order;
                (Some((kernel, choice, math)), order)
            }
        };
        chosen.push(entry);
    }
    chosen
}

/// Precision of one step. The patch embedding reads the images themselves: its rounding would reach everything, and
/// at a thousandth of the work f32 costs nothing.
fn precision(op: &Op, orders: &[Order], math: Math) -> Math {
    match op {
        Op::Conv2d(_) if orders[0] == Order::RowMajor => Math::F32,
        _ => math,
    }
}
