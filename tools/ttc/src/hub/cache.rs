//! The cache that Python's `huggingface_hub` and the other clients share; no network code.
//!
//! ```text
//! models--OWNER--NAME/refs/BRANCH               the commit a branch meant when it was last asked about
//! models--OWNER--NAME/snapshots/COMMIT/FILE     a link to
//! models--OWNER--NAME/blobs/ETAG                the contents; ETAG.incomplete while they arrive
//! .locks/models--OWNER--NAME/ETAG.lock          held while a blob is being made
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::error::{HubError, HubErrorKind};
use super::source::{HubRef, is_commit};

/// The whole weights in one file.
pub(super) const SINGLE: &str = "model.safetensors";
/// The list of shards.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// One repository's folder in the cache.
#[derive(Clone, Debug)]
pub struct RepoCache {
    root: PathBuf,
    folder: String,
}

impl RepoCache {
    /// The folder of `repo` under `cache_dir`; it need not exist.
    pub fn new(cache_dir: &Path, repo: &HubRef) -> RepoCache {
        RepoCache { root: cache_dir.to_owned(), folder: format!("models--{}--{}", repo.owner, repo.name) }
    }

    /// The commit that `revision` stands for, as far as the cache knows.
    pub fn commit(&self, revision: &str) -> Option<String> {
        if is_commit(revision) {
            return Some(revision.to_owned());
        }
        let commit = fs::read_to_string(self.ref_path(revision)).ok()?;
        Some(commit.trim().to_owned()).filter(|c| is_commit(c))
    }

    /// Commit and weight files of `revision`, if all of them are there.
    ///
    /// # Errors
    /// A list of shards that cannot be used.
    pub fn find(&self, revision: &str) -> Result<Option<(String, Vec<PathBuf>)>, HubError> {
        let Some(commit) = self.commit(revision) else { return Ok(None) };
        let files = weights_in(&self.snapshot(&commit))?;
        Ok(files.filter(|files| files.iter().all(|f| f.is_file())).map(|files| (commit, files)))
    }

    /// Where the files of a commit are.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join(&self.folder).join("snapshots").join(commit)
    }

    fn ref_path(&self, revision: &str) -> PathBuf {
        self.root.join(&self.folder).join("refs").join(revision)
    }
}

/// What only a download does to the cache.
#[cfg(feature = "hub")]
impl RepoCache {
    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.root.join(&self.folder).join("blobs").join(etag)
    }

    pub(super) fn lock_path(&self, etag: &str) -> PathBuf {
        self.root.join(".locks").join(&self.folder).join(format!("{etag}.lock"))
    }

    /// Makes `file` of `commit` lead to the blob.
    pub(super) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<PathBuf, HubError> {
        let link = self.snapshot(commit).join(file);
        create_parent(&link)?;
        // Relative, so that the cache may be moved: out of the file's folders, the commit's and `snapshots`.
        let up = "../".repeat(file.split('/').count() + 1);
        let target = PathBuf::from(format!("{up}blobs/{etag}"));
        let fail = |e: std::io::Error| HubError::disk("write", &link, &e);
        match fs::symlink_metadata(&link) {
            Ok(_) => fs::remove_file(&link).map_err(fail)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(fail(e)),
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(target, &link).map_err(fail)?;
        // Where links need privileges the contents are there twice, as the other clients do it.
        #[cfg(not(unix))]
        fs::copy(link.parent().map(|p| p.join(&target)).unwrap_or(target), &link).map_err(fail)?;
        Ok(link)
    }

    /// Remembers what a branch or tag means.
    pub(super) fn remember(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        let path = self.ref_path(revision);
        create_parent(&path)?;
        let temp = path.with_added_extension(format!("{}.tmp", std::process::id()));
        let write = || fs::write(&temp, commit).and_then(|()| fs::rename(&temp, &path));
        write().map_err(|e| HubError::disk("write", &path, &e))
    }
}

#[cfg(feature = "hub")]
pub(super) fn create_parent(path: &Path) -> Result<(), HubError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    fs::create_dir_all(parent).map_err(|e| HubError::disk("create the folder", parent, &e))
}

/// The weight files that a folder should have: the single file, or all shards its index lists. `None` when it has
/// neither; listed shards may be absent.
pub(super) fn weights_in(dir: &Path) -> Result<Option<Vec<PathBuf>>, HubError> {
    let (single, index) = (dir.join(SINGLE), dir.join(INDEX));
    if single.is_file() {
        return Ok(Some(vec![single]));
    }
    if !index.is_file() {
        return Ok(None);
    }
    shards_of(&index).map(Some)
}

/// The files that a `*.safetensors.index.json` lists, beside it, in name order.
pub(super) fn shards_of(index: &Path) -> Result<Vec<PathBuf>, HubError> {
    let text = fs::read_to_string(index).map_err(|e| HubError::disk("read", index, &e))?;
    let dir = index.parent().unwrap_or(Path::new(""));
    let names = shard_names(&text).map_err(|why| {
        let what = format!("cannot use the list of shards {}", index.display());
        HubError::new(HubErrorKind::NoFile, what, why, "remove it and fetch the weights again")
    })?;
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// Shard names in an index, each once. They become paths, so one that leads elsewhere is refused.
pub(super) fn shard_names(index: &str) -> Result<BTreeSet<String>, String> {
    let json: serde_json::Value = serde_json::from_str(index).map_err(|e| format!("it is not JSON ({e})"))?;
    let map = json.get("weight_map").and_then(|m| m.as_object()).ok_or("it has no `weight_map`")?;
    let mut names = BTreeSet::new();
    for value in map.values() {
        let name = value.as_str().ok_or("its `weight_map` does not name files")?;
        let plain = Path::new(name).components().all(|c| matches!(c, Component::Normal(_)));
        if !plain || !name.ends_with(".safetensors") || name.contains('\\') {
            return Err(format!("it lists `{name}`, which is no .safetensors file beside it"));
        }
        names.insert(name.to_owned());
    }
    if names.is_empty() { Err("it lists no files".to_owned()) } else { Ok(names) }
}
