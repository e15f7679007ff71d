//! What the tests of the numeric cores share: strided operands with guarded gaps, runs on every instruction set and
//! number of threads, and the comparison with f64.
#![allow(dead_code)] // Each test binary uses its own part.

use std::sync::LazyLock;

use half::bf16;
use rayon::{ThreadPool, ThreadPoolBuilder};
use ttc_kernels::cpu::{Act, Aligned, Ctx, Dst, Isa, Math, Packed, Src};

/// Largest relative L2 error of f32: sums of a few hundred terms in another order than f64 has them.
pub const F32: f64 = 1e-6;
/// f32 with an exponential, an error function or a second product on the way, each good to about 2e-7.
pub const F32_DEEP: f64 = 2e-6;
/// Products of bf16 are exact in f32, so with f32 results only the sums round. `vdpbf16ps` does not fuse.
pub const BF16_EXACT: f64 = 2e-6;
/// A rounding of the results to bf16: at most 2^-8 of a value, 1.6e-3 in the mean square over many.
pub const BF16: f64 = 2e-3;
/// A rounding of what lies between two products (normalised or hidden rows, probabilities), and of the results.
pub const BF16_DEEP: f64 = 5e-3;

/// Marks the gaps between rows, which nothing may write.
const GAP: f32 = 77.0;

