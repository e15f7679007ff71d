//! Attention whose scores never leave the cache: keys and values of a head are packed once, then blocks of queries
//! run over blocks of keys with a running maximum and sum.
#![allow(unsafe_code)] // Calls the tile kernels on scratch memory.

use super::ctx::{Ctx, Scratch, Team, word_bytes};
use super::data::{Dst, In, Math, Out, PANEL, Src};
use super::heads::{HeadRows, RopeAt, Softmax, StoreRows, ValuePanels};
use super::rows::padded;
use super::simd::dispatch;
use super::tile::{TILE_ROWS, Tile, tile, tiles};

/// Queries of a block: its tiles share each panel of keys while that is in L1.
const Q_BLOCK: usize = 2 * TILE_ROWS;
/// Keys of a block: the scores `[Q_BLOCK, K_BLOCK]` stay in L1 or near.
const K_BLOCK: usize = 256;

/// Where the heads of q, k or v lie: head `h` of token `t` of batch `b` starts at element
/// `b * batch_stride + t * src.stride + offset + h * d`.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    pub src: Src<'a>,
    pub batch_stride: usize,
    pub offset: usize,
}

/// A rotary embedding by grid position: token `t` is at row `t / width`, column `t % width`. The first half of a head
/// turns by the row, the second by the column; inside a half channel `j` pairs with channel `j + d/4`.
#[derive(Clone, Copy)]
pub struct Rope<'a> {
    /// `[positions, d/4]`.
    pub cos: &'a [f32],
    /// `[positions, d/4]`.
    pub sin: &'a [f32],
    pub width: usize,
}

/// out[b, t, h*d..] = softmax(scale * q k^T) v for each head.
pub struct Attention<'a> {
    pub batch: usize,
    pub heads: usize,
    /// Channels of a head: a multiple of 16 up to 128.
    pub d: usize,
    pub nq: usize,
    pub nk: usize,
    pub q: Heads<'a>,
    pub k: Heads<'a>,
    pub v: Heads<'a>,
    pub q_rope: Option<Rope<'a>>,
    pub k_rope: Option<Rope<'a>>,
    /// Positive: the running maximum and the mask of absent keys are those of the unscaled products.
    pub scale: f32,
    /// The type of both products; the softmax is f32.
    pub math: Math,
    /// `[batch * nq, heads * d]`.
    pub out: Dst<'a>,
}

/// Scratch bytes per thread of [`attention`].
pub fn attention_scratch_bytes(d: usize, nk: usize, math: Math) -> usize {
    Sizes::new(d, nk, math).bytes()
}

/// Sizes in words.
struct Sizes {
    /// Words of a head's row, and of the keys padded to whole panels.
    head: usize,
    keys: usize,
    k_panels: usize,
    v_panels: usize,
    group: usize,
    q: usize,
    /// Row strides of the block buffers.
    q_stride: usize,
    s_stride: usize,
    p_stride: usize,
    o_stride: usize,
}

impl Sizes {
    fn new(d: usize, nk: usize, math: Math) -> Sizes {
        let (head, nk) = (math.words(d), nk.next_multiple_of(PANEL));
        let keys = math.words(nk);
        let (q_stride, o_stride) = (padded(head), d.next_multiple_of(PANEL));
        Sizes {
            head,
            keys,
            k_panels: nk * head,
            v_panels: keys * o_stride,
            group: PANEL * q_stride,
            q: Q_BLOCK * q_stride,
            q_stride,
            s_stride: padded(K_BLOCK),
            p_stride: padded(math.words(K_BLOCK)),
            o_stride,
        }
    }

    fn bytes(&self) -> usize {
        let s = self;
        [s.k_panels, s.v_panels, s.group, s.q, Q_BLOCK, Q_BLOCK]
            .into_iter()
            .chain([s.s_stride, s.p_stride, s.o_stride].map(|stride| Q_BLOCK * stride))
            .map(word_bytes)
            .sum()
    }
}

