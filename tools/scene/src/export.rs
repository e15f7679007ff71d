//! Pointmaps to files. Every writer takes the same borrowed [`Cloud`].

mod cloud;
mod colormap;
mod glb;
mod npz_read;
mod npz_write;
mod ply;
mod png_maps;

pub use cloud::{Cloud, ConfThreshold, Points, View, Written};
pub use colormap::{turbo, viridis};
pub use glb::write_glb;
pub use npz_read::{NpzArray, NpzError, read_npz};
pub use npz_write::{ConfDtype, NpyArray, NpyData, write_npz, write_pair_npz};
pub use ply::write_ply;
pub use png_maps::{ConfidencePng, DepthPng, write_confidence_png, write_depth_png, write_overview_png};

use thiserror::Error;

/// Why a file was not written. Shape and threshold errors are the caller's, the others the environment's.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error("view {view}: {array} has {found} values, {width}x{height} pixels need {expected}")]
    Shape { view: usize, array: &'static str, found: usize, expected: usize, width: u32, height: u32 },
    #[error("array {name:?} has {found} values, its shape {shape:?} needs another number")]
    ArrayShape { name: String, found: usize, shape: Vec<usize> },
    #[error(
        "the confidence threshold {0} is not usable: a percentile lies in 0..=100, an absolute value is a number"
    )]
    Threshold(f32),
    #[error("{what} would be larger than 4 GiB, which the format cannot hold; write the views separately")]
    TooLarge { what: &'static str },
    #[error("cannot write: {0}")]
    Io(#[from] std::io::Error),
    #[error("cannot write the PNG: {0}")]
    Png(#[from] png::EncodingError),
    #[error("cannot write the JSON header: {0}")]
    Json(#[from] serde_json::Error),
}