/// `n` numbers in -1..1, different for each seed.
pub fn numbers(seed: usize, n: usize) -> Vec<f32> {
    let at = |i: usize| ((i + 1) * 2_654_435_761 + seed * 40_503) as u32;
    let mix = |z: u32| (z ^ (z >> 15)).wrapping_mul(0x2C1B_3C6D);
    (0..n).map(|i| (mix(mix(at(i))) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// Numbers that bf16 represents.
pub fn round_numbers(seed: usize, n: usize) -> Vec<f32> {
    numbers(seed, n).into_iter().map(|v| bf16::from_f32(v).to_f32()).collect()
}

/// Numbers that `math` represents.
pub fn numbers_for(math: Math, seed: usize, n: usize) -> Vec<f32> {
    if math == Math::F32 { numbers(seed, n) } else { round_numbers(seed, n) }
}

/// A matrix in memory, its rows apart.
#[derive(Clone)]
pub struct Mat {
    pub rows: usize,
    pub cols: usize,
    pub stride: usize,
    /// Row 0 starts here, so that no row is aligned.
    memory: Memory,
}

#[derive(Clone, PartialEq)]
enum Memory {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

impl Mat {
    /// Nothing but marks. The last row has no gap after it: reading or writing beyond it is beyond the slice.
    pub fn empty(rows: usize, cols: usize, ty: Math) -> Mat {
        let stride = cols + 3;
        let len = if rows == 0 { 0 } else { (rows - 1) * stride + cols };
        let memory = match ty {
            Math::F32 => Memory::F32(vec![GAP; len]),
            Math::Bf16 => Memory::Bf16(vec![bf16::from_f32(GAP); len]),
        };
        Mat { rows, cols, stride, memory }
    }

    /// Random values that bf16 represents if `round`; the gaps are NaN, so that using one shows.
    pub fn random(seed: usize, rows: usize, cols: usize, ty: Math, round: bool) -> Mat {
        let mut m = Mat::empty(rows, cols, ty);
        let values = if round { round_numbers(seed, rows * cols) } else { numbers(seed, rows * cols) };
        let of = |i: usize| {
            let (r, c) = (i / m.stride, i % m.stride);
            if c < cols { values[r * cols + c] } else { f32::NAN }
        };
        match &mut m.memory {
            Memory::F32(d) => d.iter_mut().enumerate().for_each(|(i, v)| *v = of(i)),
            Memory::Bf16(d) => d.iter_mut().enumerate().for_each(|(i, v)| *v = bf16::from_f32(of(i))),
        }
        m
    }

    pub fn ty(&self) -> Math {
        match self.memory {
            Memory::F32(_) => Math::F32,
            Memory::Bf16(_) => Math::Bf16,
        }
    }

    pub fn src(&self) -> Src<'_> {
        match &self.memory {
            Memory::F32(d) => Src::f32(d, self.stride),
            Memory::Bf16(d) => Src::bf16(d, self.stride),
        }
    }

    pub fn dst(&mut self) -> Dst<'_> {
        match &mut self.memory {
            Memory::F32(d) => Dst::f32(d, self.stride),
            Memory::Bf16(d) => Dst::bf16(d, self.stride),
        }
    }

    fn value(&self, i: usize) -> f64 {
        match &self.memory {
            Memory::F32(d) => f64::from(d[i]),
            Memory::Bf16(d) => d[i].to_f64(),
        }
    }

    pub fn at(&self, row: usize, col: usize) -> f64 {
        assert!(col < self.cols);
        self.value(row * self.stride + col)
    }

    pub fn values(&self) -> Vec<f64> {
        (0..self.rows * self.cols).map(|i| self.at(i / self.cols, i % self.cols)).collect()
    }

    fn gaps_untouched(&self) -> bool {
        let gap = |i: &usize| i % self.stride >= self.cols;
        let len = if self.rows == 0 { 0 } else { (self.rows - 1) * self.stride + self.cols };
        (0..len).filter(gap).all(|i| self.value(i) == f64::from(GAP))
    }
}

/// Packed weights of either type.
pub struct Weights {
    math: Math,
    memory: Aligned,
}

impl Weights {
    /// `f32s` and `bf16s` are the packing functions, `len` gives the elements that they fill.
    pub fn new(
        math: Math,
        len: (usize, usize),
        f32s: impl Fn(&mut [f32]),
        bf16s: impl Fn(&mut [bf16]),
    ) -> Weights {
        let mut memory = Aligned::zeroed(if math == Math::F32 { len.0 * 4 } else { len.1 * 2 });
        memory.as_mut_slice::<u8>().fill(0xFF);
        match math {
            Math::F32 => f32s(memory.as_mut_slice()),
            Math::Bf16 => bf16s(memory.as_mut_slice()),
        }
        Weights { math, memory }
    }

    pub fn packed(&self) -> Packed<'_> {
        match self.math {
            Math::F32 => Packed::F32(self.memory.as_slice()),
            Math::Bf16 => Packed::Bf16(self.memory.as_slice()),
        }
    }
}

/// A Linear's weights `[n, k]`.
pub fn linear(w: &[f32], n: usize, k: usize, math: Math) -> Weights {
    use ttc_kernels::cpu::{pack_bf16, pack_f32, packed_len_bf16, packed_len_f32};
    let len = (packed_len_f32(n, k), packed_len_bf16(n, k));
    Weights::new(math, len, |o| pack_f32(w, n, k, o), |o| pack_bf16(w, n, k, o))
}

static POOLS: LazyLock<Vec<ThreadPool>> = LazyLock::new(|| {
    THREADS.map(|n| ThreadPoolBuilder::new().num_threads(n).build().expect("threads start")).into()
});
const THREADS: [usize; 3] = [1, 2, 5];

/// Runs a kernel on every instruction set: its error against `expected` is within `limit`, the gaps of its output stay
/// as they were, and any number of threads gives the same bits. `scratch` is what it needs for a thread.
#[track_caller]
pub fn check(
    what: &str,
    limit: f64,
    scratch: usize,
    empty: &Mat,
    expected: &[f64],
    run: &(dyn Fn(&mut Ctx, Dst) + Sync),
) {
    assert_eq!(expected.len(), empty.rows * empty.cols, "{what}: size of the reference");
    // Few values may all round by nearly the most, or a sum that cancels may be much of their norm.
    let limit = if expected.len() < 100 { 2.5 * limit } else { limit };
    for isa in Isa::available() {
        let mut first: Option<Memory> = None;
        for (threads, pool) in THREADS.into_iter().zip(POOLS.iter()) {
            let mut out = empty.clone();
            let mut memory = Aligned::zeroed(Ctx::scratch_len(threads, scratch));
            // Scratch of NaN: what a kernel reads it must have written.
            memory.as_mut_slice::<u8>().fill(0xFF);
            let (dst, memory) = (out.dst(), memory.as_mut_slice());
            pool.install(|| run(&mut Ctx::new(isa, threads, memory), dst));
            let error = relative_l2(&out.values(), expected);
            assert!(error <= limit, "{what}, {isa}, {threads} threads: relative error {error:e} > {limit:e}");
            assert!(out.gaps_untouched(), "{what}, {isa}, {threads} threads: wrote between rows");
            let same = first.get_or_insert_with(|| out.memory.clone());
            assert!(*same == out.memory, "{what}, {isa}: {threads} threads give other bits");
        }
    }
}

pub fn relative_l2(a: &[f64], b: &[f64]) -> f64 {
    let error: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    let norm: f64 = b.iter().map(|b| b * b).sum();
    (error / norm.max(1e-30)).sqrt()
}

/// Types of activations, weights and results that are tried, and whether the weights' type rounds the
/// activations.
pub const TYPES: [(Math, Math, Math); 6] = [
    (Math::F32, Math::F32, Math::F32),
    (Math::Bf16, Math::F32, Math::F32),
    (Math::F32, Math::F32, Math::Bf16),
    (Math::Bf16, Math::Bf16, Math::F32),
    (Math::F32, Math::Bf16, Math::F32),
    (Math::Bf16, Math::Bf16, Math::Bf16),
];

/// The error allowed for products of `math` with results of `out`; `deep` if something is rounded or approximated on the way.
pub fn limit(math: Math, out: Math, deep: bool) -> f64 {
    match (math, out, deep) {
        (Math::Bf16, _, true) => BF16_DEEP,
        (_, Math::Bf16, _) => BF16,
        (Math::Bf16, Math::F32, false) => BF16_EXACT,
        (Math::F32, Math::F32, true) => F32_DEEP,
        (Math::F32, Math::F32, false) => F32,
    }
}

pub fn act(act: Act, x: f64) -> f64 {
    match act {
        Act::None => x,
        Act::Relu => x.max(0.0),
        Act::Gelu => x / 2.0 * (1.0 + erf(x / 2f64.sqrt())),
    }
}

/// By its series, which converges everywhere, and 1 where that would lose digits.
pub fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// Rows brought to mean 0 and variance 1.
pub fn normalised(x: &[f64], eps: f64) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let var = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    x.iter().map(|v| (v - mean) / (var + eps).sqrt()).collect()
}

/// x `[m, k]` times w `[n, k]` turned, plus a bias.
pub fn product(x: &[f64], w: &[f32], bias: Option<&[f32]>, (m, k, n): (usize, usize, usize)) -> Vec<f64> {
    let mut out = Vec::with_capacity(m * n);
    for r in 0..m {
        for c in 0..n {
            let dot: f64 = (0..k).map(|i| x[r * k + i] * f64::from(w[c * k + i])).sum();
            out.push(dot + bias.map_or(0.0, |b| f64::from(b[c])));
        }
    }
    out
}
