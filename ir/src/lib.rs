//! The mathematics of a model as plain data: [`Graph`] (what is computed), [`Plan`] (which kernel
//! computes it, where every value lives) and [`Manifest`] (how a plan is stored with its weights).
//!
//! # What the types mean
//!
//! - A [`Node`] is one tensor-valued application of an [`Op`]. Its `shape` is *logical*: the shape that the
//!   paper or the upstream module states, never padded and never permuted for a machine. Feature maps
//!   are `[batch, channel, height, width]`, token sequences `[batch, token, channel]`.
//! - Values are real numbers. How they are stored (element type, channel order) is a [`Layout`], an attribute of
//!   a [`Buf`](plan::Buf) in a plan, not of the value.
//! - A [`Weight`] is a named tensor or an expression over other weights ([`Expr`]); fusion that is
//!   exact algebra (folding an affine normalisation, stacking projections) rewrites weights, not data.
//! - "f32 accumulate" promises that every sum over a contracted dimension is carried in f32,
//!   whatever the operands are stored in.
//! - `eval` of an op, in f32 and plain loops, *is* its definition: every test compares with it.
//!
//! This crate reads no files, knows no target and contains no unsafe code.

pub mod artifact;
pub mod diag;
pub mod eval;
pub mod fuse;
pub mod graph;
pub mod model;
pub mod ops;
pub mod plan;
pub mod tensor;
pub mod weight;

pub use artifact::Manifest;
pub use diag::{Diag, Fault, Span};
pub use graph::{Graph, Node, NodeId, Source};
pub use model::{Model, Sizes};
pub use ops::Op;
pub use plan::{Layout, Math, Plan};
pub use tensor::{DType, Tensor};
pub use weight::{Expr, Weight, WeightId};
