//! Moves without arithmetic: joining two tensors, cutting out a part of one.

use crate::cpu::{self, Ctx, Data, DataMut, Dst, Src};
use crate::{Call, Choice, Kernel, Site};
use ttc_ir::Op;
use ttc_ir::plan::Order;

pub struct Copy;

impl Kernel for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let one_order = site.orders.iter().all(|o| *o == site.orders[0]);
        let fits = match site.op {
            Op::Concat(_) => one_order,
            Op::Crop(_) => site.orders[0] == Order::ChannelsLast,
            _ => false,
        };
        fits.then(|| Choice {
            order: site.orders[0],
            exact: vec![false; site.ins.len()],
            consts: vec![],
            why: "one contiguous value for its reader".into(),
        })
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let mut out = call.out;
        match call.op {
            Op::Concat(op) => {
                let axis = stored_axis(op.axis, call.ins[0].shape.len(), call.ins[0].layout.order);
                let run = |shape: &[usize]| {
                    stored(shape, call.ins[0].layout.order)[axis..].iter().product::<usize>()
                };
                let (to_run, mut at) = (run(out.shape), 0);
                for value in &call.ins {
                    let from_run = run(value.shape);
                    let rows = value.shape.iter().product::<usize>() / from_run;
                    copy(ctx, rows, from_run, value.data, (0, from_run), &mut out.data, (at, to_run));
                    at += from_run;
                }
            }
            Op::Crop(op) => {
                let &[batch, c, h, w] = call.ins[0].shape else { return };
                for image in 0..batch {
                    let (from, to) = (image * h * w * c, image * op.h * op.w * c);
                    copy(ctx, op.h, op.w * c, call.ins[0].data, (from, w * c), &mut out.data, (to, op.w * c));
                }
            }
            _ => {}
        }
    }
}

/// Copies `rows` rows of `cols` elements; sides are `(first element, row stride)`.
fn copy(
    ctx: &mut Ctx,
    rows: usize,
    cols: usize,
    from: Data,
    (from_start, from_stride): (usize, usize),
    to: &mut DataMut,
    (to_start, to_stride): (usize, usize),
) {
    let data = match from {
        Data::F32(d) => Data::F32(&d[from_start..]),
        Data::Bf16(d) => Data::Bf16(&d[from_start..]),
    };
    let dst = match to {
        DataMut::F32(d) => DataMut::F32(&mut d[to_start..]),
        DataMut::Bf16(d) => DataMut::Bf16(&mut d[to_start..]),
    };
    let (src, dst) = (Src { data, stride: from_stride }, Dst { data: dst, stride: to_stride });
    cpu::activate(ctx, rows, cols, cpu::Act::None, src, dst);
}

/// The sides in the order in which they are stored.
fn stored(shape: &[usize], order: Order) -> arrayvec::ArrayVec<usize, 8> {
    match (order, shape) {
        (Order::ChannelsLast, &[b, c, h, w]) => [b, h, w, c].into_iter().collect(),
        _ => shape.iter().copied().collect(),
    }
}

/// Where a logical axis is stored.
fn stored_axis(axis: usize, rank: usize, order: Order) -> usize {
    match (order, rank, axis) {
        (Order::ChannelsLast, 4, 1) => 3,
        (Order::ChannelsLast, 4, 2 | 3) => axis - 1,
        _ => axis,
    }
}
