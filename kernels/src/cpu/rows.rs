//! The prologue of a product: rows copied to scratch in the type of the math, normalised or rectified on the way.
#![allow(unsafe_code)] // Operands by pointer.

use half::bf16;

use super::Isa;
use super::data::{In, Math};
use super::math::{Act, act};
use super::simd::{LANES, Op, Simd, dispatch, load};

/// Words between rows of `words` words in scratch. The extra line keeps the rows of a tile, which are
/// read in step, from falling into one set of the cache.
pub(super) fn padded(words: usize) -> usize {
    words.next_multiple_of(LANES) + LANES
}

#[derive(Clone, Copy)]
pub(super) struct CopyRows {
    /// `[rows, k]`.
    pub src: In,
    pub rows: usize,
    pub k: usize,
    /// `[rows][math.words(k)]` at row stride `stride` words; a pair's missing half is zero.
    pub dst: *mut u32,
    pub stride: usize,
    pub math: Math,
    /// Epsilon of a normalisation of each row to mean 0 and variance 1.
    pub norm: Option<f32>,
    pub relu: bool,
}

/// # Safety
/// `isa` is present; `src` and `dst` are valid for the rows.
pub(super) unsafe fn copy_rows(isa: Isa, op: CopyRows) {
    // SAFETY: passed on from the caller.
    unsafe { dispatch(isa, op) }
}

impl Op for CopyRows {
    type Result = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let as_is = self.norm.is_none() && !self.relu && self.src.bf16 == (self.math == Math::Bf16);
        // SAFETY: passed on from the caller.
        unsafe {
            for r in 0..self.rows {
                let src = self.src.at(r, 0);
                let dst = self.dst.add(r * self.stride);
                if as_is {
                    let bytes = self.k * if src.bf16 { 2 } else { 4 };
                    std::ptr::copy_nonoverlapping(src.ptr, dst.cast::<u8>(), bytes);
                } else {
                    let (mean, scale) = self.norm.map_or((0.0, 1.0), |eps| moments::<S>(src, self.k, eps));
                    let (mean, scale) = (S::splat(mean), S::splat(scale));
                    for i in (0..self.k).step_by(LANES) {
                        let n = LANES.min(self.k - i);
                        let mut x = load::<S>(src, i, n);
                        if self.norm.is_some() {
                            x = S::mul(S::sub(x, mean), scale);
                        }
                        if self.relu {
                            x = act::<S>(Act::Relu, x);
                        }
                        put::<S>(dst, self.math, i, n, x);
                    }
                }
                close(dst, self.math, self.k);
            }
        }
    }
}

/// Stores lanes `i..i + n` of a row of elements.
#[inline(always)]
pub(super) unsafe fn put<S: Simd>(dst: *mut u32, math: Math, i: usize, n: usize, x: S::V) {
    // SAFETY: passed on from the caller.
    unsafe {
        match (math, n == LANES) {
            (Math::F32, true) => S::store(dst.cast::<f32>().add(i), x),
            (Math::F32, false) => S::store_n(dst.cast::<f32>().add(i), x, n),
            (Math::Bf16, true) => S::store_bf16(dst.cast::<bf16>().add(i), x),
            (Math::Bf16, false) => S::store_bf16_n(dst.cast::<bf16>().add(i), x, n),
        }
    }
}

/// Zeroes the half word after `k` elements, if there is one.
#[inline(always)]
pub(super) unsafe fn close(dst: *mut u32, math: Math, k: usize) {
    if math == Math::Bf16 && k % 2 == 1 {
        // SAFETY: the row has `k.div_ceil(2)` words.
        unsafe { dst.cast::<bf16>().add(k).write(bf16::ZERO) };
    }
}

/// Mean and 1 / sqrt(variance + eps) of a row, the variance around the mean in a second pass.
#[inline(always)]
pub(super) unsafe fn moments<S: Simd>(src: In, k: usize, eps: f32) -> (f32, f32) {
    // SAFETY: passed on from the caller.
    unsafe {
        let whole = k / LANES * LANES;
        let zero = S::splat(0.0);
        let (mut s0, mut s1) = (zero, zero);
        for i in (0..whole).step_by(2 * LANES) {
            s0 = S::add(s0, load::<S>(src, i, LANES));
            if i + LANES < whole {
                s1 = S::add(s1, load::<S>(src, i + LANES, LANES));
            }
        }
        if whole < k {
            s1 = S::add(s1, load::<S>(src, whole, k - whole));
        }
        let mean = S::sum(S::add(s0, s1)) / k as f32;
        let m = S::splat(mean);
        let (mut s0, mut s1) = (zero, zero);
        for i in (0..whole).step_by(2 * LANES) {
            let d = S::sub(load::<S>(src, i, LANES), m);
            s0 = S::fma(d, d, s0);
            if i + LANES < whole {
                let d = S::sub(load::<S>(src, i + LANES, LANES), m);
                s1 = S::fma(d, d, s1);
            }
        }
        let mut squares = S::sum(S::add(s0, s1));
        for i in whole..k {
            let x = if src.bf16 {
                src.ptr.cast::<bf16>().add(i).read().to_f32()
            } else {
                src.ptr.cast::<f32>().add(i).read()
            };
            squares += (x - mean) * (x - mean);
        }
        (mean, 1.0 / (squares / k as f32 + eps).sqrt())
    }
}
