//! From arguments to a loaded executor: read the model, find the weights, compile, load.

use crate::builtin;
use crate::cli::{Context, HowArgs, MathArg};
use crate::error::{CliError, Exit};
use crate::hub::{self, Event, HubOptions, Resolved, WeightSource};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ttc_codegen::weights::{Wanted, WeightProblem, Weights};
use ttc_ir::plan::Target;
use ttc_ir::{Graph, Math, Model, Plan, Sizes, Source};
use ttc_runtime::{Artifact, Bytes, Executor, Isa, Options};

/// What a model argument turned out to be.
pub enum Input {
    Model(Model),
    /// With the moment when opening it began.
    Artifact(Box<Artifact>, Instant),
}

/// Reads a model file or an artifact; which of the two, its content tells.
pub fn open(path: &Path) -> Result<Input, CliError> {
    let mut start = [0; 16];
    let is_artifact = std::fs::File::open(path).is_ok_and(|mut file| {
        std::io::Read::read(&mut file, &mut start).is_ok_and(|n| Artifact::looks_like(&start[..n]))
    });
    match is_artifact {
        true => {
            let started = Instant::now();
            Ok(Input::Artifact(Box::new(Artifact::open(path)?), started))
        }
        false => Ok(Input::Model(open_model(path)?)),
    }
}

/// Reads a model file.
pub fn open_model(path: &Path) -> Result<Model, CliError> {
    let name = path.to_string_lossy();
    let text = builtin::model_text(&name).map_err(|e| CliError::read(path, e))?;
    Ok(Model::parse(&name, &text, &mut |base| builtin::model_text(base))?)
}

/// The instruction set to run with.
pub fn isa() -> Result<Isa, CliError> {
    Isa::detect().map_err(|e| CliError::usage(e.to_string()))
}

/// The precision to compile for.
pub fn math(arg: Option<MathArg>) -> Result<Math, CliError> {
    Ok(match arg {
        Some(MathArg::F32) => Math::F32,
        Some(MathArg::Bf16) => Math::Bf16,
        None if isa()? == Isa::Avx512Bf16 => Math::Bf16,
        None => Math::F32,
    })
}

/// The sizes of a `--size` argument, or the model's own.
pub fn sizes(model: &Model, arg: Option<&str>) -> Result<Sizes, CliError> {
    let [(w1, h1), (w2, h2)] = match arg {
        Some(text) => crate::cli::parse_size(text)?,
        None => [model.size; 2],
    };
    Ok(Sizes { view1: (h1, w1), view2: (h2, w2) })
}

/// Finds weights: those of the argument, or those that the model called `name` says it is from.
pub fn weights(name: &str, from: &Source, arg: Option<&str>, context: &Context) -> Result<Weights, CliError> {
    let source: WeightSource = match arg {
        Some(text) => text.parse()?,
        None if name == "dust3r-tiny" => return built_in_weights(),
        None if from.repo.is_empty() => {
            return Err(CliError::usage(format!(
                "model `{name}` names no weights; give them with --weights SRC",
            )));
        }
        None => {
            let revision = &from.revision;
            let at = if revision.is_empty() { String::new() } else { format!("@{revision}") };
            format!("hf:{}{at}", from.repo).parse()?
        }
    };
    if !matches!(&source, WeightSource::Synthetic(_)) && !from.licence.is_empty() {
        context.progress.note(&format!("weights of {name} are under {}", from.licence));
    }
    open_weights(&source, context)
}

/// Opens a weight source, downloading it if it must be.
pub fn open_weights(source: &WeightSource, context: &Context) -> Result<Weights, CliError> {
    match source {
        WeightSource::Synthetic(seed) => Ok(Weights::synthetic(*seed)),
        _ => Ok(Weights::open(&resolve(source, false, context)?)?),
    }
}

