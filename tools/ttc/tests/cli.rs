//! The command line as a user meets it: files in, files out, messages, exit codes.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The repository, where `models/` is.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn ttc(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ttc"));
    // Nothing may depend on what the machine has cached, nor reach for a network.
    command.current_dir(root()).args(args).env("HF_HUB_OFFLINE", "1").env("HF_HOME", "/nonexistent");
    command.output().expect("the binary runs")
}

/// Stdout's last line as JSON, of a run that must have succeeded.
fn json(args: &[&str]) -> Value {
    let out = ttc(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    serde_json::from_str(text.lines().last().unwrap_or_default()).expect("the last line is JSON")
}

/// Exit code and message of a run that must have failed.
fn failure(args: &[&str]) -> (Option<i32>, String) {
    let out = ttc(args);
    assert!(!out.status.success(), "{args:?} succeeded");
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

const PAIR: [&str; 2] = ["models/dust3r-tiny/pair00_view1.png", "models/dust3r-tiny/pair00_view2.png"];
const TINY: &str = "models/dust3r-tiny.ron";

#[test]
fn demo_writes_every_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let result = json(&["demo", "-o", out, "--json", "-q"]);
    for name in ["pair.npz", "cloud.ply", "cloud.glb", "depth1.png", "conf2.png", "overview.png"] {
        assert!(folder.path().join(name).metadata().unwrap().len() > 1000, "{name}");
    }
    assert!(result["points"].as_u64().unwrap() > 10_000);
    let arrays = ttc_scene::read_npz(&std::fs::read(folder.path().join("pair.npz")).unwrap()).unwrap();
    let shapes: Vec<_> = arrays.iter().map(|a| (a.name.as_str(), a.shape.clone())).collect();
    assert!(
        shapes.contains(&("pts3d1", vec![128, 128, 3])) && shapes.contains(&("conf2", vec![128, 128])),
        "{shapes:?}"
    );
    assert!(arrays.iter().all(|a| a.data.iter().all(|v| v.is_finite())));
}

#[test]
fn an_artifact_runs_as_its_model_does_with_weights_inside_or_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let with = path("with.ttc");
    let without = path("without.ttc");
    let compiled = json(&[
        "compile",
        TINY,
        "--weights",
        "models/dust3r-tiny.safetensors",
        "-o",
        &with,
        "--math",
        "f32",
        "--json",
    ]);
    for field in
        ["steps", "peak_l1_bytes", "dram_bytes", "host_bytes", "modelled_ms", "compile_s", "artifact_hash"]
    {
        assert!(!compiled[field].is_null(), "{field}");
    }
    json(&["compile", TINY, "-o", &without, "--math", "f32", "--json"]);
    let run = |model: &str, out: &str, more: &[&str]| {
        let out = path(out);
        let args = [&["run", model, PAIR[0], PAIR[1], "-o", &out, "--save", "npz", "--json"], more].concat();
        json(&args);
        format!("{out}/pair.npz")
    };
    let a = run(TINY, "a", &["--math", "f32", "--size", "128x128"]);
    let b = run(&with, "b", &[]);
    let c = run(&without, "c", &["--weights", "models/dust3r-tiny.safetensors"]);
    for other in [&b, &c] {
        let compared = json(&["compare", &a, other, "--json"]);
        assert_eq!(compared["tensors"]["pts3d1"]["max_abs"], 0.0);
        assert_eq!(compared["tensors"]["conf2"]["max_abs"], 0.0);
    }
    let (code, message) = failure(&["run", &with, PAIR[0], PAIR[1], "-o", &path("d"), "--size", "64x64"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("--size is fixed"), "{message}");
}

#[test]
fn json_fields_of_the_contract_exist() {
    let bench = json(&["bench", TINY, "--runs", "2", "--json", "-q"]);
    for field in
        ["ms_median", "ms_min", "ms", "gflop", "gflops", "load_ms", "device", "math", "threads", "steps"]
    {
        assert!(!bench[field].is_null(), "bench {field}");
    }
    assert_eq!(bench["ms"].as_array().unwrap().len(), 2);
    let cost = json(&["explain", TINY, "--stage", "cost", "--json"]);
    for field in ["total_ms", "error_ms", "components", "steps"] {
        assert!(!cost[field].is_null(), "cost {field}");
    }
    let devices = json(&["devices", "--json"]);
    assert_eq!(devices["devices"][0]["id"], "cpu");
}

#[test]
fn taps_come_out_by_official_name_and_unknown_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.safetensors").to_str().unwrap().to_string();
    let input = "tests/goldens/tiny/tiny_dpt.land96x64.golden.safetensors";
    let args = [
        "tensors",
        "models/golden-tiny-dpt.ron",
        "--weights",
        "synthetic:0xD057E12D057E12D0",
        "--input",
        input,
    ];
    let taps = "enc_blocks.0.norm1,enc_blocks.3,dec_norm#0,downstream_head1.dpt.scratch.refinenet4";
    json(&[&args[..], &["--output", &out, "--math", "f32", "--tap", taps, "--json"]].concat());
    let compared = json(&["compare", input, &out, "--json", "--max-rel-l2", "1e-4"]);
    for tap in taps.split(',') {
        assert!(compared["tensors"][tap]["rel_l2"].as_f64().unwrap() < 1e-4, "{tap}");
    }
    let (code, message) =
        failure(&[&args[..], &["--output", &out, "--tap", "enc_blocks.9,nonsense"]].concat());
    assert_eq!(code, Some(2));
    assert!(message.contains("enc_blocks.9") && message.contains("nonsense"), "{message}");
}

