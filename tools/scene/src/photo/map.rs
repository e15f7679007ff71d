//! Where a pixel of the photo is in the model's picture, and back.

use serde::{Deserialize, Serialize};

/// The exact per-axis affine map between the upright original and the model's picture:
/// `u = (x + offx) * scale_x`, `v = (y + offy) * scale_y`.
///
/// Coordinates are integers at pixel centres on both sides and no half pixel is added: the convention of the
/// network's reference implementation, whose principal point is (W/2, H/2). The axes differ in scale because
/// each side of a resized picture is rounded to whole pixels.
///
/// The serialised form is what `/predict` returns as `preprocess`. Field by field, for a padded square:
/// `pad_side` is the side of the square in original pixels, `out_size` that of the model's picture,
/// `scale = out_size / pad_side`. For a crop `pad_side` is null, `offx` and `offy` are negative or zero and
/// `scale` repeats `scale_x`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PixelMap {
    /// Size of the upright original.
    pub orig_w: u32,
    pub orig_h: u32,
    /// Added to original coordinates before scaling, in original pixels.
    pub offx: f64,
    pub offy: f64,
    /// Longer side of the padded canvas in original pixels; null when the photo was cropped.
    pub pad_side: Option<u32>,
    /// Longer side of the model's picture.
    pub out_size: u32,
    pub scale: f64,
    pub scale_x: f64,
    pub scale_y: f64,
    /// Size of the model's picture.
    pub out_w: u32,
    pub out_h: u32,
    /// The part of the photo that the model sees, `[x0, y0, x1, y1]` in original pixels.
    pub crop: [f64; 4],
    /// The part of the model's picture that shows the photo.
    pub valid: Valid,
}

impl PixelMap {
    /// Original pixel to model pixel.
    pub fn to_model(&self, x: f64, y: f64) -> (f64, f64) {
        ((x + self.offx) * self.scale_x, (y + self.offy) * self.scale_y)
    }

    /// Model pixel to original pixel.
    pub fn to_original(&self, u: f64, v: f64) -> (f64, f64) {
        (u / self.scale_x - self.offx, v / self.scale_y - self.offy)
    }

    /// The 3x3 camera matrix of the original, for the model's picture.
    pub fn intrinsics_to_model(&self, k: &[[f64; 3]; 3]) -> [[f64; 3]; 3] {
        let [row_x, row_y, row_1] = k;
        let x = [0, 1, 2].map(|c| (row_x[c] + self.offx * row_1[c]) * self.scale_x);
        let y = [0, 1, 2].map(|c| (row_y[c] + self.offy * row_1[c]) * self.scale_y);
        [x, y, *row_1]
    }

    /// The 3x3 camera matrix of the model's picture, for the original: projecting with it gives original pixels.
    pub fn intrinsics_to_original(&self, k: &[[f64; 3]; 3]) -> [[f64; 3]; 3] {
        let [row_x, row_y, row_1] = k;
        let x = [0, 1, 2].map(|c| row_x[c] / self.scale_x - self.offx * row_1[c]);
        let y = [0, 1, 2].map(|c| row_y[c] / self.scale_y - self.offy * row_1[c]);
        [x, y, *row_1]
    }
}

/// The columns `x0..x1` and rows `y0..y1` of a model picture that show the photo and not padding.
///
/// A pixel counts only if its whole footprint lies on the photo: border pixels that blend with the padding have
/// the wrong colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Valid {
    pub x0: u32,
    pub y0: u32,
    pub x1: u32,
    pub y1: u32,
}

impl Valid {
    /// Every pixel of a `width` x `height` picture.
    pub fn all(width: u32, height: u32) -> Self {
        Self { x0: 0, y0: 0, x1: width, y1: height }
    }

    pub fn contains(&self, x: u32, y: u32) -> bool {
        (self.x0..self.x1).contains(&x) && (self.y0..self.y1).contains(&y)
    }
}

/// A warning when known intrinsics say that the pixels are not square (fx and fy more than 5 % apart).
///
/// Such a photo was most likely squeezed before it got here, which the pixels themselves cannot tell, or the
/// matrix belongs to another size of the picture.
pub fn intrinsics_note(k: &[[f64; 3]; 3]) -> Option<String> {
    let (fx, fy) = (k[0][0], k[1][1]);
    let square = (fx / fy - 1.0).abs() <= 0.05;
    (!square).then(|| {
        format!("fx = {fx} and fy = {fy} differ: was the photo squeezed, or are these the intrinsics of another size?")
    })
}