/// A worker's buffers.
struct Buffers {
    k_panels: *mut u32,
    v_panels: *mut u32,
    group: *mut u32,
    q: *mut u32,
    s: *mut f32,
    p: *mut u32,
    o: *mut f32,
    max: *mut f32,
    sum: *mut f32,
}

impl Buffers {
    fn new(z: &Sizes, mut scratch: Scratch) -> Buffers {
        Buffers {
            k_panels: scratch.words(z.k_panels),
            v_panels: scratch.words(z.v_panels),
            group: scratch.words(z.group),
            q: scratch.words(z.q),
            s: scratch.floats(Q_BLOCK * z.s_stride),
            p: scratch.words(Q_BLOCK * z.p_stride),
            o: scratch.floats(Q_BLOCK * z.o_stride),
            max: scratch.floats(Q_BLOCK),
            sum: scratch.floats(Q_BLOCK),
        }
    }
}

/// The checked operands of one call.
struct Call {
    d: usize,
    nk: usize,
    q: In,
    k: In,
    v: In,
    q_rope: Option<RopeAt>,
    k_rope: Option<RopeAt>,
    scale: f32,
    math: Math,
}

pub fn attention(ctx: &mut Ctx, mut a: Attention) {
    let (d, nq, nk) = (a.d, a.nq, a.nk);
    assert!(d > 0 && d <= 128 && d.is_multiple_of(16), "attention: heads of {d} channels");
    assert!(nk > 0, "attention: no keys");
    let z = Sizes::new(d, nk, a.math);
    let team = ctx.team(z.bytes());
    let heads = |h: &Heads, what, n| {
        let cols = h.offset + a.heads * d;
        assert!(a.batch <= 1 || n == 0 || h.batch_stride < usize::MAX / a.batch);
        let extra = a.batch.saturating_sub(1) * h.batch_stride;
        // The last batch's last row, as one long row, covers every batch.
        let all = if n == 0 || a.batch == 0 { 0 } else { extra + (n - 1) * h.src.stride + cols };
        h.src.raw(what, 1, all).at(0, h.offset)
    };
    assert!(a.scale > 0.0, "attention: the scale is not positive");
    let call = Call {
        d,
        nk,
        q: heads(&a.q, "attention q", nq),
        k: heads(&a.k, "attention k", nk),
        v: heads(&a.v, "attention v", nk),
        q_rope: a.q_rope.map(|r| RopeAt::new(r, nq, d)),
        k_rope: a.k_rope.map(|r| RopeAt::new(r, nk, d)),
        scale: a.scale,
        math: a.math,
    };
    let strides = [a.q.batch_stride, a.k.batch_stride, a.v.batch_stride];
    let out = a.out.raw("attention out", a.batch * nq, a.heads * d);
    let (pairs, blocks) = (a.batch * a.heads, nq.div_ceil(Q_BLOCK));
    if pairs == 0 || nq == 0 {
        return;
    }
    // Every task packs its head's keys and values, so heads are divided only when there are few.
    let chunks = (3 * team.threads).div_ceil(pairs).min(blocks.div_ceil(4));
    team.par_for(pairs * chunks, |task| {
        let (pair, chunk) = (task / chunks, task % chunks);
        let (b, h) = (pair / a.heads, pair % a.heads);
        let [q, k, v] = [(call.q, 0), (call.k, 1), (call.v, 2)].map(|(x, i)| x.at(0, b * strides[i] + h * d));
        let buf = Buffers::new(&z, team.scratch());
        pack_keys(team, &call, &z, k, &buf);
        let values = ValuePanels { src: v, rows: nk, d, dst: buf.v_panels, words: z.keys, math: call.math };
        // SAFETY: v was checked for all batches, rows and heads; the panels have room.
        unsafe { dispatch(team.isa, values) };
        for block in blocks * chunk / chunks..blocks * (chunk + 1) / chunks {
            let row = block * Q_BLOCK;
            let rows = Q_BLOCK.min(nq - row);
            queries(team, &call, &z, &buf, q, row, rows, out.at(b * nq + row, h * d));
        }
    });
}

