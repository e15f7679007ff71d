//! What the writers write is read back by other people's readers; nothing non-finite gets out; row B29.

mod common;

use common::*;
use ply_rs_bw::parser::Parser;
use ply_rs_bw::ply::{DefaultElement, Property};
use ttc_scene::{
    Cloud, ConfDtype, ConfThreshold, ExportError, Fit, NpyArray, NpyData, Valid, View, Written, prepare,
    read_npz, write_confidence_png, write_depth_png, write_glb, write_npz, write_overview_png,
    write_pair_npz, write_ply,
};

/// A network's output without a network: a tilted wall in front of the camera.
struct Output {
    width: u32,
    height: u32,
    pts3d: Vec<f32>,
    conf: Vec<f32>,
    rgb: Vec<u8>,
    valid: Valid,
}

fn output(width: u32, height: u32) -> Output {
    let pixels = || (0..height).flat_map(move |y| (0..width).map(move |x| (x, y)));
    let point = |(x, y): (u32, u32)| {
        let z = 2.0 + x as f32 / width as f32 + 0.3 * (y as f32 / 5.0).sin();
        [(x as f32 - width as f32 / 2.0) * z / 40.0, (y as f32 - height as f32 / 2.0) * z / 40.0, z]
    };
    Output {
        width,
        height,
        pts3d: pixels().flat_map(point).collect(),
        conf: pixels().map(|(x, y)| 1.0 + ((x * 7 + y * 3) % 50) as f32 / 5.0).collect(),
        rgb: noise(width, height),
        valid: Valid::all(width, height),
    }
}

impl Output {
    fn view(&self) -> View<'_> {
        let Self { width, height, ref pts3d, ref conf, ref rgb, valid } = *self;
        View { width, height, pts3d, conf, rgb, valid }
    }
}

const ALL: ConfThreshold = ConfThreshold::Percentile(0.0);

/// One view with holes of each kind, one of another size without.
fn pair() -> [Output; 2] {
    let mut first = output(24, 16);
    first.valid = Valid { x0: 0, y0: 2, x1: 24, y1: 14 };
    for (pixel, value) in [(5 * 24 + 3, f32::NAN), (6 * 24 + 3, f32::INFINITY), (7 * 24, f32::NEG_INFINITY)] {
        first.pts3d[pixel * 3 + 1] = value;
    }
    first.conf[8 * 24 + 9] = f32::NAN;
    [first, output(16, 20)]
}

fn expected_pair() -> (Vec<[f32; 3]>, Vec<[u8; 3]>, Written) {
    let [a, b] = pair();
    let mut xyz = Vec::new();
    let mut rgb = Vec::new();
    for (o, rows) in [(&a, 2..14), (&b, 0..20)] {
        for i in rows.start * o.width as usize..rows.end * o.width as usize {
            let p = [o.pts3d[3 * i], o.pts3d[3 * i + 1], o.pts3d[3 * i + 2]];
            if p.iter().all(|v| v.is_finite()) && o.conf[i].is_finite() {
                xyz.push(p);
                rgb.push([o.rgb[3 * i], o.rgb[3 * i + 1], o.rgb[3 * i + 2]]);
            }
        }
    }
    let written = Written { points: xyz.len(), non_finite: 4, low_confidence: 0, padding: 4 * 24 };
    (xyz, rgb, written)
}

