//! Artifacts are data from outside: whole ones open, all others are refused with a reason, and nothing panics.

use proptest::prelude::*;
use std::sync::LazyLock;
use ttc_codegen::weights::{GOLDEN_SEED, Weights};
use ttc_ir::artifact::{MANIFEST, MANIFEST_HASH};
use ttc_ir::plan::{Draft, Order};
use ttc_ir::{Manifest, Math};
use ttc_runtime::{Artifact, Executor, Isa, Options, RuntimeError};
use ttc_tests::{artifact, graph, image, load, open, plan, root, run};

static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let graph = graph("golden-tiny-linear", (32, 32), (32, 32));
    artifact(&plan(&graph, Math::Bf16), &Weights::synthetic(GOLDEN_SEED))
});

fn outputs(bytes: &[u8]) -> Vec<(String, ttc_ir::Tensor)> {
    run(&mut load(bytes, 1), &[&image(32, 32, 0), &image(32, 32, 1)])
}

/// The refusal of bytes that must not open.
fn refusal(bytes: &[u8]) -> String {
    match open(bytes) {
        Ok(_) => panic!("it opened"),
        Err(e @ RuntimeError::Artifact { .. }) => e.to_string(),
        Err(e) => panic!("refused for another reason: {e}"),
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let graph = graph("golden-tiny-linear", (32, 32), (32, 32));
    assert!(artifact(&plan(&graph, Math::Bf16), &Weights::synthetic(GOLDEN_SEED)) == *WHOLE);
}

#[test]
fn truncated_empty_and_foreign_files_are_refused_with_a_reason() {
    for len in [0, 1, 7, 8, 9, 63, 64, 100, 1000, WHOLE.len() / 2, WHOLE.len() - 1] {
        assert!(refusal(&WHOLE[..len]).contains("again"), "{len}");
    }
    assert!(
        refusal(b"this is a text file and no artifact at all, whatever its name")
            .contains("cut off or no safetensors")
    );
    let foreign = std::fs::read(root().join("models/dust3r-tiny.safetensors")).unwrap();
    assert!(refusal(&foreign).contains("none that ttc compiled"));
}

/// Length of the header, and the header as JSON.
fn header(bytes: &[u8]) -> (usize, serde_json::Value) {
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (len, serde_json::from_slice(&bytes[8..8 + len]).unwrap())
}

fn manifest(bytes: &[u8]) -> Manifest {
    let (len, json) = header(bytes);
    let at = |i: usize| 8 + len + json[MANIFEST]["data_offsets"][i].as_u64().unwrap() as usize;
    ron::from_str(std::str::from_utf8(&bytes[at(0)..at(1)]).unwrap()).unwrap()
}

/// The whole artifact with another manifest, its hash made right: what someone with intent would write.
fn forge(change: impl FnOnce(&mut Manifest)) -> Vec<u8> {
    let (len, mut json) = header(&WHOLE);
    let mut manifest = manifest(&WHOLE);
    change(&mut manifest);
    let text = manifest.to_text().unwrap();
    let start = json[MANIFEST]["data_offsets"][0].as_u64().unwrap() as usize;
    json[MANIFEST]["data_offsets"][1] = (start + text.len()).into();
    json[MANIFEST]["shape"][0] = text.len().into();
    json["__metadata__"][MANIFEST_HASH] = blake3::hash(text.as_bytes()).to_hex().to_string().into();
    let mut head = serde_json::to_vec(&json).unwrap();
    head.resize((8 + head.len()).next_multiple_of(64) - 8, b' ');
    let data = &WHOLE[8 + len..8 + len + start];
    [&(head.len() as u64).to_le_bytes()[..], &head, data, text.as_bytes()].concat()
}

/// Opening and loading: one of them refuses.
fn refused(bytes: &[u8]) -> String {
    let loaded =
        open(bytes).and_then(|a: Artifact| Executor::load(a, Options { threads: 1, isa: Isa::best() }));
    match loaded {
        Ok(_) => panic!("it loaded"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn a_forged_manifest_that_changes_nothing_still_works() {
    assert!(outputs(&forge(|_| {})) == outputs(&WHOLE));
}

#[test]
fn newer_formats_are_named() {
    let message = refused(&forge(|m| m.format += 1));
    assert!(message.contains("format 2") && message.contains("reads format 1"), "{message}");
}

#[test]
fn hostile_plans_are_refused() {
    type Change = fn(&mut Draft);
    let changes: [(&str, Change); 12] = [
        ("buffer outside", |p| p.bufs[3].offset = p.arena_bytes),
        ("buffer overflow", |p| p.bufs[3].offset = u64::MAX - 63),
        ("misaligned", |p| p.bufs[3].offset += 4),
        ("huge shape", |p| p.bufs[3].shape = vec![usize::MAX, 2, 2, 2]),
        ("dangling buffer", |p| p.steps[2].out.0 = 100_000),
        ("dangling constant", |p| p.steps[1].consts[0].0 = 100_000),
        ("unknown kernel", |p| p.steps[1].kernel = "format_disk".into()),
        ("another kernel", |p| p.steps[1].kernel = "layer_norm".into()),
        ("constants swapped", |p| p.steps[2].consts.reverse()),
        ("constants missing", |p| p.steps[2].consts.clear()),
        ("another order", |p| {
            let out = p.steps[2].out.0 as usize;
            p.bufs[out].layout.order = Order::ChannelsLast;
        }),
        ("arena too small", |p| p.arena_bytes = 64),
    ];
    for (name, change) in changes {
        let message = refused(&forge(|m| change(&mut m.plan)));
        assert!(message.contains("not a usable artifact"), "{name}: {message}");
    }
    let message = refused(&forge(|m| m.sections.truncate(3)));
    assert!(message.contains("sections"), "{message}");
}

#[test]
fn every_tampered_byte_of_the_data_is_found() {
    let (len, _) = header(&WHOLE);
    let data = 8 + len..WHOLE.len();
    for at in data.clone().step_by(data.len() / 97) {
        let mut bytes = WHOLE.clone();
        bytes[at] ^= 0x10;
        assert!(refusal(&bytes).contains("does not match its hash"), "byte {at}");
    }
}

/// One change to a byte string.
#[derive(Clone, Debug)]
enum Mutation {
    Flip(usize, u8),
    Insert(usize, u8),
    Delete(usize),
    Truncate(usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    // Most of them in the header, where the structure is.
    let at = prop_oneof![0usize..4096, any::<usize>()];
    (0u8..4, at, 1u8..).prop_map(|(kind, at, byte)| match kind {
        0 => Mutation::Flip(at, byte),
        1 => Mutation::Insert(at, byte),
        2 => Mutation::Delete(at),
        _ => Mutation::Truncate(at),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_artifacts_are_refused_or_unharmed(mutations in prop::collection::vec(mutation(), 1..4)) {
        let mut bytes = WHOLE.clone();
        for m in mutations {
            let len = bytes.len();
            if len == 0 {
                break;
            }
            match m {
                Mutation::Flip(at, byte) => bytes[at % len] ^= byte,
                Mutation::Insert(at, byte) => bytes.insert(at % len, byte),
                Mutation::Delete(at) => drop(bytes.remove(at % len)),
                Mutation::Truncate(at) => bytes.truncate(at % len),
            }
        }
        let loaded = open(&bytes).and_then(|a| Executor::load(a, Options { threads: 1, isa: Isa::best() }));
        if loaded.is_ok() {
            prop_assert!(outputs(&bytes) == outputs(&WHOLE), "it loads and computes something else");
        }
    }
}
