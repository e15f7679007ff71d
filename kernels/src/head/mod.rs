//! The last step of a head: pointmap, confidence and descriptors from raw channels, in f32.

use crate::cpu::{self, Ctx};
use crate::{Call, Choice, Kernel, Site};
use ttc_ir::Op;
use ttc_ir::plan::Order;

pub struct Points;

impl Kernel for Points {
    fn name(&self) -> &'static str {
        "points"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        matches!(site.op, Op::Points(_)).then(|| last_step(site)).flatten()
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let (pixels, channels) = call.ins[0].matrix();
        cpu::points(ctx, pixels, call.ins[0].rows(channels), call.out.rows(3));
    }
}

pub struct Confidence;

impl Kernel for Confidence {
    fn name(&self) -> &'static str {
        "confidence"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        matches!(site.op, Op::Confidence(_)).then(|| last_step(site)).flatten()
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let Op::Confidence(op) = call.op else { return };
        let (pixels, channels) = call.ins[0].matrix();
        cpu::confidence(ctx, pixels, op.channel, op.floor, call.ins[0].rows(channels), call.out.rows(1));
    }
}

pub struct Descriptors;

impl Kernel for Descriptors {
    fn name(&self) -> &'static str {
        "descriptors"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        matches!(site.op, Op::Descriptors(_)).then(|| last_step(site)).flatten()
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let Op::Descriptors(op) = call.op else { return };
        let (pixels, channels) = call.ins[0].matrix();
        cpu::descriptors(ctx, pixels, op.start, op.len, call.ins[0].rows(channels), call.out.rows(op.len));
    }
}

fn last_step(site: &Site) -> Option<Choice> {
    let choice = Choice {
        order: Order::RowMajor,
        exact: vec![true],
        consts: vec![],
        why: "exponentials and norms in f32".into(),
    };
    (site.orders[0] == Order::ChannelsLast).then_some(choice)
}
