//! Images in, files out: everything around the network that is plain host geometry.
//!
//! ```text
//! bytes --decode--> Photo --prepare--> ModelView --normalised--> f32 [3, H, W]   (photo)
//! pts3d, conf, rgb --Cloud--> npz | ply | glb | depth, confidence and overview PNG (export)
//! ```
//!
//! # Conventions, the same everywhere in this crate
//!
//! * **Images** are upright (EXIF orientation applied), 8-bit RGB, row-major, three bytes a pixel.
//! * **Pixel coordinates** are integers at pixel centres: the top left pixel is (0, 0), `x` grows to the
//!   right and `y` down. [`PixelMap`] relates original and model pixels by `model = (original + off) * scale`
//!   per axis, which is the convention of the network's reference implementation; its camera model puts the
//!   principal point at (W/2, H/2).
//! * **Points** are in camera 1's frame with OpenCV axes (x right, y down, z forward), up to one global
//!   scale. Depth is z. Confidence is `1 + exp(c)`, at least 1.
//! * **Shapes** are `[H, W, 3]` for points and colours and `[H, W]` for confidences.
//!
//! A photo squeezed to another aspect ratio before it got here cannot be recognised from its pixels; only
//! known intrinsics betray it, see [`intrinsics_note`].

pub mod export;
pub mod photo;

pub use export::{
    Cloud, ConfDtype, ConfThreshold, ExportError, NpyArray, NpyData, NpzArray, NpzError, View, Written,
    read_npz, write_confidence_png, write_depth_png, write_glb, write_npz, write_overview_png,
    write_pair_npz, write_ply,
};
pub use photo::{
    Fault, Filter, Fit, Format, ImageError, Limits, ModelView, NetSize, Photo, PixelMap, Valid, auto_size,
    auto_sizes, decode, intrinsics_note, normalised, prepare,
};
