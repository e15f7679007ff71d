//! The networks against outputs of upstream's own code: every stored tensor of every golden.

use std::path::PathBuf;
use ttc::compare::{Comparison, Named, compare_all, read};
use ttc_codegen::weights::{GOLDEN_SEED, Weights};
use ttc_ir::{Math, Tensor};
use ttc_runtime::Isa;
use ttc_tests::{artifact, graph, load_on, plan, root, run};

/// Golden file, model.
const TINY: [(&str, &str); 9] = [
    ("tiny_dpt.sq64", "golden-tiny-dpt"),
    ("tiny_dpt.land96x64", "golden-tiny-dpt"),
    ("tiny_dpt.port64x96", "golden-tiny-dpt"),
    ("tiny_dpt.odd80x48", "golden-tiny-dpt"),
    ("tiny_dpt.mixed", "golden-tiny-dpt"),
    ("tiny_linear.land96x64", "golden-tiny-linear"),
    ("tiny_linear.port64x96", "golden-tiny-linear"),
    ("tiny64_dpt.land96x64", "golden-tiny64-dpt"),
    ("tiny_mast3r.sq64", "golden-tiny-mast3r"),
];

/// Of every model; the last four of MASt3R only.
const OUTPUTS: [&str; 8] =
    ["pts3d1", "conf1", "pts3d2", "conf2", "desc1", "desc2", "desc_conf1", "desc_conf2"];

/// Outputs whose golden has few enough units for an absolute limit: metres-like points, and confidences near 1.
const POINTS: [&str; 2] = ["pts3d1", "pts3d2"];
const CONFIDENCES: [&str; 2] = ["conf1", "conf2"];

/// The tensor's name without a selection.
fn whole(name: &str) -> &str {
    name.split('|').next().unwrap_or_default()
}

fn golden(name: &str) -> PathBuf {
    root().join(format!("tests/goldens/tiny/{name}.golden.safetensors"))
}

/// Runs a model on images `[1, 3, H, W]` with the goldens' weights; outputs and taps.
fn compute(model: &str, images: [&Named; 2], taps: &[String], math: Math, isa: Isa) -> Vec<Named> {
    let side = |at: usize| (images[at].shape[3], images[at].shape[2]);
    let mut graph = graph(model, side(0), side(1));
    graph.add_taps(taps).expect("goldens name official modules");
    let bytes = artifact(&plan(&graph, math), &Weights::synthetic(GOLDEN_SEED));
    let outputs = run(&mut load_on(&bytes, 2, isa), &[&images[0].data, &images[1].data]);
    outputs.into_iter().map(|(name, Tensor { shape, data })| Named { name, shape, data }).collect()
}

/// Compares a model with a golden file in all its tensors, and returns what was compared.
fn against(stored: &[Named], model: &str, math: Math, isa: Isa) -> Vec<(String, Comparison)> {
    let image = |name: &str| stored.iter().find(|t| t.name == name).expect("goldens hold their inputs");
    // `many_ar` is what upstream's training-time wrapper makes of an output; no prediction reads it.
    let special =
        |name: &str| name.starts_with("in.") || name.starts_with("out.") || name.starts_with("many_ar.");
    let taps: Vec<String> = stored.iter().map(|t| t.name.clone()).filter(|n| !special(n)).collect();
    let computed = compute(model, [image("in.img1"), image("in.img2")], &taps, math, isa);
    let wanted: Vec<Named> = stored
        .iter()
        .filter(|t| !t.name.starts_with("in.") && !t.name.starts_with("many_ar."))
        .cloned()
        .collect();
    let (results, alone) = compare_all(&wanted, &computed).expect("the shapes agree");
    assert!(alone.is_empty(), "{model}: without a partner: {alone:?}");
    assert_eq!(results.len(), wanted.len());
    results
}

fn check_f32(case: &str, results: &[(String, Comparison)]) {
    for (name, c) in results {
        assert!(c.rel_l2 <= 1e-4 && c.pcc >= 0.99999, "{case} {name}: {c:?}");
        assert!(!POINTS.contains(&name.as_str()) || c.max_abs <= 2e-4, "{case} {name}: {c:?}");
        assert!(!CONFIDENCES.contains(&name.as_str()) || c.max_abs <= 1e-4, "{case} {name}: {c:?}");
    }
}

fn check_bf16(case: &str, results: &[(String, Comparison)]) {
    let outputs: Vec<_> = results.iter().filter(|(name, _)| OUTPUTS.contains(&name.as_str())).collect();
    assert!(outputs.len() >= 4, "{case}: only {} outputs were compared", outputs.len());
    for (name, c) in outputs {
        assert!(c.pcc >= 0.999, "{case} {name}: {c:?}");
    }
}

