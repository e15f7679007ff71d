//! Why an image was refused: what happened, why, and what to do next.

use thiserror::Error;

/// How a server should answer; every [`ImageError`] belongs to exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes are not a usable image (HTTP 400).
    BadInput,
    /// Larger than a configured limit (HTTP 413).
    TooLarge,
    /// An image, but of a kind that is not read here (HTTP 415).
    Unsupported,
}

/// `Display` says what happened; [`ImageError::why`] and [`ImageError::next`] say the rest.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ImageError {
    #[error("the image is empty (0 bytes)")]
    Empty,
    #[error("unsupported input: {found}, not an image")]
    NotAnImage { found: &'static str },
    #[error("unsupported image format: {found}")]
    UnsupportedFormat { found: String },
    #[error("unsupported {format} variant: {detail}")]
    UnsupportedVariant { format: &'static str, detail: String },
    #[error("the file has {bytes} bytes, the limit is {limit}")]
    TooManyBytes { bytes: u64, limit: u64 },
    #[error("the image is {width}x{height} = {} pixels, the limit is {limit}", u64::from(*width) * u64::from(*height))]
    TooManyPixels { width: u32, height: u32, limit: u64 },
    #[error("the image is {width}x{height}, each side must have at least {min} pixels")]
    TooSmall { width: u32, height: u32, min: u32 },
    #[error("the {format} file is truncated: {detail}")]
    Truncated { format: &'static str, detail: String },
    #[error("the {format} file is corrupt: {detail}")]
    Corrupt { format: &'static str, detail: String },
    #[error("the aspect ratio of {width}x{height} is more extreme than {limit}:1")]
    ExtremeAspect { width: u32, height: u32, limit: u32 },
    #[error("{width}x{height} is not a size the network can take")]
    BadModelSize { width: u32, height: u32 },
}

impl ImageError {
    pub fn fault(&self) -> Fault {
        match self {
            Self::TooManyBytes { .. } | Self::TooManyPixels { .. } => Fault::TooLarge,
            Self::UnsupportedFormat { .. } | Self::UnsupportedVariant { .. } => Fault::Unsupported,
            _ => Fault::BadInput,
        }
    }

    /// 400, 413 or 415.
    pub fn http_status(&self) -> u16 {
        match self.fault() {
            Fault::BadInput => 400,
            Fault::TooLarge => 413,
            Fault::Unsupported => 415,
        }
    }

    /// A stable identifier for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Empty => "image_empty",
            Self::NotAnImage { .. } => "not_an_image",
            Self::UnsupportedFormat { .. } => "image_format_unsupported",
            Self::UnsupportedVariant { .. } => "image_variant_unsupported",
            Self::TooManyBytes { .. } => "image_too_many_bytes",
            Self::TooManyPixels { .. } => "image_too_many_pixels",
            Self::TooSmall { .. } => "image_too_small",
            Self::Truncated { .. } => "image_truncated",
            Self::Corrupt { .. } => "image_corrupt",
            Self::ExtremeAspect { .. } => "image_aspect_extreme",
            Self::BadModelSize { .. } => "model_size_invalid",
        }
    }

    pub fn why(&self) -> &'static str {
        match self {
            Self::Empty => "nothing was sent, or the file was not written to the end",
            Self::NotAnImage { .. } => "the type is taken from the content, not from the name",
            Self::UnsupportedFormat { .. } => {
                "PNG, JPEG and WebP are read; the type is taken from the content, not from the name"
            }
            Self::UnsupportedVariant { .. } => "the decoder does not implement this rare variant",
            Self::TooManyBytes { .. } | Self::TooManyPixels { .. } => {
                "the limit is checked before any memory is reserved for the picture"
            }
            Self::TooSmall { .. } => {
                "the network cuts images into patches of 16x16 pixels; enlarging a smaller image invents its content"
            }
            Self::Truncated { .. } => "the missing part would be filled with gray and give wrong points",
            Self::Corrupt { .. } => "the decoder cannot make sense of the data",
            Self::ExtremeAspect { .. } => {
                "the short side would be less than one 16-pixel patch at the network's size"
            }
            Self::BadModelSize { .. } => "width and height must be multiples of 16 between 16 and 4096",
        }
    }

    pub fn next(&self) -> &'static str {
        match self {
            Self::Empty | Self::Truncated { .. } | Self::Corrupt { .. } => "send the complete file again",
            Self::NotAnImage { .. } => "send a PNG, JPEG or WebP image",
            Self::UnsupportedFormat { .. } | Self::UnsupportedVariant { .. } => {
                "convert the image to PNG, JPEG or WebP"
            }
            Self::TooManyBytes { .. } | Self::TooManyPixels { .. } => {
                "shrink the photo (1024 pixels on the long side lose nothing here) or raise the limit"
            }
            Self::TooSmall { .. } => "use a larger photo",
            Self::ExtremeAspect { .. } => "cut the photo to a less extreme shape",
            Self::BadModelSize { .. } => "choose a size such as 512x384, or `auto`",
        }
    }
}
