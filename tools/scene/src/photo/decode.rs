//! Bytes of an image file to upright 8-bit RGB.

use std::io::Cursor;

use image::codecs::{jpeg::JpegDecoder, png::PngDecoder, webp::WebPDecoder};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, RgbImage};

use super::error::ImageError;
use super::sniff::{Container, Format, check_complete, sniff};

/// What is refused before any memory is reserved for pixels. The decoder needs up to 11 bytes a pixel
/// (16-bit RGBA and the 8-bit result), so `max_pixels` also bounds the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Length of the encoded file in bytes.
    pub max_bytes: u64,
    /// Width times height, from the header.
    pub max_pixels: u64,
    /// Smallest allowed side, in pixels. Below one 16-pixel patch the result would be invented by the enlarging.
    pub min_side: u32,
}

impl Default for Limits {
    /// 64 MiB, 100 megapixels, 16 pixels.
    fn default() -> Self {
        Self { max_bytes: 64 << 20, max_pixels: 100_000_000, min_side: 16 }
    }
}

/// A decoded photo: upright, 8-bit RGB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Photo {
    /// Of the upright image, after the EXIF orientation.
    pub width: u32,
    pub height: u32,
    /// `[height, width, 3]`.
    pub rgb: Vec<u8>,
    pub format: Format,
    /// The EXIF orientation that was applied, 1 (none) to 8.
    pub orientation: u8,
    /// What the caller should tell the user: alpha composited, first frame of an animation, and the like.
    pub notes: Vec<String>,
}

/// Decodes PNG, JPEG or WebP, recognised by content.
///
/// * EXIF orientation is applied; width and height are of the upright picture.
/// * Transparency is composited on **white**, so colours hidden under alpha 0 never show.
/// * 16-bit samples are scaled (65535 to 255, rounded to nearest), not clipped; palettes, 1-bit and gray
///   images become RGB; CMYK and YCCK JPEGs are converted without a colour profile.
/// * Of an animation the first picture is taken, with a note.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Photo, ImageError> {
    if bytes.len() as u64 > limits.max_bytes {
        return Err(ImageError::TooManyBytes { bytes: bytes.len() as u64, limit: limits.max_bytes });
    }
    let format = sniff(bytes)?;
    // The decoders are other people's code, and malformed files exist that make one panic: that is one refused
    // file and must not take a server down. Nothing outlives the closure that the panic could have left half done.
    let attempt = std::panic::catch_unwind(|| decode_as(format, bytes, limits));
    attempt.unwrap_or_else(|_| {
        Err(ImageError::Corrupt {
            format: format.name(),
            detail: "the decoder gave up on malformed data".into(),
        })
    })
}

fn decode_as(format: Format, bytes: &[u8], limits: &Limits) -> Result<Photo, ImageError> {
    // The header's claims come first: "too large" is the better answer for a huge file that is also cut.
    let mut decoder = open(format, bytes).map_err(|e| refine(format, bytes, e))?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > limits.max_pixels {
        return Err(ImageError::TooManyPixels { width, height, limit: limits.max_pixels });
    }
    if width.min(height) < limits.min_side {
        return Err(ImageError::TooSmall { width, height, min: limits.min_side });
    }
    let Container { animated } = check_complete(format, bytes)?;

    let mut notes = Vec::new();
    if animated {
        notes.push(format!("animated {}: only the first picture is used", format.name()));
    }
    let orientation = exif_orientation(decoder.as_mut());
    let pixels = DynamicImage::from_decoder(decoder).map_err(|e| refine(format, bytes, e))?;
    let (rgb, transparent) = to_rgb8(pixels);
    if transparent {
        notes.push("transparent pixels were composited on white".into());
    }
    let (width, height, rgb) = upright(width, height, rgb, orientation);
    if orientation != Orientation::NoTransforms {
        notes.push(format!("EXIF orientation {} was applied", orientation.to_exif()));
    }
    Ok(Photo { width, height, rgb, format, orientation: orientation.to_exif(), notes })
}

fn open(format: Format, bytes: &[u8]) -> image::ImageResult<Box<dyn ImageDecoder + '_>> {
    let input = Cursor::new(bytes);
    // Bounds what the PNG decoder sets aside for rows, profiles and text, not the picture itself.
    let mut side_memory = image::Limits::no_limits();
    side_memory.max_alloc = Some(128 << 20);
    Ok(match format {
        Format::Png => Box::new(PngDecoder::with_limits(input, side_memory)?),
        Format::Jpeg => Box::new(JpegDecoder::new(input)?),
        Format::WebP => Box::new(WebPDecoder::new(input)?),
    })
}

