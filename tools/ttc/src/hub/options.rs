//! What the environment says about the hub.

use std::path::PathBuf;
use std::sync::Arc;

/// The public hub.
pub const ENDPOINT: &str = "https://huggingface.co";

/// What happens during a download. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Another process is fetching the same file; it is waited for.
    Waiting { file: &'a str },
    /// Bytes begin to move; `done` of them are there from an earlier attempt.
    Started { file: &'a str, done: u64, total: u64 },
    /// Comes with every piece that arrives, thousands of times a file.
    Progress { file: &'a str, done: u64, total: u64 },
    /// The connection failed and is made again from byte `done` on.
    Retry { file: &'a str, done: u64, why: &'a str },
    /// The server gave no checksum, so only the size was checked.
    Unverified { file: &'a str },
    /// Complete, checked, and in the cache.
    Finished { file: &'a str, total: u64 },
}

/// Called on the thread that downloads; should return at once.
pub type ProgressFn = dyn Fn(&Event<'_>) + Send + Sync;

/// How to look for weights. [`HubOptions::from_env`] follows the variables that Python's `huggingface_hub` knows.
#[derive(Clone)]
pub struct HubOptions {
    /// Base address of the hub.
    pub endpoint: String,
    /// Access token, for private and gated repositories.
    pub token: Option<String>,
    /// The folder of `models--OWNER--NAME` folders.
    pub cache_dir: PathBuf,
    /// Never touch the network.
    pub offline: bool,
    /// Ask the hub what a branch means now, even when the cache has an answer. Commits are never asked about again.
    pub refresh: bool,
    pub progress: Option<Arc<ProgressFn>>,
}

impl HubOptions {
    /// From the variables of this process.
    pub fn from_env() -> HubOptions {
        HubOptions::from_vars(|name| std::env::var(name).ok())
    }

    /// From variables given by `var`; empty ones count as unset.
    ///
    /// `HF_ENDPOINT`; `HF_TOKEN`, else the file `HF_TOKEN_PATH` (by default `token` in `HF_HOME`), neither if
    /// `HF_HUB_DISABLE_IMPLICIT_TOKEN` is set; `HF_HUB_CACHE`, else `HUGGINGFACE_HUB_CACHE`, else `hub` in `HF_HOME`;
    /// `HF_HOME` is by default `huggingface` in `XDG_CACHE_HOME`, which is by default `~/.cache`; `HF_HUB_OFFLINE`.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> HubOptions {
        let var = |name: &str| var(name).filter(|v| !v.is_empty());
        let on = |name: &str| {
            var(name).is_some_and(|v| matches!(v.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE"))
        };
        let path = |name: &str| var(name).map(PathBuf::from);
        let home = || path("HOME").or_else(std::env::home_dir).unwrap_or_default();
        let hf_home = path("HF_HOME").unwrap_or_else(|| {
            path("XDG_CACHE_HOME").unwrap_or_else(|| home().join(".cache")).join("huggingface")
        });
        let token_file = path("HF_TOKEN_PATH").unwrap_or_else(|| hf_home.join("token"));
        let token = || var("HF_TOKEN").or_else(|| std::fs::read_to_string(token_file).ok());
        let token = if on("HF_HUB_DISABLE_IMPLICIT_TOKEN") { None } else { token() };
        HubOptions {
            endpoint: var("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned()),
            token: token.map(|t| t.trim().to_owned()).filter(|t| !t.is_empty()),
            cache_dir: path("HF_HUB_CACHE")
                .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
                .unwrap_or_else(|| hf_home.join("hub")),
            offline: on("HF_HUB_OFFLINE"),
            refresh: false,
            progress: None,
        }
    }

    #[cfg(feature = "hub")]
    pub(super) fn emit(&self, event: Event<'_>) {
        if let Some(progress) = &self.progress {
            progress(&event);
        }
    }
}
