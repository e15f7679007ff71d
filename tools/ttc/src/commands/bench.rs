use crate::cli::{Context, ModelArgs};
use crate::error::CliError;
use crate::pipeline;
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use ttc_ir::tensor::Tensor;

#[derive(Args)]
pub struct Bench {
    #[command(flatten)]
    model: ModelArgs,
    /// Timed runs, after one that warms up.
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Run each pair in both orders, as pose estimation wants it.
    #[arg(long)]
    symmetric: bool,
    /// Print every step, not only every kernel.
    #[arg(long)]
    steps: bool,
}

pub fn bench(args: Bench, context: &Context) -> Result<(), CliError> {
    let input = pipeline::open(&args.model.model)?;
    let mut loaded = pipeline::load(input, &args.model.how, None, context)?;
    let executor = &mut loaded.executor;
    let images: Vec<Tensor> = executor
        .artifact()
        .plan
        .inputs
        .iter()
        .enumerate()
        .map(|(at, (_, id))| pattern(&executor.artifact().plan.buf(*id).shape, at))
        .collect();
    let order = |swap: bool| -> Vec<&[f32]> {
        let data = images.iter().map(|t| t.data.as_slice());
        if swap { data.rev().collect() } else { data.collect() }
    };
    if args.symmetric && images.iter().any(|t| t.shape != images[0].shape) {
        return Err(CliError::usage("--symmetric needs two views of one size"));
    }
    let mut report = executor.report();
    let mut ms = vec![];
    let mut per_step = vec![f64::INFINITY; report.steps.len()];
    context.progress.start("benchmark");
    for run in 0..=args.runs {
        let mut total = 0.0;
        for swap in [false, true].into_iter().take(1 + usize::from(args.symmetric)) {
            executor.run(&order(swap), &mut report, &mut |_, _| {})?;
            total += report.total.as_secs_f64() * 1e3;
            per_step
                .iter_mut()
                .zip(&report.steps)
                .for_each(|(best, now)| *best = best.min(now.as_secs_f64() * 1e3));
        }
        if run > 0 {
            ms.push(total);
        }
        context.progress.update(u64::from(run), u64::from(args.runs), "runs");
    }
    context.progress.finish("done");
    print(&args, &loaded, &ms, &per_step, context);
    Ok(())
}

fn print(args: &Bench, loaded: &pipeline::Loaded, ms: &[f64], per_step: &[f64], context: &Context) {
    let plan = &loaded.executor.artifact().plan;
    let options = loaded.executor.options();
    let mut sorted = ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (median, min) = (sorted[sorted.len() / 2], sorted[0]);
    let passes = if args.symmetric { 2.0 } else { 1.0 };
    let gflop = plan.steps.iter().map(|s| plan.flops(s)).sum::<u64>() as f64 / 1e9 * passes;
    let gflops = |gflop: f64, ms: f64| if ms > 0.0 { gflop / ms * 1e3 } else { 0.0 };
    let rss = pipeline::peak_rss();
    context.say(&format!(
        "{}  {} math  {} threads  {}\nmedian {median:.1} ms  min {min:.1} ms  {gflop:.1} GFLOP  {:.0} GFLOP/s  load {:.0} ms  peak memory {:.2} GB",
        plan.name,
        plan.math,
        options.threads,
        options.isa,
        gflops(gflop, median),
        loaded.load.as_secs_f64() * 1e3,
        rss.unwrap_or(0) as f64 / 1e9,
    ));
    let mut kernels: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let mut steps = vec![];
    for (step, &ms) in plan.steps.iter().zip(per_step) {
        let gflop = plan.flops(step) as f64 / 1e9;
        let entry = kernels.entry(&step.kernel).or_default();
        *entry = (entry.0 + ms, entry.1 + gflop);
        steps.push(json!({"name": step.name, "kernel": step.kernel, "ms": ms, "gflop": gflop, "gflops": gflops(gflop, ms)}));
        if args.steps {
            context.say(&format!(
                "{ms:>9.3} ms {:>6.0} GFLOP/s  {:<14} {}",
                gflops(gflop, ms),
                step.kernel,
                step.name
            ));
        }
    }
    let mut by_time: Vec<_> = kernels.iter().collect();
    by_time.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    for (kernel, (ms, gflop)) in by_time {
        context.say(&format!(
            "{kernel:<16} {ms:>9.1} ms {:>5.1} %  {:>6.0} GFLOP/s",
            ms / per_step.iter().sum::<f64>() * 100.0,
            gflops(*gflop, *ms)
        ));
    }
    context.report(json!({
        "ms_median": median,
        "ms_min": min,
        "ms": ms,
        "gflop": gflop,
        "gflops": gflops(gflop, median),
        "peak_rss_bytes": rss,
        "load_ms": loaded.load.as_secs_f64() * 1e3,
        "device": "cpu",
        "isa": options.isa.name(),
        "math": plan.math.to_string(),
        "threads": options.threads,
        "symmetric": args.symmetric,
        "steps": steps,
    }));
}

/// An image-like input: smooth, in -1..1, the two views different. Time does not depend on the values.
fn pattern(shape: &[usize], view: usize) -> Tensor {
    let n = shape.iter().product();
    let phase = view as f32;
    Tensor::new(shape, (0..n).map(|i| (i as f32 * 0.013 + phase).sin()).collect())
}
