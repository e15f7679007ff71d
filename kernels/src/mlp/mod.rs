//! The feed-forward part of a block in one pass: hidden rows never leave the cache.

use crate::cpu::{self, Ctx};
use crate::{Call, Choice, Kernel, Site, Wanted, core_math, f32s, packed, residuals};
use ttc_ir::Op;
use ttc_ir::plan::{Order, Pack};

pub struct Mlp;

impl Kernel for Mlp {
    fn name(&self) -> &'static str {
        "mlp"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let Op::Mlp(m) = site.op else { return None };
        if !site.all(Order::RowMajor) {
            return None;
        }
        let mut exact = vec![true; site.ins.len()];
        exact[0] = m.norm.is_some();
        let consts = vec![
            Wanted::packed(0, Pack::Panels, site.math),
            Wanted::plain(1),
            Wanted::packed(2, Pack::Panels, site.math),
            Wanted::plain(3),
        ];
        Some(Choice { order: Order::RowMajor, exact, consts, why: "hidden rows stay in cache".into() })
    }

    fn scratch_bytes(&self, site: &Site) -> usize {
        let Op::Mlp(m) = site.op else { return 0 };
        cpu::mlp_scratch_bytes(site.ins[0][site.ins[0].len() - 1], m.hidden, core_math(site.math))
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let Op::Mlp(op) = call.op else { return };
        let (m, k) = call.ins[0].matrix();
        let (_, n) = call.out.matrix();
        let residual = residuals(&call, 1, n);
        cpu::mlp(
            ctx,
            cpu::Mlp {
                m,
                k,
                hidden: op.hidden,
                n,
                a: call.ins[0].rows(k),
                norm: op.norm,
                w1: packed(call.consts[0]),
                bias1: Some(f32s(call.consts[1])),
                w2: packed(call.consts[2]),
                bias2: Some(f32s(call.consts[3])),
                residual,
                out: call.out.rows(n),
            },
        );
    }
}
