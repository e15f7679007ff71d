//! Flash attention on packed projections (Dao et al. 2022): scores of a block of queries stay in cache.

use crate::cpu::{self, Ctx};
use crate::{Call, Choice, Kernel, Site, Value, Wanted, core_math, f32s};
use ttc_ir::Op;
use ttc_ir::plan::Order;

pub struct Attention;

impl Kernel for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn accepts(&self, site: &Site) -> Option<Choice> {
        let Op::Attention(a) = site.op else { return None };
        if a.d % 16 != 0 || a.d > 128 {
            return None;
        }
        let table = |r: &ttc_ir::ops::attention::Rope| Wanted::RopeTable {
            base: r.base,
            positions: r.positions(),
            d: a.d / 4,
        };
        let why = if a.rope.is_some() {
            "scores stay in cache; RoPE while q and k are packed"
        } else {
            "scores stay in cache"
        };
        let consts = a.rope.iter().map(table).collect();
        Some(Choice { order: Order::RowMajor, exact: vec![false; 3], consts, why: why.into() })
    }

    fn scratch_bytes(&self, site: &Site) -> usize {
        let Op::Attention(a) = site.op else { return 0 };
        cpu::attention_scratch_bytes(a.d, site.ins[1][1], core_math(site.math))
    }

    fn run(&self, call: Call, ctx: &mut Ctx) {
        let Op::Attention(a) = call.op else { return };
        let (nq, nk) = (call.ins[0].shape[1], call.ins[1].shape[1]);
        let rope = |width: usize| {
            let (cos, sin) =
                f32s(*call.consts.first()?).split_at(call.consts.first().map_or(0, |c| f32s(*c).len() / 2));
            Some(cpu::Rope { cos, sin, width })
        };
        let (q_rope, k_rope) = match &a.rope {
            Some(r) => (rope(r.q.1), rope(r.k.1)),
            None => (None, None),
        };
        cpu::attention(
            ctx,
            cpu::Attention {
                batch: call.out.shape[0],
                heads: a.heads,
                d: a.d,
                nq,
                nk,
                q: heads(&call.ins[0], a.at.0),
                k: heads(&call.ins[1], a.at.1),
                v: heads(&call.ins[2], a.at.2),
                q_rope,
                k_rope,
                scale: ttc_ir::ops::Scale { d: a.d }.factor(),
                math: core_math(call.math),
                out: call.out.rows(a.heads * a.d),
            },
        );
    }
}

/// The heads that start at `channel` of a projection `[batch, tokens, channels]`.
fn heads<'a>(value: &Value<'a>, channel: usize) -> cpu::Heads<'a> {
    let (tokens, channels) = (value.shape[1], value.shape[2]);
    cpu::Heads { src: value.rows(channels), batch_stride: tokens * channels, offset: channel }
}