fn print(case: &str, results: &[(String, Comparison)]) {
    let worst =
        results.iter().max_by(|a, b| a.1.rel_l2.total_cmp(&b.1.rel_l2)).expect("something was compared");
    println!(
        "{case:<24} {:>3} tensors, worst relative L2 {:.2e} at {}",
        results.len(),
        worst.1.rel_l2,
        worst.0
    );
    for (name, c) in results.iter().filter(|(name, _)| OUTPUTS.contains(&whole(name))) {
        println!(
            "  {name:<16} pcc {:.7} gain {:.6} max abs {:.2e} rel l2 {:.2e}",
            c.pcc, c.gain, c.max_abs, c.rel_l2
        );
    }
}

#[test]
fn every_tensor_of_the_small_networks_in_f32() {
    for (case, model) in TINY {
        let results = against(&read(&golden(case)).unwrap(), model, Math::F32, Isa::best());
        print(&format!("{case} f32"), &results);
        check_f32(case, &results);
    }
}

#[test]
fn outputs_of_the_small_networks_in_bf16() {
    for (case, model) in TINY {
        let results = against(&read(&golden(case)).unwrap(), model, Math::Bf16, Isa::best());
        print(&format!("{case} bf16"), &results);
        check_bf16(case, &results);
    }
}

#[test]
fn every_instruction_set_agrees_with_upstream() {
    let (case, model) = TINY[1];
    let stored = read(&golden(case)).unwrap();
    for isa in Isa::available() {
        check_f32(&format!("{case} {isa}"), &against(&stored, model, Math::F32, isa));
        check_bf16(&format!("{case} {isa}"), &against(&stored, model, Math::Bf16, isa));
    }
}

/// A golden image as the network reads it: (x/255 - 0.5)/0.5.
fn photo(name: &str) -> Named {
    let bytes = std::fs::read(root().join("tests/goldens/full").join(name)).unwrap();
    let photo = ttc_scene::decode(&bytes, &ttc_scene::Limits::default()).unwrap();
    let view = ttc_scene::prepare(&photo, ttc_scene::Fit::Pad, 512, 512).unwrap();
    Named { name: name.into(), shape: vec![1, 3, 512, 512], data: ttc_scene::normalised(&view) }
}

/// The full network's tensors against their goldens.
fn full(math: Math) -> Vec<(String, Comparison)> {
    let path = root().join("tests/goldens/full/full_dpt_512x512.golden.safetensors");
    let stored = read(&path).unwrap();
    let mut taps: Vec<String> =
        stored.iter().map(|t| whole(&t.name).to_string()).filter(|n| !n.starts_with("out.")).collect();
    taps.dedup();
    let images = [photo("img0_512x512.png"), photo("img1_512x512.png")];
    let computed = compute("dust3r", [&images[0], &images[1]], &taps, math, Isa::best());
    let (results, alone) = compare_all(&stored, &computed).unwrap();
    assert!(alone.is_empty(), "without a partner: {alone:?}");
    assert_eq!(results.len(), stored.len());
    print(&format!("full {math}"), &results);
    results
}

#[test]
#[ignore = "571 M parameters and 1.3 TFLOP: run it optimised, with 4 GB of memory"]
fn the_full_network_in_f32() {
    for (name, c) in full(Math::F32) {
        assert!(c.rel_l2 <= 1e-4 && c.pcc >= 0.99999, "{name}: {c:?}");
    }
}

#[test]
#[ignore = "571 M parameters and 1.3 TFLOP: run it optimised, with 4 GB of memory"]
fn the_full_network_in_bf16() {
    let results = full(Math::Bf16);
    for (name, c) in &results {
        assert!(c.pcc >= 0.999, "{name}: {c:?}");
    }
    // Correlation is blind to scale. Rounding the weights to bf16 shifts the scale of these points by up to 1.7 % whoever does it
    // (PyTorch's bf16 gives 1.016 for pts3d2 too); more than 2 % is an error of ours.
    let off = |c: &Comparison| (c.gain - 1.0).abs() > 2e-2 || c.gain.is_nan();
    let wrong: Vec<String> = results
        .iter()
        .filter(|(name, c)| POINTS.contains(&whole(name)) && off(c))
        .map(|(name, c)| format!("{name} has gain {:.5}", c.gain))
        .collect();
    assert!(wrong.is_empty(), "the scale of the points is off: {}", wrong.join(", "));
}
