//! Element-wise ops that no epilogue took in.

use crate::cpu::{self, Ctx};
use crate::{Call, Choice, Kernel, Site};
use ttc_ir::Op;

pub struct Eltwise;

impl Kernel for Eltwise {
    fn name(&self) -> &'static str {
        "eltwise"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let supported = matches!(site.op, Op::Add(_) | Op::Relu(_) | Op::Gelu(_));
        let one_order = site.orders.iter().all(|o| *o == site.orders[0]);
        (supported && one_order).then(|| Choice {
            order: site.orders[0],
            exact: vec![true; site.ins.len()],
            consts: vec![],
            why: "no product before it that could take it in".into(),
        })
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let (rows, cols) = call.ins[0].matrix();
        let x = call.ins[0].rows(cols);
        let y = call.ins.get(1).map(|v| v.rows(cols));
        let out = call.out.rows(cols);
        match (call.op, y) {
            (Op::Add(_), Some(y)) => cpu::add(ctx, rows, cols, x, y, out),
            (Op::Relu(_), _) => cpu::relu(ctx, rows, cols, x, out),
            _ => cpu::gelu(ctx, rows, cols, x, out),
        }
    }
}
