//! Attention against f64: packed projections, batches, cross attention, rotary embeddings, both precisions.

mod cpu_support;

use cpu_support::*;
use ttc_kernels::cpu::*;

/// Where q, k or v lie, and what they belong to.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// `[batch * n, ..]`.
    mat: &'a Mat,
    n: usize,
    offset: usize,
    /// Width of the grid of positions.
    rope: Option<usize>,
}

impl<'a> Part<'a> {
    fn heads(&self) -> Heads<'a> {
        Heads { src: self.mat.src(), batch_stride: self.n * self.mat.stride, offset: self.offset }
    }

    /// The tables are one for all grids.
    fn table(&self, table: &'a Table) -> Option<Rope<'a>> {
        self.rope.map(|width| Rope { cos: &table.cos, sin: &table.sin, width })
    }

    /// Head `h` of token `t`, turned by its position.
    fn row(&self, b: usize, t: usize, h: usize, d: usize) -> Vec<f64> {
        let mut x: Vec<f64> = (0..d).map(|i| self.mat.at(b * self.n + t, self.offset + h * d + i)).collect();
        let Some(width) = self.rope else { return x };
        for (half, position) in [t / width, t % width].into_iter().enumerate() {
            for j in 0..d / 4 {
                let (sin, cos) = angle(position, j, d).sin_cos();
                let (i, k) = (half * d / 2 + j, half * d / 2 + j + d / 4);
                (x[i], x[k]) = (x[i] * cos - x[k] * sin, x[k] * cos + x[i] * sin);
            }
        }
        x
    }
}

struct Table {
    cos: Vec<f32>,
    sin: Vec<f32>,
}

fn angle(position: usize, j: usize, d: usize) -> f64 {
    position as f64 * 100f64.powf(-(j as f64) / (d / 4) as f64)
}

impl Table {
    fn new(positions: usize, d: usize) -> Table {
        let all = || (0..positions * (d / 4)).map(|i| angle(i / (d / 4), i % (d / 4), d));
        Table { cos: all().map(|a| a.cos() as f32).collect(), sin: all().map(|a| a.sin() as f32).collect() }
    }
}

#[derive(Clone, Copy)]
struct Case {
    batch: usize,
    heads: usize,
    d: usize,
    scale: f32,
    math: Math,
    out: Math,
}

fn one(what: &str, limit: f64, case: Case, q: Part, k: Part, v: Part) {
    let Case { batch, heads, d, scale, math, out } = case;
    let table = Table::new(q.n.max(k.n), d);
    let mut expected = vec![];
    for b in 0..batch {
        for t in 0..q.n {
            for h in 0..heads {
                let query = q.row(b, t, h, d);
                let scores: Vec<f64> = (0..k.n)
                    .map(|s| {
                        let key = k.row(b, s, h, d);
                        f64::from(scale) * query.iter().zip(&key).map(|(a, b)| a * b).sum::<f64>()
                    })
                    .collect();
                let most = scores.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
                let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
                let total: f64 = weights.iter().sum();
                for i in 0..d {
                    let value = |s: usize| v.mat.at(b * v.n + s, v.offset + h * d + i);
                    expected.push((0..k.n).map(|s| weights[s] * value(s)).sum::<f64>() / total);
                }
            }
        }
    }
    check(
        &format!("{what}: {batch}x{heads}x{d}, {} to {} tokens, {math:?} {out:?}", q.n, k.n),
        limit,
        attention_scratch_bytes(d, k.n, math),
        &Mat::empty(batch * q.n, heads * d, out),
        &expected,
        &|ctx, out| {
            let call = Attention {
                batch,
                heads,
                d,
                nq: q.n,
                nk: k.n,
                q: q.heads(),
                k: k.heads(),
                v: v.heads(),
                q_rope: q.table(&table),
                k_rope: k.table(&table),
                scale,
                math,
                out,
            };
            attention(ctx, call);
        },
    );
}

const TYPES: [(Math, Math, Math); 5] = [
    (Math::F32, Math::F32, Math::F32),
    (Math::Bf16, Math::F32, Math::F32),
    (Math::F32, Math::Bf16, Math::F32),
    (Math::Bf16, Math::Bf16, Math::F32),
    (Math::Bf16, Math::Bf16, Math::Bf16),
];

/// One matrix that holds q, k and v of every head side by side.
#[test]
fn packed_projections() {
    for (batch, heads, d, grid) in [
        (1, 1, 16, (1, 1)),
        (2, 3, 32, (3, 5)),
        (1, 2, 64, (7, 11)),
        (1, 1, 128, (1, 50)),
        (1, 1, 48, (6, 6)),
    ] {
        let (n, width) = (grid.0 * grid.1, heads * d);
        for (ty, math, out) in TYPES {
            let qkv = Mat::random(1, batch * n, 3 * width, ty, true);
            for rope in [None, Some(grid.1)] {
                let part = |i: usize| Part { mat: &qkv, n, offset: i * width, rope };
                let case = Case { batch, heads, d, scale: 1.0 / (d as f32).sqrt(), math, out };
                one("self", limit(math, out, true), case, part(0), part(1), Part { rope: None, ..part(2) });
            }
        }
    }
}

/// Queries and keys of different numbers, types and grids, from different matrices.
#[test]
fn cross_attention() {
    for (batch, nq, nk) in [(1, 1, 300), (2, 30, 1), (2, 25, 33), (1, 70, 600), (3, 5, 257)] {
        let (heads, d) = (2, 32);
        let width = heads * d;
        for (ty, math, out) in TYPES {
            let (x, y) = (
                Mat::random(1, batch * nq, width, ty, true),
                Mat::random(2, batch * nk, 2 * width, Math::F32, true),
            );
            for (wq, wk) in [(None, None), (Some(5), Some(1)), (Some(1), Some(20))] {
                let q = Part { mat: &x, n: nq, offset: 0, rope: wq };
                let k = Part { mat: &y, n: nk, offset: 0, rope: wk };
                let v = Part { offset: width, rope: None, ..k };
                let case = Case { batch, heads, d, scale: 0.2, math, out };
                one("cross", limit(math, out, true), case, q, k, v);
            }
        }
    }
}

/// Scores of several hundred: without the running maximum the exponentials would overflow.
#[test]
fn large_scores() {
    for (scale, math) in [(60.0, Math::F32), (60.0, Math::Bf16), (1e-3, Math::F32)] {
        let (n, d) = (530, 32);
        let qkv = Mat::random(3, n, 3 * d, math, true);
        let part = |i: usize| Part { mat: &qkv, n, offset: i * d, rope: None };
        let case = Case { batch: 1, heads: 1, d, scale, math, out: Math::F32 };
        // A score's own rounding counts in full in its exponential: some hundreds times 2^-24.
        let limit = if math == Math::F32 { 5e-5 } else { BF16_DEEP };
        one("large", limit, case, part(0), part(1), part(2));
    }
}
