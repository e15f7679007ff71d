//! Bit-equality with Pillow 13, and that photo-sized pictures take no noticeable time.

mod common;

use common::*;
use ttc_scene::photo::resize::{Axis, Filter, Raster, resize};

#[test]
fn equal_to_pillow_bit_by_bit() {
    let mut checked = 0;
    for expected in vectors("resize.npz") {
        let parts: Vec<_> = expected.name.split('_').collect();
        let (from, to) = (size(parts[1]), size(parts[2]));
        let filter = if parts[0] == "bicubic" { Filter::Bicubic } else { Filter::Lanczos };
        let source = noise(from.0, from.1);
        let raster = Raster::new(from.0, from.1, &source).unwrap();
        let ours = resize(raster, &Axis::whole(from.0, to.0), &Axis::whole(from.1, to.1), filter, 0);
        if parts[0] == "crc" {
            let mut crc = flate2::Crc::new();
            crc.update(&ours);
            assert_eq!(
                [crc.sum() >> 16, crc.sum() & 0xffff].map(|v| v as f32),
                *expected.data,
                "{}",
                expected.name
            );
        } else {
            assert_eq!(expected.shape, [to.1 as usize, to.0 as usize, 3]);
            assert_eq!(difference(&ours, &bytes(&expected)), (0, 0), "{}", expected.name);
        }
        checked += 1;
    }
    assert_eq!(checked, 15);
}

/// A window is cut out of the same picture, although only its rows and columns are computed.
#[test]
fn window_equals_cut() {
    let source = noise(90, 70);
    let raster = Raster::new(90, 70, &source).unwrap();
    let (x, y) = (Axis::whole(90, 40), Axis::whole(70, 33));
    let whole = resize(raster, &x, &y, Filter::Lanczos, 0);
    let part =
        resize(raster, &Axis { window: 7..29, ..x }, &Axis { window: 11..30, ..y }, Filter::Lanczos, 0);
    let cut: Vec<u8> =
        (11..30).flat_map(|row| &whole[(row * 40 + 7) * 3..(row * 40 + 29) * 3]).copied().collect();
    assert_eq!(part, cut);
}

#[test]
fn raster_refuses_wrong_lengths() {
    let rgb = [0; 12];
    assert!(Raster::new(2, 2, &rgb).is_some());
    for (w, h) in [(2, 3), (0, 2), (2, 0), (u32::MAX, u32::MAX)] {
        assert!(Raster::new(w, h, &rgb).is_none(), "{w}x{h}");
    }
}

/// The limit is far above what it takes, so that a busy machine does not fail the test.
#[test]
fn a_twelve_megapixel_photo_is_fast() {
    let photo = photo(4000, 3000);
    let start = std::time::Instant::now();
    ttc_scene::prepare(&photo, ttc_scene::Fit::Crop, 512, 384).unwrap();
    let took = start.elapsed();
    eprintln!("4000x3000 -> 512x384: {took:?}");
    assert!(took.as_secs_f32() < 2.0, "{took:?}");
}
