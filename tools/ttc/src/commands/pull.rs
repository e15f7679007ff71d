use crate::cli::Context;
use crate::error::CliError;
use crate::hub::{HubRef, WeightSource};
use crate::pipeline;
use clap::Args;
use serde_json::json;

#[derive(Args)]
pub struct Pull {
    /// OWNER/NAME[@REV], with or without hf: before it.
    repo: HubRef,
}

pub fn pull(args: Pull, context: &Context) -> Result<(), CliError> {
    let shown = args.repo.to_string();
    let files = pipeline::resolve(&WeightSource::Hub(args.repo), true, context)?;
    let paths: Vec<String> = files.iter().map(|p| p.display().to_string()).collect();
    context.say(&paths.join("\n"));
    context.report(json!({"repo": shown, "files": paths}));
    Ok(())
}
