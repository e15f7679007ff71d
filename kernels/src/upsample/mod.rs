//! Bilinear upsampling by two with aligned corners.

use crate::cpu::{self, Ctx};
use crate::{Call, Choice, Kernel, Site};
use ttc_ir::Op;
use ttc_ir::plan::Order;

pub struct Upsample;

impl Kernel for Upsample {
    fn name(&self) -> &'static str {
        "upsample2"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let Op::Upsample(ttc_ir::ops::Upsample { by: 2 }) = site.op else { return None };
        let choice = Choice {
            order: Order::ChannelsLast,
            exact: vec![false],
            consts: vec![],
            why: "a row at a time".into(),
        };
        (site.orders[0] == Order::ChannelsLast).then_some(choice)
    }

    fn scratch_bytes(&self, site: &Site) -> usize {
        cpu::upsample2_scratch_bytes(site.ins[0][3], site.ins[0][1])
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let &[batch, c, h, w] = call.ins[0].shape else { return };
        let (x, out) = (call.ins[0].rows(c), call.out.rows(c));
        cpu::upsample2(ctx, cpu::Upsample2 { batch, h, w, c, x, out });
    }
}