/// The files of a weight source; none for synthetic weights. With `refresh` the hub is asked what a branch means now, even if
/// the cache has an answer.
pub fn resolve(source: &WeightSource, refresh: bool, context: &Context) -> Result<Vec<PathBuf>, CliError> {
    let resolved = std::thread::scope(|scope| {
        // Download events come on a thread of the client's and are drawn here.
        let (send, receive) = std::sync::mpsc::channel::<(String, u64, u64)>();
        let progress = Some(Arc::new(move |event: &Event<'_>| forward(event, &send)) as Arc<hub::ProgressFn>);
        let options = HubOptions { progress, refresh, ..HubOptions::from_env() };
        let worker = scope.spawn(move || hub::resolve(source, &options));
        let mut file = String::new();
        for (name, done, total) in receive {
            if name != file {
                context.progress.start(&format!("downloading {name}"));
                file = name;
            }
            context.progress.update(done, total, "bytes");
        }
        worker.join()
    });
    match resolved.map_err(|_| CliError::failed("the download stopped unexpectedly; try again"))?? {
        Resolved::Synthetic(_) => Ok(vec![]),
        Resolved::Files(files) => Ok(files.files),
    }
}

fn forward(event: &Event, to: &std::sync::mpsc::Sender<(String, u64, u64)>) {
    let (file, done, total) = match *event {
        Event::Started { file, done, total } | Event::Progress { file, done, total } => (file, done, total),
        Event::Finished { file, total } => (file, total, total),
        _ => return,
    };
    // Nobody listens any more only when the command is ending.
    let _ = to.send((file.to_string(), done, total));
}

/// The weights inside the binary, by way of a file: the reader maps files.
fn built_in_weights() -> Result<Weights, CliError> {
    let fail = |e: std::io::Error| {
        CliError::failed(format!("cannot unpack the built-in weights: {e}; check the free space in TMPDIR"))
    };
    let file = tempfile::NamedTempFile::with_suffix(".safetensors").map_err(fail)?;
    std::fs::write(file.path(), builtin::TINY_WEIGHTS).map_err(fail)?;
    // The open file outlives its name, which goes when `file` is dropped.
    Ok(Weights::open(&[file.path()])?)
}

/// Every disagreement of weights with the model, as one error that names node and line where the model asks.
pub fn check_weights(graph: &Graph, weights: &Weights) -> Result<(), CliError> {
    let aliases = |name: &str| {
        graph.aliases.iter().filter(|(_, of)| of == name).map(|(alias, _)| alias.clone()).collect()
    };
    let want = |name: &str, shape: &[usize], optional| Wanted {
        aliases: aliases(name),
        optional,
        ..Wanted::new(name, shape)
    };
    let read = graph.checkpoint().into_iter().map(|(name, shape)| want(name, shape, false));
    let unread = graph.unused.iter().map(|(name, shape)| want(name, shape, true));
    let wanted: Vec<Wanted> = read.chain(unread).collect();
    let problems = weights.check(&wanted, &[]);
    if problems.is_empty() {
        return Ok(());
    }
    let place = |p: &WeightProblem| {
        let reader =
            graph.nodes.iter().find(|n| n.weights.iter().any(|w| graph.weights[w.0 as usize].name == p.name));
        reader.map_or(String::new(), |n| {
            let span = n.span.as_ref().map_or(String::new(), |s| format!("{s}: "));
            format!("{span}node `{}`: ", n.name)
        })
    };
    let lines: Vec<String> = problems.iter().map(|p| format!("{}{p}", place(p))).collect();
    let message =
        format!("the weights do not fit the model, {} problems:\n{}", lines.len(), lines.join("\n"));
    Err(CliError { exit: Exit::Usage, message })
}

/// Compiles a graph to a plan.
pub fn plan(graph: &Graph, math: Math) -> Result<Plan, CliError> {
    Ok(ttc_lower::compile(graph, ttc_lower::Options { target: Target::Cpu, math })?)
}

/// A loaded model with the time that each part of loading took.
pub struct Loaded {
    pub executor: Executor,
    pub load: Duration,
}

/// Compiles in memory and loads.
pub fn load_model(
    graph: &Graph,
    how: &HowArgs,
    weights: &Weights,
    context: &Context,
) -> Result<Loaded, CliError> {
    let started = Instant::now();
    check_weights(graph, weights)?;
    let artifact = pack(&plan(graph, math(how.math)?)?, weights, context)?;
    execute(artifact, how, started)
}

/// The artifact of a plan, in memory.
fn pack(plan: &Plan, weights: &Weights, context: &Context) -> Result<Artifact, CliError> {
    let started = Instant::now();
    let mut memory = Bytes::zeroed(ttc_codegen::artifact_bytes(plan, Some(weights))?)?;
    context.progress.start("packing weights");
    let mut cursor = std::io::Cursor::new(&mut memory[..]);
    ttc_codegen::emit(plan, Some(weights), &mut cursor, &mut |done, of| {
        context.progress.update(done as u64, of as u64, "tensors");
    })?;
    context.progress.finish(&format!("{:.1} s", started.elapsed().as_secs_f64()));
    Ok(Artifact::new(Bytes::Memory(memory))?)
}

/// Loads an artifact; one without weights gets those of the argument, or those that it names.
pub fn load_artifact(
    artifact: Artifact,
    started: Instant,
    how: &HowArgs,
    context: &Context,
) -> Result<Loaded, CliError> {
    let fixed = [
        ("--size", how.size.is_some()),
        ("--weights", how.weights.is_some() && artifact.has_weights()),
        ("--math", how.math.is_some()),
    ];
    if let Some((name, _)) = fixed.iter().find(|(_, given)| *given) {
        return Err(CliError::usage(format!(
            "{name} is fixed in this artifact; give the model file instead"
        )));
    }
    let artifact = match artifact.has_weights() {
        true => artifact,
        false => {
            let plan = &artifact.plan;
            let weights = weights(&plan.name, &plan.source, how.weights.as_deref(), context)?;
            pack(plan, &weights, context)?
        }
    };
    execute(artifact, how, started)
}

fn execute(artifact: Artifact, how: &HowArgs, started: Instant) -> Result<Loaded, CliError> {
    let threads = how.threads.map_or_else(ttc_runtime::default_threads, usize::from);
    let executor = Executor::load(artifact, Options { threads, isa: isa()? })?;
    Ok(Loaded { executor, load: started.elapsed() })
}

/// Loads whatever `input` is, for the given sizes; an artifact has its own.
pub fn load(
    input: Input,
    how: &HowArgs,
    sizes: Option<Sizes>,
    context: &Context,
) -> Result<Loaded, CliError> {
    match input {
        Input::Artifact(artifact, started) => load_artifact(*artifact, started, how, context),
        Input::Model(model) => {
            let sizes = sizes.map_or_else(|| self::sizes(&model, how.size.as_deref()), Ok)?;
            let graph = model.graph(sizes)?;
            let weights = weights(&model.name, &model.source, how.weights.as_deref(), context)?;
            load_model(&graph, how, &weights, context)
        }
    }
}

/// Runs a pair with progress.
pub fn forward_pair(
    executor: &mut Executor,
    inputs: &[&[f32]],
    context: &Context,
) -> Result<ttc_runtime::Report, CliError> {
    let mut report = executor.report();
    context.progress.start("running");
    executor
        .run(inputs, &mut report, &mut |done, of| context.progress.update(done as u64, of as u64, "steps"))?;
    context.progress.finish(&format!("{:.0} ms", report.total.as_secs_f64() * 1e3));
    Ok(report)
}

/// Peak resident memory of this process in bytes, where the system tells (Linux).
pub fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}
