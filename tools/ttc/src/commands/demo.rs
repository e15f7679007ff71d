use super::run::{Output, Pair, Save, write_pair};
use crate::builtin;
use crate::cli::{Context, Device, HowArgs, MathArg};
use crate::error::CliError;
use crate::pipeline::{self, Input};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use ttc_ir::Sizes;
use ttc_scene::{Fit, Limits};

#[derive(Args)]
pub struct Demo {
    /// Folder for the results.
    #[arg(short, long, default_value = "out")]
    output: PathBuf,
    /// Precision of matrix products.
    #[arg(long, value_enum)]
    math: Option<MathArg>,
    /// Which built-in pair, from 0.
    #[arg(long, default_value = "0")]
    pair: usize,
}

pub fn demo(args: Demo, context: &Context) -> Result<(), CliError> {
    let pairs = builtin::PAIRS.len();
    let Some((name, view1, view2)) = builtin::PAIRS.get(args.pair) else {
        return Err(CliError::usage(format!("there are pairs 0 to {}, not {}", pairs - 1, args.pair)));
    };
    let model = pipeline::open_model(Path::new(builtin::TINY))?;
    let how = HowArgs { weights: None, size: None, math: args.math, device: Device::Auto, threads: None };
    let (width, height) = model.size;
    let mut loaded = pipeline::load(Input::Model(model), &how, Some(Sizes::both(width, height)), context)?;
    let limits = Limits::default();
    let view = |bytes: &[u8]| -> Result<_, CliError> {
        Ok(ttc_scene::prepare(&ttc_scene::decode(bytes, &limits)?, Fit::Crop, width as u32, height as u32)?)
    };
    let pair = Pair { views: [view(view1)?, view(view2)?] };
    let output = Output {
        folder: args.output.clone(),
        save: Save::ALL.to_vec(),
        min_conf: ttc_scene::ConfThreshold::Percentile(10.0),
    };
    let written = write_pair(&mut loaded.executor, &pair, &output, context)?;
    context.say(&format!(
        "{name}: {:.1} ms, {} points\n{}",
        written.forward_ms,
        written.points,
        written.files.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join("\n")
    ));
    context.say(
        "\nThis is the built-in model: 5 M parameters, trained on rendered rooms, right on such rooms and on nothing else.\n\
         For photos use the real one (571 M parameters, CC BY-NC-SA 4.0):\n\
         \n    ttc run models/dust3r.ron photo1.jpg photo2.jpg -o out\n",
    );
    context.report(json!({"files": written.files, "timing_ms": written.timing(), "points": written.points}));
    Ok(())
}