#[test]
fn ply_reads_back() {
    let [a, b] = pair();
    let views = [a.view(), b.view()];
    let note = "weights: CC BY-NC-SA 4.0\nend_header é";
    let mut file = Vec::new();
    let written = write_ply(&mut file, &Cloud { views: &views, min_conf: ALL, note }).unwrap();
    let (xyz, rgb, expected) = expected_pair();
    assert_eq!(written, expected);

    let ply = Parser::<DefaultElement>::new().read_ply(&mut file.as_slice()).unwrap();
    let comments: Vec<&str> = ply.header.comments.iter().map(|c| c.trim()).collect();
    assert!(comments.iter().any(|c| c.contains("camera 1")) && comments.iter().any(|c| c.contains("OpenCV")));
    assert!(comments.contains(&"weights: CC BY-NC-SA 4.0"), "{comments:?}");
    let vertices = &ply.payload["vertex"];
    assert_eq!(vertices.len(), xyz.len());
    for ((vertex, p), c) in vertices.iter().zip(&xyz).zip(&rgb) {
        let float = |name: &str| match vertex[name] {
            Property::Float(v) => v,
            ref other => panic!("{name}: {other:?}"),
        };
        let byte = |name: &str| match vertex[name] {
            Property::UChar(v) => v,
            ref other => panic!("{name}: {other:?}"),
        };
        assert_eq!([float("x"), float("y"), float("z")], *p);
        assert_eq!([byte("red"), byte("green"), byte("blue")], *c);
        assert!(float("confidence") >= 1.0);
    }
}

#[test]
fn glb_reads_back() {
    let [a, b] = pair();
    let views = [a.view(), b.view()];
    let mut file = Vec::new();
    let written = write_glb(&mut file, &Cloud { views: &views, min_conf: ALL, note: "é" }).unwrap();
    let (xyz, rgb, expected) = expected_pair();
    assert_eq!(written, expected);
    assert_eq!(u32::from_le_bytes(file[8..12].try_into().unwrap()) as usize, file.len());

    // Validates the document as well.
    let glb = gltf::Gltf::from_slice(&file).unwrap();
    let node = glb.nodes().next().unwrap();
    let primitive = node.mesh().unwrap().primitives().next().unwrap();
    assert_eq!(primitive.mode(), gltf::mesh::Mode::Points);
    let reader = primitive.reader(|_| glb.blob.as_deref());
    assert_eq!(reader.read_positions().unwrap().collect::<Vec<_>>(), xyz);
    let colours: Vec<[u8; 4]> = reader.read_colors(0).unwrap().into_rgba_u8().collect();
    assert!(
        colours.iter().zip(&rgb).all(|(c, e)| c[..3] == e[..] && c[3] == 255) && colours.len() == rgb.len()
    );
    let accessor = primitive.get(&gltf::Semantic::Positions).unwrap();
    let bounds = |v: Option<gltf::json::Value>| serde_json::from_value::<[f32; 3]>(v.unwrap()).unwrap();
    let extreme =
        |pick: fn(f32, f32) -> f32| [0, 1, 2].map(|c| xyz.iter().map(|p| p[c]).reduce(pick).unwrap());
    assert_eq!((bounds(accessor.min()), bounds(accessor.max())), (extreme(f32::min), extreme(f32::max)));

    // The node turns OpenCV axes into glTF's: down becomes negative y, forward becomes negative z.
    let m = node.transform().matrix();
    let turned = |v: [f32; 3]| [0, 1, 2].map(|r| (0..3).map(|c| m[c][r] * v[c]).sum::<f32>());
    assert_eq!(turned([1.0, 2.0, 3.0]), [1.0, -2.0, -3.0]);
    assert!(node.extras().as_ref().unwrap().get().contains("OpenCV"));
}

#[test]
fn no_points_still_make_valid_files() {
    let out = output(16, 16);
    let views = [out.view()];
    for views in [&views[..], &[]] {
        let cloud = Cloud { views, min_conf: ConfThreshold::Absolute(1e9), note: "" };
        let mut glb = Vec::new();
        assert_eq!(write_glb(&mut glb, &cloud).unwrap().points, 0);
        assert_eq!(gltf::Gltf::from_slice(&glb).unwrap().meshes().count(), 0);
        let mut ply = Vec::new();
        write_ply(&mut ply, &cloud).unwrap();
        assert_eq!(
            Parser::<DefaultElement>::new().read_ply(&mut ply.as_slice()).unwrap().payload["vertex"].len(),
            0
        );
        write_overview_png(&mut Vec::new(), &cloud).unwrap();
    }
}

