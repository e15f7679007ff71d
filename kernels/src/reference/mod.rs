//! Any op by its own definition. Slow, and the one kernel that allocates while it runs: a new op works
//! from the first day, and a plan that falls back to this says so in its `why`.

use crate::cpu::{Ctx, Data, DataMut};
use crate::{Call, Choice, Kernel, Site, Value, Wanted, f32s};
use half::bf16;
use ttc_ir::plan::Order;
use ttc_ir::{Op, Tensor};

pub struct Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let consts = (0..site.op.weights(site.ins).len()).map(Wanted::plain).collect();
        let exact = vec![true; site.ins.len()];
        Some(Choice {
            order: output_order(site),
            exact,
            consts,
            why: "no kernel for it: the op's definition".into(),
        })
    }

    fn run(&self, call: Call, _: &mut Ctx) {
        let ins: Vec<Tensor> = call.ins.iter().map(to_tensor).collect();
        let shapes: Vec<&[usize]> = ins.iter().map(|t| t.shape.as_slice()).collect();
        let wanted = call.op.weights(&shapes);
        let weights: Vec<Tensor> = wanted
            .into_iter()
            .zip(&call.consts)
            .map(|((_, shape), &c)| Tensor::new(shape, f32s(c).to_vec()))
            .collect();
        let out = call.op.eval(&ins.iter().collect::<Vec<_>>(), &weights.iter().collect::<Vec<_>>());
        let at = |i: usize| out.data[logical(i, call.out.shape, call.out.layout.order)];
        match call.out.data {
            DataMut::F32(d) => d.iter_mut().enumerate().for_each(|(i, v)| *v = at(i)),
            DataMut::Bf16(d) => d.iter_mut().enumerate().for_each(|(i, v)| *v = bf16::from_f32(at(i))),
        }
    }
}

/// Maps are stored channels-last, for the kernels that may follow; element-wise ops keep their input's order.
fn output_order(site: &Site) -> Order {
    match site.op {
        Op::Conv2d(_)
        | Op::ConvTranspose2d(_)
        | Op::Upsample(_)
        | Op::Crop(_)
        | Op::ToMap(_)
        | Op::PixelShuffle(_) => Order::ChannelsLast,
        Op::Add(_) | Op::Relu(_) | Op::Gelu(_) | Op::Concat(_) | Op::Slice(_) => site.orders[0],
        _ => Order::RowMajor,
    }
}

/// A stored value as a row-major tensor.
pub fn to_tensor(value: &Value) -> Tensor {
    let mut tensor = Tensor::zeros(value.shape);
    let at = |i: usize| match value.data {
        Data::F32(d) => d[i],
        Data::Bf16(d) => d[i].to_f32(),
    };
    for i in 0..tensor.data.len() {
        tensor.data[logical(i, value.shape, value.layout.order)] = at(i);
    }
    tensor
}

/// Row-major index of the element that is stored at `i`.
fn logical(i: usize, shape: &[usize], order: Order) -> usize {
    match (order, shape) {
        (Order::ChannelsLast, &[_, c, h, w]) => {
            let (channel, pixel) = (i % c, i / c);
            (pixel / (h * w) * c + channel) * h * w + pixel % (h * w)
        }
        _ => i,
    }
}
