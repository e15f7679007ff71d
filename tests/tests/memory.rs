//! Static memory: whatever the graph, no two live values share a byte.

use proptest::prelude::*;
use ttc_ir::graph::NodeId;
use ttc_ir::ops::{Add, Concat, Gelu, Input, Relu, Slice, Softmax, ToMap, ToTokens};
use ttc_ir::{Graph, Math, Op, Plan};
use ttc_tests::{graph, plan};

/// A random graph: each byte pair picks an op and its input among the values so far.
fn random_graph(choices: &[(u8, u8, u8)], outputs: usize) -> Graph {
    let mut graph = Graph::default();
    let input = Input { shape: vec![2, 12, 8] };
    graph.push("input", input, vec![], vec![], None).unwrap();
    for (at, &(op, a, b)) in choices.iter().enumerate() {
        let pick = |n: u8| NodeId(u32::from(n) % graph.nodes.len() as u32);
        let (x, y) = (pick(a), pick(b));
        let op: Op = match op % 8 {
            0 => Relu {}.into(),
            1 => Gelu {}.into(),
            2 => Softmax {}.into(),
            3 => Slice { axis: 0, start: graph.shape(x)[0] - 1, len: 1 }.into(),
            4 => ToMap { h: 3, w: 4 }.into(),
            5 => ToTokens {}.into(),
            6 => Concat { axis: 0 }.into(),
            _ => Add {}.into(),
        };
        let ins = if op.arity() == 2 { vec![x, y] } else { vec![x] };
        // An op that does not fit its inputs is left out.
        let _ = graph.push(format!("n{at}"), op, ins, vec![], None);
    }
    let last = graph.nodes.len() as u32;
    graph.outputs =
        (0..outputs as u32).map(|i| (format!("out{i}"), NodeId(last - 1 - i.min(last - 1)))).collect();
    graph
}

/// Every pair of values that are alive at one step: disjoint, or one a view of the other's owner. An own count of
/// lives, not the planner's or the verifier's.
fn check(plan: &Plan) {
    let end = plan.steps.len();
    let owner = |at: usize| plan.bufs[at].of.map_or(at, |of| of.0 as usize);
    let mut lives = vec![(usize::MAX, 0); plan.bufs.len()];
    let mut touch = |id: u32, step: usize| {
        let life = &mut lives[owner(id as usize)];
        *life = (life.0.min(step), life.1.max(step));
    };
    plan.inputs.iter().for_each(|(_, id)| touch(id.0, 0));
    plan.outputs.iter().for_each(|(_, id)| touch(id.0, end));
    for (at, step) in plan.steps.iter().enumerate() {
        step.ins.iter().chain([&step.out]).for_each(|id| touch(id.0, at));
    }
    let range = |at: usize| (plan.bufs[at].offset, plan.bufs[at].offset + plan.bufs[at].bytes().unwrap());
    let owners: Vec<usize> =
        (0..plan.bufs.len()).filter(|&at| owner(at) == at && lives[at].0 != usize::MAX).collect();
    for (i, &a) in owners.iter().enumerate() {
        assert!(range(a).1 <= plan.arena_bytes);
        for &b in &owners[i + 1..] {
            let alive = lives[a].0 <= lives[b].1 && lives[b].0 <= lives[a].1;
            let apart = range(a).1 <= range(b).0 || range(b).1 <= range(a).0;
            assert!(!alive || apart, "{} and {} overlap", plan.bufs[a].name, plan.bufs[b].name);
        }
    }
    for at in 0..plan.bufs.len() {
        let (inner, outer) = (range(at), range(owner(at)));
        assert!(outer.0 <= inner.0 && inner.1 <= outer.1, "{} leaves its owner", plan.bufs[at].name);
    }
    let total: u64 = owners.iter().map(|&at| (range(at).1 - range(at).0).next_multiple_of(64)).sum();
    assert!(plan.arena_bytes <= total);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn live_values_never_overlap(
        choices in prop::collection::vec(any::<(u8, u8, u8)>(), 1..40),
        outputs in 1usize..4,
        bf16 in any::<bool>(),
    ) {
        let graph = random_graph(&choices, outputs);
        check(&plan(&graph, if bf16 { Math::Bf16 } else { Math::F32 }));
    }
}

#[test]
fn live_values_of_the_models_never_overlap() {
    for model in ["dust3r", "dust3r-512-linear", "golden-tiny-mast3r"] {
        for math in [Math::F32, Math::Bf16] {
            check(&plan(&graph(model, (512, 384), (512, 384)), math));
            check(&plan(&graph(model, (96, 64), (64, 96)), math));
        }
    }
}
