//! Rows B01 to B19 of the input catalogue: what is decoded, how, and what is refused with which words.

mod common;

use common::*;
use image::metadata::Orientation;
use image::{DynamicImage, ExtendedColorType, ImageEncoder, RgbImage};
use ttc_scene::{Fault, Fit, ImageError, Limits, NetSize, auto_size, decode, prepare};

fn load(bytes: &[u8]) -> Result<ttc_scene::Photo, ImageError> {
    decode(bytes, &Limits::default())
}

fn png(pixels: &[u8], width: u32, height: u32, kind: ExtendedColorType) -> Vec<u8> {
    let mut out = Vec::new();
    image::codecs::png::PngEncoder::new(&mut out).write_image(pixels, width, height, kind).unwrap();
    out
}

/// A TIFF block with nothing but the orientation tag.
fn exif(tag: u8, big_endian: bool) -> Vec<u8> {
    match big_endian {
        true => {
            [b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".as_slice(), &[tag, 0, 0, 0, 0, 0, 0]].concat()
        }
        false => [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".as_slice(), &[tag, 0, 0, 0, 0, 0, 0, 0]]
            .concat(),
    }
}

fn with_png_exif(png: &[u8], block: &[u8]) -> Vec<u8> {
    let body = [b"eXIf".as_slice(), block].concat();
    let mut crc = flate2::Crc::new();
    crc.update(&body);
    // After the signature and IHDR.
    [&png[..33], &(block.len() as u32).to_be_bytes(), &body, &crc.sum().to_be_bytes(), &png[33..]].concat()
}

fn with_jpeg_exif(jpeg: &[u8], block: &[u8]) -> Vec<u8> {
    let len = (8 + block.len()) as u16;
    [&jpeg[..2], b"\xff\xe1", &len.to_be_bytes(), b"Exif\0\0", block, &jpeg[2..]].concat()
}

/// The picture as a camera held in that orientation stores it: the inverse of what the tag asks for.
fn stored(upright: &RgbImage, tag: u8) -> RgbImage {
    let inverse = match Orientation::from_exif(tag).unwrap() {
        Orientation::Rotate90 => Orientation::Rotate270,
        Orientation::Rotate270 => Orientation::Rotate90,
        mirror_or_half_turn => mirror_or_half_turn,
    };
    let mut image = DynamicImage::ImageRgb8(upright.clone());
    image.apply_orientation(inverse);
    image.into_rgb8()
}

#[test]
fn b01_b02_every_orientation_gives_the_same_model_input() {
    let upright = RgbImage::from_raw(60, 36, noise(60, 36)).unwrap();
    let plain = load(&png(&upright, 60, 36, ExtendedColorType::Rgb8)).unwrap();
    assert_eq!((plain.orientation, plain.notes.len()), (1, 0));
    let net = NetSize::LongSide { size: 64, allow_square: false };
    for tag in 1..=8 {
        let image = stored(&upright, tag);
        let (w, h) = image.dimensions();
        assert_eq!((w, h), if tag >= 5 { (36, 60) } else { (60, 36) });
        let file = png(&image, w, h, ExtendedColorType::Rgb8);
        let prefixed = [b"Exif\0\0".as_slice(), &exif(tag, true)].concat();
        for block in [exif(tag, true), exif(tag, false), prefixed] {
            let turned = load(&with_png_exif(&file, &block)).unwrap();
            assert_eq!(turned.orientation, tag);
            assert_eq!((turned.width, turned.height), (60, 36));
            assert!(turned.rgb == plain.rgb, "tag {tag}");
            let (w, h) = auto_size(Fit::Crop, net, turned.width, turned.height).unwrap();
            let view = prepare(&turned, Fit::Crop, w, h).unwrap();
            assert_eq!(view.orientation, tag);
            assert!(view.rgb == prepare(&plain, Fit::Crop, w, h).unwrap().rgb);
            assert_eq!((view.map.orig_w, view.map.orig_h), (60, 36));
        }
    }
}

#[test]
fn b01_jpeg_orientation() {
    let plain = load(&data("baseline.jpg")).unwrap();
    for tag in 1..=8 {
        let turned = load(&with_jpeg_exif(&data("baseline.jpg"), &exif(tag, tag % 2 == 0))).unwrap();
        assert_eq!(turned.orientation, tag);
        let mut expected = DynamicImage::ImageRgb8(RgbImage::from_raw(48, 40, plain.rgb.clone()).unwrap());
        expected.apply_orientation(Orientation::from_exif(tag).unwrap());
        assert_eq!((turned.width, turned.height), (expected.width(), expected.height()));
        assert!(turned.rgb == expected.into_rgb8().into_raw(), "tag {tag}");
    }
}

#[test]
fn unreadable_exif_is_no_reason_to_refuse() {
    for block in [b"II*\0\xff\xff\xff\xff".to_vec(), b"nonsense".to_vec(), exif(9, true), exif(0, false)] {
        let photo = load(&with_jpeg_exif(&data("baseline.jpg"), &block)).unwrap();
        assert_eq!(photo.orientation, 1);
    }
}

/// B03, B06, B07 and the lossless rest: the expected pixels were computed outside.
#[test]
fn lossless_pictures_decode_exactly() {
    let expected = vectors("decode.npz");
    let names = [
        "rgba.png",
        "gray_alpha.png",
        "palette_trns.png",
        "one_bit.png",
        "gray16.png",
        "animated.png",
        "animated.webp",
        "lossless.webp",
    ];
    for name in names {
        let photo = load(&data(name)).unwrap();
        let want = expected.iter().find(|a| a.name == name).unwrap();
        assert_eq!(want.shape, [photo.height as usize, photo.width as usize, 3], "{name}");
        assert_eq!(difference(&photo.rgb, &bytes(want)), (0, 0), "{name}");
        let said = |word: &str| photo.notes.iter().any(|n| n.contains(word));
        assert_eq!(said("animated"), name.starts_with("animated"), "{name}: {:?}", photo.notes);
        assert_eq!(
            said("white"),
            ["rgba.png", "gray_alpha.png", "palette_trns.png"].contains(&name),
            "{name}"
        );
    }
}

/// Lossy decoders may differ in the last bit of the inverse transform and in how chroma is enlarged.
#[test]
fn lossy_pictures_decode_closely() {
    let expected = vectors("decode.npz");
    for (name, worst) in [
        ("baseline.jpg", 3),
        ("restart.jpg", 3),
        ("gray.jpg", 1),
        ("progressive_420.jpg", 6),
        ("cmyk.jpg", 2),
        ("ycck.jpg", 3),
        ("lossy.webp", 0),
    ] {
        let photo = load(&data(name)).unwrap();
        let want = bytes(expected.iter().find(|a| a.name == name).unwrap());
        let (count, max) = difference(&photo.rgb, &want);
        assert!(max <= worst, "{name}: {count} of {} samples differ, by up to {max}", want.len());
    }
}

#[test]
fn b03_b04_sixteen_bits_are_scaled_not_clipped() {
    let levels: Vec<u16> = (0..16 * 16 * 4).map(|i| (i * 65535 / 1023) as u16).collect();
    let native = |v: &[u16]| v.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<u8>>();
    let scaled = |v: u16| (f64::from(v) / 257.0).round() as u8;

    let gray = load(&png(&native(&levels[..256]), 16, 16, ExtendedColorType::L16)).unwrap();
    assert!(gray.rgb.iter().step_by(3).copied().eq(levels[..256].iter().map(|&v| scaled(v))));

    let rgb = load(&png(&native(&levels[..768]), 16, 16, ExtendedColorType::Rgb16)).unwrap();
    assert!(rgb.rgb.iter().copied().eq(levels[..768].iter().map(|&v| scaled(v))));
    assert!(rgb.rgb.iter().collect::<std::collections::BTreeSet<_>>().len() > 150);

    let rgba = load(&png(&native(&levels), 16, 16, ExtendedColorType::Rgba16)).unwrap();
    let white = levels.chunks_exact(4).flat_map(|p| {
        let a = f64::from(p[3]) / 65535.0;
        [p[0], p[1], p[2]].map(|c| (f64::from(c) * a + 65535.0 * (1.0 - a)) / 257.0)
    });
    assert!(rgba.rgb.iter().zip(white).all(|(&ours, exact)| (f64::from(ours) - exact).abs() <= 0.502));
}

#[test]
fn b06_hidden_colours_never_show() {
    let mut garbage: Vec<u8> = noise(16, 16).chunks(3).flat_map(|p| [p[0], p[1], p[2], 0]).collect();
    let photo = load(&png(&garbage, 16, 16, ExtendedColorType::Rgba8)).unwrap();
    assert!(photo.rgb.iter().all(|&v| v == 255));
    garbage.chunks_mut(4).for_each(|p| p[3] = 255);
    let opaque = load(&png(&garbage, 16, 16, ExtendedColorType::Rgba8)).unwrap();
    assert_eq!(opaque.rgb, noise(16, 16));
    assert!(opaque.notes.is_empty());
}

fn heif(brands: &[&[u8; 4]]) -> Vec<u8> {
    let mut out = (8 + 4 * brands.len() as u32).to_be_bytes().to_vec();
    out.extend(b"ftyp");
    out.extend(brands.iter().copied().flatten());
    out.extend([0; 64]);
    out
}

#[test]
fn b09_b10_b15_other_files_are_named() {
    let unsupported: Vec<(Vec<u8>, &str)> = vec![
        (heif(&[b"heic", b"\0\0\0\0", b"mif1"]), "HEIC"),
        (heif(&[b"mif1", b"\0\0\0\0", b"heic"]), "HEIC"),
        (heif(&[b"avif", b"\0\0\0\0", b"mif1"]), "AVIF"),
        (heif(&[b"isom", b"\0\0\0\0", b"mp41"]), "isom"),
        (data("other.gif"), "GIF"),
        (data("other.tif"), "TIFF"),
        (data("other.bmp"), "BMP"),
        (b"P6\n16 16 255\n".to_vec(), "PNM"),
    ];
    for (bytes, name) in unsupported {
        let error = load(&bytes).unwrap_err();
        assert_eq!((error.fault(), error.http_status()), (Fault::Unsupported, 415), "{error}");
        assert!(error.to_string().contains(name), "{error} should name {name}");
    }
    let not_images: [(&[u8], &str); 7] = [
        (b"", "empty"),
        (b"hello there", "text"),
        ("\u{feff}  <!DOCTYPE html><p>404".as_bytes(), "HTML"),
        (b"<HTML><body>", "HTML"),
        (b"{\"error\": 1}", "JSON"),
        (b"<svg xmlns=''/>", "SVG"),
        (b"\x00\x01\x02\x03\x04binary", "binary"),
    ];
    for (bytes, name) in not_images {
        let error = load(bytes).unwrap_err();
        assert_eq!((error.fault(), error.http_status()), (Fault::BadInput, 400), "{error}");
        assert!(error.to_string().contains(name), "{error} should name {name}");
        assert!(!error.why().is_empty() && !error.next().is_empty() && !error.code().is_empty());
    }
}

/// The header's claim is refused before any memory is set aside: these files are a few dozen bytes.
#[test]
fn b11_b12_limits_come_from_the_header() {
    let mut huge = png(&noise(16, 16), 16, 16, ExtendedColorType::Rgb8);
    huge[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let mut crc = flate2::Crc::new();
    crc.update(&huge[12..29]);
    let sum = crc.sum().to_be_bytes();
    huge[29..33].copy_from_slice(&sum);
    let error = load(&huge).unwrap_err();
    assert_eq!(error, ImageError::TooManyPixels { width: 65536, height: 65536, limit: 100_000_000 });
    assert_eq!(error.http_status(), 413);
    assert!(error.to_string().contains("4294967296"), "{error}");

    let mut jpeg = data("baseline.jpg");
    let frame = jpeg.windows(2).position(|w| w == b"\xff\xc0").unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]);
    assert_eq!(load(&jpeg).unwrap_err().http_status(), 413);

    // VP8X canvas of 16384 x 16384.
    let mut webp = data("animated.webp");
    webp[24..30].copy_from_slice(&[0xff, 0x3f, 0, 0xff, 0x3f, 0]);
    assert_eq!(load(&webp).unwrap_err().http_status(), 413);

    let ten = Limits { max_bytes: 10, ..Limits::default() };
    let error = decode(&data("baseline.jpg"), &ten).unwrap_err();
    assert_eq!((error.http_status(), error.to_string().contains("limit is 10")), (413, true));
    let few = Limits { max_pixels: 48 * 40 - 1, ..Limits::default() };
    assert_eq!(decode(&data("baseline.jpg"), &few).unwrap_err().http_status(), 413);
    let enough = Limits { max_pixels: 48 * 40, ..Limits::default() };
    assert!(decode(&data("baseline.jpg"), &enough).is_ok());
}

#[test]
fn b14_truncated_files_are_refused_as_such() {
    let files = [
        "baseline.jpg",
        "restart.jpg",
        "progressive_420.jpg",
        "gray.jpg",
        "cmyk.jpg",
        "rgba.png",
        "palette_trns.png",
        "gray16.png",
        "animated.png",
        "lossless.webp",
        "lossy.webp",
        "animated.webp",
    ];
    for name in files {
        let whole = data(name);
        for percent in [10, 25, 50, 75, 90, 99] {
            let error = load(&whole[..whole.len() * percent / 100]).unwrap_err();
            assert!(matches!(error, ImageError::Truncated { .. }), "{name} at {percent} %: {error:?}");
            assert!(error.to_string().contains("truncated"), "{error}");
            assert_eq!(error.http_status(), 400);
        }
        assert!(load(&[whole.as_slice(), b"trailing bytes"].concat()).is_ok(), "{name} with a tail");
    }
}

/// A PNG whose chunks are all there but whose compressed data stop early.
#[test]
fn b14_short_png_data() {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, 32, 32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&noise(32, 32)).unwrap();
    let at = out.windows(4).position(|w| w == b"IDAT").unwrap();
    let len = u32::from_be_bytes(out[at - 4..at].try_into().unwrap()) as usize;
    let mut cut = out[..at - 4].to_vec();
    let body = &out[at..at + 4 + len / 2];
    let mut crc = flate2::Crc::new();
    crc.update(body);
    cut.extend((len as u32 / 2).to_be_bytes());
    cut.extend(body);
    cut.extend(crc.sum().to_be_bytes());
    cut.extend(&out[at + 4 + len + 4..]);
    let error = load(&cut).unwrap_err();
    assert_eq!(error.http_status(), 400);
    assert!(matches!(error, ImageError::Truncated { .. } | ImageError::Corrupt { .. }), "{error:?}");
}

