//! What can go wrong with weights.

use std::path::Path;

/// Which family an error belongs to, for programs; people read the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightErrorKind {
    /// The file cannot be opened, read or written.
    Io,
    /// Not a safetensors file, or a damaged one.
    Format,
    /// A dtype other than F32, F16, BF16.
    Dtype,
    /// No tensor of that name.
    Missing,
    /// The tensor exists with another shape.
    Shape,
    /// Two files hold the same tensor.
    Duplicate,
    /// The synthetic recipe does not say how to make this tensor.
    NoRecipe,
}

/// What happened, why, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {next}")]
pub struct WeightError {
    pub kind: WeightErrorKind,
    pub what: String,
    pub why: String,
    pub next: String,
}

impl WeightError {
    pub(crate) fn new(
        kind: WeightErrorKind,
        what: impl Into<String>,
        why: impl Into<String>,
        next: impl Into<String>,
    ) -> WeightError {
        WeightError { kind, what: what.into(), why: why.into(), next: next.into() }
    }

    pub(crate) fn format(path: &Path, why: impl Into<String>, next: impl Into<String>) -> WeightError {
        let what = format!("cannot load weights from {}", path.display());
        WeightError::new(WeightErrorKind::Format, what, why, next)
    }

    pub(crate) fn io(doing: &str, path: &Path, error: &std::io::Error) -> WeightError {
        let next = match error.kind() {
            std::io::ErrorKind::NotFound => "check the path",
            std::io::ErrorKind::PermissionDenied => "check the permissions of the file and its folder",
            std::io::ErrorKind::StorageFull => "free some space or choose another folder",
            _ => "check the disk, then try again",
        };
        WeightError::new(
            WeightErrorKind::Io,
            format!("cannot {doing} {}", path.display()),
            error.to_string(),
            next,
        )
    }
}
