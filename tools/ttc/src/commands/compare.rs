use crate::cli::Context;
use crate::compare::{compare_all, read};
use crate::error::CliError;
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

#[derive(Args)]
pub struct Compare {
    /// The reference: .npz or .safetensors.
    a: PathBuf,
    /// The file to judge.
    b: PathBuf,
    /// Fail (exit code 1) when a correlation is below this.
    #[arg(long)]
    min_pcc: Option<f64>,
    /// Fail (exit code 1) when a relative L2 error is above this.
    #[arg(long)]
    max_rel_l2: Option<f64>,
}

pub fn compare(args: Compare, context: &Context) -> Result<(), CliError> {
    let (results, alone) = compare_all(&read(&args.a)?, &read(&args.b)?)?;
    if results.is_empty() {
        return Err(CliError::usage("the two files have no tensor name in common"));
    }
    context.say(&format!(
        "{:<48} {:>10} {:>10} {:>10} {:>10} {:>9}",
        "tensor", "pcc", "gain", "max abs", "rel l2", "n"
    ));
    let mut table = Map::new();
    let mut failed = vec![];
    for (name, c) in &results {
        context.say(&format!(
            "{name:<48} {:>10.7} {:>10.6} {:>10.2e} {:>10.2e} {:>9}",
            c.pcc, c.gain, c.max_abs, c.rel_l2, c.n
        ));
        table.insert(name.clone(), serde_json::to_value(c).unwrap_or(Value::Null));
        // Written so that NaN fails.
        let good = args.min_pcc.is_none_or(|m| c.pcc >= m) && args.max_rel_l2.is_none_or(|m| c.rel_l2 <= m);
        if !good {
            failed.push(name.as_str());
        }
    }
    if !alone.is_empty() {
        context.say(&format!("in one file only: {}", alone.join(" ")));
    }
    context.report(json!({"tensors": table, "unpaired": alone}));
    match failed[..] {
        [] => Ok(()),
        _ => Err(CliError::failed(format!("beyond the limits given: {}", failed.join(" ")))),
    }
}