/// A decoder's error in our terms. A file that is not all there is reported as truncated, whatever the decoder
/// stumbled over first.
fn refine(format: Format, bytes: &[u8], error: image::ImageError) -> ImageError {
    if let Err(truncated) = check_complete(format, bytes) {
        return truncated;
    }
    let format = format.name();
    match error {
        image::ImageError::Unsupported(e) => ImageError::UnsupportedVariant { format, detail: e.to_string() },
        image::ImageError::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            ImageError::Truncated { format, detail: "the picture data end early".into() }
        }
        e => ImageError::Corrupt { format, detail: e.to_string() },
    }
}

/// Unreadable EXIF means "no orientation", as in every viewer; it is not a reason to refuse the picture.
fn exif_orientation(decoder: &mut dyn ImageDecoder) -> Orientation {
    let exif = decoder.exif_metadata().ok().flatten().unwrap_or_default();
    // PNG and WebP hold the bare TIFF block, but many writers keep JPEG's prefix there.
    let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(&exif);
    Orientation::from_exif_chunk(tiff).unwrap_or(Orientation::NoTransforms)
}

/// 16-bit to 8-bit, rounded to nearest: 65535 -> 255.
fn narrow(v: u16) -> u8 {
    ((u32::from(v) * 255 + 32767) / 65535) as u8
}

/// Channel value `c` with alpha `a` over white, `max` being the full value of both; rounded to nearest.
fn over_white(c: u32, a: u32, max: u32) -> u32 {
    ((u64::from(c) * u64::from(a) + u64::from(max) * u64::from(max - a) + u64::from(max / 2))
        / u64::from(max)) as u32
}

/// 8-bit RGB, and whether any pixel was transparent.
fn to_rgb8(image: DynamicImage) -> (Vec<u8>, bool) {
    let over8 = |c: u8, a: u8| over_white(c.into(), a.into(), 255) as u8;
    let over16 = |c: u16, a: u16| narrow(over_white(c.into(), a.into(), 65535) as u16);
    match image {
        DynamicImage::ImageRgb8(i) => (i.into_raw(), false),
        DynamicImage::ImageLuma8(i) => (i.as_raw().iter().flat_map(|&v| [v; 3]).collect(), false),
        DynamicImage::ImageLuma16(i) => (i.as_raw().iter().flat_map(|&v| [narrow(v); 3]).collect(), false),
        DynamicImage::ImageRgb16(i) => (i.as_raw().iter().map(|&v| narrow(v)).collect(), false),
        DynamicImage::ImageLumaA8(i) => (
            i.pixels().flat_map(|p| [over8(p.0[0], p.0[1]); 3]).collect(),
            i.pixels().any(|p| p.0[1] != u8::MAX),
        ),
        DynamicImage::ImageLumaA16(i) => (
            i.pixels().flat_map(|p| [over16(p.0[0], p.0[1]); 3]).collect(),
            i.pixels().any(|p| p.0[1] != u16::MAX),
        ),
        DynamicImage::ImageRgba8(i) => (
            i.pixels().flat_map(|p| [0, 1, 2].map(|c| over8(p.0[c], p.0[3]))).collect(),
            i.pixels().any(|p| p.0[3] != u8::MAX),
        ),
        DynamicImage::ImageRgba16(i) => (
            i.pixels().flat_map(|p| [0, 1, 2].map(|c| over16(p.0[c], p.0[3]))).collect(),
            i.pixels().any(|p| p.0[3] != u16::MAX),
        ),
        // No enabled decoder makes any other kind today.
        other => (other.into_rgb8().into_raw(), false),
    }
}

fn upright(width: u32, height: u32, rgb: Vec<u8>, orientation: Orientation) -> (u32, u32, Vec<u8>) {
    if orientation == Orientation::NoTransforms {
        return (width, height, rgb);
    }
    let Some(buffer) = RgbImage::from_raw(width, height, rgb) else {
        unreachable!("the decoder filled width x height pixels");
    };
    let mut image = DynamicImage::ImageRgb8(buffer);
    image.apply_orientation(orientation);
    (image.width(), image.height(), image.into_rgb8().into_raw())
}
