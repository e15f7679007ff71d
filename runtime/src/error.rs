use std::path::PathBuf;

/// What can go wrong between a file and a result.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("cannot read {}: {source}; check the path and its permissions", path.display())]
    Open { path: PathBuf, source: std::io::Error },
    /// Truncated, tampered with, foreign, or of another version.
    #[error("not a usable artifact: {what}; {next}")]
    Artifact { what: String, next: String },
    #[error("input `{name}`: {what}; expected {expected}")]
    Input { name: String, what: String, expected: String },
    #[error("cannot start: {what}; {next}")]
    Start { what: String, next: String },
}

impl RuntimeError {
    pub(crate) fn artifact(what: impl Into<String>) -> RuntimeError {
        RuntimeError::Artifact { what: what.into(), next: "compile or copy it again".into() }
    }
}
