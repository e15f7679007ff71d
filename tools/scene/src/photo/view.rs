//! A photo as the network reads it: size rules, crop and padding, normalisation.

use super::decode::Photo;
use super::error::ImageError;
use super::map::{PixelMap, Valid};
use super::resize::{Axis, Filter, Raster, resize};

/// Side of the network's patches; every model size is a multiple of it.
pub const PATCH: u32 = 16;
/// Gray level of padding. Mid-gray 127.5 has no 8-bit level; 128 is 0.004 after normalisation.
pub const PAD_GRAY: u8 = 128;
/// Photos longer than this times their short side are refused: at 512 pixels less than a patch would remain.
pub const MAX_ASPECT: u32 = 32;
/// Bounds the memory of a model picture; the network itself is trained at 512.
const MAX_SIDE: u32 = 4096;

/// How a photo of another shape fills the model's picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Cover: scale until the picture is filled, then cut the overhang on both sides. The training setting.
    Crop,
    /// Contain: the whole photo, centred on a gray canvas.
    Pad,
}

/// The size a network was trained at, and so the rule by which `auto` chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetSize {
    /// The photo's own aspect ratio with this long side (the 512 networks). A square photo loses a quarter of its
    /// rows (512x384), as in training, unless `allow_square`.
    LongSide { size: u32, allow_square: bool },
    /// Always a square (the 224 network).
    Square { size: u32 },
}

/// What the network sees of one photo.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelView {
    pub width: u32,
    pub height: u32,
    /// `[height, width, 3]`: the very pixels the network sees, and so the colours of its points.
    pub rgb: Vec<u8>,
    pub map: PixelMap,
    /// The EXIF orientation that was applied before anything else, 1 to 8.
    pub orientation: u8,
    /// The photo's notes and what fitting it did.
    pub notes: Vec<String>,
}

/// `round(a * b / c)`, ties to even; the product is exact and the quotient rounded once, as in Python.
fn scaled(a: u32, b: u32, c: u32) -> u32 {
    let rounded = ((u64::from(a) * u64::from(b)) as f64 / f64::from(c)).round_ties_even();
    // A float that is too large becomes u32::MAX, which no later step mistakes for a small size.
    rounded as u32
}

/// The model size for a photo of `width` x `height` (upright), as `(width, height)`.
///
/// `Fit::Crop` with [`NetSize::LongSide`]: the long side becomes `size`, the short one is rounded, and both are
/// cut to multiples of 16. [`prepare`] with the size found here then does exactly what the network's reference
/// implementation does with that photo.
pub fn auto_size(fit: Fit, net: NetSize, width: u32, height: u32) -> Result<(u32, u32), ImageError> {
    let (long_side, allow_square) = match (fit, net) {
        (_, NetSize::Square { size }) | (Fit::Pad, NetSize::LongSide { size, .. }) => {
            check_size(size, size)?;
            return Ok((size, size));
        }
        (Fit::Crop, NetSize::LongSide { size, allow_square }) => (size, allow_square),
    };
    check_size(long_side, long_side)?;
    check_aspect(width, height)?;
    let long = width.max(height);
    let (w, h) = (scaled(width, long_side, long), scaled(height, long_side, long));
    let multiple = |v: u32| v / PATCH * PATCH;
    // Square is judged after rounding: 1025x1024 is square at 512.
    let cut = match w == h && !allow_square {
        true => (multiple(w), multiple(multiple(w) * 3 / 4)),
        false => (multiple(w), multiple(h)),
    };
    let limit = long_side / PATCH;
    check_size(cut.0, cut.1).map_err(|_| ImageError::ExtremeAspect { width, height, limit })?;
    Ok(cut)
}

/// The two model sizes for a pair; each view keeps its own shape, the network takes two different ones.
pub fn auto_sizes(fit: Fit, net: NetSize, photos: [&Photo; 2]) -> Result<[(u32, u32); 2], ImageError> {
    let [a, b] = photos.map(|p| auto_size(fit, net, p.width, p.height));
    Ok([a?, b?])
}

fn check_size(width: u32, height: u32) -> Result<(), ImageError> {
    let fine = |side: u32| side.is_multiple_of(PATCH) && (PATCH..=MAX_SIDE).contains(&side);
    if fine(width) && fine(height) { Ok(()) } else { Err(ImageError::BadModelSize { width, height }) }
}

fn check_aspect(width: u32, height: u32) -> Result<(), ImageError> {
    let (short, long) = (width.min(height), width.max(height));
    if short == 0 || long.div_ceil(short) > MAX_ASPECT {
        return Err(ImageError::ExtremeAspect { width, height, limit: MAX_ASPECT });
    }
    Ok(())
}

/// Fits a photo to exactly `width` x `height` (multiples of 16), Lanczos when shrinking, bicubic when enlarging.
pub fn prepare(photo: &Photo, fit: Fit, width: u32, height: u32) -> Result<ModelView, ImageError> {
    check_size(width, height)?;
    check_aspect(photo.width, photo.height)?;
    let src = Raster::new(photo.width, photo.height, &photo.rgb).ok_or_else(|| ImageError::Corrupt {
        format: photo.format.name(),
        detail: format!("{} bytes are not a {}x{} RGB picture", photo.rgb.len(), photo.width, photo.height),
    })?;
    let (x, y) = match fit {
        Fit::Crop => cover(photo.width, photo.height, width, height),
        Fit::Pad => contain(photo.width, photo.height, width, height),
    };
    let map = pixel_map(photo, fit, &x, &y);
    if map.valid.x0 >= map.valid.x1 || map.valid.y0 >= map.valid.y1 {
        return Err(ImageError::ExtremeAspect {
            width: photo.width,
            height: photo.height,
            limit: MAX_ASPECT,
        });
    }
    let shrinking = x.size < x.canvas || y.size < y.canvas;
    let filter = if shrinking { Filter::Lanczos } else { Filter::Bicubic };
    let rgb = resize(src, &x, &y, filter, PAD_GRAY);
    let mut notes = photo.notes.clone();
    notes.extend(describe(photo, fit, &map));
    Ok(ModelView { width, height, rgb, map, orientation: photo.orientation, notes })
}

