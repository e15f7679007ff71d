//! The command line: one definition for parsing, help and shell completions.

use crate::commands;
use crate::error::{CliError, Exit};
use crate::progress::{Mode, Progress};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// DUSt3R, compiled ahead of time: two photos in, two dense 3D pointmaps with confidence out.
#[derive(Parser)]
#[command(name = "ttc", version, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// How progress is shown on stderr.
    #[arg(long, global = true, value_enum, default_value = "auto")]
    progress: Mode,
    /// No progress, no notes.
    #[arg(short, long, global = true)]
    quiet: bool,
    /// The last line of stdout is one JSON object.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Compile a model file to an artifact.
    Compile(commands::compile::Compile),
    /// Print a stage of compilation as text.
    Explain(commands::explain::Explain),
    /// Two photos to point clouds and depth maps.
    Run(commands::run::Run),
    /// Run on tensors, for tests: safetensors in, safetensors out.
    Tensors(commands::tensors::Tensors),
    /// Compare two .npz or .safetensors files tensor by tensor.
    Compare(commands::compare::Compare),
    /// Time a model.
    Bench(commands::bench::Bench),
    /// Download weights from the Hugging Face hub.
    Pull(commands::pull::Pull),
    /// List what can run here.
    Devices,
    /// Print a shell completion script.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// The built-in model on a built-in pair, end to end, without network.
    Demo(commands::demo::Demo),
}

/// A model and how to run it; shared by most commands.
#[derive(Args, Clone)]
pub struct ModelArgs {
    /// Model file (.ron) or compiled artifact.
    #[arg(default_value = "models/dust3r.ron")]
    pub model: PathBuf,
    #[command(flatten)]
    pub how: HowArgs,
}

/// How to compile and run.
#[derive(Args, Clone)]
pub struct HowArgs {
    /// Weights: a .safetensors file, hf:OWNER/NAME[@REV], or synthetic:SEED. Default: those that the model file names.
    #[arg(long, value_name = "SRC")]
    pub weights: Option<String>,
    /// Image size in pixels, WxH, multiples of 16; W1xH1+W2xH2 for two sizes.
    #[arg(long, value_name = "WxH")]
    pub size: Option<String>,
    /// Precision of matrix products. Default: bf16 where the processor multiplies it, else f32.
    #[arg(long, value_enum)]
    pub math: Option<MathArg>,
    /// Where to run.
    #[arg(long, value_enum, default_value = "auto")]
    pub device: Device,
    /// Worker threads. Default: as many as this process may use.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MathArg {
    F32,
    Bf16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Device {
    Auto,
    Cpu,
}

/// What a command gets besides its own arguments.
pub struct Context {
    pub progress: Progress,
    pub json: bool,
}

impl Context {
    /// Prints the machine-readable result, if asked for.
    pub fn report(&self, value: serde_json::Value) {
        if self.json {
            print_line(&value.to_string());
        }
    }

    /// Prints a line for people, on stdout; with `--json` stdout belongs to the JSON.
    pub fn say(&self, text: &str) {
        if !self.json {
            print_line(text.trim_end());
        }
    }
}

/// To stdout. A reader that has seen enough (`| head`) ends the command and is no error.
fn print_line(text: &str) {
    let result = writeln!(std::io::stdout(), "{text}");
    if let Err(e) = result {
        std::process::exit(if e.kind() == std::io::ErrorKind::BrokenPipe { 0 } else { 1 });
    }
}

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let context = Context { progress: Progress::new(cli.progress, cli.quiet), json: cli.json };
    let result = match cli.command {
        Command::Compile(args) => commands::compile::compile(args, &context),
        Command::Explain(args) => commands::explain::explain(args, &context),
        Command::Run(args) => commands::run::run(args, &context),
        Command::Tensors(args) => commands::tensors::tensors(args, &context),
        Command::Compare(args) => commands::compare::compare(args, &context),
        Command::Bench(args) => commands::bench::bench(args, &context),
        Command::Pull(args) => commands::pull::pull(args, &context),
        Command::Devices => commands::devices::devices(&context),
        Command::Completions { shell } => {
            clap_complete::generate(
                shell,
                &mut <Cli as clap::CommandFactory>::command(),
                "ttc",
                &mut std::io::stdout(),
            );
            Ok(())
        }
        Command::Demo(args) => commands::demo::demo(args, &context),
    };
    drop(context);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(CliError { exit, message }) => {
            eprintln!("error: {message}");
            ExitCode::from(exit as u8)
        }
    }
}

/// `512x384` as width and height, `512x384+384x512` as two of them.
pub fn parse_size(text: &str) -> Result<[(usize, usize); 2], CliError> {
    let side = |s: &str| s.trim().parse::<usize>().ok().filter(|n| (16..=4096).contains(n) && n % 16 == 0);
    let one = |s: &str| {
        let (w, h) = s.split_once(['x', 'X'])?;
        Some((side(w)?, side(h)?))
    };
    let parsed = match text.split_once('+') {
        Some((a, b)) => one(a).zip(one(b)).map(|(a, b)| [a, b]),
        None => one(text).map(|s| [s, s]),
    };
    parsed.ok_or_else(|| CliError {
        exit: Exit::Usage,
        message: format!(
            "size `{text}`: expected WIDTHxHEIGHT, both multiples of 16 from 16 to 4096, like 512x384"
        ),
    })
}
