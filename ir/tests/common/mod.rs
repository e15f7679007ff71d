//! What the tests of this crate share: models from text or file, seeded numbers, evaluation.
#![allow(dead_code)] // Each test binary uses its part.

use std::path::{Path, PathBuf};
use ttc_ir::eval::eval;
use ttc_ir::{Diag, Graph, Model, Sizes, Tensor};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `models/NAME.ron`.
pub fn model(name: &str) -> Model {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).map_err(|e| e.to_string());
    let path = format!("models/{name}.ron");
    Model::parse(&path, &read(&path).unwrap(), &mut |base| read(base)).unwrap()
}

/// A model given as text, at 32x32.
pub fn parse(text: &str) -> Result<Graph, Vec<Diag>> {
    let no_base = &mut |_: &str| Err("no such file".to_string());
    Model::parse("test.ron", text, no_base)?.graph(Sizes::both(32, 32))
}

/// A model of one input `x` and the given nodes; the output is `y`.
pub fn small(shape: &[usize], nodes: &str) -> Graph {
    let text =
        format!(r#"Model(name: "t", inputs: {{"x": {shape:?}}}, nodes: [{nodes}], outputs: {{"y": "y"}})"#);
    parse(&text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}"))
}

/// `n` numbers in -1..1 that depend on the seed text only (splitmix64).
pub fn numbers(seed: &str, n: usize) -> Vec<f32> {
    let mut state =
        seed.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Every output on seeded inputs and weights.
pub fn outputs(graph: &Graph, seed: &str) -> Vec<(String, Tensor)> {
    let inputs: Vec<Tensor> = graph
        .inputs()
        .map(|id| {
            Tensor::new(
                graph.shape(id),
                numbers(&format!("{seed} {}", graph.node(id).name), graph.shape(id).iter().product()),
            )
        })
        .collect();
    let mut load = |name: &str, shape: &[usize]| {
        let n: usize = shape.iter().product();
        let inner = (n / shape[0].max(1)).max(1) as f32;
        // Scaled as trained layers are, so that values keep their size from layer to layer.
        let scale = if shape.len() > 1 { (3.0 / inner).sqrt() } else { 0.3 };
        let shift = if name.contains("norm") && name.ends_with("weight") { 1.0 } else { 0.0 };
        Ok::<_, ()>(numbers(&format!("{seed} {name}"), n).into_iter().map(|v| v * scale + shift).collect())
    };
    eval(graph, &inputs, &mut load).unwrap()
}

/// |a - b| / |b|, Euclidean.
pub fn relative_l2(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape, b.shape);
    let square = |x: f64| x * x;
    let error: f64 = a.data.iter().zip(&b.data).map(|(&a, &b)| square(f64::from(a) - f64::from(b))).sum();
    let norm: f64 = b.data.iter().map(|&b| square(f64::from(b))).sum();
    if error == 0.0 { 0.0 } else { (error / norm).sqrt() }
}
