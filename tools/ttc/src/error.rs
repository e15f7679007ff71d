//! Errors as a user meets them: what happened, why, what to do next; and the exit code.

use crate::hub::HubError;
use std::fmt;
use ttc_codegen::EmitError;
use ttc_codegen::weights::WeightError;
use ttc_ir::{Diag, Fault};
use ttc_runtime::RuntimeError;

/// Exit code of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It could have worked and did not.
    Failed = 1,
    /// Wrong usage or bad input.
    Usage = 2,
}

/// A failure with its message, which may have many lines.
#[derive(Debug)]
pub struct CliError {
    pub exit: Exit,
    pub message: String,
}

impl CliError {
    pub fn usage(message: impl Into<String>) -> CliError {
        CliError { exit: Exit::Usage, message: message.into() }
    }

    pub fn failed(message: impl Into<String>) -> CliError {
        CliError { exit: Exit::Failed, message: message.into() }
    }

    /// A file that could not be written.
    pub fn write(path: &std::path::Path, error: impl fmt::Display) -> CliError {
        CliError::failed(format!(
            "cannot write {}: {error}; check the folder and the free space",
            path.display()
        ))
    }

    /// A file that could not be read.
    pub fn read(path: &std::path::Path, error: impl fmt::Display) -> CliError {
        CliError::usage(format!(
            "cannot read {}: {error}; check the path and its permissions",
            path.display()
        ))
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

impl From<Vec<Diag>> for CliError {
    fn from(problems: Vec<Diag>) -> Self {
        let exit = if problems.iter().all(|d| d.fault == Fault::User) { Exit::Usage } else { Exit::Failed };
        let lines: Vec<String> = problems.iter().map(Diag::to_string).collect();
        let head = if lines.len() == 1 { String::new() } else { format!("{} problems:\n", lines.len()) };
        CliError { exit, message: format!("{head}{}", lines.join("\n")) }
    }
}

impl From<WeightError> for CliError {
    fn from(e: WeightError) -> Self {
        CliError::usage(e.to_string())
    }
}

impl From<HubError> for CliError {
    fn from(e: HubError) -> Self {
        CliError { exit: if e.kind.is_usage() { Exit::Usage } else { Exit::Failed }, message: e.to_string() }
    }
}

impl From<EmitError> for CliError {
    fn from(e: EmitError) -> Self {
        match e {
            EmitError::Weights(e) => e.into(),
            EmitError::Plan(d) => vec![*d].into(),
            EmitError::Io(_) => CliError::failed(e.to_string()),
        }
    }
}

impl From<RuntimeError> for CliError {
    fn from(e: RuntimeError) -> Self {
        match e {
            RuntimeError::Start { .. } => CliError::failed(e.to_string()),
            _ => CliError::usage(e.to_string()),
        }
    }
}

impl From<ttc_scene::ImageError> for CliError {
    fn from(e: ttc_scene::ImageError) -> Self {
        CliError::usage(format!("{e}: {}; {}", e.why(), e.next()))
    }
}
