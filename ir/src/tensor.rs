//! Element types, and the host tensor that reference evaluation works on.

use serde::{Deserialize, Serialize};

/// How one element is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DType {
    F32,
    BF16,
}

impl DType {
    /// Size of one element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::BF16 => 2,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::BF16 => "bf16",
        })
    }
}

/// A dense row-major f32 tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: Vec<f32>,
}

impl Tensor {
    /// Panics when `data` does not fill `shape`: that is a bug in the caller, never user input.
    pub fn new(shape: impl Into<Vec<usize>>, data: Vec<f32>) -> Tensor {
        let shape = shape.into();
        assert_eq!(shape.iter().product::<usize>(), data.len(), "data does not fill shape {shape:?}");
        Tensor { shape, data }
    }

    pub fn zeros(shape: impl Into<Vec<usize>>) -> Tensor {
        let shape = shape.into();
        let data = vec![0.0; shape.iter().product()];
        Tensor { shape, data }
    }

    /// Length of the last axis.
    pub fn last(&self) -> usize {
        *self.shape.last().expect("a tensor has at least one axis")
    }

    /// Applies `f` to every element.
    pub fn map(&self, f: impl Fn(f32) -> f32) -> Tensor {
        Tensor { shape: self.shape.clone(), data: self.data.iter().map(|&x| f(x)).collect() }
    }

    /// Element-wise sum. Panics when the shapes differ.
    pub fn add(&self, other: &Tensor) -> Tensor {
        assert_eq!(self.shape, other.shape);
        let data = self.data.iter().zip(&other.data).map(|(a, b)| a + b).collect();
        Tensor { shape: self.shape.clone(), data }
    }
}

/// Elements that no tensor of a model comes near: below it, sizes in bytes and their sums fit 64 bits.
pub const MAX_ELEMENTS: usize = 1 << 40;

/// Whether a tensor of this shape has fewer than [`MAX_ELEMENTS`].
pub fn fits(shape: &[usize]) -> bool {
    let elements = shape.iter().try_fold(1usize, |n, &side| n.checked_mul(side));
    elements.is_some_and(|n| n < MAX_ELEMENTS)
}

/// `[2, 1024, 768]` as `2x1024x768`, the form used in every listing.
pub fn dims(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}
