//! The grammar of `SRC`: a path, `hf:OWNER/NAME[@REV]`, or `synthetic:SEED`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::{HubError, HubErrorKind};

/// Where weights come from, as the user says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightSource {
    /// A `.safetensors` file, the index of a sharded one, or a folder with either.
    Path(PathBuf),
    /// A model repository.
    Hub(HubRef),
    /// The seeded recipe.
    Synthetic(u64),
}

/// A model repository and optionally one of its revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubRef {
    pub owner: String,
    pub name: String,
    /// Branch, tag or commit; `None` is `main`.
    pub revision: Option<String>,
}

impl HubRef {
    /// `OWNER/NAME`.
    pub fn repo(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// The revision asked for.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }

    /// Whether the revision is a full commit id, which never changes its meaning.
    pub fn is_pinned(&self) -> bool {
        is_commit(self.revision())
    }
}

/// Whether `revision` is a full commit id, as git writes it: in lower case.
pub(super) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

impl FromStr for HubRef {
    type Err = HubError;

    /// `OWNER/NAME[@REV]`, with or without `hf:` before it.
    fn from_str(text: &str) -> Result<HubRef, HubError> {
        let refuse = |why: &str| {
            HubError::new(
                HubErrorKind::Usage,
                format!("`{text}` is not a model repository"),
                why,
                "write hf:OWNER/NAME or hf:OWNER/NAME@REVISION",
            )
        };
        let rest = text.strip_prefix("hf:").unwrap_or(text);
        let (repo, revision) = match rest.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (rest, None),
        };
        let (owner, name) =
            repo.split_once('/').ok_or_else(|| refuse("it has no `/` between owner and name"))?;
        for part in [owner, name] {
            if part.is_empty() {
                return Err(refuse("owner and name must not be empty"));
            }
            if !part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
                return Err(refuse("owner and name are made of letters, digits, `.`, `_` and `-`"));
            }
            // Both also keep the names of cache folders unambiguous.
            if part.contains("..") || part.contains("--") || part == "." {
                return Err(refuse("owner and name have no `..` or `--`"));
            }
        }
        if let Some(revision) = revision {
            if revision.is_empty() {
                return Err(refuse("nothing follows the `@`"));
            }
            // Git's own rules for names of branches; they become paths in the cache.
            let bad = |c: char| c.is_whitespace() || c.is_control() || "~^:?*[\\@".contains(c);
            let empty_part = revision.split('/').any(|p| p.is_empty() || p == ".");
            if revision.contains(bad) || revision.contains("..") || empty_part {
                return Err(refuse("the revision is no branch, tag or commit"));
            }
        }
        Ok(HubRef { owner: owner.into(), name: name.into(), revision: revision.map(str::to_owned) })
    }
}

impl fmt::Display for HubRef {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "hf:{}/{}", self.owner, self.name)?;
        match &self.revision {
            Some(revision) => write!(f, "@{revision}"),
            None => Ok(()),
        }
    }
}

impl FromStr for WeightSource {
    type Err = HubError;

    /// Reads the grammar only; whether the source exists is asked by [`resolve`](super::resolve).
    fn from_str(text: &str) -> Result<WeightSource, HubError> {
        let refuse = |why: &str, next: &str| {
            Err(HubError::new(HubErrorKind::Usage, format!("`{text}` is no weight source"), why, next))
        };
        if text.starts_with("hf:") {
            return text.parse().map(WeightSource::Hub);
        }
        if let Some(seed) = text.strip_prefix("synthetic:") {
            let value = match seed.strip_prefix("0x").or_else(|| seed.strip_prefix("0X")) {
                Some(hex) => parse_digits(hex, 16),
                None => parse_digits(seed, 10),
            };
            return match value {
                Some(seed) => Ok(WeightSource::Synthetic(seed)),
                None => refuse(
                    "the seed is not a number of 64 bits",
                    "write synthetic:NUMBER, decimal or 0x..., as in synthetic:0xD057E12D057E12D0",
                ),
            };
        }
        match text {
            "" => refuse("it is empty", "give a .safetensors file, hf:OWNER/NAME[@REV] or synthetic:SEED"),
            "synthetic" => {
                refuse("it has no seed", "write synthetic:SEED, as in synthetic:0xD057E12D057E12D0")
            }
            _ if text.starts_with("http://") || text.starts_with("https://") => refuse(
                "web addresses are not fetched",
                "download the file and give its path, or write hf:OWNER/NAME for a repository of the hub",
            ),
            _ => Ok(WeightSource::Path(text.into())),
        }
    }
}

/// Digits only: the standard parser would also take a sign.
fn parse_digits(text: &str, radix: u32) -> Option<u64> {
    let digits = !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    digits.then(|| u64::from_str_radix(text, radix).ok()).flatten()
}

impl fmt::Display for WeightSource {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            WeightSource::Path(path) => write!(f, "{}", path.display()),
            WeightSource::Hub(repo) => write!(f, "{repo}"),
            WeightSource::Synthetic(seed) => write!(f, "synthetic:{seed:#x}"),
        }
    }
}
