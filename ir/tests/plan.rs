//! What executing relies on is checked before there is a plan: each invariant, broken, is refused and named.

use proptest::prelude::*;
use ttc_ir::artifact::FORMAT;
use ttc_ir::ops::{Gelu, Input, Linear, Op, Relu};
use ttc_ir::plan::{Buf, BufId, Const, ConstId, Draft, Order, Pack, Step, Target};
use ttc_ir::tensor::DType;
use ttc_ir::{Expr, Layout, Manifest, Math, Source, Weight, WeightId};

const CELL: u64 = 64;

/// A buffer that starts at that cell of 64 bytes, 16 numbers.
fn buf(name: &str, shape: &[usize], cell: u64, of: Option<u32>) -> Buf {
    let layout = Layout { order: Order::RowMajor, dtype: DType::F32 };
    Buf { name: name.into(), shape: shape.into(), layout, offset: cell * CELL, of: of.map(BufId) }
}

fn step(name: &str, op: impl Into<Op>, ins: &[u32], out: u32) -> Step {
    Step {
        name: name.into(),
        kernel: "reference".into(),
        op: op.into(),
        ins: ins.iter().copied().map(BufId).collect(),
        out: BufId(out),
        consts: vec![],
        math: Math::F32,
        why: String::new(),
    }
}

fn linear(out: usize) -> Op {
    ron::from_str::<Linear>(&format!("(out: {out})")).unwrap().into()
}

fn draft(cells: u64, bufs: Vec<Buf>, steps: Vec<Step>, output: u32) -> Draft {
    Draft {
        name: "t".into(),
        source: Source::default(),
        target: Target::Cpu,
        math: Math::F32,
        inputs: vec![("x".into(), BufId(0))],
        outputs: vec![("y".into(), BufId(output))],
        bufs,
        steps,
        weights: vec![],
        consts: vec![],
        arena_bytes: cells * CELL,
    }
}

/// `y = linear([relu(x); gelu(x)])`, the two stacked by writing into views of one buffer.
fn valid() -> Draft {
    let bufs = vec![
        buf("x", &[1, 16], 0, None),
        buf("both", &[2, 16], 1, None),
        buf("first", &[1, 16], 1, Some(1)),
        buf("second", &[1, 16], 2, Some(1)),
        buf("y", &[2, 4], 3, None),
    ];
    let mut steps = vec![
        step("relu", Relu {}, &[0], 2),
        step("gelu", Gelu {}, &[0], 3),
        step("linear", linear(4), &[1], 4),
    ];
    steps[2].consts = vec![ConstId(0), ConstId(1)];
    let load =
        |name: &str, shape: &[usize]| Weight { name: name.into(), shape: shape.into(), expr: Expr::Load };
    let constant = |at| Const { weight: WeightId(at), pack: Pack::RowMajor, dtype: DType::F32 };
    Draft {
        weights: vec![load("linear.weight", &[4, 16]), load("linear.bias", &[4])],
        consts: vec![constant(0), constant(1)],
        ..draft(4, bufs, steps, 4)
    }
}

type Change = fn(&mut Draft);

/// Refusals of the valid draft after each change.
fn all_refused(changes: &[(&str, Change)]) {
    for (expected, change) in changes {
        let mut broken = valid();
        change(&mut broken);
        assert!(broken != valid(), "`{expected}`: nothing was changed");
        let problems = broken.verify().expect_err(expected);
        let messages: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert!(messages.iter().any(|m| m.contains(expected)), "no `{expected}` in {messages:?}");
    }
}

#[test]
fn a_valid_draft_is_a_plan() {
    let plan = valid().verify().unwrap();
    assert_eq!(plan.lives(), [Some((0, 1)), Some((0, 2)), None, None, Some((2, 3))]);
    // The input is dead when the result is written: one place for both is no overlap.
    let mut reuse = valid();
    reuse.bufs[4].offset = 0;
    assert!(reuse.verify().is_ok());
}

#[test]
fn misplaced_buffers_are_refused() {
    all_refused(&[
        ("`both` and `y` overlap", |d| d.bufs[4].offset = CELL),
        ("`both` and `y` overlap", |d| d.bufs[4].offset = 2 * CELL),
        ("overlap", |d| d.bufs[0].offset = 2 * CELL),
        ("`x` and `y` overlap", |d| {
            d.bufs[4].offset = 0;
            d.outputs.push(("x".into(), BufId(0)));
        }),
        ("`second` leaves", |d| d.bufs[3].offset = 3 * CELL),
        ("`first` leaves", |d| d.bufs[2].offset = 0),
        ("`first` leaves", |d| d.bufs[2].shape = vec![3, 16]),
        ("`y` leaves", |d| d.arena_bytes = 3 * CELL),
        ("`y` leaves", |d| d.bufs[4].offset = 4 * CELL),
        ("`y` leaves", |d| d.bufs[4].offset = u64::MAX - 63),
        ("`y` is not aligned", |d| d.bufs[4].offset += 32),
        ("`first` is not aligned", |d| d.bufs[2].offset += 32),
        ("`x` is empty", |d| d.bufs[0].shape = vec![0, usize::MAX]),
        ("`x` is empty", |d| d.bufs[0].shape = vec![]),
        ("`x` is empty, too large", |d| d.bufs[0].shape = vec![usize::MAX, 2]),
        ("`x` is empty, too large", |d| {
            (d.bufs[0].shape, d.arena_bytes) = (vec![1 << 60, 16], u64::MAX);
        }),
        ("no map and channels-last", |d| d.bufs[0].layout.order = Order::ChannelsLast),
    ]);
}

