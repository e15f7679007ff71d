//! Writes an artifact: header, packed constants, manifest.

use crate::weights::{WeightError, Weights};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use ttc_ir::artifact::{CONST_ALIGN, FORMAT, MANIFEST, MANIFEST_HASH, Manifest, const_name};
use ttc_ir::diag::Diag;
use ttc_ir::plan::{Draft, Plan};
use ttc_ir::tensor::DType;
use ttc_ir::weight::materialise;
use ttc_kernels::pack::{pack, packed_len};

/// Why an artifact could not be written.
#[derive(Debug, thiserror::Error)]
pub enum EmitError {
    #[error(transparent)]
    Weights(#[from] WeightError),
    #[error("{0}")]
    Plan(Box<Diag>),
    #[error("cannot write the artifact: {0}; check the disk, or choose another folder")]
    Io(#[from] std::io::Error),
}

impl From<Diag> for EmitError {
    fn from(diag: Diag) -> Self {
        EmitError::Plan(Box::new(diag))
    }
}

/// Told after each batch of constants: how many are done, of how many.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// Bytes of weights that may be unpacked at once: enough to keep the cores busy, little beside the artifact itself.
const BATCH_BYTES: usize = 64 << 20;

/// The parts of a file whose places are known before any constant is packed.
struct Outline {
    header: Vec<u8>,
    /// Packed elements and bytes, padding included, of each constant.
    sizes: Vec<(usize, usize)>,
    manifest: Manifest,
    total: usize,
}

/// Size in bytes of the artifact that [`emit`] writes.
pub fn artifact_bytes(plan: &Plan, weights: Option<&Weights>) -> Result<usize, EmitError> {
    Ok(outline(plan, weights.map(Weights::digest).transpose()?)?.total)
}

/// Writes the artifact of `plan`, with its weights packed, or without any: then it holds the plan and names the tensors that it
/// needs. Same plan and weights, same bytes. Returns the artifact's hash: blake3 of the manifest, which holds the hash of every section.
///
/// # Errors
/// A weight that is missing or has another shape, or a writer that fails.
pub fn emit(
    plan: &Plan,
    weights: Option<&Weights>,
    out: &mut (impl Write + Seek),
    progress: Progress,
) -> Result<String, EmitError> {
    let digest = weights.map(Weights::digest).transpose()?;
    let mut outline = outline(plan, digest)?;
    out.write_all(&outline.header)?;
    if let Some(weights) = weights {
        let mut next = 0;
        while next < plan.consts.len() {
            let mut bytes = 0;
            let batch = outline.sizes[next..].iter().take_while(|(elements, _)| {
                let fits = bytes == 0 || bytes + elements * 4 <= BATCH_BYTES;
                bytes += elements * 4;
                fits
            });
            let end = next + batch.count();
            let packed = (next..end)
                .into_par_iter()
                .map(|at| packed_const(plan, at, outline.sizes[at].1, weights))
                .collect::<Result<Vec<_>, EmitError>>()?;
            for (at, bytes) in (next..end).zip(packed) {
                outline.manifest.sections[at] = blake3::hash(&bytes).to_hex().to_string();
                out.write_all(&bytes)?;
            }
            next = end;
            progress(next, plan.consts.len());
        }
    }
    let text = outline.manifest.to_text()?;
    out.write_all(text.as_bytes())?;
    // The hash has its place in the header already; only now its value is known.
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let at = find(&outline.header, &placeholder()).ok_or_else(|| Diag::bug("the header lost its hash"))?;
    out.seek(SeekFrom::Start(at as u64))?;
    out.write_all(hash.as_bytes())?;
    out.seek(SeekFrom::End(0))?;
    out.flush()?;
    Ok(hash.to_string())
}

fn packed_const(plan: &Draft, at: usize, bytes: usize, weights: &Weights) -> Result<Vec<u8>, EmitError> {
    let constant = &plan.consts[at];
    let weight = &plan.weights[constant.weight.0 as usize];
    let mut load = |name: &str, shape: &[usize]| weights.read_f32(name, shape);
    let values = materialise(&plan.weights, constant.weight, &mut load)?;
    let mut packed = pack(constant.pack, constant.dtype, &weight.shape, &values);
    packed.resize(bytes, 0);
    Ok(packed)
}

fn outline(plan: &Plan, digest: Option<String>) -> Result<Outline, EmitError> {
    let with_weights = digest.is_some();
    let mut sizes = vec![];
    for constant in &plan.consts {
        let weight = &plan.weights[constant.weight.0 as usize];
        let elements = packed_len(constant.pack, constant.dtype, &weight.shape)
            .ok_or_else(|| Diag::bug(format!("`{}` cannot be packed as {:?}", weight.name, constant.pack)))?;
        sizes.push((elements, (elements * constant.dtype.bytes()).next_multiple_of(CONST_ALIGN)));
    }
    let sections = if with_weights { vec![placeholder(); sizes.len()] } else { vec![] };
    let producer = format!("ttc {}", env!("CARGO_PKG_VERSION"));
    let manifest = Manifest { format: FORMAT, producer, plan: (**plan).clone(), sections, weights: digest };
    let text_len = manifest.to_text()?.len();
    let mut entries: BTreeMap<String, serde_json::Value> = BTreeMap::new();
    entries.insert("__metadata__".into(), serde_json::json!({ MANIFEST_HASH: placeholder() }));
    let mut end = 0;
    let mut entry = |name: String, dtype: &str, elements: usize, bytes: usize| {
        let offsets = [end, end + bytes];
        end += bytes;
        entries
            .insert(name, serde_json::json!({"dtype": dtype, "shape": [elements], "data_offsets": offsets}));
    };
    if with_weights {
        for (at, &(_, bytes)) in sizes.iter().enumerate() {
            let dtype = plan.consts[at].dtype;
            let name = if dtype == DType::BF16 { "BF16" } else { "F32" };
            entry(const_name(at), name, bytes / dtype.bytes(), bytes);
        }
    }
    entry(MANIFEST.into(), "U8", text_len, text_len);
    let json =
        serde_json::to_vec(&entries).map_err(|e| Diag::bug(format!("cannot write the header: {e}")))?;
    // Spaces after the header are part of it; they put the data on a cache line.
    let header_len = (8 + json.len()).next_multiple_of(CONST_ALIGN) - 8;
    let mut header = (header_len as u64).to_le_bytes().to_vec();
    header.extend(json);
    header.resize(8 + header_len, b' ');
    let total = header.len() + end;
    Ok(Outline { header, sizes, manifest, total })
}

/// Stands where a hash will stand: as long, and nothing that could be one.
fn placeholder() -> String {
    "?".repeat(64)
}

fn find(bytes: &[u8], text: &str) -> Option<usize> {
    bytes.windows(text.len()).position(|w| w == text.as_bytes())
}
