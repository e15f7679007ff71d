//! The 3x3 convolution: strips of rows with a zero border in scratch, and tiles whose rows are neighbouring output
//! pixels, summed over three segments (one a kernel row) of three adjacent pixels each.
#![allow(unsafe_code)] // Calls the tile kernels on scratch memory.

use super::ctx::{Ctx, Scratch, Team, word_bytes};
use super::data::{Dst, In, Math, Out, PANEL, Packed, Panels, Src};
use super::finish::{Finish, Place, finish};
use super::gemm::bias_ptr;
use super::math::Act;
use super::pack::conv3x3_k;
use super::pixels::{Pointwise, PointwiseTile};
use super::resample::DoubleRow;
use super::rows::{CopyRows, copy_rows};
use super::simd::dispatch;
use super::tile::{TILE_ROWS, Tile, TileBuf, tile, tiles};

/// The shape of a [`Conv3x3`]. Padding is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    pub batch: usize,
    /// Of `x`, so before any doubling.
    pub h: usize,
    pub w: usize,
    pub cin: usize,
    pub cout: usize,
    /// 1 or 2.
    pub stride: usize,
    /// Whether `x` is first doubled bilinearly (as [`upsample2`](super::upsample2)).
    pub upsample2: bool,
}

impl ConvShape {
    /// Rows and columns of the map that is convolved.
    fn map(&self) -> (usize, usize) {
        let by = if self.upsample2 { 2 } else { 1 };
        (self.h * by, self.w * by)
    }

    /// Rows and columns of the output.
    pub fn out(&self) -> (usize, usize) {
        let (h, w) = self.map();
        (h.div_ceil(self.stride), w.div_ceil(self.stride))
    }

    /// Output rows of a strip: enough pixels to use a panel of weights well, and four rows so that not too many
    /// border rows are prepared twice.
    fn strip(&self) -> usize {
        let (h, w) = self.out();
        (8 * TILE_ROWS).div_ceil(w.max(1)).max(4).min(h.max(1))
    }

    /// Words of a pixel in a strip.
    fn pixel(&self, math: Math) -> usize {
        math.words(self.cin.next_multiple_of(2))
    }

    /// Words of a strip: rows times bordered width.
    fn strip_words(&self, math: Math) -> usize {
        ((self.strip() - 1) * self.stride + 3) * (self.map().1 + 2) * self.pixel(math)
    }
}

/// out = act(conv(prologue(x)) + bias) + residuals, or with `pointwise` the 1x1 convolution of that.
pub struct Conv3x3<'a> {
    pub shape: ConvShape,
    /// max(x, 0) on the input, after any doubling.
    pub pre_relu: bool,
    /// `[batch, h, w, cin]`; the stride is between pixels.
    pub x: Src<'a>,
    /// From `pack_conv3x3_*`; its type is the type of the products.
    pub b: Packed<'a>,
    pub bias: Option<&'a [f32]>,
    pub act: Act,
    /// `[batch, out rows, out columns, cout]`; not together with `pointwise`.
    pub residual: [Option<Src<'a>>; 2],
    /// The wide map is then never written, and `out` has `pointwise.n` channels.
    pub pointwise: Option<Pointwise<'a>>,
    /// `[batch, out rows, out columns, channels]`.
    pub out: Dst<'a>,
}

/// Scratch bytes per thread of [`conv3x3`]; `pointwise` is the number of channels of a fused 1x1 convolution, or 0.
pub fn conv3x3_scratch_bytes(shape: &ConvShape, math: Math, pointwise: usize) -> usize {
    let row = if shape.upsample2 { shape.w * shape.cin } else { 0 };
    word_bytes(shape.strip_words(math))
        + word_bytes(row)
        + word_bytes(shape.strip() * shape.out().1 * pointwise)
}

/// The checked operands of one call.
struct Call<'a> {
    shape: ConvShape,
    pre_relu: bool,
    x: In,
    b: Panels,
    fin: Finish,
    pointwise: Option<Pointwise<'a>>,
}

pub fn conv3x3(ctx: &mut Ctx, mut g: Conv3x3) {
    let s = g.shape;
    assert!(s.stride == 1 || s.stride == 2, "conv3x3: stride {}", s.stride);
    let (ho, wo) = s.out();
    let channels = g.pointwise.map_or(s.cout, |p| p.check(s.cout));
    assert!(
        g.pointwise.is_none() || g.residual.iter().all(|r| r.is_none()),
        "conv3x3: residual and pointwise"
    );
    let team = ctx.team(conv3x3_scratch_bytes(&s, g.b.math(), g.pointwise.map_or(0, |p| p.n)));
    let pixels = s.batch * ho * wo;
    let call = Call {
        shape: s,
        pre_relu: g.pre_relu,
        x: g.x.raw("conv3x3 x", s.batch * s.h * s.w, s.cin),
        b: g.b.raw("conv3x3 b", s.cout, conv3x3_k(s.cin)),
        fin: Finish {
            bias: bias_ptr(g.bias, s.cout),
            act: g.act,
            residual: g.residual.map(|r| r.map(|r| r.raw("conv3x3 residual", pixels, s.cout))),
            out: g.out.raw("conv3x3 out", pixels, channels),
        },
        pointwise: g.pointwise,
    };
    if pixels == 0 {
        return;
    }
    let (strips, panels) = (ho.div_ceil(s.strip()), s.cout.div_ceil(PANEL));
    let tasks = s.batch * strips;
    // With few strips the panels are divided too, but not under a fused 1x1, which needs all channels.
    let chunks = if tasks >= 4 * team.threads || g.pointwise.is_some() {
        1
    } else {
        (4 * team.threads).div_ceil(tasks).min(panels.div_ceil(2)).max(1)
    };
    team.par_for(tasks * chunks, |task| {
        let (strip, chunk) = (task / chunks, task % chunks);
        let (batch, strip) = (strip / strips, strip % strips);
        let rows = ho * strip / strips..ho * (strip + 1) / strips;
        let range = panels * chunk / chunks..panels * (chunk + 1) / chunks;
        call.strip(team, batch, rows.start, rows.len(), range);
    });
}

