//! [`Simd`] by AVX-512, with (`true`) or without `vdpbf16ps`.
#![allow(unsafe_op_in_unsafe_fn)] // The trait's functions are unsafe as a whole; see there.

use std::arch::x86_64::*;
use std::mem::transmute;

use half::bf16;

use super::Simd;

#[derive(Clone, Copy)]
pub(crate) struct Avx512<const DOT: bool>;

#[inline(always)]
fn mask(n: usize) -> u16 {
    ((1u32 << n) - 1) as u16
}

/// The bits of bf16s, in the high halves, of the nearest-even rounding.
#[inline(always)]
unsafe fn rounded(v: __m512) -> __m512i {
    let bits = _mm512_castps_si512(v);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    let near = _mm512_and_si512(near, _mm512_set1_epi32(0xffff_0000u32 as i32));
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
    _mm512_mask_blend_epi32(nan, near, _mm512_set1_epi32(0x7fc0_0000))
}

#[inline(always)]
unsafe fn to_bf16<const DOT: bool>(v: __m512) -> __m256i {
    if DOT {
        transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(v))
    } else {
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded(v)))
    }
}

#[inline(always)]
unsafe fn widen(h: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(h)))
}

impl<const DOT: bool> Simd for Avx512<DOT> {
    type V = __m512;
    type P = __m512i;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        _mm512_set1_ps(x)
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        _mm512_loadu_ps(p)
    }
    #[inline(always)]
    unsafe fn load_n(p: *const f32, n: usize) -> __m512 {
        _mm512_maskz_loadu_ps(mask(n), p)
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m512) {
        _mm512_storeu_ps(p, v);
    }
    #[inline(always)]
    unsafe fn store_n(p: *mut f32, v: __m512, n: usize) {
        _mm512_mask_storeu_ps(p, mask(n), v);
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const bf16) -> __m512 {
        widen(_mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    unsafe fn load_bf16_n(p: *const bf16, n: usize) -> __m512 {
        widen(_mm256_maskz_loadu_epi16(mask(n), p.cast()))
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut bf16, v: __m512) {
        _mm256_storeu_si256(p.cast(), to_bf16::<DOT>(v));
    }
    #[inline(always)]
    unsafe fn store_bf16_n(p: *mut bf16, v: __m512, n: usize) {
        _mm256_mask_storeu_epi16(p.cast(), mask(n), to_bf16::<DOT>(v));
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        _mm512_sub_ps(a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        _mm512_max_ps(a, b)
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        _mm512_min_ps(a, b)
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
    }
    #[inline(always)]
    unsafe fn scale(a: __m512, n: __m512) -> __m512 {
        _mm512_scalef_ps(a, n)
    }
    #[inline(always)]
    unsafe fn sum(a: __m512) -> f32 {
        _mm512_reduce_add_ps(a)
    }
    #[inline(always)]
    unsafe fn max_lane(a: __m512) -> f32 {
        _mm512_reduce_max_ps(a)
    }
    #[inline(always)]
    unsafe fn load_p(p: *const u32) -> __m512i {
        _mm512_loadu_si512(p.cast())
    }
    #[inline(always)]
    unsafe fn splat_p(p: *const u32) -> __m512i {
        _mm512_set1_epi32(p.read().cast_signed())
    }
    #[inline(always)]
    unsafe fn store_p(p: *mut u32, v: __m512i) {
        _mm512_storeu_si512(p.cast(), v);
    }
    #[inline(always)]
    unsafe fn pair(lo: __m512, hi: __m512) -> __m512i {
        if DOT {
            let lo = _mm512_cvtepu16_epi32(to_bf16::<DOT>(lo));
            let hi = _mm512_cvtepu16_epi32(to_bf16::<DOT>(hi));
            _mm512_or_si512(lo, _mm512_slli_epi32::<16>(hi))
        } else {
            _mm512_or_si512(_mm512_srli_epi32::<16>(rounded(lo)), rounded(hi))
        }
    }
    #[inline(always)]
    unsafe fn dot(acc: __m512, a: __m512i, b: __m512i) -> __m512 {
        if DOT {
            return _mm512_dpbf16_ps(
                acc,
                transmute::<__m512i, __m512bh>(a),
                transmute::<__m512i, __m512bh>(b),
            );
        }
        let high = _mm512_set1_epi32(0xffff_0000u32 as i32);
        let lo = |x| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(x));
        let hi = |x| _mm512_castsi512_ps(_mm512_and_si512(x, high));
        _mm512_fmadd_ps(hi(a), hi(b), _mm512_fmadd_ps(lo(a), lo(b), acc))
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u32) {
        _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }
}
