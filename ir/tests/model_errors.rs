//! Mistakes in model files are all found, and each message says where and what was expected.

mod common;

use common::{parse, root};
use proptest::prelude::*;
use ttc_ir::{Model, Sizes};

/// A model whose nodes are on lines of their own, from line 4.
fn with_nodes(nodes: &[&str]) -> String {
    format!(
        "Model(name: \"t\",\n inputs: {{\"x\": [1, 8, 4]}},\n nodes: [\n{}\n],\n outputs: {{\"y\": \"y\"}},\n blocks: {{\"B\": (ins: [\"a\"], args: [\"n\"], nodes: [(\"l\", Linear(out: \"n\"), [\"a\"])])}})",
        nodes.join("\n")
    )
}

/// All messages of a model that must not build.
fn messages(text: &str) -> String {
    let problems = parse(text).expect_err("it built");
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn expect(nodes: &[&str], wanted: &[&str]) {
    let messages = messages(&with_nodes(nodes));
    for part in wanted {
        assert!(messages.contains(part), "no `{part}` in:\n{messages}");
    }
}

#[test]
fn each_mistake_names_line_node_and_what_was_expected() {
    let good = r#"("y", Linear(out: 3), ["x"]),"#;
    assert!(parse(&with_nodes(&[good])).is_ok());
    expect(
        &[r#"("y", Lineer(out: 3), ["x"]),"#],
        &["test.ron:4:7", "node `y`", "unknown op `Lineer`", "did you mean `Linear`"],
    );
    expect(&[r#"("y", Linear(out: 3, colour: 4), ["x"]),"#], &["test.ron:4:7", "node `y`", "colour"]);
    expect(&[r#"("y", Linear(), ["x"]),"#], &["node `y`", "out"]);
    expect(
        &[good, r#"("z", Add, ["x", "y"]),"#],
        &["test.ron:5:1", "node `z`", "expected equal shapes", "1x8x4", "1x8x3"],
    );
    let slip = [r#"("hidden", Linear(out: 3), ["x"]),"#, r#"("y", Relu, ["hiden"]),"#];
    expect(&slip, &["test.ron:5:1", "node `y`", "reads `hiden`", "did you mean `hidden`"]);
    expect(&[r#"("y", Add, ["x"]),"#], &["node `y`", "takes 2 inputs, not 1"]);
    expect(&[good, good], &["test.ron:5:1", "node `y`", "used twice"]);
    expect(&[r#"("y", Add, ["x", "z"]),"#, r#"("z", Relu, ["y"]),"#], &["cycle", "y", "z", "test.ron:"]);
    expect(&[r#"("y", B(m: 3), ["x"]),"#], &["test.ron:4:7", "block `B`", "expected arguments [n]"]);
    expect(&[r#"("y", B(n: 3), ["x", "x"]),"#], &["block `B`", "2 inputs", "inputs [a]"]);
    expect(
        &[r#"("y", Linear(out: "3*width"), ["x"]),"#],
        &["test.ron:4:7", "node `y`", "unknown name `width`", "H1"],
    );
    expect(&[r#"("y", Linear(out: "H1/5"), ["x"]),"#], &["node `y`", "32 is not a multiple of 5"]);
    expect(&[r#"("y", Linear(out: "3*(2"), ["x"]),"#], &["node `y`", "expected `)`"]);
    expect(&[r#"Repeat(count: 100000, nodes: []),"#, good], &["test.ron:4:1", "repeat count 100000"]);
    expect(&[r#"("y" Linear(out: 3), ["x"]),"#], &["test.ron:4", "Expected comma"]);
    expect(&[r#"("z", Linear(out: 3), ["x"]),"#], &["output `y`", "no node", "test.ron:6"]);
}

#[test]
fn all_mistakes_are_reported_not_only_the_first() {
    let text = with_nodes(&[
        r#"("a", Lineer(out: 3), ["x"]),"#,
        r#"("b", Linear(out: 3), ["nowhere"]),"#,
        r#"("c", Linear(out: "3*q"), ["x"]),"#,
        r#"("d", Softmax, ["e"]),"#,
        r#"("e", Relu, ["d"]),"#,
        r#"("y", MergeHeads, ["x"]),"#,
    ]);
    let messages = messages(&text);
    for (line, part) in [(4, "Lineer"), (5, "nowhere"), (6, "`q`"), (7, "cycle"), (9, "MergeHeads")] {
        assert!(
            messages.contains(part) && messages.contains(&format!("test.ron:{line}:")),
            "{part}, line {line}:\n{messages}"
        );
    }
}

#[test]
fn sizes_that_do_not_fit_and_bases_that_are_not_there() {
    let model = common::model("dust3r");
    let problems = model.graph(Sizes::both(500, 384)).expect_err("500 is no multiple of 16");
    assert!(problems.iter().any(|p| p.to_string().contains("500 is not a multiple of 16")), "{problems:?}");
    let text = r#"Model(name: "t", base: Some("gone.ron"))"#;
    let gone = Model::parse("test.ron", text, &mut |_| Err("no such file".into())).expect_err("no base");
    assert!(gone[0].to_string().contains("gone.ron"), "{gone:?}");
    let text = r#"Model(name: "t", base: Some("test.ron"))"#;
    let own = Model::parse("test.ron", text, &mut |_| Ok(text.into())).expect_err("its own base");
    assert!(own[0].to_string().contains("own base"), "{own:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to a file, the answer is a graph or a message.
    #[test]
    fn mutated_models_never_panic(
        file in prop::sample::select(vec!["dust3r", "golden-tiny-dpt", "golden-tiny-mast3r"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..4, any::<u8>()), 1..6),
    ) {
        let read = |path: &str| std::fs::read_to_string(root().join(path)).map_err(|e| e.to_string());
        let mut bytes = read(&format!("models/{file}.ron")).unwrap().into_bytes();
        for (at, kind, byte) in changes {
            let at = at.index(bytes.len().max(1));
            match kind {
                _ if bytes.is_empty() => break,
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, byte),
                // A whole stretch twice.
                _ => {
                    let end = (at + 60).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let model = Model::parse("models/mutated.ron", &text, &mut |path| read(path));
        let _ = model.and_then(|m| m.graph(Sizes::both(64, 48)));
    }
}
