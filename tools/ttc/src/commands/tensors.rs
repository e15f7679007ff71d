use crate::cli::{Context, ModelArgs};
use crate::error::CliError;
use crate::pipeline::{self, Input};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use ttc_codegen::weights::{NamedTensor, read_safetensors_f32, write_safetensors};
use ttc_ir::Sizes;

#[derive(Args)]
pub struct Tensors {
    #[command(flatten)]
    model: ModelArgs,
    /// Reads `img1`, `img2` (or `in.img1`, `in.img2`): f32 [1, 3, H, W], normalised to -1..1; the sizes may differ.
    #[arg(long, value_name = "FILE.safetensors")]
    input: PathBuf,
    /// Writes `pts3d1`, `conf1`, `pts3d2`, `conf2`, what else the model outputs, and the taps.
    #[arg(long, value_name = "FILE.safetensors")]
    output: PathBuf,
    /// Further values to write, by official module name: `enc_blocks.3`, `dec_norm#0`.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tap: Vec<String>,
}

pub fn tensors(args: Tensors, context: &Context) -> Result<(), CliError> {
    let given = read_safetensors_f32(&args.input)?;
    let images = [image(&given, "img1")?, image(&given, "img2")?];
    let sizes = Sizes { view1: (images[0].1[2], images[0].1[3]), view2: (images[1].1[2], images[1].1[3]) };
    let how = &args.model.how;
    let mut loaded = match pipeline::open(&args.model.model)? {
        Input::Artifact(artifact, started) => {
            refuse_missing_taps(&artifact.plan, &args.tap)?;
            pipeline::load_artifact(*artifact, started, how, context)?
        }
        Input::Model(model) => {
            let mut graph = model.graph(sizes)?;
            graph.add_taps(&args.tap)?;
            let weights = pipeline::weights(&model.name, &model.source, how.weights.as_deref(), context)?;
            pipeline::load_model(&graph, how, &weights, context)?
        }
    };
    let inputs: Vec<&[f32]> = images.iter().map(|(_, _, data)| data.as_slice()).collect();
    let report = pipeline::forward_pair(&mut loaded.executor, &inputs, context)?;
    let outputs = loaded.executor.outputs();
    let tensors: Vec<(&str, &[usize], &[f32])> =
        outputs.iter().map(|(name, t)| (name.as_str(), t.shape.as_slice(), t.data.as_slice())).collect();
    write_safetensors(&args.output, &tensors)?;
    let names: Vec<&str> = tensors.iter().map(|t| t.0).collect();
    context.say(&format!("{}: {}", args.output.display(), names.join(" ")));
    context.report(json!({
        "tensors": names,
        "ms": report.total.as_secs_f64() * 1e3,
        "load_ms": loaded.load.as_secs_f64() * 1e3,
        "peak_rss_bytes": pipeline::peak_rss(),
    }));
    Ok(())
}

/// The image of that name, checked for `[1, 3, H, W]`.
fn image<'a>(given: &'a [NamedTensor], name: &str) -> Result<&'a NamedTensor, CliError> {
    let found = given.iter().find(|(n, ..)| n == name || n.strip_prefix("in.") == Some(name));
    let tensor = found.ok_or_else(|| {
        CliError::usage(format!("the input has no tensor `{name}`; expected img1 and img2"))
    })?;
    match tensor.1[..] {
        [1, 3, _, _] => Ok(tensor),
        _ => Err(CliError::usage(format!("`{name}` has shape {:?}; expected [1, 3, H, W]", tensor.1))),
    }
}

/// An artifact's outputs are fixed: a tap that was not compiled in cannot be read.
fn refuse_missing_taps(plan: &ttc_ir::Plan, taps: &[String]) -> Result<(), CliError> {
    let missing: Vec<&str> =
        taps.iter().map(String::as_str).filter(|t| !plan.outputs.iter().any(|(name, _)| name == t)).collect();
    match missing[..] {
        [] => Ok(()),
        _ => Err(CliError::usage(format!(
            "the artifact does not keep {}; give the model file, or compile with --tap {}",
            missing.join(", "),
            missing.join(",")
        ))),
    }
}