#[test]
fn steps_that_cannot_run_are_refused() {
    all_refused(&[
        ("node `linear`: reads a buffer that nothing has written", |d| d.steps.swap(0, 2)),
        // Half of what it reads is written.
        ("node `linear`: reads a buffer that nothing has written", |d| drop(d.steps.remove(1))),
        ("node `linear`: reads a buffer that nothing has written", |d| d.steps[1].out = BufId(2)),
        ("node `relu`: reads a buffer that nothing has written", |d| d.inputs.clear()),
        ("node `gelu`: writes a buffer that it reads", |d| d.steps[1].ins = vec![BufId(2)]),
        ("output `y` is never written", |d| drop(d.steps.pop())),
        ("output `both` is never written", |d| {
            d.steps.drain(1..);
            d.outputs[0] = ("both".into(), BufId(1));
        }),
        ("node `linear`: writes 2x3, its op says 2x4", |d| d.bufs[4].shape = vec![2, 3]),
        ("node `linear`: writes 2x4, its op says 2x5", |d| d.steps[2].op = linear(5)),
        ("takes 1 inputs, not 2", |d| d.steps[0].ins.push(BufId(0))),
        ("takes 1 inputs, not 0", |d| d.steps[0].ins.clear()),
        ("is an input", |d| {
            (d.steps[0].op, d.steps[0].ins) = (Input { shape: vec![1, 16] }.into(), vec![]);
        }),
    ]);
}

#[test]
fn references_to_nothing_are_refused() {
    all_refused(&[
        ("step `relu` names a missing", |d| d.steps[0].ins[0] = BufId(5)),
        ("step `relu` names a missing", |d| d.steps[0].out = BufId(u32::MAX)),
        ("step `linear` names a missing", |d| d.steps[2].consts[1] = ConstId(2)),
        ("`x` names no buffer", |d| d.inputs[0].1 = BufId(5)),
        ("`y` names no buffer", |d| d.outputs[0].1 = BufId(5)),
        ("a constant names no weight", |d| d.consts[1].weight = WeightId(2)),
        ("buffer 2 does not view an earlier owner", |d| d.bufs[2].of = Some(BufId(4))),
        ("buffer 2 does not view an earlier owner", |d| d.bufs[2].of = Some(BufId(2))),
        ("buffer 3 does not view an earlier owner", |d| d.bufs[3].of = Some(BufId(2))),
        ("buffer 0 does not view an earlier owner", |d| d.bufs[0].of = Some(BufId(9))),
        ("`linear.bias` depends on a later one", |d| d.weights[1].expr = Expr::ConcatRows(vec![WeightId(1)])),
        ("`linear.weight` is too large", |d| d.weights[0].shape = vec![usize::MAX, 16]),
    ]);
}

