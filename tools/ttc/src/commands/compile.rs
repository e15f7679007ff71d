use crate::cli::{Context, MathArg};
use crate::error::CliError;
use crate::pipeline;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
pub struct Compile {
    /// Model file.
    #[arg(default_value = "models/dust3r.ron")]
    model: PathBuf,
    /// The artifact to write.
    #[arg(short, long, value_name = "OUT.ttc")]
    output: PathBuf,
    /// What to compile for.
    #[arg(long, value_enum, default_value = "cpu")]
    target: TargetArg,
    /// Image size, WxH, multiples of 16; W1xH1+W2xH2 for two sizes. Default: the model's.
    #[arg(long, value_name = "WxH")]
    size: Option<String>,
    /// Weights to pack in: a .safetensors file, hf:OWNER/NAME[@REV], or synthetic:SEED. Without, the artifact names those it needs.
    #[arg(long, value_name = "SRC")]
    weights: Option<String>,
    /// Precision of matrix products. Default: bf16 where this processor multiplies it, else f32.
    #[arg(long, value_enum)]
    math: Option<MathArg>,
    /// Values to keep as further outputs, by module name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tap: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TargetArg {
    Cpu,
}

pub fn compile(args: Compile, context: &Context) -> Result<(), CliError> {
    let TargetArg::Cpu = args.target;
    let started = Instant::now();
    let model = pipeline::open_model(&args.model)?;
    let sizes = pipeline::sizes(&model, args.size.as_deref())?;
    let mut graph = model.graph(sizes)?;
    graph.add_taps(&args.tap)?;
    let weights = match &args.weights {
        Some(source) => {
            let weights = pipeline::weights(&model.name, &model.source, Some(source), context)?;
            pipeline::check_weights(&graph, &weights)?;
            Some(weights)
        }
        None => None,
    };
    let plan = pipeline::plan(&graph, pipeline::math(args.math)?)?;
    let cost = ttc_lower::cost::estimate(&plan);
    context.progress.start("writing the artifact");
    let hash = write(&args.output, &plan, weights.as_ref(), context)?;
    context.progress.finish("done");
    let bytes = std::fs::metadata(&args.output).map_err(|e| CliError::read(&args.output, e))?.len();
    let seconds = started.elapsed().as_secs_f64();
    context.say(&format!(
        "{}: {} at {sizes}, {} math, {} steps, arena {:.0} MiB, file {:.0} MiB, {seconds:.1} s",
        args.output.display(),
        plan.name,
        plan.math,
        plan.steps.len(),
        plan.arena_bytes as f64 / (1 << 20) as f64,
        bytes as f64 / (1 << 20) as f64,
    ));
    if weights.is_none() {
        context.say(&format!(
            "no weights inside; it needs {} tensors of {}",
            plan.checkpoint().len(),
            needed(&plan)
        ));
    }
    context.report(json!({
        "steps": plan.steps.len(),
        "peak_l1_bytes": 0,
        "dram_bytes": 0,
        "host_bytes": plan.arena_bytes,
        "file_bytes": bytes,
        "modelled_ms": cost.total_ms(),
        "compile_s": seconds,
        "artifact_hash": hash,
        "size": sizes.to_string(),
        "math": plan.math.to_string(),
        "target": "cpu",
    }));
    Ok(())
}

fn needed(plan: &ttc_ir::Plan) -> String {
    match plan.source.repo.as_str() {
        "" => "its checkpoint".into(),
        repo => format!("hf:{repo}"),
    }
}

/// Writes beside the target and renames, so that a file of that name is always whole. Returns the artifact's hash.
fn write(
    path: &std::path::Path,
    plan: &ttc_ir::Plan,
    weights: Option<&ttc_codegen::weights::Weights>,
    context: &Context,
) -> Result<String, CliError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
    let temp = tempfile::NamedTempFile::new_in(folder).map_err(|e| CliError::write(path, e))?;
    let mut file = std::io::BufWriter::with_capacity(1 << 20, temp.as_file());
    let hash = ttc_codegen::emit(plan, weights, &mut file, &mut |done, of| {
        context.progress.update(done as u64, of as u64, "tensors");
    })?;
    drop(file);
    let file = temp.persist(path).map_err(|e| CliError::write(path, e.error))?;
    // A temporary file is private to its owner; an artifact is a file like any other.
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.set_permissions(mode).map_err(|e| CliError::write(path, e))?;
    }
    drop(file);
    Ok(hash)
}
