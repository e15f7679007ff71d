//! The microkernel: a tile of up to [`TILE_ROWS`] x [`PANEL`] results, its sums in registers from the first
//! product to the last.
//!
//! Rows of `a` are read in place by broadcast, panels of packed weights stream through; the contraction may run over
//! several equally long segments, which makes a 3x3 convolution one tile over three rows of pixels. A "word" is one
//! f32 or a pair of bf16, so both types share all addressing. The sums go to a small buffer that stays in L1 and that
//! the epilogue reads: measured against thousands of cycles of products the detour is free, and it keeps
//! the two apart.
#![allow(unsafe_code)] // Operands by pointer.

use super::Isa;
use super::data::{Math, PANEL};
use super::simd::{LANES, Op, Simd, dispatch, dispatch_wide};

/// Most rows of a tile.
pub(super) const TILE_ROWS: usize = 12;

/// A tile's sums, `[TILE_ROWS][PANEL]`.
#[repr(align(64))]
pub(super) struct TileBuf(pub [f32; TILE_ROWS * PANEL]);

#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// First row's first word.
    pub a: *const u32,
    /// Words between rows.
    pub stride: usize,
    /// Words of a segment, and their number, and the distance of their starts.
    pub seg_words: usize,
    pub segs: usize,
    pub seg_stride: usize,
    /// `[segs * seg_words][PANEL]`.
    pub b: *const u32,
    /// `[rows][PANEL]` at row stride `c_stride`.
    pub c: *mut f32,
    pub c_stride: usize,
    /// Whether the sums start from what `c` holds, instead of zero.
    pub add: bool,
}

impl Tile {
    fn down(self, rows: usize) -> Tile {
        Tile {
            a: self.a.wrapping_add(rows * self.stride),
            c: self.c.wrapping_add(rows * self.c_stride),
            ..self
        }
    }
}

/// Computes `rows` rows of a tile.
///
/// # Safety
/// `isa` is present; `a`, `b`, `c` are valid for all that [`Tile`] describes.
pub(super) unsafe fn tile(isa: Isa, math: Math, rows: usize, t: Tile) {
    debug_assert!((1..=TILE_ROWS).contains(&rows));
    // SAFETY: passed on from the caller.
    unsafe {
        match (isa, math) {
            (Isa::Avx512Bf16 | Isa::Avx512, Math::F32) => wide::<false>(isa, rows, t),
            (Isa::Avx512Bf16 | Isa::Avx512, Math::Bf16) => wide::<true>(isa, rows, t),
            (_, Math::F32) => narrow::<false>(isa, rows, t),
            (_, Math::Bf16) => narrow::<true>(isa, rows, t),
        }
    }
}

/// 32 vector registers: `rows` x 2 sums.
unsafe fn wide<const BF16: bool>(isa: Isa, rows: usize, t: Tile) {
    // SAFETY: passed on from the caller.
    unsafe {
        match rows {
            1 => dispatch_wide(isa, Whole::<1, BF16>(t)),
            2 => dispatch_wide(isa, Whole::<2, BF16>(t)),
            3 => dispatch_wide(isa, Whole::<3, BF16>(t)),
            4 => dispatch_wide(isa, Whole::<4, BF16>(t)),
            5 => dispatch_wide(isa, Whole::<5, BF16>(t)),
            6 => dispatch_wide(isa, Whole::<6, BF16>(t)),
            7 => dispatch_wide(isa, Whole::<7, BF16>(t)),
            8 => dispatch_wide(isa, Whole::<8, BF16>(t)),
            9 => dispatch_wide(isa, Whole::<9, BF16>(t)),
            10 => dispatch_wide(isa, Whole::<10, BF16>(t)),
            11 => dispatch_wide(isa, Whole::<11, BF16>(t)),
            _ => dispatch_wide(isa, Whole::<12, BF16>(t)),
        }
    }
}

