//! Depth and confidence as PNG files, and a picture for the eye.

use std::io::Write;

use png::{BitDepth, ColorType, Encoder};

use super::cloud::Pixel;
use super::colormap::{turbo, viridis};
use super::{Cloud, ExportError, View};

/// How to read a depth PNG: `z = value / scale`; 0 means no depth (padding, not finite, or z <= 0).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthPng {
    /// Gray levels per unit of depth; the largest depth is 65535. 0 if there is no depth at all.
    pub scale: f64,
    /// Smallest and largest stored depth.
    pub min: f32,
    pub max: f32,
    /// Pixels with the value 0.
    pub invalid: usize,
}

/// How to read a confidence PNG: `conf = max ^ ((value - 1) / 254)`; 0 means padding or not finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidencePng {
    pub max: f32,
    /// Pixels with the value 0.
    pub invalid: usize,
}

fn depth_of(p: &Pixel) -> Option<f32> {
    (p.real && p.is_finite() && p.xyz[2] > 0.0).then_some(p.xyz[2])
}

fn conf_of(p: &Pixel) -> Option<f32> {
    (p.real && p.conf.is_finite()).then_some(p.conf)
}

/// 16-bit gray depth (z in camera 1's frame, for view 2 as well). The scale is chosen per view so that the
/// farthest point is 65535, and stands in tEXt chunks (`depth_scale`, `depth_frame`) and in the result.
pub fn write_depth_png(out: &mut impl Write, view: &View) -> Result<DepthPng, ExportError> {
    view.check(1)?;
    let depths = || view.pixels().map(|p| depth_of(&p));
    let max = depths().flatten().fold(0.0f32, f32::max);
    let min = depths().flatten().fold(max, f32::min);
    let scale = if max > 0.0 { 65535.0 / f64::from(max) } else { 0.0 };
    // A real depth never becomes 0, which is kept for "none".
    let level = |z: f32| (f64::from(z) * scale).round().clamp(1.0, 65535.0) as u16;
    let data: Vec<u8> = depths().flat_map(|z| z.map_or(0, level).to_be_bytes()).collect();
    let text = [
        ("depth_scale", format!("{scale}")),
        ("depth_frame", "z = value / depth_scale, in camera 1's frame (OpenCV axes); 0 = no depth".into()),
    ];
    write_png(out, view.width, view.height, (ColorType::Grayscale, BitDepth::Sixteen), &text, &data)?;
    Ok(DepthPng { scale, min, max, invalid: depths().filter(Option::is_none).count() })
}

/// 8-bit gray confidence on a logarithmic scale: confidence 1 is 1, the view's largest is 255.
pub fn write_confidence_png(out: &mut impl Write, view: &View) -> Result<ConfidencePng, ExportError> {
    view.check(1)?;
    let confs = || view.pixels().map(|p| conf_of(&p));
    let max = confs().flatten().fold(1.0f32, f32::max);
    let level = |c: f32| (1.0 + 254.0 * log_ratio(c, max)).round() as u8;
    let data: Vec<u8> = confs().map(|c| c.map_or(0, level)).collect();
    let text = [
        ("conf_max", format!("{max}")),
        ("conf_mapping", "conf = conf_max ^ ((value - 1) / 254); 0 = none".into()),
    ];
    write_png(out, view.width, view.height, (ColorType::Grayscale, BitDepth::Eight), &text, &data)?;
    Ok(ConfidencePng { max, invalid: confs().filter(Option::is_none).count() })
}

/// `ln c / ln max`, within 0..=1; 0 when the view has one confidence only.
fn log_ratio(conf: f32, max: f32) -> f32 {
    if max > 1.0 { (conf.max(1.0).ln() / max.ln()).min(1.0) } else { 0.0 }
}

/// A picture for a person, one row a view: photo | depth (turbo, near is red) | confidence (viridis, high is
/// yellow). All views share one depth range (2nd to 98th percentile of inverse depth) and one confidence range.
/// Pixels without a value are dark gray.
pub fn write_overview_png(out: &mut impl Write, cloud: &Cloud) -> Result<(), ExportError> {
    const GAP: usize = 4;
    const NONE: [u8; 3] = [32; 3];
    cloud.check()?;
    let pixels = || cloud.views.iter().flat_map(View::pixels);
    let mut inverse: Vec<f32> = pixels().filter_map(|p| depth_of(&p)).map(|z| 1.0 / z).collect();
    inverse.sort_unstable_by(f32::total_cmp);
    let rank = |part: f64| inverse.get((part * inverse.len().saturating_sub(1) as f64) as usize).copied();
    let (far, near) = (rank(0.02).unwrap_or(0.0), rank(0.98).unwrap_or(1.0));
    let conf_max = pixels().filter_map(|p| conf_of(&p)).fold(1.0f32, f32::max);
    // One depth only (a plane facing the camera) is drawn in the middle of the range.
    let nearness = |z: f32| if near > far { (1.0 / z - far) / (near - far) } else { 0.5 };

    let column = cloud.views.iter().map(|v| v.width as usize).max().unwrap_or(1).max(1);
    let width = 3 * column + 4 * GAP;
    let height = GAP + cloud.views.iter().map(|v| v.height as usize + GAP).sum::<usize>();
    // One very wide and one very tall view would make a canvas far larger than both.
    let sides = u32::try_from(width).ok().zip(u32::try_from(height).ok());
    let bytes = width.checked_mul(height).and_then(|n| n.checked_mul(3)).filter(|&n| n <= u32::MAX as usize);
    let (Some((png_width, png_height)), Some(bytes)) = (sides, bytes) else {
        return Err(ExportError::TooLarge { what: "the picture" });
    };
    let mut canvas = vec![16u8; bytes];
    let mut top = GAP;
    for view in cloud.views {
        let view_width = (view.width as usize).max(1);
        for (i, p) in view.pixels().enumerate() {
            let panels = [
                p.rgb,
                depth_of(&p).map_or(NONE, |z| turbo(nearness(z))),
                conf_of(&p).map_or(NONE, |c| viridis(log_ratio(c, conf_max))),
            ];
            for (panel, colour) in panels.into_iter().enumerate() {
                let x = GAP + panel * (column + GAP) + i % view_width;
                let at = ((top + i / view_width) * width + x) * 3;
                canvas[at..at + 3].copy_from_slice(&colour);
            }
        }
        top += view.height as usize + GAP;
    }
    let text = [("note", cloud.note.to_owned())];
    write_png(out, png_width, png_height, (ColorType::Rgb, BitDepth::Eight), &text, &canvas)
}

fn write_png(
    out: &mut impl Write,
    width: u32,
    height: u32,
    (colour, depth): (ColorType, BitDepth),
    text: &[(&str, String)],
    data: &[u8],
) -> Result<(), ExportError> {
    let mut encoder = Encoder::new(out, width, height);
    encoder.set_color(colour);
    encoder.set_depth(depth);
    for (key, value) in text.iter().filter(|(_, v)| !v.is_empty()) {
        // tEXt is Latin-1; a note in another script goes without the characters that it cannot hold.
        let latin1 = value.chars().map(|c| if (c as u32) < 256 { c } else { '?' }).collect();
        encoder.add_text_chunk((*key).into(), latin1)?;
    }
    let mut writer = encoder.write_header()?;
    writer.write_image_data(data)?;
    writer.finish()?;
    Ok(())
}
