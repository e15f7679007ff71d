//! Transposed convolution with kernel = stride: a product whose results are scattered.

use crate::cpu::{self, Ctx};
use crate::{Call, Choice, Kernel, Site, Wanted, core_math, f32s, packed};
use ttc_ir::Op;
use ttc_ir::plan::{Order, Pack};

pub struct ConvTranspose;

impl Kernel for ConvTranspose {
    fn name(&self) -> &'static str {
        "conv_transpose"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let Op::ConvTranspose2d(_) = site.op else { return None };
        let consts = vec![Wanted::packed(0, Pack::ConvTransposePanels, site.math), Wanted::plain(1)];
        let why = "no overlap: one product, scattered".into();
        (site.orders[0] == Order::ChannelsLast).then_some(Choice {
            order: Order::ChannelsLast,
            exact: vec![false],
            consts,
            why,
        })
    }

    fn scratch_bytes(&self, site: &Site) -> usize {
        cpu::conv_transpose_scratch_bytes(site.ins[0][1], core_math(site.math))
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let Op::ConvTranspose2d(op) = call.op else { return };
        let &[batch, cin, h, w] = call.ins[0].shape else { return };
        cpu::conv_transpose(
            ctx,
            cpu::ConvTranspose {
                batch,
                h,
                w,
                cin,
                cout: op.out,
                s: op.kernel,
                x: call.ins[0].rows(cin),
                b: packed(call.consts[0]),
                bias: Some(f32s(call.consts[1])),
                out: call.out.rows(op.out),
            },
        );
    }
}
