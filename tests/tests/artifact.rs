//! Artifacts are data from outside: whole ones open, all others are refused with a reason, and nothing panics.

use proptest::prelude::*;
use std::sync::LazyLock;
use ttc_codegen::weights::{GOLDEN_SEED, Weights};
use ttc_ir::artifact::{CONST_ALIGN, MANIFEST, MANIFEST_HASH, const_name};
use ttc_ir::ops::{Descriptors, Input, LayerNorm, PixelShuffle};
use ttc_ir::plan::{Buf, BufId, Draft, Order, Pack, Step};
use ttc_ir::tensor::DType;
use ttc_ir::{Manifest, Math, Op};
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
fn files_open_or_say_why_not() {
    let graph = graph("golden-tiny-dpt", (96, 64), (96, 64));
    let (plan, weights) = (plan(&graph, Math::F32), Weights::synthetic(GOLDEN_SEED));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.ttc");
    let mut file = std::fs::File::create(&path).unwrap();
    let hash = ttc_codegen::emit(&plan, Some(&weights), &mut file, &mut |_, _| {}).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes == artifact(&plan, &weights), "a file and memory differ");
    let opened = Artifact::open(&path).unwrap();
    assert_eq!((opened.hash.as_str(), &opened.plan), (hash.as_str(), &plan));
    let images = [&image(96, 64, 0)[..], &image(96, 64, 1)];
    let mut mapped = Executor::load(opened, Options { threads: 1, isa: Isa::best() }).unwrap();
    assert!(run(&mut mapped, &images) == run(&mut load(&bytes, 1), &images), "mapped and in memory differ");
    drop(mapped);
    let refusal = |path: &std::path::Path| Artifact::open(path).err().expect("it opened");
    for len in (0..bytes.len()).step_by(bytes.len() / 41).chain([1, 8, 64, bytes.len() - 1]) {
        std::fs::write(&path, &bytes[..len]).unwrap();
        assert!(matches!(refusal(&path), RuntimeError::Artifact { .. }), "{len} bytes");
    }
    std::fs::write(&path, []).unwrap();
    assert!(refusal(&path).to_string().contains("is empty"));
    assert!(matches!(refusal(&folder.path().join("absent.ttc")), RuntimeError::Open { .. }));
    assert!(matches!(refusal(folder.path()), RuntimeError::Open { .. }), "a folder");
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
    file(&json, &[&WHOLE[8 + len..8 + len + start], text.as_bytes()].concat())
}

/// A safetensors file of that header and data.
fn file(json: &serde_json::Value, data: &[u8]) -> Vec<u8> {
    let mut head = serde_json::to_vec(json).unwrap();
    head.resize((8 + head.len()).next_multiple_of(CONST_ALIGN) - 8, b' ');
    [&(head.len() as u64).to_le_bytes()[..], &head, data].concat()
}

type Change = fn(&mut Draft);

