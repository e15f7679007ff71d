//! The inner loops of attention that are not products.
#![allow(unsafe_code)] // Operands by pointer.

use super::attention::Rope;
use super::data::{In, Math, Out, PANEL};
use super::math::exp2;
use super::rows::put;
use super::simd::{LANES, Op, Simd, load, store};

/// A checked [`Rope`].
#[derive(Clone, Copy)]
pub(super) struct RopeAt {
    cos: *const f32,
    sin: *const f32,
    width: usize,
}

// SAFETY: only read, and the borrow it was made from outlives the kernel call.
unsafe impl Send for RopeAt {}
// SAFETY: as above.
unsafe impl Sync for RopeAt {}

impl RopeAt {
    /// Checked for `n` tokens with heads of `d`.
    pub fn new(r: Rope, n: usize, d: usize) -> RopeAt {
        assert!(r.width > 0, "rope: a grid of width 0");
        let positions = n.div_ceil(r.width).max(r.width.min(n));
        let need = positions * (d / 4);
        assert!(
            r.cos.len() >= need && r.sin.len() >= need,
            "rope: tables shorter than {positions} positions"
        );
        RopeAt { cos: r.cos.as_ptr(), sin: r.sin.as_ptr(), width: r.width }
    }
}

/// Rows of one head, turned and converted.
pub(super) struct HeadRows {
    pub src: In,
    /// Token number of the first row.
    pub first: usize,
    pub rows: usize,
    pub d: usize,
    pub rope: Option<RopeAt>,
    /// `[rows][math.words(d)]` at row stride `stride`.
    pub dst: *mut u32,
    pub stride: usize,
    pub math: Math,
}

impl Op for HeadRows {
    type Result = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let quarter = self.d / 4;
        // SAFETY: passed on from the caller.
        unsafe {
            for r in 0..self.rows {
                let (src, dst) = (self.src.at(r, 0), self.dst.add(r * self.stride));
                let Some(rope) = self.rope else {
                    for i in (0..self.d).step_by(LANES) {
                        put::<S>(dst, self.math, i, LANES, load::<S>(src, i, LANES));
                    }
                    continue;
                };
                let token = self.first + r;
                for (half, position) in [token / rope.width, token % rope.width].into_iter().enumerate() {
                    for j in (0..quarter).step_by(LANES) {
                        let n = LANES.min(quarter - j);
                        let (i, at) = (half * 2 * quarter + j, position * quarter + j);
                        let (a, b) = (load::<S>(src, i, n), load::<S>(src, i + quarter, n));
                        let (cos, sin) = (S::load_n(rope.cos.add(at), n), S::load_n(rope.sin.add(at), n));
                        put::<S>(dst, self.math, i, n, S::sub(S::mul(a, cos), S::mul(b, sin)));
                        put::<S>(dst, self.math, i + quarter, n, S::fma(b, cos, S::mul(a, sin)));
                    }
                }
            }
        }
    }
}

/// V of a head as panels `[d/32][words][32]`, zero beyond `rows` and beyond `d`.
pub(super) struct ValuePanels {
    pub src: In,
    pub rows: usize,
    pub d: usize,
    pub dst: *mut u32,
    /// Words along the keys, of whole panels.
    pub words: usize,
    pub math: Math,
}

impl ValuePanels {
    #[inline(always)]
    unsafe fn at<S: Simd>(&self, row: usize, col: usize) -> S::V {
        // SAFETY: passed on from the caller.
        unsafe {
            if row < self.rows && col < self.d {
                load::<S>(self.src.at(row, col), 0, LANES)
            } else {
                S::splat(0.0)
            }
        }
    }
}

impl Op for ValuePanels {
    type Result = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on from the caller.
        unsafe {
            for col in (0..self.d.next_multiple_of(PANEL)).step_by(LANES) {
                let dst = self.dst.add(col / PANEL * self.words * PANEL + col % PANEL);
                for w in 0..self.words {
                    match self.math {
                        Math::F32 => S::store(dst.add(w * PANEL).cast(), self.at::<S>(w, col)),
                        Math::Bf16 => {
                            let (even, odd) = (self.at::<S>(2 * w, col), self.at::<S>(2 * w + 1, col));
                            S::store_p(dst.add(w * PANEL), S::pair(even, odd));
                        }
                    }
                }
            }
        }
    }
}

