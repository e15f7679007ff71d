//! Operands: matrices of f32 or bf16 with a row stride, and packed weights.
#![allow(unsafe_code)] // Tasks write disjoint parts of one output through a shared pointer.

use half::bf16;

/// How a kernel's products are carried out. Sums are f32 in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Math {
    F32,
    Bf16,
}

impl Math {
    /// 32-bit words that hold `k` consecutive elements: one element each, or a pair of bf16.
    pub fn words(self, k: usize) -> usize {
        match self {
            Math::F32 => k,
            Math::Bf16 => k.div_ceil(2),
        }
    }
}

/// Elements to read.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
}

/// Elements to write.
#[derive(Debug)]
pub enum DataMut<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [bf16]),
}

/// A matrix to read; row `r` starts at element `r * stride`.
#[derive(Clone, Copy, Debug)]
pub struct Src<'a> {
    pub data: Data<'a>,
    pub stride: usize,
}

/// A matrix to write; row `r` starts at element `r * stride`.
#[derive(Debug)]
pub struct Dst<'a> {
    pub data: DataMut<'a>,
    pub stride: usize,
}

/// Weights of a product over `k` with `n` results, in panels of [`PANEL`] results, zero-padded:
/// f32 `[ceil(n/32)][k][32]`, bf16 `[ceil(n/32)][ceil(k/2)][32][2]`. Best 64-byte aligned.
#[derive(Clone, Copy, Debug)]
pub enum Packed<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
}

/// Columns of a panel of packed weights.
pub const PANEL: usize = 32;

impl<'a> Src<'a> {
    pub fn f32(data: &'a [f32], stride: usize) -> Src<'a> {
        Src { data: Data::F32(data), stride }
    }

    pub fn bf16(data: &'a [bf16], stride: usize) -> Src<'a> {
        Src { data: Data::Bf16(data), stride }
    }

    /// Checked for reading `[rows, cols]`.
    pub(super) fn raw(&self, what: &str, rows: usize, cols: usize) -> In {
        match self.data {
            Data::F32(d) => check(what, d.len(), self.stride, rows, cols),
            Data::Bf16(d) => check(what, d.len(), self.stride, rows, cols),
        }
        let (ptr, bf16) = match self.data {
            Data::F32(d) => (d.as_ptr().cast(), false),
            Data::Bf16(d) => (d.as_ptr().cast(), true),
        };
        In { ptr, bf16, stride: self.stride }
    }
}

impl<'a> Dst<'a> {
    pub fn f32(data: &'a mut [f32], stride: usize) -> Dst<'a> {
        Dst { data: DataMut::F32(data), stride }
    }

    pub fn bf16(data: &'a mut [bf16], stride: usize) -> Dst<'a> {
        Dst { data: DataMut::Bf16(data), stride }
    }

    /// Checked for writing `[rows, cols]`; rows must not overlap.
    pub(super) fn raw(&mut self, what: &str, rows: usize, cols: usize) -> Out {
        assert!(rows <= 1 || self.stride >= cols, "{what}: rows of {cols} overlap at stride {}", self.stride);
        let (ptr, bf16, len) = match &mut self.data {
            DataMut::F32(d) => (d.as_mut_ptr().cast(), false, d.len()),
            DataMut::Bf16(d) => (d.as_mut_ptr().cast(), true, d.len()),
        };
        check(what, len, self.stride, rows, cols);
        Out { ptr, bf16, stride: self.stride }
    }
}

impl Packed<'_> {
    pub fn math(&self) -> Math {
        match self {
            Packed::F32(_) => Math::F32,
            Packed::Bf16(_) => Math::Bf16,
        }
    }

    /// Checked for `[n, k]`.
    pub(super) fn raw(&self, what: &str, n: usize, k: usize) -> Panels {
        let words = self.math().words(k);
        let (ptr, len) = match self {
            Packed::F32(d) => (d.as_ptr().cast(), d.len()),
            Packed::Bf16(d) => (d.as_ptr().cast(), d.len() / 2),
        };
        let need = n.div_ceil(PANEL) * PANEL * words;
        assert!(len >= need, "{what}: packed weights have {len} words, [{n}, {k}] needs {need}");
        Panels { ptr, math: self.math(), words }
    }
}

fn check(what: &str, len: usize, stride: usize, rows: usize, cols: usize) {
    let need = if rows == 0 || cols == 0 { 0 } else { (rows - 1) * stride + cols };
    assert!(len >= need, "{what}: {len} elements, [{rows}, {cols}] at stride {stride} needs {need}");
}

/// A checked [`Src`].
#[derive(Clone, Copy)]
pub(super) struct In {
    pub ptr: *const u8,
    pub bf16: bool,
    pub stride: usize,
}

/// A checked [`Dst`].
#[derive(Clone, Copy)]
pub(super) struct Out {
    pub ptr: *mut u8,
    pub bf16: bool,
    pub stride: usize,
}

/// A checked [`Packed`].
#[derive(Clone, Copy)]
pub(super) struct Panels {
    pub ptr: *const u32,
    pub math: Math,
    /// Words along the contracted dimension.
    pub words: usize,
}

// SAFETY: only read, and the borrow it was made from outlives the kernel call.
unsafe impl Send for In {}
// SAFETY: as above.
unsafe impl Sync for In {}
// SAFETY: the tasks of a call write disjoint rows or columns.
unsafe impl Send for Out {}
// SAFETY: as above.
unsafe impl Sync for Out {}
// SAFETY: only read, and the borrow it was made from outlives the kernel call.
unsafe impl Send for Panels {}
// SAFETY: as above.
unsafe impl Sync for Panels {}

impl In {
    /// The view that starts at `row`, `col` of this one. Stays within what was checked, by the caller.
    pub fn at(self, row: usize, col: usize) -> In {
        let bytes = (row * self.stride + col) * if self.bf16 { 2 } else { 4 };
        In { ptr: self.ptr.wrapping_add(bytes), ..self }
    }
}

impl Out {
    /// The view that starts at `row`, `col` of this one. Stays within what was checked, by the caller.
    pub fn at(self, row: usize, col: usize) -> Out {
        let bytes = (row * self.stride + col) * if self.bf16 { 2 } else { 4 };
        Out { ptr: self.ptr.wrapping_add(bytes), ..self }
    }
}

impl Panels {
    pub fn panel(&self, p: usize) -> *const u32 {
        self.ptr.wrapping_add(p * self.words * PANEL)
    }
}
