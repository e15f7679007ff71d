//! Sixteen lanes of f32 for every instruction set, so that each inner loop is written once.
//!
//! An inner loop is an [`Op`]: generic over [`Simd`] and wholly inlined into one function per instruction set that
//! enables its features ([`dispatch`]).
#![allow(unsafe_code)] // Vector loads and stores by pointer, and functions with target features.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use half::bf16;

use super::Isa;
use super::data::{In, Out};

pub(super) const LANES: usize = 16;

/// Vector primitives. Every function needs the instruction set to be present; pointers need no alignment.
/// Functions ending in `_n` touch only the first `n <= 16` lanes and read the others as zero.
pub(super) trait Simd: Copy + 'static {
    /// 16 f32.
    type V: Copy;
    /// 16 words, each a pair of bf16 (the even element in the low half).
    type P: Copy;

    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(p: *const f32) -> Self::V;
    unsafe fn load_n(p: *const f32, n: usize) -> Self::V;
    unsafe fn store(p: *mut f32, v: Self::V);
    unsafe fn store_n(p: *mut f32, v: Self::V, n: usize);
    unsafe fn load_bf16(p: *const bf16) -> Self::V;
    unsafe fn load_bf16_n(p: *const bf16, n: usize) -> Self::V;
    unsafe fn store_bf16(p: *mut bf16, v: Self::V);
    unsafe fn store_bf16_n(p: *mut bf16, v: Self::V, n: usize);
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// a * b + c, fused where the hardware can.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// To the nearest integer, |x| < 2^22.
    unsafe fn round(a: Self::V) -> Self::V;
    /// a * 2^n for integers -126 <= n <= 127.
    unsafe fn scale(a: Self::V, n: Self::V) -> Self::V;
    unsafe fn sum(a: Self::V) -> f32;
    unsafe fn max_lane(a: Self::V) -> f32;
    unsafe fn load_p(p: *const u32) -> Self::P;
    unsafe fn splat_p(p: *const u32) -> Self::P;
    unsafe fn store_p(p: *mut u32, v: Self::P);
    /// Both rounded to bf16, `lo` the even element.
    unsafe fn pair(lo: Self::V, hi: Self::V) -> Self::P;
    /// acc + lo(a) * lo(b) + hi(a) * hi(b), lane by lane.
    unsafe fn dot(acc: Self::V, a: Self::P, b: Self::P) -> Self::V;
    unsafe fn prefetch(p: *const u32);
}

/// An inner loop. `run` must be `#[inline(always)]`, as must everything generic that it calls.
pub(super) trait Op {
    type Result;
    /// # Safety
    /// The instruction set is present and the pointers of `self` are valid for what the operation touches.
    unsafe fn run<S: Simd>(self) -> Self::Result;
}

/// Runs an operation on `isa`.
///
/// # Safety
/// As [`Op::run`].
#[inline]
pub(super) unsafe fn dispatch<O: Op>(isa: Isa, op: O) -> O::Result {
    // SAFETY: passed on from the caller.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 | Isa::Avx512 => dispatch_wide(isa, op),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => on_avx2(op),
            _ => op.run::<portable::Portable>(),
        }
    }
}

/// Runs an operation that only suits 32 vector registers, on `isa`, which must have them.
///
/// # Safety
/// As [`Op::run`].
#[inline]
pub(super) unsafe fn dispatch_wide<O: Op>(isa: Isa, op: O) -> O::Result {
    // SAFETY: passed on from the caller.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => on_avx512bf16(op),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => on_avx512(op),
            _ => unreachable!("{isa} has no 32 vector registers"),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn on_avx512bf16<O: Op>(op: O) -> O::Result {
    // SAFETY: passed on from the caller; the features are enabled here.
    unsafe { op.run::<avx512::Avx512<true>>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn on_avx512<O: Op>(op: O) -> O::Result {
    // SAFETY: passed on from the caller; the features are enabled here.
    unsafe { op.run::<avx512::Avx512<false>>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn on_avx2<O: Op>(op: O) -> O::Result {
    // SAFETY: passed on from the caller; the features are enabled here.
    unsafe { op.run::<avx2::Avx2>() }
}

/// Lanes `i..i + n` of an operand's row, `n <= 16`.
#[inline(always)]
pub(super) unsafe fn load<S: Simd>(src: In, i: usize, n: usize) -> S::V {
    // SAFETY: the caller has checked that the row has `i + n` elements.
    unsafe {
        match (src.bf16, n == LANES) {
            (false, true) => S::load(src.ptr.cast::<f32>().add(i)),
            (false, false) => S::load_n(src.ptr.cast::<f32>().add(i), n),
            (true, true) => S::load_bf16(src.ptr.cast::<bf16>().add(i)),
            (true, false) => S::load_bf16_n(src.ptr.cast::<bf16>().add(i), n),
        }
    }
}

/// Writes lanes `i..i + n` of an operand's row, `n <= 16`.
#[inline(always)]
pub(super) unsafe fn store<S: Simd>(dst: Out, i: usize, n: usize, v: S::V) {
    // SAFETY: the caller has checked that the row has `i + n` elements.
    unsafe {
        match (dst.bf16, n == LANES) {
            (false, true) => S::store(dst.ptr.cast::<f32>().add(i), v),
            (false, false) => S::store_n(dst.ptr.cast::<f32>().add(i), v, n),
            (true, true) => S::store_bf16(dst.ptr.cast::<bf16>().add(i), v),
            (true, false) => S::store_bf16_n(dst.ptr.cast::<bf16>().add(i), v, n),
        }
    }
}