#[test]
fn npz_reads_back() {
    let [a, b] = pair();
    let views = [a.view(), b.view()];
    let cloud = Cloud { views: &views, min_conf: ALL, note: "" };
    let mut file = Vec::new();
    let written = write_pair_npz(&mut file, &cloud, ConfDtype::F32).unwrap();
    assert_eq!(written, Written { points: 24 * 16 + 16 * 20, non_finite: 4, low_confidence: 0, padding: 96 });
    let arrays = read_npz(&file).unwrap();
    let names: Vec<_> = arrays.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["pts3d1", "conf1", "pts3d2", "conf2"]);
    assert_eq!((&arrays[0].shape[..], &arrays[1].shape[..]), (&[16, 24, 3][..], &[16, 24][..]));
    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!((bits(&arrays[0].data), bits(&arrays[1].data)), (bits(&a.pts3d), bits(&a.conf)));
    assert_eq!((bits(&arrays[2].data), bits(&arrays[3].data)), (bits(&b.pts3d), bits(&b.conf)));

    let mut half = Vec::new();
    write_pair_npz(&mut half, &cloud, ConfDtype::F16).unwrap();
    let conf = &read_npz(&half).unwrap()[3];
    assert!(conf.data.iter().zip(&b.conf).all(|(h, f)| (h - f).abs() <= f * 0.0005));

    let mut again = Vec::new();
    write_pair_npz(&mut again, &cloud, ConfDtype::F32).unwrap();
    assert!(again == file, "equal input, equal bytes");

    let mut odd = Vec::new();
    let line = NpyArray { name: "line", shape: &[5], data: NpyData::U8(&[1, 2, 3, 4, 5]) };
    let scalar = NpyArray { name: "scalar", shape: &[], data: NpyData::F32(&[2.5]) };
    write_npz(&mut odd, &[line, scalar]).unwrap();
    let arrays = read_npz(&odd).unwrap();
    assert_eq!((&arrays[0].shape[..], &arrays[0].data[..]), (&[5][..], &[1.0, 2.0, 3.0, 4.0, 5.0][..]));
    assert_eq!((arrays[1].shape.len(), arrays[1].data[0]), (0, 2.5));
    let wrong = NpyArray { name: "x", shape: &[2, 2], data: NpyData::U8(&[1]) };
    assert!(matches!(write_npz(&mut odd, &[wrong]), Err(ExportError::ArrayShape { .. })));
}

