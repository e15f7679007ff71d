//! The patch embedding: a convolution with kernel = stride over the image as it comes, row-major.

use crate::cpu::{self, Ctx};
use crate::{Call, Choice, Kernel, Site, Wanted, core_math, f32s, packed};
use ttc_ir::Op;
use ttc_ir::ops::Conv2d;
use ttc_ir::plan::{Order, Pack};

pub struct PatchEmbed;

impl Kernel for PatchEmbed {
    fn name(&self) -> &'static str {
        "patch_embed"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let Op::Conv2d(c) = site.op else { return None };
        let plain = *c == Conv2d::new(c.out, c.kernel, c.kernel, 0);
        let whole = site.ins[0][2].is_multiple_of(c.kernel) && site.ins[0][3].is_multiple_of(c.kernel);
        if !plain || !whole || site.orders[0] != Order::RowMajor {
            return None;
        }
        let consts = vec![Wanted::packed(0, Pack::Panels, site.math), Wanted::plain(1)];
        Some(Choice {
            order: Order::ChannelsLast,
            exact: vec![true],
            consts,
            why: "patches gathered as they are packed".into(),
        })
    }

    fn scratch_bytes(&self, site: &Site) -> usize {
        let Op::Conv2d(c) = site.op else { return 0 };
        cpu::patch_embed_scratch_bytes(site.ins[0][1], c.kernel, core_math(site.math))
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let Op::Conv2d(c) = call.op else { return };
        let &[batch, channels, h, w] = call.ins[0].shape else { return };
        cpu::patch_embed(
            ctx,
            cpu::PatchEmbed {
                batch,
                channels,
                h,
                w,
                p: c.kernel,
                n: c.out,
                image: call.ins[0].f32(),
                b: packed(call.consts[0]),
                bias: Some(f32s(call.consts[1])),
                out: call.out.rows(c.out),
            },
        );
    }
}
