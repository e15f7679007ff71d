//! What can go wrong between a `SRC` on the command line and files on disk.

use std::io;
use std::path::Path;

/// Which family an error belongs to, for programs; people read the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubErrorKind {
    /// The text is no weight source.
    Usage,
    /// A path that is not there, or a folder without weights.
    NoPath,
    /// Offline, and the cache does not have it.
    NotCached,
    /// This binary has no network code.
    NoNetworkCode,
    /// 401 or 403: the repository is private or gated.
    Auth,
    /// The hub has no such repository.
    NoRepo,
    /// The repository has no such branch, tag or commit.
    NoRevision,
    /// The revision has no safetensors weights.
    NoFile,
    /// Refused, cut, timed out, or a server error.
    Network,
    /// The answer is not that of a hub.
    Protocol,
    /// More or fewer bytes than announced.
    Size,
    /// Other bytes than announced.
    Hash,
    /// The cache cannot be read or written.
    Disk,
}

impl HubErrorKind {
    /// Whether the input was wrong (exit code 2) rather than its execution (1).
    pub fn is_usage(self) -> bool {
        matches!(self, HubErrorKind::Usage | HubErrorKind::NoPath)
    }
}

/// What happened, why, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {next}")]
pub struct HubError {
    pub kind: HubErrorKind,
    pub what: String,
    pub why: String,
    pub next: String,
}

impl HubError {
    pub(super) fn new(
        kind: HubErrorKind,
        what: impl Into<String>,
        why: impl Into<String>,
        next: impl Into<String>,
    ) -> HubError {
        HubError { kind, what: what.into(), why: why.into(), next: next.into() }
    }

    pub(super) fn disk(doing: &str, path: &Path, error: &io::Error) -> HubError {
        let next = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some space, or set HF_HOME to a folder on a larger disk; what was fetched is kept"
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "set HF_HOME to a folder you may write to"
            }
            _ => "check the disk, then try again",
        };
        HubError::new(
            HubErrorKind::Disk,
            format!("cannot {doing} {}", path.display()),
            error.to_string(),
            next,
        )
    }
}
