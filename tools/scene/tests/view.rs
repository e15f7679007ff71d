//! Rows B21 to B30: sizes, crop, padding, and the map between original and model pixels.

mod common;

use common::*;
use proptest::prelude::*;
use ttc_scene::photo::{PAD_GRAY, PATCH};
use ttc_scene::{
    Fit, ImageError, ModelView, NetSize, Photo, PixelMap, Valid, auto_size, auto_sizes, intrinsics_note,
    normalised, prepare,
};

const NET512: NetSize = NetSize::LongSide { size: 512, allow_square: false };

fn auto(photo: &Photo, fit: Fit, net: NetSize) -> ModelView {
    let (w, h) = auto_size(fit, net, photo.width, photo.height).unwrap();
    prepare(photo, fit, w, h).unwrap()
}

/// `crop_*`, `cropsq_*`: the 512 rule at long side 64. `square_*`: the 224 rule at 32. `pad_*`: gray square.
#[test]
fn equal_to_the_reference_bit_by_bit() {
    let mut checked = 0;
    for expected in vectors("view.npz") {
        let parts: Vec<_> = expected.name.split('_').collect();
        let (w, h) = size(parts[1]);
        let size = parts[2].parse().unwrap();
        let (fit, net) = match parts[0] {
            "crop" => (Fit::Crop, NetSize::LongSide { size, allow_square: false }),
            "cropsq" => (Fit::Crop, NetSize::LongSide { size, allow_square: true }),
            "square" => (Fit::Crop, NetSize::Square { size }),
            _ => (Fit::Pad, NetSize::Square { size }),
        };
        let view = auto(&photo(w, h), fit, net);
        assert_eq!(expected.shape, [view.height as usize, view.width as usize, 3], "{}", expected.name);
        assert_eq!(difference(&view.rgb, &bytes(&expected)), (0, 0), "{}", expected.name);
        checked += 1;
    }
    assert_eq!(checked, 18);
}

#[test]
fn auto_sizes_of_common_cameras() {
    for (w, h, expected) in [
        (4000, 3000, (512, 384)),
        (3024, 4032, (384, 512)), // B22
        (6000, 4000, (512, 336)),
        (1920, 1080, (512, 288)),
        (1000, 1000, (512, 384)), // B21
        (1025, 1024, (512, 384)), // Square after rounding.
        (1000, 999, (512, 496)),
        (512, 512, (512, 384)),
        (300, 200, (512, 336)),
        (512, 16, (512, 16)),
    ] {
        assert_eq!(auto_size(Fit::Crop, NET512, w, h), Ok(expected), "{w}x{h}");
        assert_eq!(auto_size(Fit::Pad, NET512, w, h), Ok((512, 512)), "{w}x{h}");
        assert_eq!(auto_size(Fit::Crop, NetSize::Square { size: 224 }, w, h), Ok((224, 224)));
    }
    let square = NetSize::LongSide { size: 512, allow_square: true };
    assert_eq!(auto_size(Fit::Crop, square, 1000, 1000), Ok((512, 512)));
    let strip = auto_size(Fit::Crop, NET512, 5000, 100).unwrap_err();
    assert_eq!((strip.http_status(), strip.to_string().contains("32:1")), (400, true));
}

#[test]
fn b21_square_photo_says_what_it_loses() {
    let view = auto(&photo(100, 100), Fit::Crop, NET512);
    assert_eq!((view.width, view.height), (512, 384));
    assert_eq!(view.map.crop, [0.0, 12.5, 100.0, 87.5]);
    assert!(view.notes.iter().any(|n| n.contains("25.0 %")), "{:?}", view.notes);
    let padded = auto(&photo(100, 100), Fit::Pad, NET512);
    assert_eq!(padded.map.crop, [0.0, 0.0, 100.0, 100.0]);
    assert_eq!(padded.map.valid, Valid::all(512, 512));
}

/// B22, B23: portrait and landscape, each with its own grid.
#[test]
fn b23_each_view_keeps_its_shape() {
    let (a, b) = (photo(120, 160), photo(320, 180));
    let sizes = auto_sizes(Fit::Crop, NetSize::LongSide { size: 64, allow_square: false }, [&a, &b]).unwrap();
    assert_eq!(sizes, [(48, 64), (64, 32)]);
    for (photo, (w, h)) in [&a, &b].into_iter().zip(sizes) {
        let view = prepare(photo, Fit::Crop, w, h).unwrap();
        assert_eq!(view.rgb.len(), (w * h * 3) as usize);
        assert_eq!((view.map.orig_w, view.map.orig_h), (photo.width, photo.height));
    }
}

