//! What happens at the pixels besides the 3x3 convolution: a fused 1x1 convolution to few channels, the transposed
//! convolution whose taps do not overlap, and the patch embedding.
#![allow(unsafe_code)] // Calls the tile kernels.

use half::bf16;

use super::ctx::{Ctx, word_bytes};
use super::data::{Dst, Math, Out, PANEL, Packed, Src};
use super::finish::{Finish, Place, finish};
use super::gemm::{bias_ptr, blocks, gemm_scratch_bytes};
use super::math::Act;
use super::pack::conv_transpose_n;
use super::rows::{CopyRows, copy_rows};
use super::simd::{LANES, Op, Simd};

/// A 1x1 convolution to `n` channels, in f32.
#[derive(Clone, Copy)]
pub struct Pointwise<'a> {
    pub n: usize,
    /// `[n, cout]`, cout being the channels of the convolution before.
    pub w: &'a [f32],
    /// `[n]`.
    pub bias: Option<&'a [f32]>,
}

impl Pointwise<'_> {
    /// Checked for `cout` input channels; returns its own.
    pub(super) fn check(&self, cout: usize) -> usize {
        assert!(
            self.n > 0 && self.w.len() == self.n * cout,
            "pointwise: {} weights for [{}, {cout}]",
            self.w.len(),
            self.n
        );
        assert!(self.bias.is_none_or(|b| b.len() >= self.n), "pointwise: bias shorter than {}", self.n);
        self.n
    }

    /// Sums `[pixels, n]` that start at the bias.
    pub(super) fn start(&self, acc: *mut f32, pixels: usize) -> *mut f32 {
        for i in 0..pixels * self.n {
            // SAFETY: the caller gives room for `[pixels, n]`.
            unsafe { acc.add(i).write(self.bias.map_or(0.0, |b| b[i % self.n])) };
        }
        acc
    }

    /// Stores sums `[pixels, n]`.
    ///
    /// # Safety
    /// `acc` and `out` hold `pixels` pixels.
    pub(super) unsafe fn finish(&self, acc: *const f32, pixels: usize, out: Out) {
        for pixel in 0..pixels {
            let dst = out.at(pixel, 0).ptr;
            for o in 0..self.n {
                // SAFETY: passed on from the caller.
                unsafe {
                    let sum = acc.add(pixel * self.n + o).read();
                    if out.bf16 {
                        dst.cast::<bf16>().add(o).write(bf16::from_f32(sum));
                    } else {
                        dst.cast::<f32>().add(o).write(sum);
                    }
                }
            }
        }
    }
}

/// One finished tile `[place.count][PANEL]` into the sums of a [`Pointwise`].
pub(super) struct PointwiseTile {
    x: *const f32,
    place: Place,
    /// At the tile's first channel, row stride `w_stride`.
    w: *const f32,
    w_stride: usize,
    n: usize,
    acc: *mut f32,
}

impl PointwiseTile {
    pub fn new(p: Pointwise, x: *const f32, place: Place, acc: *mut f32) -> PointwiseTile {
        let w = p.w.as_ptr().wrapping_add(place.col);
        PointwiseTile { x, place, w, w_stride: p.w.len() / p.n, n: p.n, acc }
    }
}

impl Op for PointwiseTile {
    type Result = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on from the caller. Columns of `x` beyond the channels are finite and meet zero weights.
        unsafe {
            let cols = self.place.cols;
            for o in 0..self.n {
                let w = self.w.add(o * self.w_stride);
                let w0 = S::load_n(w, LANES.min(cols));
                let w1 = if cols > LANES { S::load_n(w.add(LANES), cols - LANES) } else { S::splat(0.0) };
                for i in 0..self.place.count {
                    let x = self.x.add(i * PANEL);
                    let dot = S::fma(S::load(x), w0, S::mul(S::load(x.add(LANES)), w1));
                    *self.acc.add(i * self.n + o) += S::sum(dot);
                }
            }
        }
    }
}

/// A transposed convolution with kernel = stride = `s`. out: `[batch, h*s, w*s, cout]`, x: `[batch, h, w, cin]`.
pub struct ConvTranspose<'a> {
    pub batch: usize,
    pub h: usize,
    pub w: usize,
    pub cin: usize,
    pub cout: usize,
    pub s: usize,
    /// The stride is between pixels.
    pub x: Src<'a>,
    /// From `pack_conv_transpose_*`.
    pub b: Packed<'a>,
    pub bias: Option<&'a [f32]>,
    pub out: Dst<'a>,
}

/// Scratch bytes per thread of [`conv_transpose`].
pub fn conv_transpose_scratch_bytes(cin: usize, math: Math) -> usize {
    gemm_scratch_bytes(cin, math)
}