/// K of a head as panels `[keys/32][words][32]`, turned.
fn pack_keys(team: Team, c: &Call, z: &Sizes, k: In, buf: &Buffers) {
    for first in (0..c.nk).step_by(PANEL) {
        let rows = PANEL.min(c.nk - first);
        let op = HeadRows {
            src: k.at(first, 0),
            first,
            rows,
            d: c.d,
            rope: c.k_rope,
            dst: buf.group,
            stride: z.q_stride,
            math: c.math,
        };
        // SAFETY: k was checked for all keys; the group buffer has 32 rows, the panels whole groups of keys.
        unsafe {
            dispatch(team.isa, op);
            let panel = buf.k_panels.add(first * z.head);
            for w in 0..z.head {
                for j in 0..PANEL {
                    let word = if j < rows { buf.group.add(j * z.q_stride + w).read() } else { 0 };
                    panel.add(w * PANEL + j).write(word);
                }
            }
        }
    }
}

/// One block of queries against all keys.
#[allow(clippy::too_many_arguments)] // One call site; a struct would only repeat the names.
fn queries(team: Team, c: &Call, z: &Sizes, buf: &Buffers, q: In, row: usize, rows: usize, out: Out) {
    let isa = team.isa;
    let op = HeadRows {
        src: q.at(row, 0),
        first: row,
        rows,
        d: c.d,
        rope: c.q_rope,
        dst: buf.q,
        stride: z.q_stride,
        math: c.math,
    };
    // SAFETY: q was checked for all queries; the block has room.
    unsafe { dispatch(isa, op) };
    for first in (0..c.nk).step_by(K_BLOCK) {
        let keys = K_BLOCK.min(c.nk - first);
        for panel in 0..keys.div_ceil(PANEL) {
            for (from, count) in tiles(rows) {
                let t = Tile {
                    a: buf.q.wrapping_add(from * z.q_stride),
                    stride: z.q_stride,
                    seg_words: z.head,
                    segs: 1,
                    seg_stride: 0,
                    b: buf.k_panels.wrapping_add((first + panel * PANEL) * z.head),
                    c: buf.s.wrapping_add(from * z.s_stride + panel * PANEL),
                    c_stride: z.s_stride,
                    add: false,
                };
                // SAFETY: the block of queries, the panels of keys and the scores have these sizes.
                unsafe { tile(isa, c.math, count, t) };
            }
        }
        let softmax = Softmax {
            s: buf.s,
            s_stride: z.s_stride,
            rows,
            keys,
            padded: keys.next_multiple_of(PANEL),
            p: buf.p,
            p_stride: z.p_stride,
            math: c.math,
            // exp(scale * x) = 2^(scale * log2(e) * x).
            scale: c.scale * std::f32::consts::LOG2_E,
            max: buf.max,
            sum: buf.sum,
            o: buf.o,
            o_stride: z.o_stride,
            start: first == 0,
        };
        // SAFETY: all buffers have `rows` rows of these strides.
        unsafe { dispatch(isa, softmax) };
        for panel in 0..z.o_stride / PANEL {
            for (from, count) in tiles(rows) {
                let t = Tile {
                    a: buf.p.wrapping_add(from * z.p_stride),
                    stride: z.p_stride,
                    seg_words: c.math.words(keys.next_multiple_of(PANEL)),
                    segs: 1,
                    seg_stride: 0,
                    b: buf.v_panels.wrapping_add((panel * z.keys + c.math.words(first)) * PANEL),
                    c: buf.o.wrapping_add(from * z.o_stride + panel * PANEL),
                    c_stride: z.o_stride,
                    add: first > 0,
                };
                // SAFETY: as above; the values are padded to whole panels of keys.
                unsafe { tile(isa, c.math, count, t) };
            }
        }
    }
    let store = StoreRows { o: buf.o, o_stride: z.o_stride, sum: buf.sum, rows, d: c.d, out };
    // SAFETY: `out` was checked for all rows; no other task has these rows and columns.
    unsafe { dispatch(isa, store) };
}
