//! The seeded recipe, against check vectors from an independent implementation.

use std::time::Instant;

use serde_json::Value;
use ttc_codegen::weights::{GOLDEN_SEED, ProblemKind, Wanted, WeightErrorKind, Weights};

fn vectors() -> Value {
    serde_json::from_str(include_str!("data/recipe_check.json")).expect("the check vectors are JSON")
}

fn shape(v: &Value) -> Vec<usize> {
    v["shape"]
        .as_array()
        .expect("a shape")
        .iter()
        .map(|d| d.as_u64().expect("a dimension") as usize)
        .collect()
}

/// JSON holds the f32 value in f64 digits, so this cast is exact.
fn float(v: &Value) -> f32 {
    v.as_f64().expect("a number") as f32
}

#[test]
fn values_match_the_check_vectors_bit_for_bit() {
    let weights = Weights::synthetic(GOLDEN_SEED);
    let vectors = vectors();
    let vectors = vectors["vectors"].as_object().expect("vectors by name");
    assert_eq!(vectors.len(), 10);
    for (name, v) in vectors {
        let values = weights.read_f32(name, &shape(v)).expect(name);
        for (i, expected) in v["first8"].as_array().expect("eight values").iter().enumerate() {
            assert_eq!(values[i].to_bits(), float(expected).to_bits(), "{name}[{i}]");
        }
        assert_eq!(values.last().map(|x| x.to_bits()), Some(float(&v["last"]).to_bits()), "{name}, last");
        // The sums see every element in between; numpy adds pairwise, so the last digits may differ.
        let sum = |f: fn(f64) -> f64| values.iter().map(|&x| f(f64::from(x))).sum::<f64>();
        for (what, ours, theirs) in
            [("sum", sum(|x| x), &v["sum_f64"]), ("sum of squares", sum(|x| x * x), &v["sumsq_f64"])]
        {
            let theirs = theirs.as_f64().expect("a sum");
            let scale = sum(f64::abs).max(1.0);
            assert!((ours - theirs).abs() <= 1e-12 * scale, "{name}: {what} {ours} != {theirs}");
        }
    }
}

#[test]
fn an_alias_is_the_same_tensor() {
    let weights = Weights::synthetic(7);
    let read = |name: &str| weights.read_f32(name, &[8, 4, 3, 3]).expect(name);
    let head = "downstream_head2.dpt.scratch";
    assert_eq!(read(&format!("{head}.layer_rn.2.weight")), read(&format!("{head}.layer3_rn.weight")));
    assert_ne!(read(&format!("{head}.layer_rn.2.weight")), read(&format!("{head}.layer2_rn.weight")));
}

#[test]
fn the_seed_matters_and_names_the_weights() {
    let (a, b) = (Weights::synthetic(1), Weights::synthetic(2));
    assert_ne!(a.read_f32("enc_norm.bias", &[64]), b.read_f32("enc_norm.bias", &[64]));
    assert_eq!(a.digest().as_deref(), Ok("synthetic:0x0000000000000001"));
    assert_ne!(a.digest(), b.digest());
    assert_eq!(a.entries(), None);
}

#[test]
fn tensors_without_a_rule_are_refused() {
    let weights = Weights::synthetic(1);
    for (name, shape) in [("enc_norm.running_mean", &[4][..]), ("x.weight", &[2, 2, 2]), ("x.weight", &[])] {
        let error = weights.read_f32(name, shape).expect_err(name);
        assert_eq!(error.kind, WeightErrorKind::NoRecipe, "{error}");
    }
    let wanted = [Wanted::new("enc_norm.weight", [4]), Wanted::new("enc_norm.running_mean", [4])];
    let problems = weights.check(&wanted, &[]);
    assert_eq!(problems.len(), 1);
    assert_eq!(
        (problems[0].kind, problems[0].name.as_str()),
        (ProblemKind::NoRecipe, "enc_norm.running_mean")
    );
}

#[test]
fn a_tensor_that_cannot_be_counted_is_refused() {
    let error = Weights::synthetic(1).read_f32("x.weight", &[usize::MAX, 3]).expect_err("too many values");
    assert!(error.to_string().contains("memory"), "{error}");
}

/// Not a benchmark: only that making weights never becomes the slow part (571 M values in the full net).
#[test]
fn sixteen_million_values_take_well_under_a_second_each() {
    let start = Instant::now();
    let values =
        Weights::synthetic(3).read_f32("dec_blocks.0.mlp.fc1.weight", &[4096, 4096]).expect("values");
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(values.len(), 1 << 24);
    println!("{:.0} M values/s", values.len() as f64 / seconds / 1e6);
    assert!(seconds < 2.0, "{seconds} s for 16 M values");
}
