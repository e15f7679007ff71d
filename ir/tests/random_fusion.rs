//! Fusion on models that nobody wrote: whatever rules meet, the values stay.

mod common;

use common::{outputs, parse, relative_l2};
use proptest::prelude::*;
use std::collections::BTreeSet;
use ttc_ir::fuse::fuse;

/// One value of each view, of one shape.
#[derive(Clone)]
struct Pair {
    names: [String; 2],
    shape: Vec<usize>,
}

/// A model of two views as text, and its values so far.
struct Builder {
    nodes: String,
    pairs: Vec<Pair>,
    count: usize,
}

impl Builder {
    /// Adds an op for both views: under one module name, hence with one set of weights, or under two.
    fn both(&mut self, op: &str, ins: [Vec<&str>; 2], shared: bool, shape: &[usize]) -> Pair {
        self.count += 1;
        let n = self.count;
        let names =
            if shared { [format!("n{n}#0"), format!("n{n}#1")] } else { [format!("a{n}"), format!("b{n}")] };
        for (name, ins) in names.iter().zip(ins) {
            self.nodes += &format!("({name:?}, {op}, {ins:?}),\n");
        }
        Pair { names, shape: shape.to_vec() }
    }

    fn unary(&mut self, op: &str, x: &Pair, shared: bool, shape: &[usize]) -> Pair {
        self.both(op, [vec![&x.names[0]], vec![&x.names[1]]], shared, shape)
    }

    /// With `cross`, the second operand of each view is the other view's.
    fn binary(&mut self, op: &str, x: &Pair, y: &Pair, shared: bool, cross: bool, shape: &[usize]) -> Pair {
        let (own, other) = (usize::from(cross), usize::from(!cross));
        self.both(op, [vec![&x.names[0], &y.names[own]], vec![&x.names[1], &y.names[other]]], shared, shape)
    }

    /// Two heads over `x` and the memory `y`, which may be the same.
    fn attention(&mut self, x: &Pair, y: &Pair, shared: bool, cross: bool, rope: bool) -> Pair {
        let (n, m, d) = (x.shape[1], y.shape[1], 4);
        let mut head = |from: &Pair, tokens: usize| {
            let p = self.unary(&format!("Linear(out: {})", 2 * d), from, shared, &[1, tokens, 2 * d]);
            self.unary("SplitHeads(heads: 2)", &p, shared, &[1, 2, tokens, d])
        };
        let (mut q, mut k, v) = (head(x, n), head(y, m), head(y, m));
        if rope {
            q = self.unary(&format!("Rope2d(h: 1, w: {n}, base: 100)"), &q, shared, &[1, 2, n, d]);
            k = self.unary(&format!("Rope2d(h: {m}, w: 1, base: 100)"), &k, shared, &[1, 2, m, d]);
        }
        let scores = self.binary("MatMul(transpose_b: true)", &q, &k, shared, cross, &[1, 2, n, m]);
        let scaled = self.unary(&format!("Scale(d: {d})"), &scores, shared, &[1, 2, n, m]);
        let weights = self.unary("Softmax", &scaled, shared, &[1, 2, n, m]);
        let mix = self.binary("MatMul", &weights, &v, shared, cross, &[1, 2, n, d]);
        self.unary("MergeHeads", &mix, shared, &[1, n, 2 * d])
    }

