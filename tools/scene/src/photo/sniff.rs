//! What a file is by its content, and whether all of it is there.
//!
//! The decoders behind this crate are lenient: a JPEG cut in half decodes to a picture with a gray half, which
//! would become wrong points without any warning. So the container is walked first, which costs one pass over
//! the bytes and reserves no memory.
//!
//! What this cannot see is a JPEG whose scan was cut and closed again with an end marker; no common decoder
//! refuses such a file.

use super::error::ImageError;

/// The formats that are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Png,
    Jpeg,
    WebP,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::WebP => "WebP",
        }
    }
}

const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Recognises the format from the first bytes; everything that is not decoded is named in the error.
pub fn sniff(bytes: &[u8]) -> Result<Format, ImageError> {
    if bytes.is_empty() {
        return Err(ImageError::Empty);
    }
    if bytes.starts_with(PNG_SIGNATURE) {
        return Ok(Format::Png);
    }
    if bytes.starts_with(b"\xff\xd8\xff") {
        return Ok(Format::Jpeg);
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Ok(Format::WebP);
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        return Err(unsupported(iso_media(bytes)));
    }
    const OTHERS: &[(&[u8], &str)] = &[
        (b"GIF87a", "GIF"),
        (b"GIF89a", "GIF"),
        (b"II*\0", "TIFF"),
        (b"MM\0*", "TIFF"),
        (b"II+\0", "BigTIFF"),
        (b"MM\0+", "BigTIFF"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
        (b"\xff\x0a", "JPEG XL"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"\xff\x4f\xff\x51", "JPEG 2000"),
        (b"8BPS", "Photoshop PSD"),
        (b"qoif", "QOI"),
        (b"v/1\x01", "OpenEXR"),
        (b"#?RADIANCE", "Radiance HDR"),
        (b"DDS ", "DDS"),
        (b"\0\0\x01\0", "ICO"),
        (b"%PDF", "PDF"),
    ];
    if let Some((_, name)) = OTHERS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(unsupported((*name).into()));
    }
    if bytes.starts_with(b"BM") && bytes.get(6..10) == Some(&[0; 4]) {
        return Err(unsupported("BMP".into()));
    }
    if let [b'P', b'1'..=b'6', b' ' | b'\t' | b'\r' | b'\n', ..] = bytes {
        return Err(unsupported("PNM".into()));
    }
    Err(ImageError::NotAnImage { found: textual(bytes) })
}

fn unsupported(found: String) -> ImageError {
    ImageError::UnsupportedFormat { found }
}

/// ISO base media files (HEIC, AVIF, MP4 ...) by the brands of their `ftyp` box.
fn iso_media(bytes: &[u8]) -> String {
    let box_len = bytes.get(..4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]])) as usize;
    let end = box_len.min(bytes.len()).min(512);
    // The major brand at 8, the minor version at 12, then compatible brands: `mif1` alone says only "some HEIF".
    let brands = || bytes.get(8..end).unwrap_or_default().chunks_exact(4);
    let any = |names: &[&[u8]]| brands().any(|b| names.contains(&b));
    if any(&[b"avif", b"avis"]) {
        "AVIF".into()
    } else if any(&[b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis"]) {
        "HEIC".into()
    } else if any(&[b"mif1", b"msf1"]) {
        "HEIF".into()
    } else {
        let brand: String = brands().next().unwrap_or_default().escape_ascii().to_string();
        format!("ISO media file (brand {brand:?})")
    }
}

fn textual(bytes: &[u8]) -> &'static str {
    let head = &bytes[..bytes.len().min(512)];
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let starts = |tag: &[u8]| text.get(..tag.len()).is_some_and(|t| t.eq_ignore_ascii_case(tag));
    // A cut multi-byte character at the end of the window is still text.
    let is_text = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(e) => e.error_len().is_none(),
    } && !head.iter().any(|&b| b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b));
    match () {
        _ if starts(b"<!doctype html") || starts(b"<html") || starts(b"<head") => "HTML",
        _ if starts(b"<svg") => "SVG",
        _ if starts(b"<?xml") => "XML",
        _ if is_text && (text.starts_with(b"{") || text.starts_with(b"[")) => "JSON",
        _ if is_text => "text",
        _ => "unknown binary data",
    }
}