/// B22, B25, B27: a plane seen by a camera. Projecting its points with the model's K and mapping the pixels back
/// must agree with projecting them with the original's K, and K must not come out transposed.
#[test]
fn b25_b27_intrinsics_of_original_and_crop_agree() {
    for (w, h, fit) in
        [(4000, 3000, Fit::Crop), (3024, 4032, Fit::Crop), (1001, 777, Fit::Crop), (800, 601, Fit::Pad)]
    {
        let flat = Photo { rgb: vec![90; (w * h * 3) as usize], ..photo(16, 16) };
        let view = auto(&Photo { width: w, height: h, ..flat }, fit, NET512);
        let k = [
            [1.1 * f64::from(w), 0.0, f64::from(w) / 2.0],
            [0.0, 1.1 * f64::from(w), f64::from(h) / 2.0],
            [0.0, 0.0, 1.0],
        ];
        let k_model = view.map.intrinsics_to_model(&k);
        assert!(k_model[0][0] > 0.0 && k_model[1][1] > 0.0);
        assert!(k_model[1][0] == 0.0 && k_model[2] == [0.0, 0.0, 1.0]);
        // The photo's centre is the picture's centre, up to the half pixel lost by an odd crop.
        assert!((k_model[0][2] - f64::from(view.width) / 2.0).abs() <= 0.51, "{k_model:?}");
        assert!((k_model[1][2] - f64::from(view.height) / 2.0).abs() <= 0.51, "{k_model:?}");
        let back = view.map.intrinsics_to_original(&k_model);
        assert!(k.iter().flatten().zip(back.iter().flatten()).all(|(a, b)| (a - b).abs() < 1e-9));

        let project = |k: &[[f64; 3]; 3], p: [f64; 3]| {
            (k[0][0] * p[0] / p[2] + k[0][2], k[1][1] * p[1] / p[2] + k[1][2])
        };
        for point in [[0.0, 0.0, 2.0], [0.3, -0.2, 2.1], [-0.4, 0.25, 1.7]] {
            let (x, y) = project(&k, point);
            let (u, v) = project(&k_model, point);
            let (mx, my) = view.map.to_original(u, v);
            assert!((x - mx).abs() < 1e-6 && (y - my).abs() < 1e-6);
        }
    }
}

/// B27 on pixels: an edge in the original is where the map says it is in the model's picture.
#[test]
fn b27_an_edge_lands_where_the_map_says() {
    let mut photo = photo(1000, 700);
    for (i, p) in photo.rgb.chunks_exact_mut(3).enumerate() {
        p.fill(if i % 1000 < 600 && i / 1000 < 400 { 255 } else { 0 });
    }
    for fit in [Fit::Crop, Fit::Pad] {
        let view = auto(&photo, fit, NET512);
        // Between pixels 599 and 600: the continuous edge is at 600 counted from pixel corners.
        let (u, v) = view.map.to_model(600.0, 400.0);
        let value = |x: u32, y: u32| view.rgb[((y * view.width + x) * 3) as usize];
        let (cx, cy) = (u as u32, v as u32);
        assert!(value(cx - 3, cy - 3) > 240 && value(cx + 3, cy - 3) < 15 && value(cx - 3, cy + 3) < 15);
        // The half level is crossed within half a pixel of the edge.
        let row: f64 = (cx - 6..cx + 6).map(|x| f64::from(value(x, cy - 5)) / 255.0).sum();
        assert!((row - (u - f64::from(cx - 6))).abs() < 0.5, "{fit:?}: {row} against {u}");
    }
}

#[test]
fn pad_has_the_published_fields() {
    let view = prepare(&photo(400, 300), Fit::Pad, 512, 512).unwrap();
    let map = view.map;
    assert_eq!((map.orig_w, map.orig_h, map.pad_side, map.out_size), (400, 300, Some(400), 512));
    assert_eq!((map.offx, map.offy, map.scale), (0.0, 50.0, 1.28));
    assert_eq!(map.to_model(10.0, 20.0), (10.0 * 1.28, 70.0 * 1.28));
    assert_eq!(map.valid, Valid { x0: 0, y0: 64, x1: 512, y1: 448 });
    let gray = |x: u32, y: u32| view.rgb[((y * 512 + x) * 3) as usize] == PAD_GRAY;
    assert!((0..512).all(|x| gray(x, 0) && gray(x, 511)));
    let json = serde_json::to_value(map).unwrap();
    for name in
        ["orig_w", "orig_h", "offx", "offy", "pad_side", "out_size", "scale", "scale_x", "scale_y", "crop"]
    {
        assert!(!json[name].is_null(), "{name}");
    }
    assert_eq!(serde_json::from_value::<PixelMap>(json).unwrap(), map);
    let cropped = prepare(&photo(400, 300), Fit::Crop, 512, 384).unwrap();
    assert!(serde_json::to_value(cropped.map).unwrap()["pad_side"].is_null());
}

