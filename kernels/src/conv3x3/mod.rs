//! 3x3 convolution as nine products over a bordered strip of rows (no im2col), with ReLU or upsampling on the way in and bias,
//! ReLU, residuals or a 1x1 convolution on the way out.

use crate::cpu::{self, Ctx};
use crate::{Call, Choice, Kernel, Site, Wanted, act, core_math, f32s, packed, residuals};
use ttc_ir::Op;
use ttc_ir::ops::{Act, Conv2d};
use ttc_ir::plan::{Order, Pack};

pub struct Conv3x3;

impl Kernel for Conv3x3 {
    fn name(&self) -> &'static str {
        "conv3x3"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let Op::Conv2d(c) = site.op else { return None };
        let fits = c.kernel == 3 && c.pad == 1 && (c.stride == 1 || c.stride == 2) && c.act != Act::Gelu;
        let beyond = (c.pre_relu && c.upsample) || (c.pointwise.is_some() && c.residuals > 0);
        if !fits || beyond || !site.all(Order::ChannelsLast) {
            return None;
        }
        let mut exact = vec![true; site.ins.len()];
        exact[0] = false;
        let mut consts = vec![Wanted::packed(0, Pack::Conv3x3Panels, site.math)];
        consts.extend((1..site.op.weights(site.ins).len()).map(Wanted::plain));
        let why = match (c.upsample, c.pointwise) {
            (true, Some(_)) => "strips of the doubled map in cache; the 1x1 after it too",
            (true, None) => "strips of the doubled map in cache",
            _ => "nine products over strips in cache",
        };
        Some(Choice { order: Order::ChannelsLast, exact, consts, why: why.into() })
    }

    fn scratch_bytes(&self, site: &Site) -> usize {
        let Op::Conv2d(c) = site.op else { return 0 };
        cpu::conv3x3_scratch_bytes(&shape(c, site.ins[0]), core_math(site.math), c.pointwise.unwrap_or(0))
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let Op::Conv2d(c) = call.op else { return };
        let shape = shape(c, call.ins[0].shape);
        let (_, n) = call.out.matrix();
        let after_bias = 1 + usize::from(c.bias);
        let pointwise = c.pointwise.map(|n| cpu::Pointwise {
            n,
            w: f32s(call.consts[after_bias]),
            bias: Some(f32s(call.consts[after_bias + 1])),
        });
        let residual = residuals(&call, 1, n);
        cpu::conv3x3(
            ctx,
            cpu::Conv3x3 {
                shape,
                pre_relu: c.pre_relu,
                x: call.ins[0].rows(shape.cin),
                b: packed(call.consts[0]),
                bias: c.bias.then(|| f32s(call.consts[1])),
                act: act(c.act),
                residual,
                pointwise,
                out: call.out.rows(n),
            },
        );
    }
}

fn shape(c: &Conv2d, x: &[usize]) -> cpu::ConvShape {
    cpu::ConvShape {
        batch: x[0],
        h: x[2],
        w: x[3],
        cin: x[1],
        cout: c.out,
        stride: c.stride,
        upsample2: c.upsample,
    }
}
