//! [`Simd`] by AVX2 with FMA, sixteen lanes as two registers.
#![allow(unsafe_op_in_unsafe_fn)] // The trait's functions are unsafe as a whole; see there.

use std::arch::x86_64::*;

use half::bf16;

use super::{LANES, Simd};

#[derive(Clone, Copy)]
pub(crate) struct Avx2;

type V = (__m256, __m256);
type P = (__m256i, __m256i);

#[inline(always)]
unsafe fn rounded(v: __m256) -> __m256i {
    let bits = _mm256_castps_si256(v);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    let near = _mm256_and_si256(near, _mm256_set1_epi32(0xffff_0000u32 as i32));
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
    _mm256_blendv_epi8(near, _mm256_set1_epi32(0x7fc0_0000), nan)
}

#[inline(always)]
unsafe fn widen(h: __m128i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(h)))
}

impl Simd for Avx2 {
    type V = V;
    type P = P;

    #[inline(always)]
    unsafe fn splat(x: f32) -> V {
        (_mm256_set1_ps(x), _mm256_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> V {
        (_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8)))
    }
    #[inline(always)]
    unsafe fn load_n(p: *const f32, n: usize) -> V {
        let mut t = [0.0; LANES];
        std::ptr::copy_nonoverlapping(p, t.as_mut_ptr(), n);
        Self::load(t.as_ptr())
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: V) {
        _mm256_storeu_ps(p, v.0);
        _mm256_storeu_ps(p.add(8), v.1);
    }
    #[inline(always)]
    unsafe fn store_n(p: *mut f32, v: V, n: usize) {
        let mut t = [0.0; LANES];
        Self::store(t.as_mut_ptr(), v);
        std::ptr::copy_nonoverlapping(t.as_ptr(), p, n);
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const bf16) -> V {
        (widen(_mm_loadu_si128(p.cast())), widen(_mm_loadu_si128(p.add(8).cast())))
    }
    #[inline(always)]
    unsafe fn load_bf16_n(p: *const bf16, n: usize) -> V {
        let mut t = [bf16::ZERO; LANES];
        std::ptr::copy_nonoverlapping(p, t.as_mut_ptr(), n);
        Self::load_bf16(t.as_ptr())
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut bf16, v: V) {
        let lo = _mm256_srli_epi32::<16>(rounded(v.0));
        let hi = _mm256_srli_epi32::<16>(rounded(v.1));
        // The pack works within 128-bit halves; the permutation puts the quarters in order.
        let h = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(lo, hi));
        _mm256_storeu_si256(p.cast(), h);
    }
    #[inline(always)]
    unsafe fn store_bf16_n(p: *mut bf16, v: V, n: usize) {
        let mut t = [bf16::ZERO; LANES];
        Self::store_bf16(t.as_mut_ptr(), v);
        std::ptr::copy_nonoverlapping(t.as_ptr(), p, n);
    }
    #[inline(always)]
    unsafe fn add(a: V, b: V) -> V {
        (_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1))
    }
    #[inline(always)]
    unsafe fn sub(a: V, b: V) -> V {
        (_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1))
    }
    #[inline(always)]
    unsafe fn mul(a: V, b: V) -> V {
        (_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1))
    }
    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        (_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1))
    }
    #[inline(always)]
    unsafe fn max(a: V, b: V) -> V {
        (_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1))
    }
    #[inline(always)]
    unsafe fn min(a: V, b: V) -> V {
        (_mm256_min_ps(a.0, b.0), _mm256_min_ps(a.1, b.1))
    }
    #[inline(always)]
    unsafe fn round(a: V) -> V {
        const MODE: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        (_mm256_round_ps::<MODE>(a.0), _mm256_round_ps::<MODE>(a.1))
    }
    #[inline(always)]
    unsafe fn scale(a: V, n: V) -> V {
        let bias = _mm256_set1_epi32(127);
        let p0 = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvtps_epi32(n.0), bias));
        let p1 = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvtps_epi32(n.1), bias));
        (_mm256_mul_ps(a.0, _mm256_castsi256_ps(p0)), _mm256_mul_ps(a.1, _mm256_castsi256_ps(p1)))
    }
    #[inline(always)]
    unsafe fn sum(a: V) -> f32 {
        let v = _mm256_add_ps(a.0, a.1);
        let q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let d = _mm_add_ps(q, _mm_movehl_ps(q, q));
        _mm_cvtss_f32(_mm_add_ps(d, _mm_shuffle_ps::<1>(d, d)))
    }
    #[inline(always)]
    unsafe fn max_lane(a: V) -> f32 {
        let v = _mm256_max_ps(a.0, a.1);
        let q = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let d = _mm_max_ps(q, _mm_movehl_ps(q, q));
        _mm_cvtss_f32(_mm_max_ps(d, _mm_shuffle_ps::<1>(d, d)))
    }
    #[inline(always)]
    unsafe fn load_p(p: *const u32) -> P {
        (_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(8).cast()))
    }
    #[inline(always)]
    unsafe fn splat_p(p: *const u32) -> P {
        let v = _mm256_set1_epi32(p.read().cast_signed());
        (v, v)
    }
    #[inline(always)]
    unsafe fn store_p(p: *mut u32, v: P) {
        _mm256_storeu_si256(p.cast(), v.0);
        _mm256_storeu_si256(p.add(8).cast(), v.1);
    }
    #[inline(always)]
    unsafe fn pair(lo: V, hi: V) -> P {
        (
            _mm256_or_si256(_mm256_srli_epi32::<16>(rounded(lo.0)), rounded(hi.0)),
            _mm256_or_si256(_mm256_srli_epi32::<16>(rounded(lo.1)), rounded(hi.1)),
        )
    }
    #[inline(always)]
    unsafe fn dot(acc: V, a: P, b: P) -> V {
        let high = _mm256_set1_epi32(0xffff_0000u32 as i32);
        let lo = |x| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(x));
        let hi = |x| _mm256_castsi256_ps(_mm256_and_si256(x, high));
        (
            _mm256_fmadd_ps(hi(a.0), hi(b.0), _mm256_fmadd_ps(lo(a.0), lo(b.0), acc.0)),
            _mm256_fmadd_ps(hi(a.1), hi(b.1), _mm256_fmadd_ps(lo(a.1), lo(b.1), acc.1)),
        )
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u32) {
        _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }
}