/// What the walk over the container found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// An animation; the first picture is what gets decoded.
    pub animated: bool,
}

/// Walks the container to its end marker and refuses a file that stops before it.
pub fn check_complete(format: Format, bytes: &[u8]) -> Result<Container, ImageError> {
    match format {
        Format::Png => walk_png(bytes),
        Format::Jpeg => walk_jpeg(bytes),
        Format::WebP => walk_webp(bytes),
    }
}

fn truncated(format: &'static str, detail: impl Into<String>) -> ImageError {
    ImageError::Truncated { format, detail: detail.into() }
}

/// Chunks are: length (4, big endian), type (4), data, CRC (4).
fn walk_png(bytes: &[u8]) -> Result<Container, ImageError> {
    let mut found = Container::default();
    let mut at = PNG_SIGNATURE.len();
    loop {
        let Some((len, kind)) = bytes.get(at..at + 8).and_then(|h| h.split_first_chunk::<4>()) else {
            return Err(truncated("PNG", "it ends before the IEND chunk"));
        };
        let end = at as u64 + 12 + u64::from(u32::from_be_bytes(*len));
        if end > bytes.len() as u64 {
            let kind = kind.escape_ascii();
            return Err(truncated("PNG", format!("it ends inside the {kind} chunk")));
        }
        match kind {
            b"IEND" => return Ok(found),
            b"acTL" => found.animated = true,
            // The decoder indexes past the end of such a palette.
            b"PLTE" if u32::from_be_bytes(*len) % 3 != 0 => {
                let detail = "the palette is not made of whole colours".into();
                return Err(ImageError::Corrupt { format: "PNG", detail });
            }
            _ => {}
        }
        at = end as usize;
    }
}

/// Markers are 0xFF and a code; all but a few are followed by a big-endian length that includes itself.
/// Entropy-coded data follows a start of scan and holds 0xFF only as FF00 or as a restart marker.
fn walk_jpeg(bytes: &[u8]) -> Result<Container, ImageError> {
    const SOI: u8 = 0xd8;
    const EOI: u8 = 0xd9;
    let missing_end = || truncated("JPEG", "it ends before the end-of-image marker");
    let mut at = 2;
    loop {
        // Between segments anything up to the next marker is skipped, which also runs over scan data.
        let skip = bytes.get(at..).and_then(|rest| rest.iter().position(|&b| b == 0xff));
        at += skip.ok_or_else(missing_end)? + 1;
        match *bytes.get(at).ok_or_else(missing_end)? {
            // Stuffed byte, TEM and restart markers stand alone; a second FF is fill.
            0x00 | 0x01 | 0xd0..=0xd7 | SOI => at += 1,
            0xff => {}
            EOI => return Ok(Container::default()),
            _ => {
                let len = bytes.get(at + 1..at + 3).ok_or_else(missing_end)?;
                at += 1 + usize::from(u16::from_be_bytes([len[0], len[1]])).max(2);
                if at > bytes.len() {
                    return Err(truncated("JPEG", "it ends inside a header segment"));
                }
            }
        }
    }
}

/// RIFF: "RIFF", size (4, little endian, of all that follows), "WEBP", then chunks.
fn walk_webp(bytes: &[u8]) -> Result<Container, ImageError> {
    let size = bytes.get(4..8).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    // The size is even by the specification; a writer that forgot the last padding byte lost no picture data.
    if u64::from(size) + 8 > bytes.len() as u64 + 1 {
        return Err(truncated(
            "WebP",
            format!("it announces {size} bytes after the header, {} are there", bytes.len() - 8),
        ));
    }
    let animated = bytes.get(12..16) == Some(b"VP8X") && bytes.get(20).is_some_and(|flags| flags & 2 != 0);
    Ok(Container { animated })
}
