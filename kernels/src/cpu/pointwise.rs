//! Row-wise and element-wise functions that no product absorbs.
#![allow(unsafe_code)] // Operands by pointer.

use half::bf16;

use super::ctx::Ctx;
use super::data::{Dst, In, Out, Src};
use super::gemm::bias_ptr;
use super::math::{Act, act};
use super::rows::moments;
use super::simd::{LANES, Op, Simd, dispatch, load, store};

/// Elements that are worth a task of their own.
const GRAIN: usize = 1 << 14;

/// out = (x - mean) / sqrt(var + eps) * gamma + beta, row by row. x, out: `[rows, cols]`.
pub struct LayerNorm<'a> {
    pub rows: usize,
    pub cols: usize,
    pub x: Src<'a>,
    /// `[cols]`, default 1.
    pub gamma: Option<&'a [f32]>,
    /// `[cols]`, default 0.
    pub beta: Option<&'a [f32]>,
    pub eps: f32,
    pub out: Dst<'a>,
}

pub fn layer_norm(ctx: &mut Ctx, mut g: LayerNorm) {
    let (rows, cols) = (g.rows, g.cols);
    let (x, out) = (g.x.raw("layer_norm x", rows, cols), g.out.raw("layer_norm out", rows, cols));
    let affine = Affine { gamma: bias_ptr(g.gamma, cols), beta: bias_ptr(g.beta, cols), eps: g.eps };
    each_rows(ctx, rows, cols, |team_isa, lo, hi| {
        let op = Rows {
            x: x.at(lo, 0),
            y: None,
            out: out.at(lo, 0),
            rows: hi - lo,
            cols,
            norm: Some(&affine),
            act: Act::None,
        };
        // SAFETY: operands were checked for all rows; no other task has these.
        unsafe { dispatch(team_isa, op) }
    });
}

/// out = a + b. All `[rows, cols]`.
pub fn add(ctx: &mut Ctx, rows: usize, cols: usize, a: Src, b: Src, mut out: Dst) {
    let (x, y, out) =
        (a.raw("add a", rows, cols), b.raw("add b", rows, cols), out.raw("add out", rows, cols));
    each_rows(ctx, rows, cols, |isa, lo, hi| {
        let op = Rows {
            x: x.at(lo, 0),
            y: Some(y.at(lo, 0)),
            out: out.at(lo, 0),
            rows: hi - lo,
            cols,
            norm: None,
            act: Act::None,
        };
        // SAFETY: operands were checked for all rows; no other task has these.
        unsafe { dispatch(isa, op) }
    });
}

/// out = act(x), also a plain conversion or copy. Both `[rows, cols]`.
pub fn activate(ctx: &mut Ctx, rows: usize, cols: usize, act: Act, x: Src, mut out: Dst) {
    let (x, out) = (x.raw("activate x", rows, cols), out.raw("activate out", rows, cols));
    each_rows(ctx, rows, cols, |isa, lo, hi| {
        let op = Rows { x: x.at(lo, 0), y: None, out: out.at(lo, 0), rows: hi - lo, cols, norm: None, act };
        // SAFETY: operands were checked for all rows; no other task has these.
        unsafe { dispatch(isa, op) }
    });
}

/// out = max(x, 0). Both `[rows, cols]`.
pub fn relu(ctx: &mut Ctx, rows: usize, cols: usize, x: Src, out: Dst) {
    activate(ctx, rows, cols, Act::Relu, x, out);
}

/// out = x/2 * (1 + erf(x / sqrt 2)). Both `[rows, cols]`.
pub fn gelu(ctx: &mut Ctx, rows: usize, cols: usize, x: Src, out: Dst) {
    activate(ctx, rows, cols, Act::Gelu, x, out);
}

/// out `[n, 3]` from the first three channels v of x `[n, ..]`: with d = |v|, v / max(d, 1e-8) * expm1(d).
pub fn points(ctx: &mut Ctx, n: usize, x: Src, mut out: Dst) {
    let (x, out) = (x.raw("points x", n, 3), out.raw("points out", n, 3));
    each_rows(ctx, n, 64, |_, lo, hi| {
        for i in lo..hi {
            // SAFETY: both were checked for three channels of all rows; no other task has this row.
            let v = [0, 1, 2].map(|c| unsafe { get(x, i, c) });
            let d = (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]).sqrt();
            let by = d.exp_m1() / d.max(1e-8);
            for (c, v) in v.into_iter().enumerate() {
                // SAFETY: as above.
                unsafe { set(out, i, c, v * by) };
            }
        }
    });
}