#[test]
fn numpy_files_read() {
    for file in ["numpy_stored.npz", "numpy_deflated.npz"] {
        let arrays = vectors(file);
        assert_eq!(arrays.len(), 10, "{file}");
        for array in arrays {
            let (shape, data): (&[usize], &[f32]) = match array.name.as_str() {
                "scalar" => (&[], &[7.0]),
                "line" => (&[4], &[0.0, 1.0, 2.0, 3.0]),
                "empty" => (&[0, 3], &[]),
                "b1" => (&[2, 3], &[0.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
                _ => (&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
            };
            assert_eq!((&array.shape[..], &array.data[..]), (shape, data), "{file} {}", array.name);
        }
    }
    let fortran = read_npz(&data("numpy_fortran.npz")).unwrap_err().to_string();
    assert!(fortran.contains("Fortran") && fortran.contains("ascontiguousarray"), "{fortran}");
    let mut damaged = data("numpy_stored.npz");
    let at = damaged.windows(6).position(|w| w == b"\x93NUMPY").unwrap();
    damaged[at + 130] ^= 1;
    assert!(read_npz(&damaged).unwrap_err().to_string().contains("checksum"));
    assert!(read_npz(b"\x93NUMPY").unwrap_err().to_string().contains("not an NPZ"));
}

fn read_png(file: &[u8]) -> (png::Info<'static>, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    (reader.info().clone(), pixels)
}

fn text<'i>(info: &'i png::Info, key: &str) -> &'i str {
    &info.uncompressed_latin1_text.iter().find(|t| t.keyword == key).unwrap().text
}

#[test]
fn depth_png_carries_its_scale() {
    let [mut out, _] = pair();
    out.pts3d[(4 * 24) * 3 + 2] = -1.0; // Behind the camera.
    let mut file = Vec::new();
    let depth = write_depth_png(&mut file, &out.view()).unwrap();
    let (info, pixels) = read_png(&file);
    assert_eq!((info.width, info.height, info.bit_depth), (24, 16, png::BitDepth::Sixteen));
    let scale: f64 = text(&info, "depth_scale").parse().unwrap();
    assert_eq!(scale, depth.scale);
    assert_eq!(depth.invalid, 96 + 4 + 1);
    let levels: Vec<u16> = pixels.chunks_exact(2).map(|b| u16::from_be_bytes([b[0], b[1]])).collect();
    assert_eq!((levels.iter().max(), levels[0], levels[4 * 24], levels[5 * 24 + 3]), (Some(&65535), 0, 0, 0));
    for (i, &level) in levels.iter().enumerate().filter(|(_, l)| **l > 0) {
        assert!((f64::from(level) / scale - f64::from(out.pts3d[i * 3 + 2])).abs() <= 0.51 / scale);
    }
}

#[test]
fn confidence_png_can_be_undone() {
    let [out, _] = pair();
    let mut file = Vec::new();
    let conf = write_confidence_png(&mut file, &out.view()).unwrap();
    let (info, pixels) = read_png(&file);
    assert_eq!((info.bit_depth, info.color_type), (png::BitDepth::Eight, png::ColorType::Grayscale));
    let max: f32 = text(&info, "conf_max").parse().unwrap();
    assert_eq!((max, conf.invalid), (conf.max, 96 + 1));
    for (i, &level) in pixels.iter().enumerate().filter(|(_, l)| **l > 0) {
        let back = max.powf((f32::from(level) - 1.0) / 254.0);
        assert!((back / out.conf[i] - 1.0).abs() < 0.006, "{back} for {}", out.conf[i]);
    }
}

/// B29: the colours in the overview and in the cloud are the model's own pixels.
#[test]
fn b29_colours_are_the_model_pixels() {
    let view = prepare(&photo(50, 40), Fit::Crop, 32, 16).unwrap();
    let mut out = output(32, 16);
    out.rgb = view.rgb.clone();
    let views = [out.view()];
    let cloud = Cloud { views: &views, min_conf: ALL, note: "" };
    assert_eq!(cloud.points().unwrap().rgb.concat(), view.rgb);

    let mut file = Vec::new();
    write_overview_png(&mut file, &cloud).unwrap();
    let (info, pixels) = read_png(&file);
    assert_eq!((info.width, info.height), (3 * 32 + 16, 16 + 8));
    for y in 0..16 {
        let at = ((y + 4) * info.width as usize + 4) * 3;
        assert_eq!(pixels[at..at + 96], view.rgb[y * 96..(y + 1) * 96]);
    }
    // The wall's left edge is nearer than its right one; turbo ends in dark red and dark blue.
    let at = |x: usize| ((4 + 8) * info.width as usize + x) * 3;
    let (near, far) = (&pixels[at(4 + 32 + 4)..][..3], &pixels[at(4 + 32 + 4 + 31)..][..3]);
    assert!(near[0] > 200 && far[0] < 80, "{near:?} {far:?}");
}

/// B48 in small: absolute and percentile, and padding does not shift the percentile.
#[test]
fn thresholds() {
    let mut out = output(16, 16);
    out.conf = (1..=256).map(|v| v as f32).collect();
    let keep = |out: &Output, min_conf| {
        let views = [out.view()];
        let cloud = Cloud { views: &views, min_conf, note: "" };
        (cloud.threshold().unwrap(), cloud.points().unwrap().written)
    };
    assert_eq!(
        keep(&out, ConfThreshold::Absolute(200.0)).1,
        Written { points: 57, low_confidence: 199, ..Default::default() }
    );
    assert_eq!(keep(&out, ConfThreshold::Percentile(50.0)).0, 128.5);
    assert_eq!(keep(&out, ConfThreshold::Percentile(50.0)).1.points, 128);
    assert_eq!(keep(&out, ConfThreshold::Percentile(0.0)).1.points, 256);
    assert_eq!(keep(&out, ConfThreshold::Percentile(100.0)).1.points, 1);
    out.valid.y0 = 8;
    assert_eq!(keep(&out, ConfThreshold::Percentile(50.0)).0, 192.5);
    for bad in [
        ConfThreshold::Percentile(101.0),
        ConfThreshold::Percentile(f32::NAN),
        ConfThreshold::Absolute(f32::NAN),
    ] {
        let views = [out.view()];
        let error =
            write_ply(&mut Vec::new(), &Cloud { views: &views, min_conf: bad, note: "" }).unwrap_err();
        assert!(matches!(error, ExportError::Threshold(_)));
    }
}

#[test]
fn wrong_lengths_are_refused_by_name() {
    let out = output(16, 16);
    let views = [out.view(), View { conf: &out.conf[1..], ..out.view() }];
    let cloud = Cloud { views: &views, min_conf: ALL, note: "" };
    let errors = [
        write_ply(&mut Vec::new(), &cloud).unwrap_err(),
        write_glb(&mut Vec::new(), &cloud).unwrap_err(),
        write_pair_npz(&mut Vec::new(), &cloud, ConfDtype::F32).unwrap_err(),
        write_overview_png(&mut Vec::new(), &cloud).unwrap_err(),
    ];
    for error in errors {
        assert!(
            matches!(error, ExportError::Shape { view: 2, array: "conf", found: 255, expected: 256, .. }),
            "{error}"
        );
    }
    assert!(write_depth_png(&mut Vec::new(), &views[1]).is_err());
}

/// A column and a row, each tiny, whose common picture would have 30 gigapixels.
#[test]
fn a_picture_that_would_explode_is_refused() {
    let (wide, tall) = (output(100_000, 1), output(1, 100_000));
    let views = [wide.view(), tall.view()];
    let cloud = Cloud { views: &views, min_conf: ALL, note: "" };
    assert!(matches!(write_overview_png(&mut Vec::new(), &cloud), Err(ExportError::TooLarge { .. })));
}

/// A full disk is an error and not a short file.
#[test]
fn a_failing_writer_is_reported() {
    let out = output(16, 16);
    let views = [out.view()];
    let cloud = Cloud { views: &views, min_conf: ALL, note: "" };
    let mut room = [0u8; 100];
    assert!(matches!(write_ply(&mut room.as_mut_slice(), &cloud), Err(ExportError::Io(_))));
    assert!(matches!(write_glb(&mut room.as_mut_slice(), &cloud), Err(ExportError::Io(_))));
    assert!(matches!(
        write_pair_npz(&mut room.as_mut_slice(), &cloud, ConfDtype::F32),
        Err(ExportError::Io(_))
    ));
    assert!(write_depth_png(&mut room.as_mut_slice(), &out.view()).is_err());
}

/// B36: all-equal, all-zero and all-NaN outputs make files without a NaN in them.
#[test]
fn b36_degenerate_outputs() {
    for (z, c) in [(1.0, 1.0), (0.0, 1.0), (f32::NAN, f32::NAN), (1e30, f32::INFINITY)] {
        let mut out = output(16, 16);
        out.pts3d.fill(z);
        out.conf.fill(c);
        let views = [out.view()];
        let cloud = Cloud { views: &views, min_conf: ConfThreshold::Percentile(50.0), note: "" };
        let points = cloud.points().unwrap();
        assert!(points.xyz.iter().flatten().chain(&points.conf).all(|v| v.is_finite()));
        assert_eq!(points.written.points, if c == 1.0 { 256 } else { 0 });
        let mut glb = Vec::new();
        write_glb(&mut glb, &cloud).unwrap();
        gltf::Gltf::from_slice(&glb).unwrap();
        write_depth_png(&mut Vec::new(), &out.view()).unwrap();
        write_confidence_png(&mut Vec::new(), &out.view()).unwrap();
        write_overview_png(&mut Vec::new(), &cloud).unwrap();
    }
}
