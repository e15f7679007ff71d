//! Matrix product with weights: linears and 1x1 convolutions, with normalisation before and bias, activation and
//! residuals after.

use crate::cpu::{self, Ctx};
use crate::{Call, Choice, Kernel, Site, Wanted, act, core_math, f32s, packed, residuals};
use ttc_ir::Op;
use ttc_ir::ops::Act;
use ttc_ir::plan::{Order, Pack};

pub struct Gemm;

impl Kernel for Gemm {
    fn name(&self) -> &'static str {
        "gemm"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let (order, norm, why) = match site.op {
            Op::Linear(l) if site.all(Order::RowMajor) => (
                Order::RowMajor,
                l.norm.is_some(),
                if l.norm.is_some() { "rows normalised as they are packed" } else { "matrix product" },
            ),
            Op::Conv2d(c) if pointwise(c) && site.all(Order::ChannelsLast) => {
                (Order::ChannelsLast, false, "a 1x1 convolution is a product over pixels")
            }
            _ => return None,
        };
        let mut exact = vec![true; site.ins.len()];
        exact[0] = norm;
        let mut consts = vec![Wanted::packed(0, Pack::Panels, site.math)];
        if has_bias(site.op) {
            consts.push(Wanted::plain(1));
        }
        Some(Choice { order, exact, consts, why: why.into() })
    }

    fn scratch_bytes(&self, site: &Site) -> usize {
        cpu::gemm_scratch_bytes(inner(site), core_math(site.math))
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let (norm, activation) = match call.op {
            Op::Linear(l) => (l.norm, l.act),
            Op::Conv2d(c) => (None, c.act),
            _ => (None, Act::None),
        };
        let (m, k) = call.ins[0].matrix();
        let (_, n) = call.out.matrix();
        let residual = residuals(&call, 1, n);
        cpu::gemm(
            ctx,
            cpu::Gemm {
                m,
                n,
                k,
                a: call.ins[0].rows(k),
                norm,
                pre_relu: false,
                b: packed(call.consts[0]),
                bias: call.consts.get(1).map(|&b| f32s(b)),
                act: act(activation),
                residual,
                out: call.out.rows(n),
            },
        );
    }
}

/// A 1x1 convolution that is nothing but a product, epilogue included.
fn pointwise(c: &ttc_ir::ops::Conv2d) -> bool {
    (c.kernel, c.stride, c.pad, c.pre_relu, c.upsample, c.pointwise) == (1, 1, 0, false, false, None)
}

fn has_bias(op: &Op) -> bool {
    !matches!(op, Op::Conv2d(c) if !c.bias)
}

/// Length of the contracted dimension.
fn inner(site: &Site) -> usize {
    match site.op {
        Op::Conv2d(_) => site.ins[0][1],
        _ => site.ins[0][site.ins[0].len() - 1],
    }
}