/// 16 vector registers: at most 6 rows at a time, half a panel at a time.
unsafe fn narrow<const BF16: bool>(isa: Isa, rows: usize, t: Tile) {
    let most = if isa == Isa::Avx2 { 6 } else { 3 };
    let mut done = 0;
    while done < rows {
        let some = (rows - done).min(most);
        let t = t.down(done);
        // SAFETY: passed on from the caller.
        unsafe {
            match some {
                1 => dispatch(isa, Halves::<1, BF16>(t)),
                2 => dispatch(isa, Halves::<2, BF16>(t)),
                3 => dispatch(isa, Halves::<3, BF16>(t)),
                4 => dispatch(isa, Halves::<4, BF16>(t)),
                5 => dispatch(isa, Halves::<5, BF16>(t)),
                _ => dispatch(isa, Halves::<6, BF16>(t)),
            }
        }
        done += some;
    }
}

struct Whole<const ROWS: usize, const BF16: bool>(Tile);

impl<const ROWS: usize, const BF16: bool> Op for Whole<ROWS, BF16> {
    type Result = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on from the caller.
        unsafe { products::<S, ROWS, 2, BF16>(self.0) }
    }
}

struct Halves<const ROWS: usize, const BF16: bool>(Tile);

impl<const ROWS: usize, const BF16: bool> Op for Halves<ROWS, BF16> {
    type Result = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for half in 0..2 {
            let (b, c) = (self.0.b.wrapping_add(half * LANES), self.0.c.wrapping_add(half * LANES));
            // SAFETY: passed on from the caller.
            unsafe { products::<S, ROWS, 1, BF16>(Tile { b, c, ..self.0 }) }
        }
    }
}

/// How far ahead of its use a line of the panel is asked for, in words: it streams from L2 or L3.
const AHEAD: usize = 16 * PANEL;

#[inline(always)]
unsafe fn products<S: Simd, const ROWS: usize, const VECS: usize, const BF16: bool>(t: Tile) {
    // SAFETY: passed on from the caller; prefetches may point anywhere.
    unsafe {
        let mut sums = [[S::splat(0.0); VECS]; ROWS];
        if t.add {
            for (i, row) in sums.iter_mut().enumerate() {
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum = S::load(t.c.add(i * t.c_stride + j * LANES));
                }
            }
        }
        let mut b = t.b;
        for seg in 0..t.segs {
            let mut a = t.a.add(seg * t.seg_stride);
            for _ in 0..t.seg_words {
                if VECS == 2 {
                    S::prefetch(b.wrapping_add(AHEAD));
                    S::prefetch(b.wrapping_add(AHEAD + LANES));
                }
                if BF16 {
                    let mut bv = [S::load_p(b); VECS];
                    for (j, v) in bv.iter_mut().enumerate().skip(1) {
                        *v = S::load_p(b.add(j * LANES));
                    }
                    for (i, row) in sums.iter_mut().enumerate() {
                        let av = S::splat_p(a.add(i * t.stride));
                        for (sum, bv) in row.iter_mut().zip(bv) {
                            *sum = S::dot(*sum, av, bv);
                        }
                    }
                } else {
                    let mut bv = [S::load(b.cast()); VECS];
                    for (j, v) in bv.iter_mut().enumerate().skip(1) {
                        *v = S::load(b.add(j * LANES).cast());
                    }
                    for (i, row) in sums.iter_mut().enumerate() {
                        let av = S::splat(a.add(i * t.stride).cast::<f32>().read());
                        for (sum, bv) in row.iter_mut().zip(bv) {
                            *sum = S::fma(av, bv, *sum);
                        }
                    }
                }
                a = a.add(1);
                b = b.add(PANEL);
            }
        }
        for (i, row) in sums.into_iter().enumerate() {
            for (j, sum) in row.into_iter().enumerate() {
                S::store(t.c.add(i * t.c_stride + j * LANES), sum);
            }
        }
    }
}

/// Divides `rows` into about equal tiles: `(first row, rows)` of each. A lone short tile would waste the multiplier.
pub(super) fn tiles(rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let n = rows.div_ceil(TILE_ROWS);
    (0..n).map(move |i| {
        let (from, to) = (rows * i / n, rows * (i + 1) / n);
        (from, to - from)
    })
}