/// out `[n, 1]` = floor + exp(x) of one channel of x `[n, ..]`.
pub fn confidence(ctx: &mut Ctx, n: usize, channel: usize, floor: f32, x: Src, mut out: Dst) {
    let (x, out) = (x.raw("confidence x", n, channel + 1), out.raw("confidence out", n, 1));
    each_rows(ctx, n, 32, |_, lo, hi| {
        for i in lo..hi {
            // SAFETY: both were checked for all rows; no other task has this row.
            unsafe { set(out, i, 0, floor + get(x, i, channel).exp()) };
        }
    });
}

/// out `[n, len]`: channels `start..start + len` of x `[n, ..]` divided by their Euclidean norm; zero stays zero.
pub fn descriptors(ctx: &mut Ctx, n: usize, start: usize, len: usize, x: Src, mut out: Dst) {
    let (x, out) = (x.raw("descriptors x", n, start + len), out.raw("descriptors out", n, len));
    each_rows(ctx, n, len, |_, lo, hi| {
        for i in lo..hi {
            // SAFETY: both were checked for all rows; no other task has this row.
            let squares: f32 = (0..len).map(|c| unsafe { get(x, i, start + c) }.powi(2)).sum();
            let by = 1.0 / squares.sqrt().max(1e-12);
            for c in 0..len {
                // SAFETY: as above.
                unsafe { set(out, i, c, get(x, i, start + c) * by) };
            }
        }
    });
}

fn each_rows(ctx: &mut Ctx, rows: usize, cols: usize, f: impl Fn(super::Isa, usize, usize) + Sync) {
    let team = ctx.team(0);
    team.par_ranges(rows, GRAIN / cols.max(1), |lo, hi| f(team.isa, lo, hi));
}

pub(super) unsafe fn get(x: In, row: usize, col: usize) -> f32 {
    let at = x.at(row, col);
    // SAFETY: passed on from the caller.
    unsafe { if x.bf16 { at.ptr.cast::<bf16>().read().to_f32() } else { at.ptr.cast::<f32>().read() } }
}

pub(super) unsafe fn set(out: Out, row: usize, col: usize, v: f32) {
    let at = out.at(row, col);
    // SAFETY: passed on from the caller.
    unsafe {
        if out.bf16 { at.ptr.cast::<bf16>().write(bf16::from_f32(v)) } else { at.ptr.cast::<f32>().write(v) }
    }
}

struct Affine {
    gamma: *const f32,
    beta: *const f32,
    eps: f32,
}

// SAFETY: only read, and the borrows it was made from outlive the kernel call.
unsafe impl Sync for Affine {}

/// out = act(norm(x) + y).
struct Rows<'a> {
    x: In,
    y: Option<In>,
    out: Out,
    rows: usize,
    cols: usize,
    norm: Option<&'a Affine>,
    act: Act,
}

impl Op for Rows<'_> {
    type Result = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on from the caller.
        unsafe {
            for r in 0..self.rows {
                let (x, out) = (self.x.at(r, 0), self.out.at(r, 0));
                let stats = self.norm.map(|a| moments::<S>(x, self.cols, a.eps));
                for i in (0..self.cols).step_by(LANES) {
                    let n = LANES.min(self.cols - i);
                    let mut v = load::<S>(x, i, n);
                    if let (Some(affine), Some((mean, scale))) = (self.norm, stats) {
                        v = S::mul(S::sub(v, S::splat(mean)), S::splat(scale));
                        if !affine.gamma.is_null() {
                            v = S::mul(v, S::load_n(affine.gamma.add(i), n));
                        }
                        if !affine.beta.is_null() {
                            v = S::add(v, S::load_n(affine.beta.add(i), n));
                        }
                    }
                    if let Some(y) = self.y {
                        v = S::add(v, load::<S>(y.at(r, 0), i, n));
                    }
                    store::<S>(out, i, n, act::<S>(self.act, v));
                }
            }
        }
    }
}