impl Call<'_> {
    /// Rows `row..row + rows` of the output of one image, for some panels of output channels.
    fn strip(&self, team: Team, batch: usize, row: usize, rows: usize, panels: std::ops::Range<usize>) {
        let s = &self.shape;
        let (math, pixel) = (self.b.math, s.pixel(self.b.math));
        let pitch = (s.map().1 + 2) * pixel;
        let (ho, wo) = s.out();
        let mut scratch = team.scratch();
        let strip = scratch.words(s.strip_words(math));
        self.fill(team, &mut scratch, batch, row, rows, strip);
        let first = (batch * ho + row) * wo;
        let wide = self.pointwise.map(|p| (p, p.start(scratch.floats(rows * wo * p.n), rows * wo)));
        let mut buf = TileBuf([0.0; TILE_ROWS * PANEL]);
        let sums = buf.0.as_mut_ptr();
        for panel in panels {
            for (r, (x, count)) in (0..rows).flat_map(|r| tiles(wo).map(move |t| (r, t))) {
                let t = Tile {
                    a: strip.wrapping_add(r * s.stride * pitch + x * s.stride * pixel),
                    stride: s.stride * pixel,
                    seg_words: 3 * pixel,
                    segs: 3,
                    seg_stride: pitch,
                    b: self.b.panel(panel),
                    c: sums,
                    c_stride: PANEL,
                    add: false,
                };
                // SAFETY: the strip has the three rows under every output row, with borders.
                unsafe { tile(team.isa, math, count, t) };
                let at = r * wo + x;
                let col = panel * PANEL;
                let Some((pointwise, acc)) = wide else {
                    let place = Place::new(count, col, s.cout, |i| first + at + i);
                    // SAFETY: all operands were checked; no other task has these pixels and channels.
                    unsafe { finish(team.isa, &self.fin, sums, &place) };
                    continue;
                };
                // Back into the tile's buffer, whose first column is output channel `col`.
                let out = Out { ptr: sums.wrapping_sub(col).cast(), bf16: false, stride: PANEL };
                let fin = Finish { out, ..self.fin };
                let place = Place::new(count, col, s.cout, |i| i);
                let acc = acc.wrapping_add(at * pointwise.n);
                // SAFETY: the buffer holds the tile, `acc` the strip's pixels.
                unsafe {
                    finish(team.isa, &fin, sums, &place);
                    dispatch(team.isa, PointwiseTile::new(pointwise, sums, place, acc));
                }
            }
        }
        if let Some((pointwise, acc)) = wide {
            // SAFETY: `out` was checked for these pixels, which no other task has.
            unsafe { pointwise.finish(acc, rows * wo, self.fin.out.at(first, 0)) };
        }
    }

    /// The input rows under a strip with a border of zeros, in the type of the math.
    fn fill(
        &self,
        team: Team,
        scratch: &mut Scratch,
        batch: usize,
        row: usize,
        rows: usize,
        strip: *mut u32,
    ) {
        let s = &self.shape;
        let (math, pixel) = (self.b.math, s.pixel(self.b.math));
        let (h, w) = s.map();
        let pitch = (w + 2) * pixel;
        let image = self.x.at(batch * s.h * s.w, 0);
        let doubled = if s.upsample2 { scratch.floats(s.w * s.cin) } else { std::ptr::null_mut() };
        for r in 0..(rows - 1) * s.stride + 3 {
            let line = strip.wrapping_add(r * pitch);
            let inside = line.wrapping_add(pixel);
            let y = (row * s.stride + r).checked_sub(1).filter(|y| *y < h);
            // An odd f32 pixel has a word of padding that nothing else writes.
            let blank = y.is_none() || (s.cin % 2 == 1 && math == Math::F32);
            // SAFETY: the strip has this line; image and scratch row were checked.
            unsafe {
                if blank {
                    line.write_bytes(0, pitch);
                } else {
                    line.write_bytes(0, pixel);
                    line.add(pitch - pixel).write_bytes(0, pixel);
                }
                let Some(y) = y else { continue };
                if s.upsample2 {
                    let stride = s.cin.next_multiple_of(2);
                    let out = Out { ptr: inside.cast(), bf16: math == Math::Bf16, stride };
                    if s.cin % 2 == 1 {
                        line.write_bytes(0, pitch);
                    }
                    let (h, w, c, relu) = (s.h, s.w, s.cin, self.pre_relu);
                    dispatch(team.isa, DoubleRow { map: image, h, w, c, y, row: doubled, out, relu });
                    continue;
                }
                // Adjacent pixels without padding are one long row.
                let joined = image.stride == s.cin && s.cin.is_multiple_of(2);
                let (count, k) = if joined { (1, w * s.cin) } else { (w, s.cin) };
                let (src, relu) = (image.at(y * w, 0), self.pre_relu);
                copy_rows(
                    team.isa,
                    CopyRows { src, rows: count, k, dst: inside, stride: pixel, math, norm: None, relu },
                );
            }
        }
    }
}
