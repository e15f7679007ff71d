//! Opens an artifact: everything is checked before anything is used.

use crate::{Bytes, RuntimeError};
use rayon::prelude::*;
use safetensors::tensor::Metadata;
use std::ops::Range;
use std::path::Path;
use ttc_ir::artifact::{CONST_ALIGN, MANIFEST, MANIFEST_HASH, const_name};
use ttc_ir::{Manifest, Plan};
use ttc_kernels::pack::packed_len;

/// A checked artifact: plan, manifest, and where each packed constant lies.
pub struct Artifact {
    bytes: Bytes,
    pub manifest: Manifest,
    pub plan: Plan,
    /// Byte range of each packed constant, padding left out; empty when the artifact holds no weights.
    consts: Vec<Range<usize>>,
    /// blake3 of the manifest, which holds those of all sections: the identity of the whole.
    pub hash: String,
}

impl Artifact {
    /// Maps and checks a file.
    pub fn open(path: &Path) -> Result<Artifact, RuntimeError> {
        Artifact::new(Bytes::open(path)?)
    }

    /// Whether a file begins as an artifact does; cheap, for telling artifacts from model files.
    pub fn looks_like(start: &[u8]) -> bool {
        start.get(8) == Some(&b'{')
    }

    /// Checks structure, format version and every hash.
    pub fn new(bytes: Bytes) -> Result<Artifact, RuntimeError> {
        let (data_start, header) = header(&bytes)?;
        let foreign = || RuntimeError::Artifact {
            what: "it is a safetensors file, but none that ttc compiled".into(),
            next: "give the output of `ttc compile`; weights go with --weights".into(),
        };
        let section = |name: &str| {
            let info = header.info(name)?;
            let range =
                data_start.checked_add(info.data_offsets.0)?..data_start.checked_add(info.data_offsets.1)?;
            (range.start <= range.end && range.end <= bytes.len()).then_some(range)
        };
        let at = section(MANIFEST).ok_or_else(foreign)?;
        let expected = header.metadata().as_ref().and_then(|m| m.get(MANIFEST_HASH)).ok_or_else(foreign)?;
        if data_start % CONST_ALIGN != 0 {
            return Err(RuntimeError::artifact("its data is not aligned"));
        }
        let hash = blake3::hash(&bytes[at.clone()]).to_hex().to_string();
        if hash != *expected {
            return Err(RuntimeError::artifact("its manifest does not match its hash"));
        }
        let text =
            std::str::from_utf8(&bytes[at]).map_err(|_| RuntimeError::artifact("its manifest is no text"))?;
        let (manifest, plan) =
            Manifest::parse(text).map_err(|d| RuntimeError::Artifact { what: d.what, next: d.expected })?;
        let consts = consts(&bytes, &manifest, &plan, section)?;
        Ok(Artifact { bytes, manifest, plan, consts, hash })
    }

    /// Whether the packed weights are inside.
    pub fn has_weights(&self) -> bool {
        self.consts.len() == self.plan.consts.len()
    }

    /// The bytes of packed constant `at`.
    pub(crate) fn constant(&self, at: usize) -> &[u8] {
        &self.bytes[self.consts[at].clone()]
    }
}

/// Where the data starts, and the header.
fn header(bytes: &[u8]) -> Result<(usize, Metadata), RuntimeError> {
    let short = || {
        RuntimeError::artifact(format!("it has {} bytes and is cut off or no safetensors file", bytes.len()))
    };
    let len = bytes.first_chunk().map(|b| u64::from_le_bytes(*b)).ok_or_else(short)?;
    let end = usize::try_from(len)
        .ok()
        .and_then(|n| n.checked_add(8))
        .filter(|&n| n <= bytes.len())
        .ok_or_else(short)?;
    let header: Metadata = serde_json::from_slice(&bytes[8..end])
        .map_err(|e| RuntimeError::artifact(format!("its header is damaged ({e})")))?;
    let total = end.saturating_add(header.data_len());
    if total > bytes.len() {
        let what = format!("it is cut off: it has {} bytes, its header describes {total}", bytes.len());
        return Err(RuntimeError::artifact(what));
    }
    Ok((end, header))
}

/// Range of each constant, sizes and hashes checked.
fn consts(
    bytes: &[u8],
    manifest: &Manifest,
    plan: &Plan,
    section: impl Fn(&str) -> Option<Range<usize>>,
) -> Result<Vec<Range<usize>>, RuntimeError> {
    let mut ranges = vec![];
    for (at, expected) in manifest.sections.iter().enumerate() {
        let name = const_name(at);
        let range =
            section(&name).ok_or_else(|| RuntimeError::artifact(format!("section {name} is missing")))?;
        let constant = &plan.consts[at];
        let shape = &plan.weights[constant.weight.0 as usize].shape;
        let needed = packed_len(constant.pack, constant.dtype, shape)
            .and_then(|n| n.checked_mul(constant.dtype.bytes()));
        let fits =
            |n: &usize| range.len() == n.next_multiple_of(CONST_ALIGN) && range.start % CONST_ALIGN == 0;
        let Some(needed) = needed.filter(fits) else {
            return Err(RuntimeError::artifact(format!(
                "section {name} has another size than the plan says"
            )));
        };
        ranges.push((range, needed, expected));
    }
    // Reading a gigabyte is what takes time when an artifact is opened; all cores share it.
    let wrong = ranges.par_iter().position_first(|(range, _, expected)| {
        blake3::hash(&bytes[range.clone()]).to_hex().as_str() != expected.as_str()
    });
    match wrong {
        Some(at) => {
            Err(RuntimeError::artifact(format!("section {} does not match its hash", const_name(at))))
        }
        // Without the padding: kernels take a constant's shape from its length.
        None => Ok(ranges.into_iter().map(|(range, needed, _)| range.start..range.start + needed).collect()),
    }
}