    /// Applies the chosen op to the chosen value if it fits, else something that always does.
    fn add(&mut self, kind: u8, x: &Pair, y: &Pair, shared: bool, cross: bool, wide: bool) -> Pair {
        let s = x.shape.clone();
        let c = if wide { 6 } else { 3 };
        match (&s[..], kind) {
            (_, 0) => self.unary("Relu", x, shared, &s),
            (_, 1) if y.shape == s => self.binary("Add", x, y, shared, cross, &s),
            (_, 1) => self.binary("Add", x, x, shared, cross, &s),
            (&[_, n, _], 2 | 3) => self.unary(&format!("Linear(out: {c})"), x, shared, &[1, n, c]),
            (&[..], 4) if s.len() == 3 => self.unary("LayerNorm(eps: 0.01)", x, shared, &s),
            (&[_, n, _], 5) => {
                // A feed-forward part with its skip.
                let norm = self.unary("LayerNorm(eps: 0.01)", x, shared, &s);
                let hidden = self.unary("Linear(out: 5)", &norm, shared, &[1, n, 5]);
                let gelu = self.unary("Gelu", &hidden, shared, &[1, n, 5]);
                let out = self.unary(&format!("Linear(out: {})", s[2]), &gelu, shared, &s);
                self.binary("Add", x, &out, shared, false, &s)
            }
            (&[..], 6 | 7) if s.len() == 3 && y.shape.len() == 3 => self.attention(x, y, shared, cross, wide),
            (&[_, n, width], 8) => self.unary(&format!("ToMap(h: 1, w: {n})"), x, shared, &[1, width, 1, n]),
            (&[_, _, h, w], 2) => {
                self.unary(&format!("Conv2d(out: {c}, kernel: 1)"), x, shared, &[1, c, h, w])
            }
            (&[_, _, h, w], 3 | 5) => {
                self.unary(&format!("Conv2d(out: {c}, kernel: 3, pad: 1)"), x, shared, &[1, c, h, w])
            }
            (&[_, width, h, w], 4) if h * w <= 16 => {
                self.unary("Upsample(by: 2)", x, shared, &[1, width, 2 * h, 2 * w])
            }
            (&[_, width, h, w], 6) => {
                let (h, w) = (h.div_ceil(1 + usize::from(wide)), w);
                self.unary(&format!("Crop(h: {h}, w: {w})"), x, shared, &[1, width, h, w])
            }
            (&[_, _, h, w], 7) => {
                let (h, w) = (h.div_ceil(2), w.div_ceil(2));
                let op = format!("Conv2d(out: {c}, kernel: 3, stride: 2, pad: 1, bias: {cross})");
                self.unary(&op, x, shared, &[1, c, h, w])
            }
            (&[_, width, h, w], 8) => self.unary("ToTokens", x, shared, &[1, h * w, width]),
            _ => self.unary("Gelu", x, shared, &s),
        }
    }
}

type Choice = (u8, u8, u8, bool, bool, bool);

fn model(choices: &[Choice], taps: &[prop::sample::Index]) -> String {
    let pair =
        |a: &str, b: &str, shape: &[usize]| Pair { names: [a.into(), b.into()], shape: shape.to_vec() };
    let pairs = vec![pair("img1", "img2", &[1, 3, 2, 3]), pair("tok1", "tok2", &[1, 5, 6])];
    let mut b = Builder { nodes: String::new(), pairs, count: 0 };
    for &(kind, x, y, shared, cross, wide) in choices {
        // Mostly the newest values, so that chains form.
        let pick = |back: u8| b.pairs[b.pairs.len() - 1 - usize::from(back) % b.pairs.len().min(4)].clone();
        let (x, y) = (pick(x), pick(y));
        let new = b.add(kind, &x, &y, shared, cross, wide);
        b.pairs.push(new);
    }
    let mut outputs: BTreeSet<String> =
        taps.iter().map(|t| t.get(&b.pairs).names[t.index(2)].clone()).collect();
    outputs.extend(b.pairs[b.pairs.len() - 1].names.clone());
    let outputs: String = outputs.iter().map(|o| format!("{o:?}: {o:?},")).collect();
    format!(
        r#"Model(name: "t", inputs: {{"img1": [1, 3, 2, 3], "img2": [1, 3, 2, 3], "tok1": [1, 5, 6], "tok2": [1, 5, 6]}},
        nodes: [{}], outputs: {{{outputs}}})"#,
        b.nodes
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_model_fuses_to_the_same_values(
        choices in prop::collection::vec((0u8..10, 0u8..4, 0u8..4, prop::bool::weighted(0.7), any::<bool>(), any::<bool>()), 1..14),
        taps in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        seed: u16,
    ) {
        let text = model(&choices, &taps);
        let graph = parse(&text).unwrap_or_else(|e| panic!("{text}\n{e:?}"));
        let seed = seed.to_string();
        let before = outputs(&graph, &seed);
        let fused = fuse(graph).unwrap_or_else(|e| panic!("{text}\n{e:?}"));
        for ((name, a), (other, b)) in before.iter().zip(&outputs(&fused, &seed)) {
            prop_assert_eq!(name, other);
            let error = relative_l2(b, a);
            // Norms of nearly constant rows enlarge rounding; a wrong rule errs by far more.
            prop_assert!(error <= 1e-4, "{}: {}\n{}\n{}", name, error, text, fused);
        }
    }
}
