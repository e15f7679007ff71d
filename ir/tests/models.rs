//! The model files: shapes, work and parameter names are upstream's.

mod common;

use common::{model, root};
use std::collections::BTreeMap;
use ttc_ir::Sizes;

#[test]
fn every_model_file_builds_at_every_kind_of_size() {
    let mut names: Vec<String> = std::fs::read_dir(root().join("models"))
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().to_str()?.strip_suffix(".ron").map(String::from))
        .collect();
    names.sort();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        let model = model(&name);
        for (w, h) in [(512, 512), (512, 384), (384, 512), (224, 224), (80, 48), (16, 16)] {
            let graph = model.graph(Sizes::both(w, h)).unwrap_or_else(|e| panic!("{name} {w}x{h}: {e:?}"));
            let shape =
                |output: &str| graph.shape(graph.outputs.iter().find(|(n, _)| n == output).unwrap().1);
            assert_eq!(shape("pts3d1"), [1, h, w, 3], "{name}");
            assert_eq!(shape("conf2"), [1, h, w], "{name}");
        }
        let graph = model.graph(Sizes { view1: (64, 96), view2: (96, 64) }).unwrap();
        let shape = |output: &str| graph.shape(graph.outputs.iter().find(|(n, _)| n == output).unwrap().1);
        assert_eq!((shape("pts3d1"), shape("pts3d2")), (&[1, 64, 96, 3][..], &[1, 96, 64, 3][..]), "{name}");
    }
}

/// Counted by PyTorch's FLOP counter on upstream's code at 512x512, by hand elsewhere; GFLOP.
#[test]
fn work_is_that_of_the_published_networks() {
    for (name, size, gflop) in [
        ("dust3r", (512, 512), 2565.9),
        ("dust3r", (512, 384), 1856.8),
        ("dust3r", (512, 288), 1354.5),
        ("dust3r", (224, 224), 435.3),
        ("dust3r-512-linear", (512, 512), 2071.2),
        ("dust3r-512-linear", (512, 384), 1485.8),
        ("dust3r-512-linear", (512, 288), 1076.3),
        ("dust3r-224-linear", (224, 224), 340.6),
    ] {
        let graph = model(name).graph(Sizes::both(size.0, size.1)).unwrap();
        let counted = graph.flops() as f64 / 1e9;
        assert!((counted - gflop).abs() < 0.15, "{name} {size:?}: {counted}, expected {gflop}");
    }
}

/// Rows of a parameter list: name, shape, what it is an alias of.
fn parameters(file: &str) -> Vec<(String, Vec<usize>, Option<String>)> {
    let text = std::fs::read_to_string(root().join("tests/goldens/params").join(file)).unwrap();
    let rows = text.lines().skip(1).map(|line| {
        let mut columns = line.split('\t');
        let name = columns.next().unwrap().to_string();
        let shape = columns
            .next()
            .unwrap()
            .trim_matches(['[', ']'])
            .split(", ")
            .map(|n| n.parse().unwrap())
            .collect();
        let alias = columns.nth(1).and_then(|note| note.strip_prefix("alias of ")).map(String::from);
        (name, shape, alias)
    });
    rows.collect()
}

#[test]
fn parameters_are_exactly_the_official_ones() {
    for (name, file, count) in
        [("dust3r", "params_512_dpt.tsv", 1009), ("dust3r-512-linear", "params_512_linear.tsv", 877)]
    {
        let graph = model(name).graph(Sizes::both(512, 512)).unwrap();
        let official = parameters(file);
        assert_eq!(official.len(), count);
        let mut ours: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        ours.extend(graph.checkpoint().into_iter().map(|(n, s)| (n.to_string(), s.to_vec())));
        ours.extend(graph.unused.iter().cloned());
        for (alias, of) in &graph.aliases {
            let shape = ours[of].clone();
            assert!(official.contains(&(alias.clone(), shape.clone(), Some(of.clone()))), "{alias}");
            ours.insert(alias.clone(), shape);
        }
        let official: BTreeMap<_, _> = official.into_iter().map(|(n, s, _)| (n, s)).collect();
        assert_eq!(ours, official, "{name}");
    }
}
