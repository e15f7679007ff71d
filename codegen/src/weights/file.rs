//! Weights in `.safetensors` files.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use safetensors::{Dtype, tensor::Metadata};

use super::check::Wanted;
use super::error::{WeightError, WeightErrorKind};
use super::map::map;
use super::names::{nearest, other_name};

/// One tensor as the header of a file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    pub name: String,
    pub shape: Vec<usize>,
    pub dtype: Dtype,
}

/// One `.safetensors` file, or a set of shards. The headers are in memory, the values stay on disk.
#[derive(Debug)]
pub struct FileWeights {
    files: Vec<(PathBuf, File)>,
    tensors: BTreeMap<String, Place>,
    digest: OnceLock<String>,
}

#[derive(Debug)]
struct Place {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    /// Bytes from the start of the file.
    bytes: Range<u64>,
}

impl FileWeights {
    /// Reads the headers of `files`.
    ///
    /// # Errors
    /// As [`Weights::open`](super::Weights::open).
    pub fn open<P: AsRef<Path>>(files: &[P]) -> Result<FileWeights, WeightError> {
        let mut weights =
            FileWeights { files: Vec::new(), tensors: BTreeMap::new(), digest: OnceLock::new() };
        for path in files {
            let path = path.as_ref();
            let file = File::open(path).map_err(|e| WeightError::io("open weights", path, &e))?;
            let (data_start, header) = read_header(path, &file)?;
            for (name, info) in header.tensors() {
                let (start, end) = info.data_offsets;
                let place = Place {
                    file: weights.files.len(),
                    dtype: info.dtype,
                    shape: info.shape.clone(),
                    bytes: data_start + start as u64..data_start + end as u64,
                };
                if let Some(first) = weights.tensors.get(&name) {
                    return Err(WeightError::new(
                        WeightErrorKind::Duplicate,
                        format!("cannot load weights from {}", path.display()),
                        format!("tensor `{name}` is in {} too", weights.files[first.file].0.display()),
                        "give the shards of one checkpoint only",
                    ));
                }
                weights.tensors.insert(name, place);
            }
            weights.files.push((path.to_owned(), file));
        }
        Ok(weights)
    }

    /// Every tensor, in name order.
    pub fn entries(&self) -> Vec<TensorEntry> {
        let entry = |(name, p): (&String, &Place)| TensorEntry {
            name: name.clone(),
            shape: p.shape.clone(),
            dtype: p.dtype,
        };
        self.tensors.iter().map(entry).collect()
    }

    /// The files, in the order given.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// As [`Weights::read_f32`](super::Weights::read_f32).
    pub fn read_f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, WeightError> {
        let (stored, place) = self.find(name).ok_or_else(|| self.missing(name))?;
        if place.shape != shape {
            return Err(WeightError::new(
                WeightErrorKind::Shape,
                format!("cannot read tensor `{stored}`"),
                format!("its shape is {:?}, the model wants {shape:?}", place.shape),
                "give weights made for this model",
            ));
        }
        self.values(stored, place)
    }

    /// As [`Weights::digest`](super::Weights::digest).
    pub fn digest(&self) -> Result<String, WeightError> {
        if let Some(digest) = self.digest.get() {
            return Ok(digest.clone());
        }
        let mut digests = Vec::new();
        for (path, file) in &self.files {
            digests.push(hash_file(file).map_err(|e| WeightError::io("read weights", path, &e))?);
        }
        let digest = match digests[..] {
            [one] => one,
            _ => blake3::hash(&digests.iter().flat_map(|d| *d.as_bytes()).collect::<Vec<u8>>()),
        };
        Ok(self.digest.get_or_init(|| format!("blake3:{}", digest.to_hex())).clone())
    }

    /// The tensor called `name`, or by the other name of an aliased one; with the name it has in the file.
    pub(super) fn entry(&self, name: &str) -> Option<(&str, Dtype, &[usize])> {
        self.find(name).map(|(stored, place)| (stored, place.dtype, place.shape.as_slice()))
    }

    /// The first of a wanted tensor's names that is present.
    pub(super) fn present<'a>(&self, wanted: &'a Wanted) -> Option<&'a str> {
        wanted.names().find(|name| self.find(name).is_some())
    }

    fn find(&self, name: &str) -> Option<(&str, &Place)> {
        let get = |name: &str| self.tensors.get_key_value(name).map(|(name, place)| (name.as_str(), place));
        get(name).or_else(|| get(&other_name(name)?))
    }

    fn missing(&self, name: &str) -> WeightError {
        let names: Vec<&str> = self.tensors.keys().map(String::as_str).collect();
        let files: Vec<String> = self.paths().map(|p| p.display().to_string()).collect();
        let next = match nearest(name, &names) {
            Some(near) => format!("the nearest name there is `{near}`: check the names in the model"),
            None => "give weights made for this model".to_owned(),
        };
        WeightError::new(
            WeightErrorKind::Missing,
            format!("cannot read tensor `{name}`"),
            format!("it is not in {}", files.join(", ")),
            next,
        )
    }

    fn values(&self, name: &str, place: &Place) -> Result<Vec<f32>, WeightError> {
        let (path, file) = &self.files[place.file];
        if !readable(place.dtype) {
            return Err(WeightError::new(
                WeightErrorKind::Dtype,
                format!("cannot read tensor `{name}` of {}", path.display()),
                format!("its dtype is {:?}", place.dtype),
                "store it as F32, F16 or BF16",
            ));
        }
        let bytes = map(file, place.bytes.clone()).map_err(|e| WeightError::io("read weights", path, &e))?;
        Ok(widen(place.dtype, &bytes))
    }

    /// Every tensor with its values, in name order, read one after the other.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &[usize], Result<Vec<f32>, WeightError>)> {
        self.tensors.iter().map(|(name, p)| (name.as_str(), p.shape.as_slice(), self.values(name, p)))
    }
}

