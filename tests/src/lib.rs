//! Helpers of the tests that cross crates: models by name, compiled and loaded in memory.

pub mod random;

use std::io::Cursor;
use std::path::{Path, PathBuf};
use ttc_codegen::weights::Weights;
use ttc_ir::plan::Target;
use ttc_ir::{Graph, Math, Model, Plan, Sizes, Tensor};
use ttc_runtime::{Artifact, Bytes, Executor, Isa, Options};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `models/NAME.ron`.
pub fn model(name: &str) -> Model {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).map_err(|e| e.to_string());
    let path = format!("models/{name}.ron");
    let text = read(&path).expect("the model file is there");
    Model::parse(&path, &text, &mut |base| read(base)).expect("the model file parses")
}

/// A model's graph; sizes as width and height.
pub fn graph(name: &str, (w1, h1): (usize, usize), (w2, h2): (usize, usize)) -> Graph {
    model(name).graph(Sizes { view1: (h1, w1), view2: (h2, w2) }).expect("the model builds")
}

/// The CPU plan of a graph.
pub fn plan(graph: &Graph, math: Math) -> Plan {
    ttc_lower::compile(graph, ttc_lower::Options { target: Target::Cpu, math }).expect("the graph lowers")
}

/// The artifact of a plan as bytes.
pub fn artifact(plan: &Plan, weights: &Weights) -> Vec<u8> {
    let mut bytes = Cursor::new(vec![]);
    ttc_codegen::emit(plan, Some(weights), &mut bytes, &mut |_, _| {}).expect("the weights fit");
    bytes.into_inner()
}

/// Opens bytes as the runtime does a file.
pub fn open(bytes: &[u8]) -> Result<Artifact, ttc_runtime::RuntimeError> {
    let mut memory = Bytes::zeroed(bytes.len())?;
    memory[..bytes.len()].copy_from_slice(bytes);
    // Memory comes in at least one byte; an empty artifact has none.
    Artifact::new(Bytes::Memory(memory))
}

/// Loads an artifact with the best instruction set.
pub fn load(bytes: &[u8], threads: usize) -> Executor {
    load_on(bytes, threads, Isa::best())
}

/// Loads an artifact for one instruction set.
pub fn load_on(bytes: &[u8], threads: usize, isa: Isa) -> Executor {
    Executor::load(open(bytes).expect("it is whole"), Options { threads, isa }).expect("it loads")
}

/// Runs a pair and returns every output.
pub fn run(executor: &mut Executor, images: &[&[f32]]) -> Vec<(String, Tensor)> {
    let mut report = executor.report();
    executor.run(images, &mut report, &mut |_, _| {}).expect("the inputs fit");
    executor.outputs()
}

/// A smooth image in -1..1, `[1, 3, height, width]`, different for each view.
pub fn image(width: usize, height: usize, view: usize) -> Vec<f32> {
    (0..3 * width * height).map(|i| (i as f32 * 0.037 + view as f32).sin()).collect()
}
