//! Whatever the bytes are, the answer is a value or an error: no panic, no abort, no large allocation.

mod common;

use common::*;
use proptest::prelude::*;
use ttc_scene::{Fit, Limits, decode, prepare, read_npz};

/// Small limits, so that a mutated header cannot make the test slow; they are checked before any allocation.
const LIMITS: Limits = Limits { max_bytes: 1 << 20, max_pixels: 1 << 20, min_side: 16 };

const PICTURES: [&str; 15] = [
    "rgba.png",
    "gray_alpha.png",
    "palette_trns.png",
    "one_bit.png",
    "gray16.png",
    "animated.png",
    "animated.webp",
    "lossless.webp",
    "lossy.webp",
    "baseline.jpg",
    "restart.jpg",
    "progressive_420.jpg",
    "gray.jpg",
    "cmyk.jpg",
    "ycck.jpg",
];

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    match decode(bytes, &LIMITS) {
        Ok(photo) => {
            prop_assert_eq!(photo.rgb.len() as u64, u64::from(photo.width) * u64::from(photo.height) * 3);
            prop_assert!(photo.rgb.len() as u64 <= 3 * LIMITS.max_pixels);
            prop_assert!((1..=8).contains(&photo.orientation));
            if let Ok(view) = prepare(&photo, Fit::Pad, 32, 32) {
                prop_assert_eq!(view.rgb.len(), 32 * 32 * 3);
            }
        }
        Err(e) => prop_assert!([400, 413, 415].contains(&e.http_status())),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(magic in 0usize..6, tail in prop::collection::vec(any::<u8>(), 0..400)) {
        let heads: [&[u8]; 6] = [
            b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF\x40\0\0\0WEBPVP8 ", b"RIFF\x40\0\0\0WEBPVP8L",
            b"\0\0\0\x18ftyp",
        ];
        check(&[heads[magic], &tail].concat())?;
    }

    #[test]
    fn mutated_pictures(
        file in 0..PICTURES.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = data(PICTURES[file]);
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        // PNG checksums are not repaired: the point here is the walk, the header and the decoder's entry.
        check(&bytes)?;
    }

    #[test]
    fn mutated_png_with_valid_checksums(
        file in 0usize..6,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = data(PICTURES[file]);
        for (at, value) in edits {
            let at = 8 + at.index(bytes.len() - 8);
            bytes[at] = value;
        }
        let mut at = 8usize;
        while let Some(head) = bytes.get(at..at + 8) {
            let end = at + 8 + u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
            if end + 4 > bytes.len() {
                break;
            }
            let mut crc = flate2::Crc::new();
            crc.update(&bytes[at + 4..end]);
            bytes[end..end + 4].copy_from_slice(&crc.sum().to_be_bytes());
            at = end + 4;
        }
        check(&bytes)?;
    }

    #[test]
    fn mutated_npz(
        deflated: bool,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = data(if deflated { "numpy_deflated.npz" } else { "numpy_stored.npz" });
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(arrays) = read_npz(&bytes) {
            for array in arrays {
                prop_assert_eq!(array.shape.iter().product::<usize>(), array.data.len());
            }
        }
    }
}
