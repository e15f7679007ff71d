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

const OUTPUTS: [&str; 4] = ["pts3d1", "conf1", "pts3d2", "conf2"];

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
        let limit = if name.starts_with("pts3d") { 2e-4 } else { 1e-4 };
        assert!(!OUTPUTS.contains(&name.as_str()) || c.max_abs <= limit, "{case} {name}: {c:?}");
    }
}

fn check_bf16(case: &str, results: &[(String, Comparison)]) {
    for (name, c) in results.iter().filter(|(name, _)| OUTPUTS.contains(&name.as_str())) {
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
    for (name, c) in
        results.iter().filter(|(name, _)| OUTPUTS.contains(&name.split('|').next().unwrap_or_default()))
    {
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

#[test]
#[ignore = "571 M parameters and 2.5 TFLOP twice: run it optimised, with 4 GB of memory"]
fn the_full_network_at_512x512() {
    let path = root().join("tests/goldens/full/full_dpt_512x512.golden.safetensors");
    let stored = read(&path).unwrap();
    let module = |t: &Named| t.name.split('|').next().unwrap_or_default().to_string();
    let mut taps: Vec<String> = stored.iter().map(module).filter(|n| !n.starts_with("out.")).collect();
    taps.dedup();
    let images = [photo("img0_512x512.png"), photo("img1_512x512.png")];
    for (math, label) in [(Math::F32, "full f32"), (Math::Bf16, "full bf16")] {
        let computed = compute("dust3r", [&images[0], &images[1]], &taps, math, Isa::best());
        let (results, alone) = compare_all(&stored, &computed).unwrap();
        assert!(alone.is_empty(), "without a partner: {alone:?}");
        print(label, &results);
        for (name, c) in &results {
            match math {
                Math::F32 => assert!(c.rel_l2 <= 1e-4 && c.pcc >= 0.99999, "{name}: {c:?}"),
                Math::Bf16 => assert!(c.pcc >= 0.999, "{name}: {c:?}"),
            }
        }
    }
}
