//! Bilinear doubling of a channels-last map with aligned corners: source = i * (in - 1) / (out - 1).
#![allow(unsafe_code)] // Operands by pointer.

use super::ctx::{Ctx, word_bytes};
use super::data::{Dst, In, Out, Src};
use super::math::{Act, act};
use super::simd::{LANES, Op, Simd, dispatch, load, store};

/// out: `[batch, 2h, 2w, c]`, x: `[batch, h, w, c]`; strides are between pixels.
pub struct Upsample2<'a> {
    pub batch: usize,
    pub h: usize,
    pub w: usize,
    pub c: usize,
    pub x: Src<'a>,
    pub out: Dst<'a>,
}

/// Scratch bytes per thread of [`upsample2`].
pub fn upsample2_scratch_bytes(w: usize, c: usize) -> usize {
    word_bytes(w * c)
}

pub fn upsample2(ctx: &mut Ctx, mut u: Upsample2) {
    let (h, w, c) = (u.h, u.w, u.c);
    let team = ctx.team(upsample2_scratch_bytes(w, c));
    let x = u.x.raw("upsample2 x", u.batch * h * w, c);
    let out = u.out.raw("upsample2 out", u.batch * 4 * h * w, c);
    if w == 0 {
        return;
    }
    team.par_for(u.batch * 2 * h, |task| {
        let (b, y) = (task / (2 * h), task % (2 * h));
        let op = DoubleRow {
            map: x.at(b * h * w, 0),
            h,
            w,
            c,
            y,
            row: team.scratch().floats(w * c),
            out: out.at(task * 2 * w, 0),
            relu: false,
        };
        // SAFETY: both maps were checked; no other task has this row.
        unsafe { dispatch(team.isa, op) };
    });
}

/// The two source indices of output `i` of `2 * n`, and the weight of the second.
#[inline(always)]
fn taps(i: usize, n: usize) -> (usize, usize, f32) {
    let (steps, per) = (i * (n - 1), 2 * n - 1);
    let from = steps / per;
    (from, (from + 1).min(n - 1), (steps % per) as f32 / per as f32)
}

/// Row `y` of the doubled map, first between two rows of the map, then between pixels of that.
pub(super) struct DoubleRow {
    /// `[h, w, c]`.
    pub map: In,
    pub h: usize,
    pub w: usize,
    pub c: usize,
    pub y: usize,
    /// `[w, c]`, scratch.
    pub row: *mut f32,
    /// `[2w, c]`.
    pub out: Out,
    pub relu: bool,
}

impl Op for DoubleRow {
    type Result = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let DoubleRow { map, h, w, c, row, out, .. } = self;
        let (y0, y1, fy) = taps(self.y, h);
        // SAFETY: passed on from the caller.
        unsafe {
            let weight = S::splat(fy);
            for x in 0..w {
                let (top, bottom) = (map.at(y0 * w + x, 0), map.at(y1 * w + x, 0));
                for i in (0..c).step_by(LANES) {
                    let n = LANES.min(c - i);
                    let (a, b) = (load::<S>(top, i, n), load::<S>(bottom, i, n));
                    let v = S::fma(S::sub(b, a), weight, a);
                    let dst = row.add(x * c + i);
                    if n == LANES { S::store(dst, v) } else { S::store_n(dst, v, n) }
                }
            }
            for x in 0..2 * w {
                let (x0, x1, fx) = taps(x, w);
                let (left, right, dst) = (row.add(x0 * c), row.add(x1 * c), out.at(x, 0));
                let weight = S::splat(fx);
                for i in (0..c).step_by(LANES) {
                    let n = LANES.min(c - i);
                    let (a, b) = if n == LANES {
                        (S::load(left.add(i)), S::load(right.add(i)))
                    } else {
                        (S::load_n(left.add(i), n), S::load_n(right.add(i), n))
                    };
                    let mut v = S::fma(S::sub(b, a), weight, a);
                    if self.relu {
                        v = act::<S>(Act::Relu, v);
                    }
                    store::<S>(dst, i, n, v);
                }
            }
        }
    }
}
