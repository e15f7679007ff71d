//! What the test files share: the pictures that `data/make_vectors.py` makes as well, and readers for its results.
#![allow(dead_code)] // Each test binary uses its part.

use std::path::PathBuf;

use ttc_scene::{Format, NpzArray, Photo, read_npz};

pub fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Noise with many clipped samples; the same numbers as `noise` in `make_vectors.py`.
pub fn noise(width: u32, height: u32) -> Vec<u8> {
    (0..width * height * 3)
        .map(|i| {
            let mut x = i.wrapping_mul(2654435761);
            x ^= x >> 15;
            x = x.wrapping_mul(2246822519);
            x ^= x >> 13;
            ((x & 0x1ff) as i32 - 128).clamp(0, 255) as u8
        })
        .collect()
}

pub fn photo(width: u32, height: u32) -> Photo {
    let rgb = noise(width, height);
    Photo { width, height, rgb, format: Format::Png, orientation: 1, notes: Vec::new() }
}

pub fn vectors(file: &str) -> Vec<NpzArray> {
    read_npz(&data(file)).unwrap()
}

pub fn bytes(array: &NpzArray) -> Vec<u8> {
    array.data.iter().map(|&v| v as u8).collect()
}

/// "100x75" -> (100, 75)
pub fn size(text: &str) -> (u32, u32) {
    let (w, h) = text.split_once('x').unwrap();
    (w.parse().unwrap(), h.parse().unwrap())
}

/// Number of differing samples and the largest difference.
pub fn difference(a: &[u8], b: &[u8]) -> (usize, u8) {
    assert_eq!(a.len(), b.len());
    let diffs = || a.iter().zip(b).map(|(&x, &y)| x.abs_diff(y));
    (diffs().filter(|&d| d > 0).count(), diffs().max().unwrap_or(0))
}