/// Both fits to an explicit size, here the artifact's.
#[test]
fn explicit_sizes() {
    let wide = photo(300, 100);
    let crop = prepare(&wide, Fit::Crop, 64, 48).unwrap();
    assert_eq!((crop.map.scale_x, crop.map.scale_y), (0.48, 0.48));
    assert_eq!(crop.map.crop, [40.0 / 0.48, 0.0, 104.0 / 0.48, 100.0]);
    let pad = prepare(&wide, Fit::Pad, 64, 48).unwrap();
    assert_eq!((pad.map.valid.x0, pad.map.valid.x1), (0, 64));
    assert!(pad.map.valid.y0 >= 13 && pad.map.valid.y1 <= 35, "{:?}", pad.map.valid);
    for (w, h) in [(0, 16), (16, 0), (500, 384), (16, 24), (1 << 20, 16)] {
        let error = prepare(&wide, Fit::Crop, w, h).unwrap_err();
        assert_eq!(error, ImageError::BadModelSize { width: w, height: h }); // B30
    }
    let broken = Photo { rgb: vec![0; 5], ..wide };
    assert!(matches!(prepare(&broken, Fit::Crop, 64, 48), Err(ImageError::Corrupt { .. })));
}

#[test]
fn normalised_is_planar_and_exact() {
    let view = prepare(&photo(32, 16), Fit::Crop, 32, 16).unwrap();
    assert_eq!(view.rgb, noise(32, 16)); // Nothing to do, nothing done.
    let input = normalised(&view);
    assert_eq!(input.len(), 3 * 32 * 16);
    for (i, p) in view.rgb.chunks_exact(3).enumerate() {
        for c in 0..3 {
            let exact = (p[c] as f32 / 255.0 - 0.5) / 0.5;
            assert_eq!(input[c * 32 * 16 + i].to_bits(), exact.to_bits());
        }
    }
}

#[test]
fn b28_intrinsics_with_unequal_focals_are_noted() {
    let k = |fx: f64, fy: f64| [[fx, 0.0, 50.0], [0.0, fy, 50.0], [0.0, 0.0, 1.0]];
    assert_eq!(intrinsics_note(&k(500.0, 501.0)), None);
    for (fx, fy) in [(500.0, 890.0), (890.0, 500.0), (f64::NAN, 500.0), (0.0, 0.0)] {
        assert!(intrinsics_note(&k(fx, fy)).is_some_and(|n| n.contains("squeezed")));
    }
}

/// The 512 rule as it is described, without sharing code with the crate.
fn described(w: u32, h: u32, size: u32) -> (f64, f64, u32, u32, f64, f64) {
    let long = w.max(h);
    let side = |v: u32| (f64::from(v * size) / f64::from(long)).round_ties_even();
    let (rw, rh) = (side(w), side(h));
    let (hw, mut hh) = ((rw as u32) / 16 * 8, (rh as u32) / 16 * 8);
    if rw == rh {
        hh = hw * 3 / 4;
    }
    let (left, top) = (rw as u32 / 2 - hw, rh as u32 / 2 - hh);
    (rw / f64::from(w), rh / f64::from(h), 2 * hw, 2 * hh, f64::from(left), f64::from(top))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn crop_to_the_auto_size_is_the_described_rule(w in 16u32..700, h in 16u32..700) {
        prop_assume!(w.max(h) <= 20 * w.min(h));
        let (sx, sy, width, height, left, top) = described(w, h, 512);
        prop_assert_eq!(auto_size(Fit::Crop, NET512, w, h), Ok((width, height)));
        let view = prepare(&photo(w, h), Fit::Crop, width, height).unwrap();
        prop_assert_eq!((view.map.scale_x, view.map.scale_y), (sx, sy));
        let (x, y) = view.map.to_original(0.0, 0.0);
        prop_assert!((x - left / sx).abs() < 1e-9 && (y - top / sy).abs() < 1e-9);
    }

    #[test]
    fn map_round_trip(w in 16u32..300, h in 16u32..300, pw in 1u32..12, ph in 1u32..12, pad: bool, x in 0.0..1.0f64, y in 0.0..1.0f64) {
        prop_assume!(w.max(h) <= 16 * w.min(h));
        let fit = if pad { Fit::Pad } else { Fit::Crop };
        let Ok(view) = prepare(&photo(w, h), fit, pw * PATCH, ph * PATCH) else { return Ok(()) };
        let map = view.map;
        prop_assert_eq!(view.rgb.len() as u32, map.out_w * map.out_h * 3);
        prop_assert_eq!((map.out_w, map.out_h), (pw * PATCH, ph * PATCH));
        let (x, y) = (x * f64::from(w), y * f64::from(h));
        let (u, v) = map.to_model(x, y);
        let (bx, by) = map.to_original(u, v);
        prop_assert!((bx - x).abs() < 1e-9 && (by - y).abs() < 1e-9);
        // Every real model pixel comes from inside the photo, and the crop box is inside as well.
        let Valid { x0, y0, x1, y1 } = map.valid;
        prop_assert!(x0 < x1 && y0 < y1 && x1 <= map.out_w && y1 <= map.out_h);
        let (ax, ay) = map.to_original(f64::from(x0), f64::from(y0));
        let (bx, by) = map.to_original(f64::from(x1), f64::from(y1));
        prop_assert!(ax >= -1e-9 && ay >= -1e-9 && bx <= f64::from(w) + 1e-9 && by <= f64::from(h) + 1e-9);
        if !pad {
            prop_assert_eq!(map.valid, Valid::all(map.out_w, map.out_h));
        }
    }
}