#[test]
fn all_problems_of_a_kind_are_reported() {
    let mut broken = valid();
    broken.bufs[3].offset += 32;
    broken.bufs[4].offset += 32;
    assert_eq!(broken.verify().unwrap_err().len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// A chain of values in random places: refused exactly if two of them share a byte at one step.
    #[test]
    fn overlaps_are_those_that_comparing_all_pairs_finds(
        values in prop::collection::vec((0u64..12, 1usize..40, any::<prop::sample::Index>()), 2..7),
    ) {
        let bufs: Vec<Buf> = values.iter().enumerate().map(|(i, &(cell, n, _))| buf(&i.to_string(), &[1, n], cell, None)).collect();
        let reads: Vec<usize> = (1..values.len()).map(|i| values[i].2.index(i)).collect();
        let steps = reads.iter().enumerate().map(|(at, &read)| step(&at.to_string(), linear(values[at + 1].1), &[read as u32], at as u32 + 1)).collect();
        let last = values.len() - 1;
        // Value i is written by step i - 1 and lives until its last reader; the output to the end.
        let life = |i: usize| {
            let end = reads.iter().rposition(|&r| r == i).unwrap_or(i.saturating_sub(1));
            (i.saturating_sub(1), if i == last { last } else { end })
        };
        let bytes = |i: usize| (bufs[i].offset, bufs[i].offset + 4 * values[i].1 as u64);
        let clash = (0..values.len()).flat_map(|b| (0..b).map(move |a| (a, b))).any(|(a, b)| {
            let ((from_a, to_a), (from_b, to_b)) = (life(a), life(b));
            let ((start_a, end_a), (start_b, end_b)) = (bytes(a), bytes(b));
            from_a <= to_b && from_b <= to_a && start_a < end_b && start_b < end_a
        });
        let verdict = draft(20, bufs, steps, last as u32).verify();
        prop_assert_eq!(verdict.is_err(), clash, "{:?}", verdict.err());
    }

    /// Views of one owner are written in any order; what is read must be covered by them.
    #[test]
    fn a_view_may_be_read_when_every_cell_of_it_is_written(
        writes in prop::collection::vec((0u64..8, 1u64..4), 0..8),
        (from, len) in (0u64..8, 1u64..8),
    ) {
        let view = |name: &str, cell: u64, cells: u64| buf(name, &[1, 16 * cells as usize], 1 + cell, Some(1));
        let mut bufs = vec![buf("x", &[1, 16], 0, None), buf("owner", &[1, 16 * 15], 1, None), buf("y", &[1, 1], 16, None)];
        let mut steps = vec![];
        for (i, &(cell, cells)) in writes.iter().enumerate() {
            bufs.push(view("written", cell, cells));
            steps.push(step(&i.to_string(), linear(16 * cells as usize), &[0], 3 + i as u32));
        }
        bufs.push(view("read", from, len));
        steps.push(step("read", linear(1), &[bufs.len() as u32 - 1], 2));
        let covered = (from..from + len).all(|c| writes.iter().any(|&(cell, cells)| (cell..cell + cells).contains(&c)));
        prop_assert_eq!(draft(17, bufs, steps, 2).verify().is_ok(), covered);
    }
}

fn manifest() -> Manifest {
    Manifest {
        format: FORMAT,
        producer: "ttc".into(),
        plan: valid(),
        sections: vec!["aa".into(), "bb".into()],
        weights: Some("cc".into()),
    }
}

/// The refusal of a manifest's text.
#[track_caller]
fn refusal(text: &str) -> String {
    let refusal = Manifest::parse(text).expect_err("it parsed");
    assert!(refusal.expected.contains("compile the model again"), "{refusal}");
    refusal.to_string()
}

#[test]
fn a_manifest_reads_back() {
    let (read, plan) = Manifest::parse(&manifest().to_text().unwrap()).unwrap();
    assert_eq!((&read, &*plan), (&manifest(), &valid()));
    let bare = Manifest { sections: vec![], weights: None, ..manifest() };
    assert_eq!(Manifest::parse(&bare.to_text().unwrap()).unwrap().0, bare);
}

#[test]
fn other_manifests_are_refused_with_a_reason() {
    let newer = Manifest { format: FORMAT + 1, ..manifest() }.to_text().unwrap();
    for text in [&newer, "(format: 2, what_nobody: knows(yet), [1])", "(format: 2, steps: {\"a\": 1})"] {
        // A format that cannot even be skipped over is unreadable; one that can is named.
        let message = refusal(text);
        assert!(message.contains("format 2") || message.contains("cannot be read"), "{message}");
    }
    assert!(refusal(&newer).contains("format 2, this ttc reads format 1"));
    assert!(refusal("(format: 2, steps: {\"a\": 1})").contains("format 2"));
    for text in ["", "(", "no manifest", "(format: 1)", "(format: -1)", "\u{0}", &"(".repeat(100_000)] {
        assert!(refusal(text).contains("cannot be read"), "{text}");
    }
    let few = Manifest { sections: vec!["aa".into()], ..manifest() }.to_text().unwrap();
    assert!(refusal(&few).contains("1 sections for 2 constants"));
    let mut broken = manifest();
    broken.plan.bufs[4].offset += 4;
    assert!(refusal(&broken.to_text().unwrap()).contains("`y` is not aligned"));
    let whole = manifest().to_text().unwrap();
    for len in 0..whole.len() {
        refusal(&whole[..len]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Numbers exchanged for hostile ones and bytes for others: refused, or a plan whose listings can be printed.
    #[test]
    fn mutated_manifests_never_panic(
        numbers in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(HOSTILE)), 0..3),
        bytes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..3, any::<u8>()), 0..3),
    ) {
        let mut text = manifest().to_text().unwrap();
        for (at, number) in numbers {
            let starts: Vec<usize> = text.match_indices(|c: char| c.is_ascii_digit()).map(|(i, _)| i)
                .filter(|&i| !text[..i].ends_with(|c: char| c.is_ascii_digit())).collect();
            let start = starts[at.index(starts.len())];
            let end = text[start..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |n| start + n);
            text.replace_range(start..end, number);
        }
        let mut raw = text.into_bytes();
        for (at, kind, byte) in bytes {
            let at = at.index(raw.len());
            match kind {
                0 => raw[at] = byte,
                1 => drop(raw.remove(at)),
                _ => raw.insert(at, byte),
            }
        }
        if let Ok((read, plan)) = Manifest::parse(&String::from_utf8_lossy(&raw)) {
            prop_assert_eq!(&read.plan, &*plan);
            prop_assert!(plan.to_string().starts_with("plan ") && plan.memory_map().contains("arena"));
        }
    }
}

const HOSTILE: &[&str] = &[
    "0",
    "1",
    "2",
    "4",
    "63",
    "64",
    "128",
    "255",
    "4294967295",
    "4294967296",
    "1099511627776",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551552",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
];
