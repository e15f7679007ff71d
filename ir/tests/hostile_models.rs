//! Model files that mean harm, or are merely odd: an answer in time, never a panic and never a wrong value.

mod common;

use common::{outputs, parse, relative_l2};
use ttc_ir::diag::Fault;
use ttc_ir::fuse::fuse;
use ttc_ir::{Graph, Op};

/// A model of one input `x` of that shape.
fn text(shape: &str, nodes: &str, blocks: &str) -> String {
    format!(
        r#"Model(name: "t", inputs: {{"x": {shape}}}, nodes: [{nodes}], outputs: {{"y": "y"}}, blocks: {{{blocks}}})"#
    )
}

/// All messages of a model that must not build; each blames the file, for these are no bugs of ttc.
#[track_caller]
fn refusal(text: &str) -> String {
    let problems = parse(text).expect_err("it built");
    assert!(problems.iter().all(|p| p.fault == Fault::User), "{problems:?}");
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn arithmetic_that_overflows_is_refused() {
    for expr in [
        "9223372036854775807+1",
        "0-9223372036854775807-2",
        "4294967296*4294967296",
        // The one quotient that is out of range.
        "(0-9223372036854775807-1)/(0-1)",
        "1/0",
        "99999999999999999999",
    ] {
        let nodes = format!(r#"("y", Linear(out: "{expr}"), ["x"])"#);
        assert!(refusal(&text("[1, 2, 3]", &nodes, "")).contains(expr), "{expr}");
    }
}

#[test]
fn shapes_beyond_any_memory_are_refused() {
    let huge = u64::MAX / 4;
    for (shape, op) in [
        ("[1, 2, 3]", format!("Linear(out: {huge})")),
        ("[1, 1, 3]", format!("Mlp(hidden: {huge}, out: 1)")),
        ("[1, 2, 3, 3]", format!("Upsample(by: {huge})")),
        ("[1, 2, 3, 3]", "Upsample(by: 1048576)".to_string()),
        ("[1, 2, 3, 3]", format!("ConvTranspose2d(out: 1, kernel: {huge})")),
        ("[1, 2, 3, 3]", format!("Conv2d(out: {huge}, kernel: 1)")),
        ("[1, 2, 3, 3]", format!("Conv2d(out: 1, kernel: 1, pad: {huge})")),
        ("[1, 2, 3, 3]", format!("Conv2d(out: 1, kernel: {huge}, pad: {huge})")),
        ("[1, 2, 3, 3]", format!("Conv2d(out: 1, kernel: 1, pointwise: Some({huge}))")),
        ("[1, 2, 3, 3]", format!("PixelShuffle(by: {huge})")),
        ("[1, 2, 3, 3]", format!("Crop(h: {huge}, w: 1)")),
        ("[1, 2, 3]", format!("ToMap(h: {huge}, w: 8)")),
        ("[1, 2, 3]", format!("SplitHeads(heads: {huge}, part: 0, of: 8)")),
        ("[1, 1, 2, 4]", format!("Rope2d(h: {huge}, w: 8, base: 100)")),
        ("[1, 2, 3]", format!("Slice(axis: 1, start: {}, len: 2)", u64::MAX)),
        ("[1, 2, 3]", format!("Linear(out: 1, residuals: {})", u64::MAX)),
    ] {
        let messages = refusal(&text(shape, &format!(r#"("y", {op}, ["x"])"#), ""));
        assert!(messages.contains("node `y`"), "{op}: {messages}");
    }
    // An input among the nodes is no way around the check of the inputs.
    let messages = refusal(&text("[1]", &format!(r#"("y", Input(shape: [{huge}, {huge}]), [])"#), ""));
    assert!(messages.contains("node `y`"), "{messages}");
}

#[test]
fn values_without_axes_are_refused_by_what_needs_one() {
    for op in ["LayerNorm(eps: 1e-6)", "Linear(out: 2)", "Softmax", "ToTokens", "Points", "MergeHeads"] {
        let op = Op::parse(op).unwrap();
        assert!(op.infer(&[&[]]).expect_err("it has no axis").contains("expected"), "{op}");
    }
    assert!(refusal(&text("[]", r#"("y", Relu, ["x"])"#, "")).contains("at least one axis"));
    assert!(refusal(&text("[2, 0]", r#"("y", Relu, ["x"])"#, "")).contains("empty"));
}

#[test]
fn files_that_unroll_without_end_are_cut_off() {
    // Each name is used twice by the one before: 2^32 calls of nothing.
    let doubling = (0..30)
        .map(|i| format!(r#""B{i}": (ins: [], nodes: [("a", B{n}, []), ("b", B{n}, [])]),"#, n = i + 1))
        .collect::<String>();
    let blocks = format!(r#"{doubling} "B30": (ins: [], nodes: [])"#);
    let nest =
        |inner: &str| (0..5).fold(inner.to_string(), |n, _| format!("Repeat(count: 10000, nodes: [{n}])"));
    for (nodes, blocks) in [
        (r#"("y", B0, [])"#.to_string(), blocks.as_str()),
        (r#"("y", A, [])"#.to_string(), r#""A": (ins: [], nodes: [("a", A, []), ("b", A, [])])"#),
        (nest(""), ""),
        (nest(r#"("n{i}", Relu, ["x"])"#), ""),
    ] {
        let messages = refusal(&text("[1]", &nodes, blocks));
        assert!(messages.contains("more than"), "{}", &messages[..messages.len().min(300)]);
    }
}

#[test]
fn many_wrong_names_are_answered_in_time() {
    let nodes = r#"Repeat(count: 10000, nodes: [("quite_a_long_name_{i}", Relu, ["another_rather_long_name_{i}"]), ("n{i}", Relu, ["x"])])"#;
    let messages = refusal(&text("[1]", nodes, ""));
    assert_eq!(messages.lines().filter(|l| l.contains("another_rather_long_name_")).count(), 10_000);
    // Both are compared letter by letter unless somebody minds the lengths.
    let long = "n".repeat(200_000);
    let nodes = format!(r#"("{long}a", Relu, ["x"]), ("y", Relu, ["{long}b"])"#);
    assert!(refusal(&text("[1]", &nodes, "")).contains("node `y`"));
}

#[test]
fn many_layers_are_built_in_time() {
    let nodes = r#"Repeat(count: 10000, carry: {"x": ("x", "b{i}")}, nodes: [("a{i}", Linear(out: 2), ["x"]), ("b{i}", LayerNorm(eps: 1), ["a{i}"])]), ("y", Relu, ["b9999"])"#;
    let graph = parse(&text("[1, 2]", nodes, "")).unwrap();
    assert_eq!(graph.checkpoint().len(), 40_000);
}

#[test]
fn deep_nesting_is_refused() {
    for deep in ["[".repeat(100_000), "(".repeat(100_000), r#"("a","#.repeat(100_000), "/*".repeat(100_000)] {
        refusal(&text("[1]", &deep, ""));
        refusal(&format!("Model(name: \"t\", nodes: {deep}"));
    }
    let expr = "(".repeat(100_000);
    assert!(
        refusal(&text("[1]", &format!(r#"("y", Linear(out: "{expr}"), ["x"])"#), "")).contains("too deep")
    );
}

#[test]
fn one_tensor_of_two_shapes_and_outputs_of_one_name_are_refused() {
    let nodes = r#"("l#0", Linear(out: 2), ["x"]), ("l#1", Linear(out: 3), ["x"]), ("y", Relu, ["l#0"])"#;
    let messages = refusal(&text("[1, 2, 4]", nodes, ""));
    assert!(messages.contains("node `l#1`") && messages.contains("l.weight"), "{messages}");
    let twice = r#"Model(name: "t", inputs: {"x": [1]}, outputs: {"y": "x", "y": "x"})"#;
    assert!(refusal(twice).contains("output `y`"), "{}", refusal(twice));
}

/// Fused and unfused values agree.
#[track_caller]
fn same_when_fused(graph: Graph) {
    let before = outputs(&graph, "odd");
    let fused = fuse(graph).unwrap_or_else(|e| panic!("{e:?}"));
    for ((name, a), (_, b)) in before.iter().zip(&outputs(&fused, "odd")) {
        let error = relative_l2(b, a);
        assert!(error <= 2e-5, "{name}: {error}\n{fused}");
    }
}

#[test]
fn odd_models_fuse_to_the_same_values() {
    for (inputs, nodes, outputs) in [
        // Inputs that are views by name.
        (
            r#""x#0": [1, 4], "x#1": [1, 4]"#,
            r#"("s#0", Softmax, ["x#0"]), ("s#1", Softmax, ["x#1"])"#,
            ["s#0", "s#1"],
        ),
        // One axis only: no batch to stack along.
        (r#""a": [4], "b": [4]"#, r#"("s#0", Softmax, ["a"]), ("s#1", Softmax, ["b"])"#, ["s#0", "s#1"]),
        (
            r#""a": [4], "b": [4]"#,
            r#"("s#0", LayerNorm(eps: 1), ["a"]), ("s#1", LayerNorm(eps: 1), ["b"])"#,
            ["s#0", "s#1"],
        ),
        // The batch's name is taken.
        (
            r#""a": [1, 4], "b": [1, 4]"#,
            r#"("s#0", Gelu, ["a"]), ("s#1", Gelu, ["b"]), ("s", Add, ["s#0", "s#1"])"#,
            ["s", "s#1"],
        ),
        // So is the stacked inputs'.
        (
            r#""a": [1, 4], "b": [1, 4]"#,
            r#"("s#0", Gelu, ["a"]), ("s#1", Gelu, ["b"]), ("a+b", Add, ["s#0", "s#1"])"#,
            ["a+b", "s#1"],
        ),
        // Two readers of both images.
        (
            r#""a": [1, 4], "b": [1, 4]"#,
            r#"("s#0", Gelu, ["a"]), ("s#1", Gelu, ["b"]), ("t#0", Relu, ["a"]), ("t#1", Relu, ["b"]),
               ("y", Add, ["s#0", "t#1"])"#,
            ["y", "t#0"],
        ),
        // Both views of one image, and views of different batches.
        (r#""a": [1, 4]"#, r#"("s#0", Gelu, ["a"]), ("s#1", Gelu, ["a"])"#, ["s#0", "s#1"]),
        (
            r#""a": [1, 4], "b": [2, 4]"#,
            r#"("s#0", Linear(out: 2), ["a"]), ("s#1", Linear(out: 2), ["b"])"#,
            ["s#0", "s#1"],
        ),
        // Views that read each other's.
        (
            r#""a": [1, 4], "b": [1, 4]"#,
            r#"("s#0", Gelu, ["a"]), ("s#1", Gelu, ["b"]), ("t#0", Add, ["s#0", "s#1"]), ("t#1", Add, ["s#1", "s#0"]),
               ("u#0", Linear(out: 3), ["s#1"]), ("u#1", Linear(out: 3), ["s#0"])"#,
            ["t#1", "u#0"],
        ),
        // Values wider than queries and keys.
        (
            r#""a": [1, 3, 8], "b": [1, 3, 16]"#,
            r#"("q", SplitHeads(heads: 2), ["a"]), ("v", SplitHeads(heads: 2), ["b"]), ("qk", MatMul(transpose_b: true), ["q", "q"]),
               ("s", Scale(d: 4), ["qk"]), ("w", Softmax, ["s"]), ("m", MatMul, ["w", "v"]), ("y", MergeHeads, ["m"])"#,
            ["y", "y"],
        ),
        // A value added to itself, and a hidden value that is also the skip.
        (
            r#""a": [1, 3, 4]"#,
            r#"("l", Linear(out: 4), ["a"]), ("y", Add, ["l", "l"]), ("z", Add, ["a", "a"])"#,
            ["y", "z"],
        ),
        (
            r#""a": [1, 3, 4]"#,
            r#"("l", Linear(out: 4), ["a"]), ("g", Gelu, ["l"]), ("k", Linear(out: 4), ["g"]), ("y", Add, ["k", "g"])"#,
            ["y", "k"],
        ),
    ] {
        let outputs = format!(r#""first": "{}", "second": "{}""#, outputs[0], outputs[1]);
        let text =
            format!(r#"Model(name: "t", inputs: {{{inputs}}}, nodes: [{nodes}], outputs: {{{outputs}}})"#);
        same_when_fused(parse(&text).unwrap_or_else(|e| panic!("{text}: {e:?}")));
    }
}
