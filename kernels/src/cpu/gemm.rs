//! Matrix product with fused prologue and epilogue, and the two-layer perceptron built from two of them.
#![allow(unsafe_code)] // Calls the tile kernels.

use std::ops::Range;

use super::Isa;
use super::ctx::{Ctx, Team, word_bytes};
use super::data::{Dst, In, Math, PANEL, Packed, Panels, Src};
use super::finish::{Finish, Place, finish};
use super::math::Act;
use super::rows::{CopyRows, copy_rows, padded};
use super::tile::{TILE_ROWS, Tile, TileBuf, tile, tiles};

/// Most rows that one task holds in scratch: four tiles, so that a panel is read from L2 and not from L3.
pub(super) const BLOCK_ROWS: usize = 4 * TILE_ROWS;

/// out = act(prologue(a) * b^T + bias) + residuals. a: `[m, k]`, b: packed `[n, k]`, out: `[m, n]`.
pub struct Gemm<'a> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Src<'a>,
    /// Epsilon: each row of `a` becomes (x - mean) / sqrt(var + eps). Scale and shift belong into `b` and `bias`.
    pub norm: Option<f32>,
    /// max(x, 0) on `a`, after the normalisation.
    pub pre_relu: bool,
    /// Its type is the type of the products.
    pub b: Packed<'a>,
    /// `[n]`.
    pub bias: Option<&'a [f32]>,
    pub act: Act,
    /// `[m, n]`, added after the activation.
    pub residual: [Option<Src<'a>>; 2],
    pub out: Dst<'a>,
}

/// Scratch bytes per thread of [`gemm`].
pub fn gemm_scratch_bytes(k: usize, math: Math) -> usize {
    word_bytes(BLOCK_ROWS * padded(math.words(k)))
}

pub fn gemm(ctx: &mut Ctx, mut g: Gemm) {
    let team = ctx.team(gemm_scratch_bytes(g.k, g.b.math()));
    let a = g.a.raw("gemm a", g.m, g.k);
    let b = g.b.raw("gemm b", g.n, g.k);
    let fin = Finish {
        bias: bias_ptr(g.bias, g.n),
        act: g.act,
        residual: g.residual.map(|r| r.map(|r| r.raw("gemm residual", g.m, g.n))),
        out: g.out.raw("gemm out", g.m, g.n),
    };
    let (norm, relu, k) = (g.norm, g.pre_relu, g.k);
    blocks(
        team,
        g.m,
        b,
        g.n.div_ceil(PANEL),
        |row, rows, dst, stride| {
            let op = CopyRows { src: a.at(row, 0), rows, k, dst, stride, math: b.math, norm, relu };
            // SAFETY: `a` was checked for all rows, the block has room for these.
            unsafe { copy_rows(team.isa, op) }
        },
        |panel, row, count, sums| {
            let place = Place::new(count, panel * PANEL, g.n, |i| row + i);
            // SAFETY: all operands were checked for `[m, n]`; no other task has these rows and columns.
            unsafe { finish(team.isa, &fin, sums, &place) }
        },
    );
}

/// A checked bias: `[n]`, or null.
pub(super) fn bias_ptr(bias: Option<&[f32]>, n: usize) -> *const f32 {
    bias.map_or(std::ptr::null(), |b| {
        assert!(b.len() >= n, "a bias of {} for {n} results", b.len());
        b.as_ptr()
    })
}

/// The common drive of everything that is a product over rows: divides `m` rows into blocks and the panels of `b` into
/// chunks, has `fill(row, rows, dst, stride)` write each block's words, and hands the sums
/// `[count][PANEL]` of each tile to `done(panel, row, count, sums)`.
pub(super) fn blocks(
    team: Team,
    m: usize,
    b: Panels,
    panels: usize,
    fill: impl Fn(usize, usize, *mut u32, usize) + Sync,
    done: impl Fn(usize, usize, usize, *const f32) + Sync,
) {
    if m == 0 || panels == 0 {
        return;
    }
    // A multiple of the workers in blocks, and with few blocks several chunks of panels to each.
    let nblocks = m.div_ceil(BLOCK_ROWS);
    let (nblocks, chunks) = if nblocks >= 4 * team.threads {
        (nblocks.next_multiple_of(team.threads).min(m), 1)
    } else {
        (nblocks, (4 * team.threads).div_ceil(nblocks).min(panels.div_ceil(2)))
    };
    let stride = padded(b.words);
    team.par_for(nblocks * chunks, |task| {
        let (block, chunk) = (task / chunks, task % chunks);
        let row = m * block / nblocks;
        let rows = m * (block + 1) / nblocks - row;
        let dst = team.scratch().words(rows * stride);
        fill(row, rows, dst, stride);
        let range = panels * chunk / chunks..panels * (chunk + 1) / chunks;
        block_panels(team.isa, dst, stride, rows, b, range, |panel, from, count, sums| {
            done(panel, row + from, count, sums);
        });
    });
}

/// All tiles of a block of `rows` rows of words at `a`, panel by panel.
fn block_panels(
    isa: Isa,
    a: *const u32,
    stride: usize,
    rows: usize,
    b: Panels,
    panels: Range<usize>,
    done: impl Fn(usize, usize, usize, *const f32),
) {
    let mut buf = TileBuf([0.0; TILE_ROWS * PANEL]);
    for panel in panels {
        for (from, count) in tiles(rows) {
            let t = Tile {
                a: a.wrapping_add(from * stride),
                stride,
                seg_words: b.words,
                segs: 1,
                seg_stride: 0,
                b: b.panel(panel),
                c: buf.0.as_mut_ptr(),
                c_stride: PANEL,
                add: false,
            };
            // SAFETY: the block has `rows` rows of `b.words` words, the buffer a whole tile.
            unsafe { tile(isa, b.math, count, t) };
            done(panel, from, count, buf.0.as_ptr());
        }
    }
}

