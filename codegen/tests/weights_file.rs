//! Weights from safetensors files: reading, checking, and files that are not what they should be.

use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use proptest::prelude::*;
use safetensors::{Dtype, tensor::TensorView};
use ttc_codegen::weights::{
    ProblemKind, Wanted, WeightError, WeightErrorKind, Weights, read_safetensors_f32, write_safetensors,
};

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::tempdir().expect("a scratch folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(name), bytes).expect("written");
        self.path(name)
    }
}

fn encode(tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Vec<u8> {
    let views =
        tensors.iter().map(|(n, d, s, b)| (*n, TensorView::new(*d, s.to_vec(), b).expect("consistent")));
    safetensors::serialize(views, None).expect("serialised")
}

fn small() -> Vec<u8> {
    let f = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    encode(&[
        ("enc_norm.weight", Dtype::F32, &[3], f(&[1.0, -2.5, 1e-30])),
        ("head.scratch.layer_rn.0.weight", Dtype::F32, &[1, 2], f(&[4.0, 5.0])),
        ("mask_token", Dtype::F32, &[1, 1, 1], f(&[9.0])),
    ])
}

fn refused(path: &Path) -> WeightError {
    Weights::open(&[path]).map(|_| ()).expect_err("the file must be refused")
}

#[test]
fn the_three_dtypes_are_widened_exactly() {
    let dir = Scratch::new();
    let values = [0.0f32, -0.0, 1.0, -1.5, 65504.0, 6.1e-5, 5.96e-8, f32::INFINITY, f32::NEG_INFINITY];
    let halves: Vec<f16> = values.iter().map(|&v| f16::from_f32(v)).collect();
    let brains: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
    let path = dir.file(
        "w.safetensors",
        &encode(&[
            ("f", Dtype::F32, &[3, 3], values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            ("h", Dtype::F16, &[9], halves.iter().flat_map(|v| v.to_le_bytes()).collect()),
            ("b", Dtype::BF16, &[9, 1], brains.iter().flat_map(|v| v.to_le_bytes()).collect()),
        ]),
    );
    let weights = Weights::open(&[&path]).expect("opens");
    // Compared as bits, so that -0.0 counts.
    let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
    assert_eq!(bits(weights.read_f32("f", &[3, 3]).expect("f")), bits(values.to_vec()));
    assert_eq!(
        bits(weights.read_f32("h", &[9]).expect("h")),
        bits(halves.iter().map(|h| h.to_f32()).collect())
    );
    assert_eq!(
        bits(weights.read_f32("b", &[9, 1]).expect("b")),
        bits(brains.iter().map(|b| b.to_f32()).collect())
    );
}

#[test]
fn another_dtype_is_refused_by_name() {
    let dir = Scratch::new();
    let path = dir.file("w.safetensors", &encode(&[("steps", Dtype::I64, &[1], vec![0; 8])]));
    let weights = Weights::open(&[&path]).expect("opens");
    let error = weights.read_f32("steps", &[1]).expect_err("I64");
    assert_eq!(error.kind, WeightErrorKind::Dtype);
    assert!(error.to_string().contains("`steps`") && error.to_string().contains("I64"), "{error}");
    let problems = weights.check(&[Wanted::new("steps", [1])], &[]);
    assert_eq!(problems.iter().map(|p| p.kind).collect::<Vec<_>>(), [ProblemKind::Dtype]);
}

#[test]
fn wrong_shape_and_missing_name_are_errors() {
    let dir = Scratch::new();
    let weights = Weights::open(&[dir.file("w.safetensors", &small())]).expect("opens");
    let shape = weights.read_f32("enc_norm.weight", &[4]).expect_err("shape");
    assert_eq!(shape.kind, WeightErrorKind::Shape);
    assert!(shape.to_string().contains("[3]") && shape.to_string().contains("[4]"), "{shape}");
    let missing = weights.read_f32("enc_norm.wieght", &[3]).expect_err("missing");
    assert_eq!(missing.kind, WeightErrorKind::Missing);
    assert!(missing.next.contains("`enc_norm.weight`"), "{missing}");
}

#[test]
fn either_name_of_an_aliased_tensor_will_do() {
    let dir = Scratch::new();
    let weights = Weights::open(&[dir.file("w.safetensors", &small())]).expect("opens");
    let name = "head.scratch.layer1_rn.weight";
    assert_eq!(weights.read_f32(name, &[1, 2]), Ok(vec![4.0, 5.0]));
    let wanted = [Wanted::new("enc_norm.weight", [3]), Wanted::new(name, [1, 2])];
    assert_eq!(weights.check(&wanted, &["mask_*"]), []);
}

#[test]
fn extra_aliases_and_optional_tensors() {
    let dir = Scratch::new();
    let weights = Weights::open(&[dir.file("w.safetensors", &small())]).expect("opens");
    let renamed = Wanted { aliases: vec!["enc_norm.weight".into()], ..Wanted::new("norm.weight", [3]) };
    let optional = Wanted { optional: true, ..Wanted::new("nowhere.bias", [5]) };
    assert_eq!(weights.read_wanted(&renamed).expect("found").map(|v| v.len()), Some(3));
    assert_eq!(weights.read_wanted(&optional), Ok(None));
    assert!(weights.read_wanted(&Wanted::new("nowhere.bias", [5])).is_err());
    assert_eq!(weights.check(&[renamed, optional], &["mask_token", "head.*"]), []);
}

#[test]
fn check_lists_every_problem() {
    let dir = Scratch::new();
    let weights = Weights::open(&[dir.file("w.safetensors", &small())]).expect("opens");
    let wanted = [
        Wanted::new("enc_norm.weight", [4]),
        Wanted::new("mask_tokem", [1, 1, 1]),
        Wanted::new("patch_embed.proj.weight", [2, 3]),
    ];
    let problems = weights.check(&wanted, &[]);
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "`enc_norm.weight` is [3], the model wants [4]",
            "missing `mask_tokem` [1, 1, 1] (is it `mask_token`?)",
            "missing `patch_embed.proj.weight` [2, 3]",
            "surplus `head.scratch.layer_rn.0.weight` [1, 2]",
            "surplus `mask_token` [1, 1, 1]",
        ]
    );
}

