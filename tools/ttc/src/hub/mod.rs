//! From a weight source on the command line to files on disk: `SRC` is the path of a `.safetensors` file,
//! `hf:OWNER/NAME[@REV]` (the cache first, then the network), or `synthetic:SEED`.
//!
//! Reading the cache is always possible; downloading needs the feature `hub`.

use std::path::{Path, PathBuf};

mod cache;
#[cfg(feature = "hub")]
mod download;
mod error;
mod options;
#[cfg(feature = "hub")]
mod remote;
mod source;

pub use cache::RepoCache;
pub use error::{HubError, HubErrorKind};
pub use options::{ENDPOINT, Event, HubOptions, ProgressFn};
pub use source::{HubRef, WeightSource};

/// What a weight source came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    Files(ResolvedFiles),
    Synthetic(u64),
}

/// Weight files that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedFiles {
    /// One file, or all shards in name order.
    pub files: Vec<PathBuf>,
    /// Where they are from, when that is known.
    pub origin: Option<HubOrigin>,
}

/// The exact contents of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubOrigin {
    /// `OWNER/NAME`.
    pub repo: String,
    /// The full commit id.
    pub commit: String,
}

/// Finds the files of a weight source; downloads them if they are in a repository, not in the cache, and the options
/// allow it. Blocks; may be called from anywhere, an async runtime included.
///
/// # Errors
/// Each says what happened, why, and what to do next. Whatever was downloaded before an error is kept and used by the
/// next call, unless it was wrong.
pub fn resolve(source: &WeightSource, options: &HubOptions) -> Result<Resolved, HubError> {
    match source {
        WeightSource::Synthetic(seed) => Ok(Resolved::Synthetic(*seed)),
        WeightSource::Path(path) => {
            resolve_path(path).map(|files| Resolved::Files(ResolvedFiles { files, origin: None }))
        }
        WeightSource::Hub(repo) => resolve_hub(repo, options).map(Resolved::Files),
    }
}

/// As [`resolve`], for a repository.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_hub(repo: &HubRef, options: &HubOptions) -> Result<ResolvedFiles, HubError> {
    let cache = RepoCache::new(&options.cache_dir, repo);
    if (options.offline || repo.is_pinned() || !options.refresh)
        && let Some((commit, files)) = cache.find(repo.revision())?
    {
        let origin = Some(HubOrigin { repo: repo.repo(), commit });
        return Ok(ResolvedFiles { files, origin });
    }
    if options.offline {
        return Err(HubError::new(
            HubErrorKind::NotCached,
            format!("cannot get {repo}"),
            format!("HF_HUB_OFFLINE is set and {} does not have all of it", options.cache_dir.display()),
            "unset HF_HUB_OFFLINE, or copy the cache from a machine that has it, or give the path of a .safetensors file",
        ));
    }
    fetch(repo, options, &cache)
}

#[cfg(feature = "hub")]
use remote::fetch;

#[cfg(not(feature = "hub"))]
fn fetch(repo: &HubRef, options: &HubOptions, _: &RepoCache) -> Result<ResolvedFiles, HubError> {
    Err(HubError::new(
        HubErrorKind::NoNetworkCode,
        format!("cannot download {repo}"),
        format!("this binary was built without `hub` and {} does not have it", options.cache_dir.display()),
        format!(
            "build with `--features hub`, or download {}/{}/resolve/{}/{} with any tool and give its path",
            options.endpoint,
            repo.repo(),
            repo.revision(),
            cache::SINGLE
        ),
    ))
}

fn resolve_path(path: &Path) -> Result<Vec<PathBuf>, HubError> {
    let refuse = |why: String, next: String| {
        HubError::new(HubErrorKind::NoPath, format!("cannot find weights at {}", path.display()), why, next)
    };
    let files = if path.is_dir() {
        cache::weights_in(path)?.ok_or_else(|| {
            let why = format!("the folder has neither {} nor {}", cache::SINGLE, cache::INDEX);
            refuse(why, "give the path of the file itself".to_owned())
        })?
    } else if path.to_string_lossy().ends_with(".safetensors.index.json") {
        cache::shards_of(path)?
    } else {
        vec![path.to_owned()]
    };
    match files.iter().find(|f| !f.is_file()) {
        None => Ok(files),
        Some(absent) if absent != path => {
            let why = format!("the list of shards names {}, which is not there", absent.display());
            Err(refuse(why, "fetch all the shards".to_owned()))
        }
        Some(_) => {
            // `OWNER/NAME` without `hf:` is the likely slip.
            let repo = path.to_str().and_then(|text| text.parse::<HubRef>().ok());
            let next = match repo {
                Some(repo) => format!("check the path; for a repository of the hub write {repo}"),
                None => "check the path, or write hf:OWNER/NAME[@REV] or synthetic:SEED".to_owned(),
            };
            Err(refuse("there is no such file".to_owned(), next))
        }
    }
}