pub fn conv_transpose(ctx: &mut Ctx, mut g: ConvTranspose) {
    let (h, w, s, k) = (g.h, g.w, g.s, g.cin);
    let team = ctx.team(conv_transpose_scratch_bytes(k, g.b.math()));
    let m = g.batch * h * w;
    let a = g.x.raw("conv_transpose x", m, k);
    let n = conv_transpose_n(g.cout, s);
    let b = g.b.raw("conv_transpose b", n, k);
    let fin = Finish {
        bias: bias_ptr(g.bias, g.cout),
        act: Act::None,
        residual: [None; 2],
        out: g.out.raw("conv_transpose out", m * s * s, g.cout),
    };
    let per_tap = g.cout.div_ceil(PANEL);
    blocks(
        team,
        m,
        b,
        n / PANEL,
        |row, rows, dst, stride| {
            let op =
                CopyRows { src: a.at(row, 0), rows, k, dst, stride, math: b.math, norm: None, relu: false };
            // SAFETY: `x` was checked for all pixels, the block has room for these.
            unsafe { copy_rows(team.isa, op) }
        },
        |panel, row, count, sums| {
            let (tap, col) = (panel / per_tap, panel % per_tap * PANEL);
            let (dy, dx) = (tap / s, tap % s);
            // Pixel (line, x) over the whole batch goes to (line * s + dy, x * s + dx).
            let place = Place::new(count, col, g.cout, |i| {
                let (line, x) = ((row + i) / w, (row + i) % w);
                (line * s + dy) * w * s + x * s + dx
            });
            // SAFETY: `out` was checked for all pixels; no other task has these pixels and channels.
            unsafe { finish(team.isa, &fin, sums, &place) }
        },
    );
}

/// A convolution of kernel = stride = `p` on a planar image. out: `[batch * h/p * w/p, n]`.
pub struct PatchEmbed<'a> {
    pub batch: usize,
    pub channels: usize,
    /// Rows and columns of the image, multiples of `p`.
    pub h: usize,
    pub w: usize,
    pub p: usize,
    pub n: usize,
    /// `[batch, channels, h, w]`.
    pub image: &'a [f32],
    /// `[n, channels * p * p]`, by `pack_f32` or `pack_bf16`.
    pub b: Packed<'a>,
    pub bias: Option<&'a [f32]>,
    pub out: Dst<'a>,
}

/// Scratch bytes per thread of [`patch_embed`].
pub fn patch_embed_scratch_bytes(channels: usize, p: usize, math: Math) -> usize {
    let k = channels * p * p;
    gemm_scratch_bytes(k, math) + word_bytes(k)
}

pub fn patch_embed(ctx: &mut Ctx, mut g: PatchEmbed) {
    let PatchEmbed { channels, h, w, p, n, image, .. } = g;
    assert!(p > 0 && h.is_multiple_of(p) && w.is_multiple_of(p), "patch_embed: {h}x{w} in patches of {p}");
    assert_eq!(image.len(), g.batch * channels * h * w, "patch_embed: image size");
    let (k, gw, per_image) = (channels * p * p, w / p, (h / p) * (w / p));
    let team = ctx.team(patch_embed_scratch_bytes(channels, p, g.b.math()));
    let m = g.batch * per_image;
    let b = g.b.raw("patch_embed b", n, k);
    let out = g.out.raw("patch_embed out", m, n);
    let fin = Finish { bias: bias_ptr(g.bias, n), act: Act::None, residual: [None; 2], out };
    blocks(
        team,
        m,
        b,
        n.div_ceil(PANEL),
        |row, rows, dst, stride| {
            let mut scratch = team.scratch();
            scratch.words(rows * stride); // The block itself, at `dst`.
            let patch = scratch.floats(k);
            for r in 0..rows {
                let (batch, token) = ((row + r) / per_image, (row + r) % per_image);
                let (y, x) = (token / gw * p, token % gw * p);
                for line in 0..channels * p {
                    let at = ((batch * channels + line / p) * h + y + line % p) * w + x;
                    let pixels = &image[at..at + p];
                    // SAFETY: the patch buffer has `channels * p` lines of `p`.
                    unsafe { patch.add(line * p).copy_from_nonoverlapping(pixels.as_ptr(), p) };
                }
                let src = super::data::In { ptr: patch.cast(), bf16: false, stride: k };
                let dst = dst.wrapping_add(r * stride);
                // SAFETY: the patch has `k` floats, the block this row.
                unsafe {
                    copy_rows(
                        team.isa,
                        CopyRows { src, rows: 1, k, dst, stride, math: b.math, norm: None, relu: false },
                    );
                }
            }
        },
        |panel, row, count, sums| {
            let place = Place::new(count, panel * PANEL, n, |i| row + i);
            // SAFETY: `out` was checked for `[m, n]`; no other task has these rows and columns.
            unsafe { finish(team.isa, &fin, sums, &place) }
        },
    );
}
