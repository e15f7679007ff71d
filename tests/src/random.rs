//! Random graphs: chains, skips, views, weights and several outputs, small enough to evaluate by definition.

use ttc_ir::graph::NodeId;
use ttc_ir::ops::{
    Add, Concat, Conv2d, Gelu, Input, LayerNorm, Linear, Relu, Slice, Softmax, ToMap, ToTokens, Upsample,
};
use ttc_ir::{Expr, Graph, Op, Tensor};

/// Values larger than this are not made: joining and upsampling would grow without bound.
const MAX_ELEMENTS: usize = 4096;

/// A graph over tokens and a map. Each choice is an op and its inputs among the values so far; one that does not fit is
/// left out. The last `outputs` values are the outputs.
pub fn graph(choices: &[(u8, u8, u8)], outputs: usize) -> Graph {
    let mut graph = Graph { name: "random".into(), ..Graph::default() };
    // A map that comes from the caller is row-major, unlike every map that a kernel makes.
    for (name, shape) in [("tokens", vec![2, 12, 8]), ("map", vec![2, 8, 3, 4])] {
        graph.push(name, Input { shape }, vec![], vec![], None).expect("inputs fit");
    }
    for (at, &(op, a, b)) in choices.iter().enumerate() {
        let pick = |n: u8| NodeId(u32::from(n) % graph.nodes.len() as u32);
        let (x, y) = (pick(a), pick(b));
        let op = pick_op(op, graph.shape(x));
        let ins = if op.arity() == 2 { vec![x, y] } else { vec![x] };
        let shapes: Vec<&[usize]> = ins.iter().map(|&i| graph.shape(i)).collect();
        if op.infer(&shapes).is_ok_and(|out| out.iter().product::<usize>() <= MAX_ELEMENTS) {
            push(&mut graph, format!("n{at}"), op, ins).expect("it was inferred");
        }
    }
    let last = graph.nodes.len() as u32;
    let output = |i: u32| (format!("out{i}"), NodeId(last - 1 - i.min(last - 1)));
    graph.outputs = (0..outputs as u32).map(output).collect();
    graph
}

/// Appends a node with the weights that its op asks for, named after it.
pub fn push(graph: &mut Graph, name: String, op: Op, ins: Vec<NodeId>) -> Result<NodeId, String> {
    let shapes: Vec<&[usize]> = ins.iter().map(|&i| graph.shape(i)).collect();
    op.infer(&shapes)?;
    let wanted = op.weights(&shapes);
    let weight = |(suffix, shape)| graph.weight(format!("{name}.{suffix}"), shape, Expr::Load);
    let weights = wanted.into_iter().map(weight).collect();
    graph.push(name, op, ins, weights, None)
}

fn pick_op(choice: u8, x: &[usize]) -> Op {
    match choice % 14 {
        0 => Relu {}.into(),
        1 => Gelu {}.into(),
        2 => Softmax {}.into(),
        3 => Slice { axis: 0, start: x[0] - 1, len: 1 }.into(),
        4 => ToMap { h: 3, w: 4 }.into(),
        5 => ToTokens {}.into(),
        6 => Concat { axis: 0 }.into(),
        7 => Upsample { by: 2 }.into(),
        8 => LayerNorm { eps: 1e-2 }.into(),
        // As wide as its input, so that skips fit.
        9 => Linear { out: x[x.len() - 1], norm: None, act: Default::default(), residuals: 0 }.into(),
        10 => Conv2d::new(8, 3, 1, 1).into(),
        11 => Conv2d::new(8, 1, 1, 0).into(),
        _ => Add {}.into(),
    }
}

/// Values for the inputs of [`graph`].
pub fn inputs(graph: &Graph) -> Vec<Tensor> {
    let tensor = |shape: &[usize]| {
        let data = (0..shape.iter().product()).map(|i| (i as f32 * 0.37).sin()).collect();
        Tensor::new(shape, data)
    };
    graph.inputs().map(|id| tensor(graph.shape(id))).collect()
}
