//! Layer normalisation with affine, where no product follows that could take it in.

use crate::cpu::{self, Ctx};
use crate::{Call, Choice, Kernel, Site, Wanted, f32s};
use ttc_ir::Op;
use ttc_ir::plan::Order;

pub struct LayerNorm;

impl Kernel for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let Op::LayerNorm(_) = site.op else { return None };
        let consts = vec![Wanted::plain(0), Wanted::plain(1)];
        let why = "more than linears read it, so it is computed once".into();
        (site.orders[0] == Order::RowMajor).then_some(Choice {
            order: Order::RowMajor,
            exact: vec![true],
            consts,
            why,
        })
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let Op::LayerNorm(op) = call.op else { return };
        let (rows, cols) = call.ins[0].matrix();
        let (x, out) = (call.ins[0].rows(cols), call.out.rows(cols));
        let (gamma, beta) = (Some(f32s(call.consts[0])), Some(f32s(call.consts[1])));
        cpu::layer_norm(ctx, cpu::LayerNorm { rows, cols, x, gamma, beta, eps: op.eps, out });
    }
}