/// One block of keys of the running softmax: p = 2^(scale * s - max), and what went before is scaled to the new
/// maximum.
pub(super) struct Softmax {
    /// `[rows][padded]` at row stride `s_stride`; columns from `keys` on are overwritten.
    pub s: *mut f32,
    pub s_stride: usize,
    pub rows: usize,
    pub keys: usize,
    pub padded: usize,
    /// `[rows][math.words(padded)]` at row stride `p_stride`.
    pub p: *mut u32,
    pub p_stride: usize,
    pub math: Math,
    pub scale: f32,
    /// `[rows]`: maximum of `scale * s` and sum of p so far.
    pub max: *mut f32,
    pub sum: *mut f32,
    /// `[rows][o_stride]`.
    pub o: *mut f32,
    pub o_stride: usize,
    /// Whether this is the first block.
    pub start: bool,
}

impl Op for Softmax {
    type Result = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let scale = self.scale;
        // SAFETY: passed on from the caller.
        unsafe {
            for r in 0..self.rows {
                let (s, p) = (self.s.add(r * self.s_stride), self.p.add(r * self.p_stride));
                for i in self.keys..self.padded {
                    s.add(i).write(LOWEST.copysign(-scale));
                }
                let (mut m0, mut m1) = (S::splat(LOWEST), S::splat(LOWEST));
                let c = S::splat(scale);
                for i in (0..self.padded).step_by(PANEL) {
                    m0 = S::max(m0, S::mul(S::load(s.add(i)), c));
                    m1 = S::max(m1, S::mul(S::load(s.add(i + LANES)), c));
                }
                let mut max = S::max_lane(S::max(m0, m1));
                if !self.start {
                    max = max.max(self.max.add(r).read());
                }
                let neg = S::splat(-max);
                let (mut t0, mut t1) = (S::splat(0.0), S::splat(0.0));
                for i in (0..self.padded).step_by(PANEL) {
                    let p0 = exp2::<S>(S::fma(S::load(s.add(i)), c, neg));
                    let p1 = exp2::<S>(S::fma(S::load(s.add(i + LANES)), c, neg));
                    t0 = S::add(t0, p0);
                    t1 = S::add(t1, p1);
                    put::<S>(p, self.math, i, LANES, p0);
                    put::<S>(p, self.math, i + LANES, LANES, p1);
                }
                let mut sum = S::sum(S::add(t0, t1));
                if !self.start {
                    let old = self.max.add(r).read();
                    let keep = exp2::<S>(S::splat(old - max));
                    let mut lanes = [0.0; LANES];
                    S::store(lanes.as_mut_ptr(), keep);
                    sum += self.sum.add(r).read() * lanes[0];
                    if old < max {
                        for i in (0..self.o_stride).step_by(LANES) {
                            let o = self.o.add(r * self.o_stride + i);
                            S::store(o, S::mul(S::load(o), keep));
                        }
                    }
                }
                self.max.add(r).write(max);
                self.sum.add(r).write(sum);
            }
        }
    }
}

/// Below every score, yet finite.
const LOWEST: f32 = -1e30;

/// out = o / sum, row by row.
pub(super) struct StoreRows {
    pub o: *const f32,
    pub o_stride: usize,
    pub sum: *const f32,
    pub rows: usize,
    pub d: usize,
    pub out: Out,
}

impl Op for StoreRows {
    type Result = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on from the caller.
        unsafe {
            for r in 0..self.rows {
                let inverse = S::splat(1.0 / self.sum.add(r).read());
                for i in (0..self.d).step_by(LANES) {
                    let o = S::load(self.o.add(r * self.o_stride + i));
                    store::<S>(self.out.at(r, i), 0, LANES, S::mul(o, inverse));
                }
            }
        }
    }
}
