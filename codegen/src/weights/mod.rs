//! Where weights come from: safetensors files, or the seeded recipe.
//!
//! Both answer the same questions: which tensors are there, do they fit what a model asks for, give me one as f32.
//! Names are those of the official state dict.

use std::path::Path;

mod check;
mod error;
mod file;
mod io;
mod map;
mod names;
mod synthetic;

pub use check::{ProblemKind, Wanted, WeightProblem};
pub use error::{WeightError, WeightErrorKind};
pub use file::{FileWeights, TensorEntry};
pub use io::{NamedTensor, read_safetensors_f32, write_safetensors};
pub use names::{canonical_name, other_name};
pub use safetensors::Dtype;
pub use synthetic::SyntheticWeights;

/// The seed of the published golden files.
pub const GOLDEN_SEED: u64 = 0xD057_E12D_057E_12D0;

/// A source of weights. Reading takes `&self`, so tensors may be read from several threads.
#[derive(Debug)]
pub enum Weights {
    File(FileWeights),
    Synthetic(SyntheticWeights),
}

impl Weights {
    /// Opens one `.safetensors` file, or all the shards of a set.
    ///
    /// # Errors
    /// A file that cannot be read, is no well-formed safetensors file, or repeats a tensor of another one.
    pub fn open<P: AsRef<Path>>(files: &[P]) -> Result<Weights, WeightError> {
        FileWeights::open(files).map(Weights::File)
    }

    /// Weights made from `seed` by the recipe of [`SyntheticWeights`].
    pub fn synthetic(seed: u64) -> Weights {
        Weights::Synthetic(SyntheticWeights { seed })
    }

    /// Name, shape and dtype of every tensor in name order; `None` where any name exists (synthetic weights).
    pub fn entries(&self) -> Option<Vec<TensorEntry>> {
        match self {
            Weights::File(file) => Some(file.entries()),
            Weights::Synthetic(_) => None,
        }
    }

    /// One tensor, row-major, widened to f32. `name` may be either name of an aliased tensor.
    ///
    /// # Errors
    /// No such tensor, another shape, a dtype other than F32, F16, BF16, or a file that changed since it was opened.
    pub fn read_f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, WeightError> {
        match self {
            Weights::File(file) => file.read_f32(name, shape),
            Weights::Synthetic(recipe) => recipe.read_f32(name, shape),
        }
    }

    /// One tensor under the first of its names that is present. An optional tensor that is absent is `None`.
    ///
    /// # Errors
    /// As [`Weights::read_f32`].
    pub fn read_wanted(&self, wanted: &Wanted) -> Result<Option<Vec<f32>>, WeightError> {
        let name = match self {
            Weights::File(file) => match file.present(wanted) {
                None if wanted.optional => return Ok(None),
                name => name.unwrap_or(&wanted.name),
            },
            Weights::Synthetic(_) => &wanted.name,
        };
        self.read_f32(name, &wanted.shape).map(Some)
    }

    /// Every disagreement between what a model wants and what is there; empty when all is well.
    ///
    /// A tensor that nothing wants is a problem unless a pattern of `tolerated` covers it; `*` in a pattern stands
    /// for any run of characters.
    pub fn check(&self, wanted: &[Wanted], tolerated: &[&str]) -> Vec<WeightProblem> {
        match self {
            Weights::File(file) => check::check_file(file, wanted, tolerated),
            Weights::Synthetic(_) => check::check_synthetic(wanted),
        }
    }

    /// What identifies the values: `blake3:HEX` of the file's bytes (of the digests of all files when there are
    /// several), or `synthetic:0xSEED`. The files are read once, at the first call.
    ///
    /// # Errors
    /// A file that can no longer be read.
    pub fn digest(&self) -> Result<String, WeightError> {
        match self {
            Weights::File(file) => file.digest(),
            Weights::Synthetic(recipe) => Ok(recipe.digest()),
        }
    }
}
