//! From the bytes of an image file to the tensor that the network reads.

mod decode;
mod error;
mod map;
pub mod resize;
pub mod sniff;
mod view;

pub use decode::{Limits, Photo, decode};
pub use error::{Fault, ImageError};
pub use map::{PixelMap, Valid, intrinsics_note};
pub use resize::Filter;
pub use sniff::Format;
pub use view::{
    Fit, MAX_ASPECT, ModelView, NetSize, PAD_GRAY, PATCH, auto_size, auto_sizes, normalised, prepare,
};
