//! [`Simd`] in plain Rust.
#![allow(unsafe_op_in_unsafe_fn)] // The trait's functions are unsafe as a whole; see there.
#![allow(clippy::needless_range_loop)] // Fixed-length lane loops read better by index, and vectorise.

use half::bf16;

use super::{LANES, Simd};

#[derive(Clone, Copy)]
pub(crate) struct Portable;

type V = [f32; LANES];

#[inline(always)]
fn zip(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    let mut r = [0.0; LANES];
    for i in 0..LANES {
        r[i] = f(a[i], b[i]);
    }
    r
}

/// The bits of a bf16, in the high half, of the nearest-even rounding of `x`.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let near = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
    if x.is_nan() { 0x7fc0_0000 } else { near }
}

impl Simd for Portable {
    type V = V;
    type P = [u32; LANES];

    #[inline(always)]
    unsafe fn splat(x: f32) -> V {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> V {
        p.cast::<V>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn load_n(p: *const f32, n: usize) -> V {
        let mut v = [0.0; LANES];
        for i in 0..n {
            v[i] = p.add(i).read();
        }
        v
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: V) {
        p.cast::<V>().write_unaligned(v);
    }
    #[inline(always)]
    unsafe fn store_n(p: *mut f32, v: V, n: usize) {
        for i in 0..n {
            p.add(i).write(v[i]);
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const bf16) -> V {
        let bits = p.cast::<[u16; LANES]>().read_unaligned();
        bits.map(|b| f32::from_bits((b as u32) << 16))
    }
    #[inline(always)]
    unsafe fn load_bf16_n(p: *const bf16, n: usize) -> V {
        let mut v = [0.0; LANES];
        for i in 0..n {
            v[i] = p.add(i).read().to_f32();
        }
        v
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut bf16, v: V) {
        p.cast::<[u16; LANES]>().write_unaligned(v.map(|x| (rounded(x) >> 16) as u16));
    }
    #[inline(always)]
    unsafe fn store_bf16_n(p: *mut bf16, v: V, n: usize) {
        for i in 0..n {
            p.add(i).write(bf16::from_bits((rounded(v[i]) >> 16) as u16));
        }
    }
    #[inline(always)]
    unsafe fn add(a: V, b: V) -> V {
        zip(a, b, |x, y| x + y)
    }
    #[inline(always)]
    unsafe fn sub(a: V, b: V) -> V {
        zip(a, b, |x, y| x - y)
    }
    #[inline(always)]
    unsafe fn mul(a: V, b: V) -> V {
        zip(a, b, |x, y| x * y)
    }
    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        Self::add(Self::mul(a, b), c)
    }
    #[inline(always)]
    unsafe fn max(a: V, b: V) -> V {
        zip(a, b, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    unsafe fn min(a: V, b: V) -> V {
        zip(a, b, |x, y| if x < y { x } else { y })
    }
    #[inline(always)]
    unsafe fn round(a: V) -> V {
        // Adding 1.5 * 2^23 leaves no fraction bits.
        a.map(|x| (x + 12_582_912.0) - 12_582_912.0)
    }
    #[inline(always)]
    unsafe fn scale(a: V, n: V) -> V {
        zip(a, n, |x, n| x * f32::from_bits((n.to_int_unchecked::<i32>() + 127).cast_unsigned() << 23))
    }
    #[inline(always)]
    unsafe fn sum(a: V) -> f32 {
        let mut half = [0.0; 8];
        for i in 0..8 {
            half[i] = a[i] + a[i + 8];
        }
        ((half[0] + half[4]) + (half[2] + half[6])) + ((half[1] + half[5]) + (half[3] + half[7]))
    }
    #[inline(always)]
    unsafe fn max_lane(a: V) -> f32 {
        a.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m })
    }
    #[inline(always)]
    unsafe fn load_p(p: *const u32) -> Self::P {
        p.cast::<Self::P>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn splat_p(p: *const u32) -> Self::P {
        [p.read(); LANES]
    }
    #[inline(always)]
    unsafe fn store_p(p: *mut u32, v: Self::P) {
        p.cast::<Self::P>().write_unaligned(v);
    }
    #[inline(always)]
    unsafe fn pair(lo: V, hi: V) -> Self::P {
        let mut r = [0; LANES];
        for i in 0..LANES {
            r[i] = rounded(lo[i]) >> 16 | rounded(hi[i]);
        }
        r
    }
    #[inline(always)]
    unsafe fn dot(acc: V, a: Self::P, b: Self::P) -> V {
        let mut r = acc;
        for i in 0..LANES {
            r[i] += f32::from_bits(a[i] << 16) * f32::from_bits(b[i] << 16);
            r[i] += f32::from_bits(a[i] & 0xffff_0000) * f32::from_bits(b[i] & 0xffff_0000);
        }
        r
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u32) {}
}
