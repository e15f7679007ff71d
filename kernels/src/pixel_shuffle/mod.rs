//! Channels of a cell to pixels: the last step of a linear head.

use crate::cpu::{self, Ctx};
use crate::{Call, Choice, Kernel, Site};
use ttc_ir::Op;
use ttc_ir::plan::Order;

pub struct PixelShuffle;

impl Kernel for PixelShuffle {
    fn name(&self) -> &'static str {
        "pixel_shuffle"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let Op::PixelShuffle(_) = site.op else { return None };
        let why = "a move, a row at a time".into();
        let choice = Choice { order: Order::ChannelsLast, exact: vec![true], consts: vec![], why };
        (site.orders[0] == Order::ChannelsLast).then_some(choice)
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let Op::PixelShuffle(op) = call.op else { return };
        let (&[batch, channels, h, w], &[_, c, ..]) = (call.ins[0].shape, call.out.shape) else { return };
        let (x, out) = (call.ins[0].rows(channels), call.out.rows(c));
        cpu::pixel_shuffle(ctx, cpu::PixelShuffle { batch, h, w, c, by: op.by, x, out });
    }
}
