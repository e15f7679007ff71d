//! Vectorised functions.
#![allow(unsafe_code)] // Built on the vector primitives.

use super::simd::Simd;

/// What follows the bias in an epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    None,
    Relu,
    /// x/2 * (1 + erf(x / sqrt 2)).
    Gelu,
}

/// 2^x to about one unit in the last place; results below 2^-126 come out as about 2^-126.
#[inline(always)]
pub(super) unsafe fn exp2<S: Simd>(x: S::V) -> S::V {
    // Minimax in relative error on [-1/2, 1/2]: 7.5e-8.
    const C: [f32; 6] = [1.0, 0.693_146_97, 0.240_221_2, 0.055_507_133, 0.009_675_541, 0.001_327_647_2];
    // SAFETY: passed on from the caller.
    unsafe {
        let x = S::min(S::max(x, S::splat(-126.0)), S::splat(127.0));
        let n = S::round(x);
        let f = S::sub(x, n);
        let mut p = S::splat(C[5]);
        for c in C[..5].iter().rev() {
            p = S::fma(p, f, S::splat(*c));
        }
        S::scale(p, n)
    }
}

/// erf(x), absolute error below 2e-7 with a fused multiply-add (3e-7 without).
#[inline(always)]
pub(super) unsafe fn erf<S: Simd>(x: S::V) -> S::V {
    // erf(x)/x as a minimax polynomial in t = x^2 / (EDGE^2 / 2) - 1, which is in [-1, 1]: in that variable the
    // coefficients fall off and rounding does not accumulate. 1 - erf(EDGE) = 5e-8.
    const EDGE: f32 = 3.85;
    const C: [f32; 16] = [
        0.367_284_8,
        -0.183_301_43,
        0.136_213_03,
        -0.110_387_57,
        0.090_792_134,
        -0.073_162_88,
        0.056_585_137,
        -0.041_182_175,
        0.027_769_8,
        -0.018_175_974,
        0.011_965_751,
        -0.006_209_617_5,
        0.001_948_616_2,
        -0.001_347_017_7,
        0.001_500_358_6,
        -0.000_552_739_4,
    ];
    // SAFETY: passed on from the caller.
    unsafe {
        let x = S::min(S::max(x, S::splat(-EDGE)), S::splat(EDGE));
        let t = S::fma(S::mul(x, x), S::splat(2.0 / (EDGE * EDGE)), S::splat(-1.0));
        let mut p = S::splat(C[15]);
        for c in C[..15].iter().rev() {
            p = S::fma(p, t, S::splat(*c));
        }
        S::mul(x, p)
    }
}

#[inline(always)]
pub(super) unsafe fn act<S: Simd>(act: Act, x: S::V) -> S::V {
    // SAFETY: passed on from the caller.
    unsafe {
        match act {
            Act::None => x,
            // In this order a NaN stays one.
            Act::Relu => S::max(S::splat(0.0), x),
            Act::Gelu => {
                let half = S::mul(x, S::splat(0.5));
                S::fma(half, erf::<S>(S::mul(x, S::splat(std::f32::consts::FRAC_1_SQRT_2))), half)
            }
        }
    }
}
