//! The built-in trained model on its 24 held-out pairs: against stored f32 predictions and against the truth.

use std::collections::HashMap;
use ttc_codegen::weights::Weights;
use ttc_ir::{Math, Tensor};
use ttc_scene::{Fit, Limits};
use ttc_tests::{artifact, graph, load, plan, root, run};

const PAIRS: usize = 24;

/// Arrays of an .npz by name.
fn arrays(name: &str) -> HashMap<String, ttc_scene::NpzArray> {
    let bytes = std::fs::read(root().join("tests/goldens/dust3r-tiny").join(name)).unwrap();
    ttc_scene::read_npz(&bytes).unwrap().into_iter().map(|a| (a.name.clone(), a)).collect()
}

/// Entry `pair` of an array whose first axis counts pairs.
fn entry(array: &ttc_scene::NpzArray, pair: usize) -> &[f32] {
    let len = array.data.len() / array.shape[0];
    &array.data[pair * len..(pair + 1) * len]
}

fn predict(math: Math) -> Vec<HashMap<String, Tensor>> {
    let weights = Weights::open(&[root().join("models/dust3r-tiny.safetensors")]).unwrap();
    let size = (128, 128);
    let bytes = artifact(&plan(&graph("dust3r-tiny", size, size), math), &weights);
    let mut executor = load(&bytes, 2);
    let image = |pair: usize, view: usize| {
        let path = root().join(format!("tests/goldens/dust3r-tiny/pair{pair:02}_view{view}.png"));
        let photo = ttc_scene::decode(&std::fs::read(path).unwrap(), &Limits::default()).unwrap();
        ttc_scene::normalised(&ttc_scene::prepare(&photo, Fit::Crop, 128, 128).unwrap())
    };
    (0..PAIRS).map(|p| run(&mut executor, &[&image(p, 1), &image(p, 2)]).into_iter().collect()).collect()
}

/// Mean 3-D error over mean distance, after the pair's median scale; both views together.
fn pointmap_error(
    prediction: &HashMap<String, Tensor>,
    truth: &HashMap<String, ttc_scene::NpzArray>,
    pair: usize,
) -> f64 {
    let norm = |p: &[f32]| p.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    let views = ["pts3d1", "pts3d2"].map(|v| (prediction[v].data.as_slice(), entry(&truth[v], pair)));
    let points = || views.iter().flat_map(|(p, t)| p.chunks_exact(3).zip(t.chunks_exact(3)));
    let mut ratios: Vec<f64> = points().map(|(p, t)| norm(t) / norm(p)).collect();
    ratios.sort_by(f64::total_cmp);
    let scale = ratios[ratios.len() / 2];
    let distance: f64 = points().map(|(_, t)| norm(t)).sum();
    let error = |p: &[f32], t: &[f32]| {
        (0..3).map(|i| (f64::from(p[i]) * scale - f64::from(t[i])).powi(2)).sum::<f64>().sqrt()
    };
    points().map(|(p, t)| error(p, t)).sum::<f64>() / distance
}

#[test]
fn the_trained_model_predicts_what_it_did_when_it_was_trained() {
    let f32_predictions = predict(Math::F32);
    let (first4, all) = (arrays("pred_torch_fp32_first4.npz"), arrays("pred_torch_fp32_as_f16.npz"));
    for (pair, prediction) in f32_predictions.iter().enumerate() {
        for name in ["pts3d1", "conf1", "pts3d2", "conf2"] {
            let data = &prediction[name].data;
            if pair < 4 {
                let worst = entry(&first4[name], pair)
                    .iter()
                    .zip(data)
                    .map(|(a, b)| (a - b).abs())
                    .fold(0.0, f32::max);
                assert!(worst <= 1e-4, "pair {pair} {name}: {worst}");
            }
            // Stored as f16: half a unit in the last of 11 bits, and f16's least step near zero.
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= b.abs() * 4.9e-4 + 1e-4;
            assert!(entry(&all[name], pair).iter().zip(data).all(close), "pair {pair} {name}");
        }
    }
}

#[test]
fn the_trained_model_sees_the_rooms_in_either_precision() {
    let truth = arrays("gt.npz");
    let mean = |math| {
        let predictions = predict(math);
        (0..PAIRS).map(|p| pointmap_error(&predictions[p], &truth, p)).sum::<f64>() / PAIRS as f64
    };
    let (full, half) = (mean(Math::F32), mean(Math::Bf16));
    println!("mean pointmap error against truth: f32 {full:.4}, bf16 {half:.4}");
    // The mean pointmap of the training scenes scores 0.26; the model's own 64 pairs gave 0.109.
    assert!(full <= 0.12, "f32 {full}");
    assert!((half - full).abs() <= 0.005, "f32 {full}, bf16 {half}");
}
