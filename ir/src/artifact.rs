//! The artifact's table of contents: what a compiled file says about itself. Data, parsing and checks over bytes; no files.

use crate::diag::Diag;
use crate::plan::{Draft, Plan};
use serde::{Deserialize, Serialize};

/// Version of the file format; a reader refuses any other.
pub const FORMAT: u32 = 1;

/// Name of the tensor that holds the manifest as RON text in bytes.
pub const MANIFEST: &str = "ttc.manifest";

/// Metadata key of the manifest's blake3, as hex.
pub const MANIFEST_HASH: &str = "ttc.manifest.blake3";

/// Constants start and end on multiples of this many bytes.
pub const CONST_ALIGN: usize = 64;

/// Name of the tensor that holds packed constant `index`.
pub fn const_name(index: usize) -> String {
    format!("const.{index:05}")
}

/// What the file contains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Version of ttc that wrote the file.
    pub producer: String,
    pub plan: Draft,
    /// blake3 of each packed constant, as hex, in the order of the plan's constants; empty when the artifact holds no weights.
    pub sections: Vec<String>,
    /// Identity of the checkpoint that the constants come from; None when the artifact holds no weights.
    pub weights: Option<String>,
}

/// Only the version, so that a file of another format is named as such whatever else it holds.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

impl Manifest {
    pub fn to_text(&self) -> Result<String, Diag> {
        ron::to_string(self).map_err(|e| Diag::bug(format!("cannot write the manifest: {e}")))
    }

    /// Parses and verifies; the plan comes back proven.
    pub fn parse(text: &str) -> Result<(Manifest, Plan), Diag> {
        let recompile = "compile the model again with this version of ttc";
        let unreadable =
            |e: ron::error::SpannedError| Diag::user(format!("the manifest cannot be read: {e}"), recompile);
        let version: Version = ron::from_str(text).map_err(unreadable)?;
        if version.format != FORMAT {
            let what = format!("the artifact has format {}, this ttc reads format {FORMAT}", version.format);
            return Err(Diag::user(what, recompile));
        }
        let manifest: Manifest = ron::from_str(text).map_err(unreadable)?;
        let plan = manifest.plan.clone().verify().map_err(|problems| {
            let first = problems.first().map_or(String::new(), |d| d.what.clone());
            Diag::user(format!("the artifact's plan is not valid: {first}"), recompile)
        })?;
        if !manifest.sections.is_empty() && manifest.sections.len() != plan.consts.len() {
            let what = format!(
                "the artifact lists {} sections for {} constants",
                manifest.sections.len(),
                plan.consts.len()
            );
            return Err(Diag::user(what, recompile));
        }
        Ok((manifest, plan))
    }
}