#[test]
fn shards_are_one_checkpoint() {
    let dir = Scratch::new();
    let a = dir.file("a.safetensors", &small());
    let b = dir.path("b.safetensors");
    write_safetensors(&b, &[("extra.bias", &[2], &[1.0, 2.0])]).expect("written");
    let both = Weights::open(&[&a, &b]).expect("opens");
    assert_eq!(both.entries().expect("a file has entries").len(), 4);
    assert_eq!(both.read_f32("extra.bias", &[2]), Ok(vec![1.0, 2.0]));
    assert_ne!(both.digest(), Weights::open(&[&a]).expect("opens").digest());
    let twice = Weights::open(&[&a, &a]).map(|_| ()).expect_err("the same tensors twice");
    assert_eq!(twice.kind, WeightErrorKind::Duplicate);
}

#[test]
fn the_digest_is_that_of_the_bytes() {
    let dir = Scratch::new();
    let weights = Weights::open(&[dir.file("w.safetensors", &small())]).expect("opens");
    let expected = format!("blake3:{}", blake3::hash(&small()).to_hex());
    assert_eq!(weights.digest(), Ok(expected.clone()));
    assert_eq!(weights.digest(), Ok(expected), "asked twice");
}

#[test]
fn files_of_other_kinds_are_named() {
    let dir = Scratch::new();
    let cases: [(&[u8], &str, &str); 7] = [
        (b"", "empty", "download"),
        (b"abc", "too few", "download"),
        (b"PK\x03\x04\x14\0\0\0archive/data.pkl", ".pth", "save_file"),
        (b"\x80\x02}q\0(X\x05\0\0\0model", "pickle", "save_file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "LFS pointer", "git lfs pull"),
        (b"<!DOCTYPE html><title>Sign in</title>", "web page", "download"),
        (b"\xff\xff\xff\xff\xff\xff\xff\x7f{}", "announces a header of 9223372036854775807", "download"),
    ];
    for (bytes, why, next) in cases {
        let error = refused(&dir.file("w", bytes));
        assert_eq!(error.kind, WeightErrorKind::Format, "{error}");
        assert!(error.why.contains(why), "{error}");
        assert!(error.next.contains(next), "{error}");
    }
    assert_eq!(refused(&dir.path("nowhere")).kind, WeightErrorKind::Io);
    assert!(Weights::open(&[dir.0.path()]).is_err(), "a folder is not a file");
}

#[test]
fn a_cut_or_grown_file_says_by_how_much() {
    let dir = Scratch::new();
    let (whole, mut long) = (small(), small());
    let cut = refused(&dir.file("cut", &whole[..whole.len() - 5]));
    assert!(cut.why.contains("cut off") && cut.why.contains(&whole.len().to_string()), "{cut}");
    long.push(0);
    assert!(refused(&dir.file("long", &long)).why.contains("longer"));
}

#[test]
fn a_header_that_overflows_sizes_is_refused() {
    let dir = Scratch::new();
    let end = u64::MAX - 3;
    let header = format!(r#"{{"a":{{"dtype":"U8","shape":[{end}],"data_offsets":[0,{end}]}}}}"#);
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    assert_eq!(refused(&dir.file("w", &bytes)).kind, WeightErrorKind::Format);
}

#[test]
fn a_file_that_shrinks_after_opening_is_an_error() {
    let dir = Scratch::new();
    let path = dir.file("w.safetensors", &small());
    let weights = Weights::open(&[&path]).expect("opens");
    fs::File::options().write(true).open(&path).expect("opens").set_len(40).expect("cut");
    assert_eq!(weights.read_f32("enc_norm.weight", &[3]).expect_err("cut").kind, WeightErrorKind::Io);
}

#[test]
fn what_is_written_is_read_back() {
    let dir = Scratch::new();
    let path = dir.path("t.safetensors");
    let values: Vec<f32> = (0..24).map(|i| (i as f32 - 7.0) / 3.0).collect();
    let scalar: &[usize] = &[];
    write_safetensors(
        &path,
        &[("b", &[2, 3, 4], &values), ("a", scalar, &[f32::NAN]), ("none", &[0, 5], &[])],
    )
    .expect("written");
    let back = read_safetensors_f32(&path).expect("read");
    assert_eq!(back.iter().map(|t| t.0.as_str()).collect::<Vec<_>>(), ["a", "b", "none"]);
    assert_eq!((&back[1].1, &back[1].2), (&vec![2, 3, 4], &values));
    assert!(back[0].1.is_empty() && back[0].2[0].is_nan());
    // Replaced as a whole, and nothing left beside it.
    write_safetensors(&path, &[("c", &[1], &[1.0])]).expect("overwritten");
    assert_eq!(read_safetensors_f32(&path).expect("read").len(), 1);
    assert_eq!(fs::read_dir(dir.0.path()).expect("listed").count(), 1);
}

#[test]
fn bad_tensors_are_not_written() {
    let dir = Scratch::new();
    let path = dir.path("t.safetensors");
    assert!(write_safetensors(&path, &[("a", &[2], &[1.0])]).is_err(), "a value short");
    assert!(
        write_safetensors(&path, &[("a", &[1], &[1.0]), ("a", &[1], &[2.0])]).is_err(),
        "twice the same name"
    );
    assert!(write_safetensors(&dir.path("no/folder"), &[("a", &[1], &[1.0])]).is_err());
    assert_eq!(fs::read_dir(dir.0.path()).expect("listed").count(), 0);
}

/// Opens and reads everything, in name order; any outcome is fine but a panic.
fn exercise(path: &Path) -> Option<Vec<f32>> {
    let weights = Weights::open(&[path]).ok()?;
    let mut all = Vec::new();
    for entry in weights.entries()? {
        all.extend(weights.read_f32(&entry.name, &entry.shape).ok()?);
    }
    Some(all)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_is_an_error_or_reads_as_stored(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        keep in prop::option::of(any::<prop::sample::Index>()),
        extra in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        let dir = Scratch::new();
        let original = small();
        let header = 8 + u64::from_le_bytes(*original.first_chunk().expect("eight bytes")) as usize;
        let mut bytes = original.clone();
        for (at, byte) in &edits {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        if let Some(keep) = keep {
            bytes.truncate(keep.index(bytes.len()));
        }
        bytes.extend(&extra);
        let read = exercise(&dir.file("w.safetensors", &bytes));
        if bytes.get(..header) == original.get(..header) {
            // The header of `small` has its tensors in name order, so the values are the data section.
            let stored = (bytes.len() == original.len()).then(|| bytes[header..].to_vec());
            let read = read.map(|values| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
            prop_assert_eq!(read, stored);
        }
    }

    #[test]
    fn random_bytes_never_open(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        // Only a well-formed header could open, and random bytes do not spell one.
        prop_assert_eq!(exercise(&Scratch::new().file("w", &bytes)), None);
    }
}
