use super::{forward, only_use};
use crate::graph::{Graph, Node, NodeId};
use crate::ops::{Act, Conv2d, Op, Upsample};

/// `conv₁ₓ₁(upsample(x)) == upsample(conv₁ₓ₁(x))`: the bilinear weights of a pixel sum to 1, so they commute with
/// an affine map of the channels. A quarter of the pixels to convolve.
pub(super) fn pointwise_before_upsample(graph: &mut Graph) {
    let uses = graph.uses();
    for id in graph.ids() {
        let node = graph.node(id).clone();
        let Op::Conv2d(conv) = &node.op else { continue };
        let up = graph.node(node.ins[0]).clone();
        let Op::Upsample(Upsample { by }) = up.op else { continue };
        if !conv.is_pointwise() || !only_use(&uses, node.ins[0]) {
            continue;
        }
        // The two trade places: the upsampling takes the convolution's name, for it now makes that value.
        let source = up.ins[0];
        let mut shape = graph.shape(source).to_vec();
        shape[1] = conv.out;
        let name = format!("{}.before_upsample", node.name);
        *graph.node_mut(node.ins[0]) = Node { name, ins: vec![source], shape, ..node.clone() };
        graph.names.retain(|_, of| *of != node.ins[0]);
        let ins = vec![node.ins[0]];
        *graph.node_mut(id) = Node { op: Upsample { by }.into(), ins, weights: vec![], ..node };
    }
}

/// `conv₃ₓ₃(relu(x)) == conv₃ₓ₃{pre_relu}(x)`. The skip of a residual unit takes `x` before the ReLU.
pub(super) fn relu_prologue(graph: &mut Graph, id: NodeId, _: &[u32]) -> Option<Node> {
    let node = graph.node(id);
    let Op::Conv2d(conv @ Conv2d { kernel: 3, pre_relu: false, upsample: false, .. }) = &node.op else {
        return None;
    };
    let relu = graph.node(node.ins[0]);
    let Op::Relu(_) = relu.op else { return None };
    let ins = [relu.ins[0]].into_iter().chain(node.ins[1..].iter().copied()).collect();
    Some(Node { op: Conv2d { pre_relu: true, ..conv.clone() }.into(), ins, ..node.clone() })
}

/// `conv₃ₓ₃(upsample₂(x)) == conv₃ₓ₃{upsample}(x)`: the large map is made a few rows at a time.
pub(super) fn upsample_prologue(graph: &mut Graph, id: NodeId, uses: &[u32]) -> Option<Node> {
    let node = graph.node(id);
    let Op::Conv2d(conv @ Conv2d { kernel: 3, stride: 1, pre_relu: false, upsample: false, .. }) = &node.op
    else {
        return None;
    };
    let up = graph.node(node.ins[0]);
    let Op::Upsample(Upsample { by: 2 }) = up.op else { return None };
    let ins = [up.ins[0]].into_iter().chain(node.ins[1..].iter().copied()).collect();
    only_use(uses, node.ins[0]).then(|| Node {
        op: Conv2d { upsample: true, ..conv.clone() }.into(),
        ins,
        ..node.clone()
    })
}

/// Output channels up to which a following 1x1 convolution is an epilogue: the point of it is not to write the wide map.
const MAX_POINTWISE: usize = 8;

/// `conv₁ₓ₁(act(conv₃ₓ₃(x))) == conv₃ₓ₃{act, pointwise}(x)`, for few output channels.
pub(super) fn pointwise_epilogue(graph: &mut Graph, id: NodeId, uses: &[u32]) -> Option<Node> {
    let node = graph.node(id);
    let Op::Conv2d(last) = &node.op else { return None };
    let wide = graph.node(node.ins[0]);
    let Op::Conv2d(conv @ Conv2d { kernel: 3, stride: 1, pointwise: None, residuals: 0, .. }) = &wide.op
    else {
        return None;
    };
    if !last.is_pointwise()
        || !last.bias
        || last.out > MAX_POINTWISE
        || conv.act == Act::Gelu
        || !only_use(uses, node.ins[0])
    {
        return None;
    }
    let op = Conv2d { pointwise: Some(last.out), ..conv.clone() }.into();
    let weights = wide.weights.iter().chain(&node.weights).copied().collect();
    Some(Node { op, ins: wide.ins.clone(), weights, ..node.clone() })
}

/// `crop(x) == x` where the sizes agree: even grids need no crop.
pub(super) fn drop_crops(graph: &mut Graph) {
    for id in graph.ids().collect::<Vec<_>>() {
        let node = graph.node(id);
        if matches!(node.op, Op::Crop(_)) && node.shape == graph.shape(node.ins[0]) {
            let source = node.ins[0];
            forward(graph, id, source);
        }
    }
}
