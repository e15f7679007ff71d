//! The rules of the house that a machine can hold.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use ttc_ir::Math;
use ttc_tests::{graph, plan, root};

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_file_is_longer_than_500_lines() {
    let mut files = vec![];
    rust_files(&root(), &mut files);
    assert!(files.len() > 80, "found only {} files", files.len());
    let lines = |p: &PathBuf| std::fs::read_to_string(p).unwrap().lines().count();
    let long: Vec<_> = files.iter().filter(|p| lines(p) > 500).collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn crates_depend_one_way() {
    let allowed: [(&str, &[&str]); 9] = [
        ("ir", &[]),
        ("kernels", &["ttc-ir"]),
        ("lower", &["ttc-ir", "ttc-kernels"]),
        ("codegen", &["ttc-ir", "ttc-kernels"]),
        ("runtime", &["ttc-ir", "ttc-kernels"]),
        ("runtime/tt-metal-sys", &[]),
        ("tools/scene", &[]),
        ("tools/ttc", &["ttc-codegen", "ttc-ir", "ttc-kernels", "ttc-lower", "ttc-runtime", "ttc-scene"]),
        ("tests", &["ttc", "ttc-codegen", "ttc-ir", "ttc-kernels", "ttc-lower", "ttc-runtime", "ttc-scene"]),
    ];
    // A crate that this list does not know would depend on whatever it likes.
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = workspace.split("members = [").nth(1).and_then(|m| m.split(']').next()).unwrap();
    let members: BTreeSet<&str> = members.split(',').map(|m| m.trim().trim_matches('"')).collect();
    assert_eq!(members, allowed.iter().map(|(folder, _)| *folder).collect());
    for (folder, allowed) in allowed {
        let text = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let section = text.split("[dependencies]").nth(1).unwrap_or_default();
        let section = section.split("\n[").next().unwrap_or_default();
        let ours: BTreeSet<&str> = section
            .lines()
            .filter_map(|l| l.split(['.', ' ', '=']).next())
            .filter(|n| n.starts_with("ttc"))
            .collect();
        assert!(ours.iter().all(|d| allowed.contains(d)), "{folder} depends on {ours:?}");
    }
}

#[test]
fn the_models_run_on_kernels_and_use_every_kernel() {
    let mut used = BTreeSet::new();
    let mut step_kernels = |model: &str, a, b| {
        let plan = plan(&graph(model, a, b), Math::Bf16);
        for step in &plan.steps {
            assert_ne!(step.kernel, "reference", "{model}: `{}` has no kernel", step.name);
            used.insert(step.kernel.clone());
        }
    };
    for model in ["dust3r", "dust3r-512-linear", "dust3r-224-linear", "dust3r-tiny", "golden-tiny-mast3r"] {
        step_kernels(model, (224, 224), (224, 224));
        step_kernels(model, (80, 48), (48, 80));
    }
    let unused: Vec<&str> =
        ttc_kernels::KERNELS.iter().map(|k| k.name()).filter(|n| !used.contains(*n)).collect();
    // Fusion leaves no lone element-wise op in these models; a tap or a new model may.
    assert_eq!(unused, ["eltwise", "reference"]);
}