#[test]
fn weights_that_do_not_fit_are_listed_with_node_and_line() {
    let args = ["bench", "models/golden-tiny-dpt.ron", "--weights", "models/dust3r-tiny.safetensors"];
    let (code, message) = failure(&args);
    assert_eq!(code, Some(2));
    let problems = message
        .lines()
        .filter(|l| l.contains("the model wants") || l.contains("missing") || l.contains("surplus"));
    assert!(problems.count() > 100, "all of them, not the first");
    assert!(
        message.contains("models/dust3r.ron:") && message.contains("node `enc_blocks.0.attn.qkv"),
        "{message}"
    );
}

#[test]
fn bad_input_says_what_why_and_what_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    std::fs::write(path("text.jpg"), "this is no photo").unwrap();
    let out = path("out");
    let (code, message) = failure(&["run", TINY, &path("text.jpg"), PAIR[1], "-o", &out]);
    assert_eq!(code, Some(2));
    assert!(message.contains("text.jpg") && message.contains("text, not an image"), "{message}");

    let (code, message) = failure(&["run", TINY, &path("absent.png"), PAIR[1], "-o", &out]);
    assert_eq!(code, Some(2));
    assert!(message.contains("absent.png") && message.contains("check the path"), "{message}");

    // The default weights are neither cached nor to be had offline.
    let (code, message) = failure(&["run", "models/dust3r.ron", PAIR[0], PAIR[1], "-o", &out]);
    assert_eq!(code, Some(1));
    assert!(
        message.contains("naver/DUSt3R_ViTLarge_BaseDecoder_512_dpt") && message.contains("CC BY-NC-SA"),
        "{message}"
    );

    for size in ["100x100", "0x0", "512", "512x384x3", "99999x16"] {
        let (code, message) = failure(&["bench", TINY, "--size", size]);
        assert_eq!(code, Some(2));
        assert!(message.contains("multiples of 16"), "{message}");
    }
    let (code, _) = failure(&["run", TINY, PAIR[0], "-o", &out]);
    assert_eq!(code, Some(2));
    let (code, message) = failure(&["run", "models/dust3r-tiny.safetensors", PAIR[0], PAIR[1], "-o", &out]);
    assert_eq!(code, Some(2));
    assert!(message.contains("none that ttc compiled"), "{message}");
}

#[test]
fn a_pair_of_sizes_keeps_each_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let args = ["run", TINY, "--size", "96x64+64x96", "--save", "npz", "-o", out, PAIR[0], PAIR[1], "--json"];
    assert_eq!(json(&args)["sizes"], serde_json::json!([[96, 64], [64, 96]]));
    let arrays = ttc_scene::read_npz(&std::fs::read(folder.path().join("pair.npz")).unwrap()).unwrap();
    let shape = |name: &str| arrays.iter().find(|a| a.name == name).unwrap().shape.clone();
    assert_eq!((shape("pts3d1"), shape("pts3d2")), (vec![64, 96, 3], vec![96, 64, 3]));
}
