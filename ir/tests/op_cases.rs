//! Every op against a case file: its definition is what an independent implementation computes.

mod common;

use common::root;
use serde::Deserialize;
use ttc_ir::{Op, Tensor};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    op: String,
    ins: Vec<Array>,
    weights: Vec<Array>,
    out: Array,
    flops: u64,
    /// Greatest absolute error.
    tolerance: f32,
}

#[derive(Deserialize)]
struct Array {
    shape: Vec<usize>,
    data: Vec<f32>,
}

impl Array {
    fn tensor(self) -> Tensor {
        Tensor::new(self.shape, self.data)
    }
}

fn check(text: &str) -> String {
    let case: Case = ron::from_str(text).expect("a case file reads");
    let op = Op::parse(&case.op).expect("its op parses");
    let ins: Vec<Tensor> = case.ins.into_iter().map(Array::tensor).collect();
    let weights: Vec<Tensor> = case.weights.into_iter().map(Array::tensor).collect();
    let shapes: Vec<&[usize]> = ins.iter().map(|t| t.shape.as_slice()).collect();
    let out = case.out.tensor();
    assert_eq!(op.infer(&shapes).as_ref(), Ok(&out.shape), "{op}");
    let wanted: Vec<Vec<usize>> = op.weights(&shapes).into_iter().map(|(_, shape)| shape).collect();
    assert_eq!(wanted, weights.iter().map(|w| w.shape.clone()).collect::<Vec<_>>(), "{op}");
    assert_eq!(op.flops(&shapes, &out.shape), case.flops, "{op}");
    let computed = op.eval(&ins.iter().collect::<Vec<_>>(), &weights.iter().collect::<Vec<_>>());
    assert_eq!(computed.shape, out.shape, "{op}");
    let worst = computed.data.iter().zip(&out.data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let size = out.data.iter().fold(1.0, |m: f32, v| m.max(v.abs()));
    assert!(worst <= case.tolerance * size, "{op}: off by {worst}");
    // What an op prints, it parses back to.
    assert_eq!(Op::parse(&op.to_string()).as_ref(), Ok(&op));
    op.name().to_string()
}

#[test]
fn every_op_computes_its_case() {
    let folder = root().join("ir/tests/ops");
    let mut covered: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "ron"))
        .map(|p| check(&std::fs::read_to_string(p).unwrap()))
        .collect();
    covered.sort();
    let mut ops: Vec<&str> = Op::NAMES.iter().copied().filter(|&n| n != "Input").collect();
    ops.sort();
    assert_eq!(covered, ops, "one case file an op");
}

#[test]
fn ops_refuse_shapes_that_do_not_fit() {
    for (op, ins, expected) in [
        ("Add", vec![vec![1, 2], vec![2, 1]], "equal shapes"),
        ("ToMap(h: 2, w: 3)", vec![vec![1, 5, 4]], "expected 2x3 tokens, got 5"),
        ("Rope2d(h: 2, w: 2, base: 100)", vec![vec![1, 1, 4, 6]], "divisible by 4"),
        ("Conv2d(out: 1, kernel: 3)", vec![vec![1, 1, 2, 2]], "a map of at least 3"),
        ("Conv2d(out: 1, kernel: 3, stride: 0)", vec![vec![1, 1, 4, 4]], "stride >= 1"),
        ("PixelShuffle(by: 0)", vec![vec![1, 4, 2, 2]], "divisible"),
        ("PixelShuffle(by: 2)", vec![vec![1, 3, 2, 2]], "divisible"),
        ("Slice(axis: 3, start: 0, len: 1)", vec![vec![1, 2, 2]], "axis 3"),
        ("Concat(axis: 1)", vec![vec![1, 2, 2], vec![1, 2, 3]], "differ along axis 1 only"),
        ("Linear(out: 0)", vec![vec![1, 2]], "empty"),
        ("SplitHeads(heads: 0)", vec![vec![1, 2, 4]], "divisible"),
        ("Points", vec![vec![1, 2, 2, 2]], "at least 3 channels"),
        ("Relu", vec![], "takes 1 inputs, not 0"),
    ] {
        let shapes: Vec<&[usize]> = ins.iter().map(Vec::as_slice).collect();
        let refusal = Op::parse(op).unwrap().infer(&shapes).expect_err(op);
        assert!(refusal.contains(expected), "{op}: {refusal}");
    }
}
