//! Plan and weights to one artifact file.

pub mod weights;