/// The smallest resized picture that has one side in common with the target and covers it, cut about its centre.
fn cover(w: u32, h: u32, width: u32, height: u32) -> (Axis, Axis) {
    let by_width = (width, scaled(h, width, w));
    let by_height = (scaled(w, height, h), height);
    // Rounding can make both cover; the smaller one is what scaling by the long side gives.
    let area = |(w, h): (u32, u32)| u64::from(w) * u64::from(h);
    let covers = |(w, h): (u32, u32)| w >= width && h >= height;
    let resized = match (covers(by_width), covers(by_height)) {
        (true, true) if area(by_height) < area(by_width) => by_height,
        (true, _) => by_width,
        (false, _) => by_height,
    };
    // The centre is side / 2 rounded down, and the target's half is whole because it is a multiple of 16.
    let axis = |from: u32, to: u32, cut: u32| {
        let start = to / 2 - cut / 2;
        Axis { canvas: from, offset: 0, size: to, window: start..start + cut }
    };
    (axis(w, resized.0, width), axis(h, resized.1, height))
}

/// The smallest canvas in original pixels with the target's shape (to a pixel) that holds the photo.
fn contain(w: u32, h: u32, width: u32, height: u32) -> (Axis, Axis) {
    let wide = u64::from(w) * u64::from(height) >= u64::from(h) * u64::from(width);
    let canvas =
        if wide { (w, scaled(w, height, width).max(h)) } else { (scaled(h, width, height).max(w), h) };
    let axis = |side: u32, canvas: u32, size: u32| Axis {
        canvas,
        offset: (canvas - side) / 2,
        size,
        window: 0..size,
    };
    (axis(w, canvas.0, width), axis(h, canvas.1, height))
}

fn pixel_map(photo: &Photo, fit: Fit, x: &Axis, y: &Axis) -> PixelMap {
    let scale = |a: &Axis| f64::from(a.size) / f64::from(a.canvas);
    let off = |a: &Axis| f64::from(a.offset) - f64::from(a.window.start) / scale(a);
    // Exact in integers: first and one past the last model pixel whose footprint lies on the photo.
    let valid = |a: &Axis, side: u32| {
        let edge = |p: u32| u64::from(p) * u64::from(a.size);
        let canvas = u64::from(a.canvas);
        let first = edge(a.offset).div_ceil(canvas).max(a.window.start.into());
        let end = (edge(a.offset + side) / canvas).min(a.window.end.into());
        let local = |v: u64| v.saturating_sub(a.window.start.into()) as u32;
        (local(first), local(end))
    };
    let (x0, x1) = valid(x, photo.width);
    let (y0, y1) = valid(y, photo.height);
    let (out_w, out_h) = (x.window.len() as u32, y.window.len() as u32);
    let mut map = PixelMap {
        orig_w: photo.width,
        orig_h: photo.height,
        offx: off(x),
        offy: off(y),
        pad_side: (fit == Fit::Pad).then_some(x.canvas.max(y.canvas)),
        out_size: out_w.max(out_h),
        scale: scale(x),
        scale_x: scale(x),
        scale_y: scale(y),
        out_w,
        out_h,
        crop: [0.0; 4],
        valid: Valid { x0, y0, x1, y1 },
    };
    let (x0, y0) = map.to_original(0.0, 0.0);
    let (x1, y1) = map.to_original(out_w.into(), out_h.into());
    let (w, h) = (f64::from(photo.width), f64::from(photo.height));
    map.crop = [x0.max(0.0), y0.max(0.0), x1.min(w), y1.min(h)];
    map
}

fn describe(photo: &Photo, fit: Fit, map: &PixelMap) -> Vec<String> {
    let mut notes = Vec::new();
    let [x0, y0, x1, y1] = map.crop;
    let whole = f64::from(photo.width) * f64::from(photo.height);
    let lost = 100.0 * (1.0 - (x1 - x0) * (y1 - y0) / whole);
    if fit == Fit::Crop && lost > 0.05 {
        notes.push(format!(
            "cropped to x {x0:.0}..{x1:.0}, y {y0:.0}..{y1:.0}: {lost:.1} % of the photo is not seen (pad keeps it)"
        ));
    }
    if map.valid != Valid::all(map.out_w, map.out_h) {
        notes.push(format!("padded with gray {PAD_GRAY} to {}x{}", map.out_w, map.out_h));
    }
    if map.scale_x > 1.0 || map.scale_y > 1.0 {
        notes.push(format!(
            "enlarged {:.2} times: the photo is smaller than the network's input",
            map.scale_x
        ));
    }
    notes
}

/// The network's input: `[3, H, W]`, `(x / 255 - 0.5) / 0.5` in f32, each operation rounded in this order.
pub fn normalised(view: &ModelView) -> Vec<f32> {
    let plane = |c: usize| view.rgb.chunks_exact(3).map(move |p| (f32::from(p[c]) / 255.0 - 0.5) / 0.5);
    (0..3).flat_map(plane).collect()
}