/// out = gelu(prologue(a) * w1^T + bias1) * w2^T + bias2 + residual. a: `[m, k]`, w1: packed `[hidden, k]`,
/// w2: packed `[n, hidden]` of the same type, out: `[m, n]`. The hidden rows never leave the cache.
pub struct Mlp<'a> {
    pub m: usize,
    pub k: usize,
    pub hidden: usize,
    pub n: usize,
    pub a: Src<'a>,
    /// As in [`Gemm`].
    pub norm: Option<f32>,
    pub w1: Packed<'a>,
    pub bias1: Option<&'a [f32]>,
    pub w2: Packed<'a>,
    pub bias2: Option<&'a [f32]>,
    pub residual: [Option<Src<'a>>; 2],
    pub out: Dst<'a>,
}

/// Scratch bytes per thread of [`mlp`].
pub fn mlp_scratch_bytes(k: usize, hidden: usize, math: Math) -> usize {
    word_bytes(BLOCK_ROWS * padded(math.words(k))) + word_bytes(BLOCK_ROWS * padded(math.words(hidden)))
}

pub fn mlp(ctx: &mut Ctx, mut g: Mlp) {
    let math = g.w1.math();
    assert_eq!(math, g.w2.math(), "mlp: both weights have one type");
    let team = ctx.team(mlp_scratch_bytes(g.k, g.hidden, math));
    let a = g.a.raw("mlp a", g.m, g.k);
    let (w1, w2) = (g.w1.raw("mlp w1", g.hidden, g.k), g.w2.raw("mlp w2", g.n, g.hidden));
    let bias1 = bias_ptr(g.bias1, g.hidden);
    let fin = Finish {
        bias: bias_ptr(g.bias2, g.n),
        act: Act::None,
        residual: g.residual.map(|r| r.map(|r| r.raw("mlp residual", g.m, g.n))),
        out: g.out.raw("mlp out", g.m, g.n),
    };
    // Rows are the only parallel dimension: smaller blocks when there are many workers.
    let block = g.m.div_ceil(2 * team.threads).next_multiple_of(TILE_ROWS).min(BLOCK_ROWS);
    let nblocks = g.m.div_ceil(block.max(1)).next_multiple_of(team.threads).min(g.m);
    let shape = MlpShape { k: g.k, hidden: g.hidden, n: g.n, norm: g.norm, w1, w2, bias1: SendPtr(bias1) };
    team.par_for(nblocks, |i| {
        let row = g.m * i / nblocks;
        let rows = g.m * (i + 1) / nblocks - row;
        mlp_block(team, &shape, a, &fin, row, rows);
    });
}

struct SendPtr(*const f32);
// SAFETY: only read, and the borrow it was made from outlives the kernel call.
unsafe impl Sync for SendPtr {}

struct MlpShape {
    k: usize,
    hidden: usize,
    n: usize,
    norm: Option<f32>,
    w1: Panels,
    w2: Panels,
    bias1: SendPtr,
}

fn mlp_block(team: Team, s: &MlpShape, a: In, fin: &Finish, row: usize, rows: usize) {
    let math = s.w1.math;
    let (stride, hidden_stride) = (padded(s.w1.words), padded(s.w2.words));
    let mut scratch = team.scratch();
    let block = scratch.words(rows * stride);
    let hidden = scratch.words(rows * hidden_stride);
    let op =
        CopyRows { src: a.at(row, 0), rows, k: s.k, dst: block, stride, math, norm: s.norm, relu: false };
    // SAFETY: `a` was checked for all rows, the block has room for these.
    unsafe { copy_rows(team.isa, op) };
    let per_word = if math == Math::Bf16 { 2 } else { 1 };
    let inner = Finish {
        bias: s.bias1.0,
        act: Act::Gelu,
        residual: [None; 2],
        out: super::data::Out {
            ptr: hidden.cast(),
            bf16: math == Math::Bf16,
            stride: hidden_stride * per_word,
        },
    };
    block_panels(
        team.isa,
        block,
        stride,
        rows,
        s.w1,
        0..s.hidden.div_ceil(PANEL),
        |panel, from, count, sums| {
            let place = Place::new(count, panel * PANEL, s.hidden, |i| from + i);
            // SAFETY: the hidden block has `rows` rows of `hidden` elements.
            unsafe { finish(team.isa, &inner, sums, &place) }
        },
    );
    for r in 0..rows {
        // SAFETY: each row has `words(hidden)` words.
        unsafe { super::rows::close(hidden.add(r * hidden_stride), math, s.hidden) };
    }
    block_panels(
        team.isa,
        hidden,
        hidden_stride,
        rows,
        s.w2,
        0..s.n.div_ceil(PANEL),
        |panel, from, count, sums| {
            let place = Place::new(count, panel * PANEL, s.n, |i| row + from + i);
            // SAFETY: all operands were checked for `[m, n]`; no other task has these rows.
            unsafe { finish(team.isa, fin, sums, &place) }
        },
    );
}
