use crate::cli::{Context, MathArg};
use crate::error::CliError;
use crate::pipeline::{self, Input};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use ttc_ir::Plan;

#[derive(Args)]
pub struct Explain {
    /// Model file or artifact.
    #[arg(default_value = "models/dust3r.ron")]
    model: PathBuf,
    /// Which stage.
    #[arg(long, value_enum, default_value = "plan")]
    stage: Stage,
    /// How to print a graph.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Image size, WxH, multiples of 16; W1xH1+W2xH2 for two sizes. Default: the model's.
    #[arg(long, value_name = "WxH")]
    size: Option<String>,
    /// What to plan for.
    #[arg(long, value_enum, default_value = "cpu")]
    target: super::compile::TargetArg,
    /// Precision of matrix products. Default: bf16 where this processor multiplies it, else f32.
    #[arg(long, value_enum)]
    math: Option<MathArg>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// The graph as the model file says.
    Graph,
    /// After fusion.
    Fused,
    /// The static schedule: kernels, layouts, reasons.
    Plan,
    /// Where every value lives, and when.
    Memory,
    /// Modelled time of each step.
    Cost,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    /// Graphviz.
    Dot,
}

pub fn explain(args: Explain, context: &Context) -> Result<(), CliError> {
    match pipeline::open(&args.model)? {
        Input::Artifact(artifact, _) => match args.stage {
            Stage::Graph | Stage::Fused => {
                Err(CliError::usage("an artifact holds the plan only; give the model file to see its graph"))
            }
            _ => show(&artifact.plan, args.stage, context),
        },
        Input::Model(model) => {
            let graph = model.graph(pipeline::sizes(&model, args.size.as_deref())?)?;
            match args.stage {
                Stage::Graph => print_graph(&graph, args.format, context),
                Stage::Fused => print_graph(&ttc_ir::fuse::fuse(graph)?, args.format, context),
                stage => return show(&pipeline::plan(&graph, pipeline::math(args.math)?)?, stage, context),
            }
            Ok(())
        }
    }
}

fn print_graph(graph: &ttc_ir::Graph, format: Format, context: &Context) {
    match format {
        Format::Text => context.say(&graph.to_string()),
        Format::Dot => context.say(&graph.dot()),
    }
    context.report(json!({"name": graph.name, "nodes": graph.nodes.len(), "weights": graph.weights.len(), "gflop": graph.flops() as f64 / 1e9}));
}

fn show(plan: &Plan, stage: Stage, context: &Context) -> Result<(), CliError> {
    let cost = ttc_lower::cost::estimate(plan);
    match stage {
        Stage::Memory => context.say(&plan.memory_map()),
        Stage::Cost => context.say(&cost.to_string()),
        _ => context.say(&plan.to_string()),
    }
    let steps: Vec<_> = cost
        .steps
        .iter()
        .map(|s| json!({"name": s.name, "kernel": s.kernel, "ms": s.ms, "bound": s.bound.to_string()}))
        .collect();
    context.report(json!({
        "total_ms": cost.total_ms(),
        "error_ms": cost.error_ms(),
        "components": cost.components(),
        "steps": steps,
        "arena_bytes": plan.arena_bytes,
    }));
    Ok(())
}
