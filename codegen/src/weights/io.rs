//! Whole files of f32 tensors, for tests and for the commands that exchange tensors.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use safetensors::{Dtype, tensor::TensorView};

use super::error::{WeightError, WeightErrorKind};
use super::file::FileWeights;

/// Name, shape, row-major values.
pub type NamedTensor = (String, Vec<usize>, Vec<f32>);

/// Writes F32 tensors to `path`, which appears or changes only once it is complete.
///
/// # Errors
/// A repeated name, values that do not fill their shape, or a file that cannot be written.
pub fn write_safetensors<S: AsRef<str>>(
    path: &Path,
    tensors: &[(S, &[usize], &[f32])],
) -> Result<(), WeightError> {
    let refuse = |name: &str, why: String| {
        let what = format!("cannot write tensor `{name}` to {}", path.display());
        WeightError::new(
            WeightErrorKind::Format,
            what,
            why,
            "give each tensor once, with as many values as its shape",
        )
    };
    let mut names = BTreeSet::new();
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(_, _, values)| values.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let mut views = Vec::new();
    for ((name, shape, values), bytes) in tensors.iter().zip(&bytes) {
        let name = name.as_ref();
        if !names.insert(name) {
            return Err(refuse(name, "the name is taken".to_owned()));
        }
        if shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) != Some(values.len()) {
            return Err(refuse(name, format!("{} values for shape {shape:?}", values.len())));
        }
        let view =
            TensorView::new(Dtype::F32, shape.to_vec(), bytes).map_err(|e| refuse(name, e.to_string()))?;
        views.push((name, view));
    }
    let contents = safetensors::serialize(views, None).map_err(|e| refuse("", e.to_string()))?;
    replace(path, &contents).map_err(|e| WeightError::io("write", path, &e))
}

/// Every tensor of a file, in name order, widened to f32.
///
/// # Errors
/// As [`Weights::open`](super::Weights::open) and [`Weights::read_f32`](super::Weights::read_f32).
pub fn read_safetensors_f32(path: &Path) -> Result<Vec<NamedTensor>, WeightError> {
    let file = FileWeights::open(&[path])?;
    file.all().map(|(name, shape, values)| Ok((name.to_owned(), shape.to_vec(), values?))).collect()
}

/// Writes beside `path`, then renames: readers see the old contents or the new, never a part.
fn replace(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut temp = path.as_os_str().to_owned();
    // The process id keeps two writers of one path apart.
    temp.push(format!(".{}.tmp", std::process::id()));
    let write = || {
        let mut file = File::create(&temp)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&temp, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temp);
    })
}