/// Forges a plan with each change; opening or loading must refuse it with a reason, and not by a panic.
fn all_refused(changes: &[(&str, Change)]) {
    let mut wrong = vec![];
    for (name, change) in changes {
        let bytes = forge(|m| change(&mut m.plan));
        let verdict = std::panic::catch_unwind(|| {
            open(&bytes).and_then(|a| Executor::load(a, Options { threads: 1, isa: Isa::best() })).err()
        });
        match verdict {
            Ok(Some(RuntimeError::Artifact { .. } | RuntimeError::Start { .. })) => {}
            Ok(Some(e)) => wrong.push(format!("{name}: refused for another reason: {e}")),
            Ok(None) => wrong.push(format!("{name}: it loaded")),
            Err(_) => wrong.push(format!("{name}: it panicked")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
    all_refused(&[
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
    ]);
    let message = refused(&forge(|m| m.sections.truncate(3)));
    assert!(message.contains("sections"), "{message}");
}

/// The first step of that kernel.
fn step<'a>(plan: &'a mut Draft, kernel: &str) -> &'a mut Step {
    plan.steps.iter_mut().find(|s| s.kernel == kernel).expect("the plan uses it")
}

#[test]
fn plans_that_lie_about_sizes_are_refused() {
    all_refused(&[
        ("sides swapped", |p| {
            let out = step(p, "attention").out.0 as usize;
            p.bufs[out].shape.swap(1, 2);
        }),
        ("two live values in one place", |p| {
            let s = step(p, "attention").clone();
            p.bufs[s.out.0 as usize].offset = p.bufs[s.ins[0].0 as usize].offset;
        }),
        ("two live values in one place, behind an empty one", |p| {
            // The image is alive to the end; the empty value begins where it does, ends at once, and must not end it too.
            let image = p.inputs[0].1;
            p.outputs.push(("image".into(), image));
            // A place that nothing else has.
            p.bufs[image.0 as usize].offset = p.arena_bytes.next_multiple_of(64);
            let like = p.bufs[image.0 as usize].clone();
            p.arena_bytes = like.offset + like.bytes().unwrap();
            let out = step(p, "attention").out.0 as usize;
            p.bufs[out].offset = like.offset;
            p.inputs.push(("empty".into(), BufId(p.bufs.len() as u32)));
            p.bufs.push(Buf { name: "empty".into(), shape: vec![0], ..like });
        }),
        ("no axis", |p| {
            let like = p.bufs[p.inputs[0].1.0 as usize].clone();
            let scalar = BufId(p.bufs.len() as u32);
            p.bufs.push(Buf { name: "scalar".into(), shape: vec![], offset: p.arena_bytes, ..like });
            p.arena_bytes += 64;
            p.inputs.push(("scalar".into(), scalar));
            let last = step(p, "confidence");
            (last.op, last.kernel, last.ins) =
                (LayerNorm { eps: 1.0 }.into(), "layer_norm".into(), vec![scalar]);
            let out = last.out.0 as usize;
            p.bufs[out].shape.clear();
        }),
        ("tokens channels-last", |p| {
            let input = step(p, "attention").ins[0].0 as usize;
            p.bufs[input].layout.order = Order::ChannelsLast;
        }),
        ("an arena beyond any memory", |p| p.arena_bytes = u64::MAX - 63),
        ("an arena beyond this memory", |p| p.arena_bytes = 1 << 52),
        // These sums and products wrap around to what is expected.
        ("heads", |p| {
            if let Op::Attention(a) = &mut step(p, "attention").op {
                a.heads += 1 << 60
            }
        }),
        ("first channel", |p| {
            if let Op::Attention(a) = &mut step(p, "attention").op {
                a.at.0 = usize::MAX - a.heads * a.d + 1
            }
        }),
        ("grid", |p| {
            if let Op::Attention(a) = &mut step(p, "attention").op
                && let Some(rope) = &mut a.rope
            {
                rope.q.0 += 1 << 63;
            }
        }),
        ("residuals", |p| {
            if let Op::Linear(l) = &mut step(p, "gemm").op {
                l.residuals = usize::MAX
            }
        }),
        ("cells", |p| step(p, "pixel_shuffle").op = PixelShuffle { by: 1 << 32 }.into()),
        ("descriptors", |p| {
            let s = step(p, "confidence");
            (s.op, s.kernel) = (Descriptors { start: usize::MAX, len: 1 }.into(), "descriptors".into());
            let out = s.out.0 as usize;
            p.bufs[out].shape.push(1);
        }),
    ]);
}

#[test]
fn plans_that_lie_about_types_and_ops_are_refused() {
    all_refused(&[
        ("bf16 where exact values are read", |p| {
            let input = step(p, "mlp").ins[0].0 as usize;
            p.bufs[input].layout.dtype = DType::BF16;
        }),
        ("bf16 input", |p| {
            let input = p.inputs[0].1.0 as usize;
            p.bufs[input].layout.dtype = DType::BF16;
        }),
        ("f32 constant where packed bf16 is read", |p| {
            let at = step(p, "mlp").consts[0].0 as usize;
            p.consts[at].dtype = DType::F32;
        }),
        ("bf16 constant where f32 is read", |p| {
            let at = step(p, "mlp").consts[1].0 as usize;
            p.consts[at].dtype = DType::BF16;
        }),
        ("rows where panels are read", |p| {
            let at = step(p, "mlp").consts[0].0 as usize;
            p.consts[at].pack = Pack::RowMajor;
        }),
        ("another precision than the constants'", |p| {
            let s = step(p, "mlp");
            s.math = if s.math == Math::F32 { Math::Bf16 } else { Math::F32 };
        }),
        ("an op of another kernel", |p| step(p, "mlp").op = LayerNorm { eps: 1e-6 }.into()),
        ("an input as a step", |p| {
            let s = step(p, "mlp").clone();
            let shape = p.bufs[s.out.0 as usize].shape.clone();
            let (op, kernel) = (Input { shape }.into(), "reference".into());
            *step(p, "mlp") = Step { op, kernel, ins: vec![], consts: vec![], ..s };
        }),
    ]);
}

/// A section longer than its constant by what is no whole number of elements, its hash right.
#[test]
fn sections_of_another_length_are_refused() {
    let (len, mut json) = header(&WHOLE);
    let mut manifest = manifest(&WHOLE);
    let last = const_name(manifest.sections.len() - 1);
    let at = |json: &serde_json::Value, name: &str, i: usize| {
        json[name]["data_offsets"][i].as_u64().unwrap() as usize
    };
    let (start, end) = (at(&json, &last, 0), at(&json, &last, 1));
    let mut data = WHOLE[8 + len..8 + len + end].to_vec();
    data.push(0);
    *manifest.sections.last_mut().unwrap() = blake3::hash(&data[start..]).to_hex().to_string();
    let text = manifest.to_text().unwrap();
    json[&last] = serde_json::json!({"dtype": "U8", "shape": [data.len() - start], "data_offsets": [start, data.len()]});
    json[MANIFEST] = serde_json::json!({
        "dtype": "U8", "shape": [text.len()], "data_offsets": [data.len(), data.len() + text.len()]
    });
    json["__metadata__"][MANIFEST_HASH] = blake3::hash(text.as_bytes()).to_hex().to_string().into();
    let message = refused(&file(&json, &[&data, text.as_bytes()].concat()));
    assert!(message.contains("another size"), "{message}");
}

#[test]
fn every_tampered_byte_of_the_header_is_refused_or_harmless() {
    let (len, _) = header(&WHOLE);
    let meant = outputs(&WHOLE);
    let mut harmless = 0;
    for (i, at) in (0..8 + len).step_by((8 + len) / 199).enumerate() {
        let mut bytes = WHOLE.clone();
        bytes[at] ^= 1 << (i % 8);
        if open(&bytes).is_ok() {
            harmless += 1;
            assert!(outputs(&bytes) == meant, "byte {at}: it loads and computes something else");
        }
    }
    // Only a section's declared type means nothing to the reader; were most flips harmless, nothing would be checked.
    assert!(harmless < 20, "{harmless} flips went unnoticed");
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