pub(super) fn readable(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

/// Little-endian `bytes` as f32; tensors need not be aligned in a file. `dtype` must be [`readable`].
fn widen(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    let pairs = || bytes.as_chunks::<2>().0.iter().map(|&b| u16::from_le_bytes(b));
    match dtype {
        Dtype::F32 => bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        Dtype::BF16 => pairs().map(|b| f32::from_bits(u32::from(b) << 16)).collect(),
        _ => {
            // The slice conversion uses the processor's instruction where there is one; the scalar one would
            // look for it at every value.
            let bits: Vec<u16> = pairs().collect();
            let mut values = vec![0.0; bits.len()];
            bits.reinterpret_cast::<f16>().convert_to_f32_slice(&mut values);
            values
        }
    }
}

/// The blake3 hash of a whole file, mapped in pieces so that it does not pile up in memory.
fn hash_file(file: &File) -> std::io::Result<blake3::Hash> {
    const PIECE: u64 = 64 << 20;
    let size = file.metadata()?.len();
    let mut hasher = blake3::Hasher::new();
    let mut start = 0;
    while start < size {
        let end = size.min(start + PIECE);
        hasher.update(&map(file, start..end)?);
        start = end;
    }
    Ok(hasher.finalize())
}

/// Checks header and size. Gives where the data starts (bytes) and the header.
fn read_header(path: &Path, file: &File) -> Result<(u64, Metadata), WeightError> {
    let io = |e| WeightError::io("read weights", path, &e);
    let damaged = |why| Err(WeightError::format(path, why, "download or copy it again"));
    let about = file.metadata().map_err(io)?;
    if !about.is_file() {
        return Err(WeightError::format(path, "it is not a regular file", "give a .safetensors file"));
    }
    let size = about.len();
    let start = map(file, 0..size.min(32)).map_err(io)?;
    if let Some((is, next)) = recognise(&start) {
        return Err(WeightError::format(path, format!("it is {is}, not a safetensors file"), next));
    }
    let Some(len) = start.first_chunk().map(|b| u64::from_le_bytes(*b)) else {
        return damaged(match size {
            0 => "it is empty".to_owned(),
            _ => format!("it has {size} bytes, too few for a safetensors file"),
        });
    };
    if len > MAX_HEADER || len > size - 8 {
        let why = format!(
            "it announces a header of {len} bytes and has {size}, so it is cut off or no safetensors file"
        );
        return Err(WeightError::format(
            path,
            why,
            "check that it is a .safetensors file, or download it again",
        ));
    }
    // safetensors' own whole-file check adds these sizes unchecked, which a hostile header can overflow.
    let bytes = map(file, 8..8 + len).map_err(io)?;
    let header: Metadata = match serde_json::from_slice(&bytes) {
        Ok(header) => header,
        Err(e) => return damaged(format!("its header is damaged ({e})")),
    };
    let total = (8 + len).saturating_add(header.data_len() as u64);
    match size.cmp(&total) {
        Ordering::Equal => Ok((8 + len, header)),
        Ordering::Less => {
            damaged(format!("it is cut off: it has {size} bytes, its header describes {total}"))
        }
        Ordering::Greater => damaged(format!(
            "it is longer than it should be: it has {size} bytes, its header describes {total}"
        )),
    }
}

/// Bytes; the limit of the safetensors format.
const MAX_HEADER: u64 = 100_000_000;

const CONVERT: &str = "convert it with PyTorch: \
    `safetensors.torch.save_file({k: v.clone() for k, v in torch.load(PTH, map_location=\"cpu\", weights_only=False)[\"model\"].items()}, OUT)`";
const DOWNLOAD: &str = "download the file itself again";

/// What a file is, by its first bytes, when it is plainly something else; and what to do.
fn recognise(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    const MAGIC: &[(&[u8], &str, &str)] = &[
        (b"PK\x03\x04", "a zip archive, as PyTorch checkpoints (.pth) are", CONVERT),
        (b"\x80\x02", "a Python pickle, as old PyTorch checkpoints (.pth) are", CONVERT),
        (b"version https://git-lfs", "a Git LFS pointer", "fetch the file behind it (`git lfs pull`)"),
        (b"<!DOCTYPE", "a web page", DOWNLOAD),
        (b"<html", "a web page", DOWNLOAD),
        (b"\x1f\x8b", "a gzip archive", "unpack it first"),
        (b"GGUF", "a GGUF file", "give the original .safetensors"),
        (b"\x93NUMPY", "a NumPy array", "give a .safetensors file"),
        (b"\x89HDF", "an HDF5 file", "give a .safetensors file"),
    ];
    // Two of the magics are also plausible header lengths; a header starts with `{`.
    if bytes.get(8) == Some(&b'{') {
        return None;
    }
    MAGIC.iter().find(|(magic, ..)| bytes.starts_with(magic)).map(|&(_, is, next)| (is, next))
}
