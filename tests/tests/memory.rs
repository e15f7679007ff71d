//! Static memory: whatever the graph, no two live values share a byte.

use proptest::prelude::*;
use ttc_ir::Math;
use ttc_ir::plan::Draft;
use ttc_tests::{graph, plan, random};

/// Every pair of values that are alive at one step: disjoint, or one a view of the other's owner. An own count of
/// lives, not the planner's or the verifier's.
fn check(plan: &Draft) {
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
        let graph = random::graph(&choices, outputs);
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

/// The check above is only worth something if it can fail.
#[test]
fn the_check_finds_every_kind_of_misplacement() {
    let whole = plan(&graph("golden-tiny-linear", (32, 32), (32, 32)), Math::F32);
    type Change = fn(&mut Draft);
    let changes: [(&str, Change); 4] = [
        ("a value on top of the input that its step reads", |p| {
            let step = p.steps[0].clone();
            p.bufs[step.out.0 as usize].offset = p.bufs[step.ins[0].0 as usize].offset;
        }),
        ("outside the arena", |p| p.bufs[0].offset = p.arena_bytes),
        ("a view outside its owner", |p| {
            let view = p.bufs.iter().position(|b| b.of.is_some()).expect("the batch of views is sliced");
            p.bufs[view].offset += 1 << 20;
        }),
        ("a wasteful arena", |p| p.arena_bytes *= 1000),
    ];
    for (name, change) in changes {
        let mut draft = (*whole).clone();
        change(&mut draft);
        let found = std::panic::catch_unwind(|| check(&draft));
        assert!(found.is_err(), "not found: {name}");
    }
}
