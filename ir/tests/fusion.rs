//! Every fusion rule: it fires where it should, and fused equals unfused.

mod common;

use common::{model, outputs, relative_l2, small};
use proptest::prelude::*;
use ttc_ir::fuse::fuse;
use ttc_ir::{Graph, Op, Sizes};

/// Op names of a graph, inputs left out.
fn ops(graph: &Graph) -> Vec<&'static str> {
    graph.nodes.iter().filter(|n| !matches!(n.op, Op::Input(_))).map(|n| n.op.name()).collect()
}

/// Fuses, compares all outputs with the unfused graph, and returns the fused one.
#[track_caller]
fn same_when_fused(graph: Graph, seed: u32) -> Graph {
    let seed = seed.to_string();
    let before = outputs(&graph, &seed);
    let fused = fuse(graph).expect("fusion keeps the graph valid");
    let after = outputs(&fused, &seed);
    assert_eq!(before.len(), after.len());
    for ((name, a), (other, b)) in before.iter().zip(&after) {
        assert_eq!(name, other);
        let error = relative_l2(b, a);
        assert!(error <= 2e-5, "{name}: {error}\n{fused}");
    }
    fused
}

/// Attention over projections of `x`: heads of `d`, RoPE on an `h` x `w` grid if asked for.
fn attention_nodes(heads: usize, d: usize, (h, w): (usize, usize), rope: bool) -> String {
    let (q, k) = if rope { ("qr", "kr") } else { ("q", "k") };
    format!(
        r#"("qkv", Linear(out: {}), ["x"]),
        ("q", SplitHeads(heads: {heads}, part: 0, of: 3), ["qkv"]), ("k", SplitHeads(heads: {heads}, part: 1, of: 3), ["qkv"]),
        ("v", SplitHeads(heads: {heads}, part: 2, of: 3), ["qkv"]),
        ("qr", Rope2d(h: {h}, w: {w}, base: 100), ["q"]), ("kr", Rope2d(h: {h}, w: {w}, base: 100), ["k"]),
        ("qk", MatMul(transpose_b: true), ["{q}", "{k}"]), ("scaled", Scale(d: {d}), ["qk"]),
        ("weights", Softmax, ["scaled"]), ("mix", MatMul, ["weights", "v"]), ("y", MergeHeads, ["mix"])"#,
        3 * heads * d
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attention(b in 1usize..3, h in 1usize..5, w in 1usize..5, heads in 1usize..4, quarter in 1usize..5, rope: bool, seed: u32) {
        let nodes = attention_nodes(heads, 4 * quarter, (h, w), rope);
        let fused = same_when_fused(small(&[b, h * w, 6], &nodes), seed);
        prop_assert_eq!(ops(&fused), ["Linear", "Attention"]);
    }

    #[test]
    fn cross_attention_shares_the_projection_of_its_memory(n in 1usize..9, heads in 1usize..3, seed: u32) {
        // Queries come from a slice of the tokens: another length than the keys.
        let c = heads * 8;
        let nodes = format!(r#"("few", Slice(axis: 1, start: 0, len: 1), ["x"]), ("pq", Linear(out: {c}), ["few"]),
            ("norm", LayerNorm(eps: 1e-6), ["x"]), ("pk", Linear(out: {c}), ["norm"]), ("pv", Linear(out: {c}), ["norm"]),
            ("q", SplitHeads(heads: {heads}), ["pq"]), ("k", SplitHeads(heads: {heads}), ["pk"]), ("v", SplitHeads(heads: {heads}), ["pv"]),
            ("qk", MatMul(transpose_b: true), ["q", "k"]), ("scaled", Scale(d: 8), ["qk"]), ("weights", Softmax, ["scaled"]),
            ("mix", MatMul, ["weights", "v"]), ("y", MergeHeads, ["mix"])"#);
        let fused = same_when_fused(small(&[1, n, 5], &nodes), seed);
        prop_assert_eq!(ops(&fused), ["Slice", "Linear", "Linear", "Attention"]);
    }

    #[test]
    fn norm_gelu_mlp_and_residual(n in 1usize..7, c in 2usize..9, hidden in 1usize..12, seed: u32) {
        let nodes = format!(r#"("norm", LayerNorm(eps: 1e-6), ["x"]), ("fc1", Linear(out: {hidden}), ["norm"]), ("gelu", Gelu, ["fc1"]),
            ("fc2", Linear(out: {c}), ["gelu"]), ("y", Add, ["x", "fc2"])"#);
        let fused = same_when_fused(small(&[2, n, c], &nodes), seed);
        prop_assert_eq!(ops(&fused), ["Mlp"]);
    }

    #[test]
    fn activations_and_two_residuals_go_into_a_linear(n in 1usize..7, c in 1usize..9, relu: bool, seed: u32) {
        let act = if relu { "Relu" } else { "Gelu" };
        let nodes = format!(r#"("l", Linear(out: {c}), ["x"]), ("a", {act}, ["l"]), ("r", Add, ["a", "x"]), ("y", Add, ["r", "x"])"#);
        let fused = same_when_fused(small(&[1, n, c], &nodes), seed);
        prop_assert_eq!(ops(&fused), ["Linear"]);
        prop_assert_eq!(fused.nodes[1].op.arity(), 3);
    }

    #[test]
    fn residual_units_become_two_convolutions(c in 1usize..5, h in 1usize..6, w in 1usize..6, seed: u32) {
        let nodes = format!(r#"("r1", Relu, ["x"]), ("c1", Conv2d(out: {c}, kernel: 3, pad: 1), ["r1"]), ("r2", Relu, ["c1"]),
            ("c2", Conv2d(out: {c}, kernel: 3, pad: 1), ["r2"]), ("y", Add, ["c2", "x"])"#);
        let fused = same_when_fused(small(&[1, c, h, w], &nodes), seed);
        prop_assert_eq!(ops(&fused), ["Conv2d", "Conv2d"]);
    }

    #[test]
    fn pointwise_runs_before_the_upsampling(c in 1usize..5, out in 9usize..12, h in 1usize..6, w in 1usize..6, seed: u32) {
        let nodes = format!(r#"("up", Upsample(by: 2), ["x"]), ("y", Conv2d(out: {out}, kernel: 1), ["up"])"#);
        let fused = same_when_fused(small(&[1, c, h, w], &nodes), seed);
        prop_assert_eq!(ops(&fused), ["Conv2d", "Upsample"]);
    }

    #[test]
    fn the_end_of_a_head_is_one_convolution(c in 1usize..5, h in 1usize..6, w in 1usize..6, seed: u32) {
        let nodes = r#"("up", Upsample(by: 2), ["x"]), ("conv", Conv2d(out: 6, kernel: 3, pad: 1), ["up"]), ("relu", Relu, ["conv"]),
            ("y", Conv2d(out: 4, kernel: 1), ["relu"])"#;
        let fused = same_when_fused(small(&[2, c, h, w], nodes), seed);
        prop_assert_eq!(ops(&fused), ["Conv2d"]);
    }

    #[test]
    fn crops_to_the_same_size_vanish(h in 1usize..6, w in 1usize..6, seed: u32) {
        let nodes = format!(r#"("crop", Crop(h: {h}, w: {w}), ["x"]), ("y", Softmax, ["crop"])"#);
        let fused = same_when_fused(small(&[1, 2, h, w], &nodes), seed);
        prop_assert_eq!(ops(&fused), ["Softmax"]);
    }
}

#[test]
fn views_of_one_shape_go_as_one_batch_and_of_two_shapes_do_not() {
    let model = model("golden-tiny-linear");
    let fused = same_when_fused(model.graph(Sizes::both(48, 32)).unwrap(), 1);
    assert!(fused.nodes.iter().any(|n| n.name == "enc_blocks.3.add2" && n.shape[0] == 2), "{fused}");
    let mixed = same_when_fused(model.graph(Sizes { view1: (32, 48), view2: (48, 32) }).unwrap(), 1);
    assert!(mixed.nodes.iter().all(|n| n.shape[0] == 1), "{mixed}");
}

#[test]
fn descriptors_stay_and_odd_grids_are_cropped() {
    // Its DPT head has the full width: one token an image is work enough.
    let fused = same_when_fused(model("golden-tiny-mast3r").graph(Sizes::both(16, 16)).unwrap(), 2);
    assert!(ops(&fused).contains(&"Descriptors") && ops(&fused).contains(&"Crop"), "{fused}");
}

#[test]
fn values_that_something_else_reads_are_not_fused_away() {
    // The hidden value is read twice: no MLP, and the activation stays apart from the linear.
    let nodes = r#"("fc1", Linear(out: 5), ["x"]), ("gelu", Gelu, ["fc1"]), ("fc2", Linear(out: 5), ["gelu"]), ("y", Add, ["fc2", "fc1"])"#;
    let fused = same_when_fused(small(&[1, 3, 4], nodes), 7);
    assert_eq!(ops(&fused), ["Linear", "Gelu", "Linear"]);
    // A norm that more than linears read is computed once, not folded.
    let nodes = r#"("norm", LayerNorm(eps: 1e-6), ["x"]), ("l", Linear(out: 4), ["norm"]), ("y", Add, ["norm", "l"])"#;
    let fused = same_when_fused(small(&[1, 3, 4], nodes), 7);
    assert_eq!(ops(&fused), ["LayerNorm", "Linear"]);
}

#[test]
fn taps_inside_fused_regions_keep_their_values() {
    let model = model("golden-tiny-dpt");
    let mut graph = model.graph(Sizes::both(64, 48)).unwrap();
    let taps = [
        "enc_norm",
        "enc_norm#1",
        "enc_blocks.1",
        "enc_blocks.0.norm1",
        "enc_blocks.0.attn.q",
        "enc_blocks.0.mlp",
        "dec_blocks.0.norm_y",
        "dec_blocks2.3.cross_attn",
        "decoder_embed#0",
        "downstream_head1.dpt.head.1",
        "downstream_head2.dpt.scratch.refinenet3",
        "downstream_head1.dpt.act_postprocess.0",
        // Inside what would be one op: an attention that must stay in parts, a convolution's ReLU, an MLP's hidden value.
        "enc_blocks.2.attn.weights#0",
        "enc_blocks.3.attn.mix",
        "dec_blocks.1.cross_attn.qk",
        "dec_blocks2.2.mlp.gelu",
        "downstream_head1.dpt.head.2",
        "downstream_head2.dpt.scratch.refinenet2.resConfUnit2.relu2",
        "downstream_head1.dpt.crop4",
    ];
    graph.add_taps(&taps.map(String::from)).unwrap();
    let fused = same_when_fused(graph, 3);
    assert_eq!(fused.outputs.len(), 4 + taps.len());
    let unknown =
        model.graph(Sizes::both(64, 48)).unwrap().add_taps(&["enc_blocks.7".into(), "enc_nrm".into()]);
    let problems = unknown.expect_err("neither exists");
    assert_eq!(problems.len(), 2);
    assert!(problems[1].to_string().contains("did you mean `enc_norm"), "{problems:?}");
}
