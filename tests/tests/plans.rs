//! Snapshots of what the compiler decides. A change here is a change of decisions: read it before blessing it.

use ttc_ir::fuse::fuse;
use ttc_ir::{Graph, Math};
use ttc_tests::{graph, plan};

fn check(name: &str, graph: &Graph, math: Math) {
    insta::assert_snapshot!(format!("{name}.graph"), graph);
    insta::assert_snapshot!(format!("{name}.fused"), fuse(graph.clone()).expect("it fuses"));
    insta::assert_snapshot!(format!("{name}.plan"), plan(graph, math));
}

#[test]
fn full_model() {
    for ((width, height), math) in
        [((512, 512), Math::Bf16), ((512, 384), Math::Bf16), ((384, 512), Math::F32)]
    {
        let size = (width, height);
        check(&format!("dust3r.{width}x{height}"), &graph("dust3r", size, size), math);
    }
}

#[test]
fn small_models() {
    for (model, size, math) in [
        ("golden-tiny-dpt", (96, 64), Math::F32),
        ("golden-tiny-linear", (96, 64), Math::Bf16),
        ("golden-tiny64-dpt", (64, 96), Math::Bf16),
        ("golden-tiny-mast3r", (64, 64), Math::Bf16),
        ("dust3r-tiny", (128, 128), Math::Bf16),
    ] {
        check(model, &graph(model, size, size), math);
    }
}

#[test]
fn two_sizes_and_an_odd_grid() {
    check("golden-tiny-dpt.96x64+64x96", &graph("golden-tiny-dpt", (96, 64), (64, 96)), Math::Bf16);
    check("golden-tiny-dpt.80x48", &graph("golden-tiny-dpt", (80, 48), (80, 48)), Math::F32);
}