/// Found by the mutation test: this palette makes the PNG decoder panic.
#[test]
fn a_palette_of_broken_colours_is_corrupt() {
    let whole = data("palette_trns.png");
    let at = whole.windows(4).position(|w| w == b"PLTE").unwrap();
    let len = u32::from_be_bytes(whole[at - 4..at].try_into().unwrap()) as usize - 1;
    let body = &whole[at..at + 4 + len];
    let mut crc = flate2::Crc::new();
    crc.update(body);
    let parts = [
        &whole[..at - 4],
        &(len as u32).to_be_bytes(),
        body,
        &crc.sum().to_be_bytes(),
        &whole[at + 4 + len + 5..],
    ];
    let error = load(&parts.concat()).unwrap_err();
    assert!(matches!(error, ImageError::Corrupt { .. }) && error.to_string().contains("palette"), "{error}");
}

#[test]
fn b19_tiny_images_are_refused_with_the_minimum() {
    for (w, h) in [(1, 1), (1, 2), (15, 15), (400, 15)] {
        let error = load(&png(&noise(w, h), w, h, ExtendedColorType::Rgb8)).unwrap_err();
        assert_eq!(error, ImageError::TooSmall { width: w, height: h, min: 16 });
        assert!(error.to_string().contains("at least 16"), "{error}");
    }
    let smallest = load(&png(&noise(16, 16), 16, 16, ExtendedColorType::Rgb8)).unwrap();
    let view = prepare(&smallest, Fit::Pad, 64, 64).unwrap();
    assert!(view.notes.iter().any(|n| n.contains("enlarged 4.00")), "{:?}", view.notes);
}
