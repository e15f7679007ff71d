//! Binary glTF 2.0: one POINTS primitive.

use std::io::Write;

use serde_json::json;

use super::{Cloud, ExportError, Written};

const ARRAY_BUFFER: u32 = 34962;
const FLOAT: u32 = 5126;
const UNSIGNED_BYTE: u32 = 5121;
const POINTS: u32 = 0;

/// Writes the confident points of all views.
///
/// The numbers in the buffer are the pointmap's own (OpenCV axes); the node turns them by 180 degrees about x
/// into glTF's axes (y up, z towards the viewer), and its `extras` say so. `COLOR_0` holds the photo's sRGB
/// bytes. `_CONFIDENCE` is a custom attribute. Without any point the scene is empty but valid.
pub fn write_glb(out: &mut impl Write, cloud: &Cloud) -> Result<Written, ExportError> {
    let points = cloud.points()?;
    let n = points.xyz.len();
    // Position 12 bytes, colour 4 (vertex data must stay aligned to 4), confidence 4.
    let mut bin = Vec::with_capacity(n * 20);
    bin.extend(points.xyz.iter().flatten().flat_map(|v| v.to_le_bytes()));
    bin.extend(points.rgb.iter().flat_map(|&[r, g, b]| [r, g, b, 255]));
    bin.extend(points.conf.iter().flat_map(|v| v.to_le_bytes()));

    let extras = json!({
        "frame": "camera 1 (the first image); units: up to one global scale",
        "axes": "buffer: OpenCV, x right, y down, z forward; the node turns them into glTF's y up, z back",
        "color_space": "COLOR_0 holds sRGB bytes",
        "note": cloud.note,
        "points": n,
    });
    let mut gltf = json!({
        "asset": { "version": "2.0", "generator": concat!("ttc-scene ", env!("CARGO_PKG_VERSION")) },
        "scene": 0,
        "scenes": [{ "nodes": [0] }],
        "nodes": [{ "name": "pointmap", "rotation": [1.0, 0.0, 0.0, 0.0], "extras": extras }],
    });
    if n > 0 {
        let bound = |pick: fn(f32, f32) -> f32| {
            [0, 1, 2].map(|c| points.xyz.iter().map(|p| p[c]).reduce(pick).unwrap_or_default())
        };
        gltf["nodes"][0]["mesh"] = json!(0);
        gltf["meshes"] = json!([{ "primitives": [{
            "mode": POINTS,
            "attributes": { "POSITION": 0, "COLOR_0": 1, "_CONFIDENCE": 2 },
        }]}]);
        gltf["buffers"] = json!([{ "byteLength": bin.len() }]);
        gltf["bufferViews"] = json!([
            { "buffer": 0, "byteOffset": 0, "byteLength": n * 12, "target": ARRAY_BUFFER },
            { "buffer": 0, "byteOffset": n * 12, "byteLength": n * 4, "target": ARRAY_BUFFER },
            { "buffer": 0, "byteOffset": n * 16, "byteLength": n * 4, "target": ARRAY_BUFFER },
        ]);
        gltf["accessors"] = json!([
            { "bufferView": 0, "componentType": FLOAT, "type": "VEC3", "count": n,
              "min": bound(f32::min), "max": bound(f32::max) },
            { "bufferView": 1, "componentType": UNSIGNED_BYTE, "normalized": true, "type": "VEC4", "count": n },
            { "bufferView": 2, "componentType": FLOAT, "type": "SCALAR", "count": n },
        ]);
    }

    let mut text = serde_json::to_vec(&gltf)?;
    text.resize(text.len().next_multiple_of(4), b' ');
    let bin_chunk = if n > 0 { 8 + bin.len() } else { 0 };
    let total = 12 + 8 + text.len() + bin_chunk;
    let total = u32::try_from(total).map_err(|_| ExportError::TooLarge { what: "the GLB" })?;

    out.write_all(b"glTF")?;
    for word in [2, total, text.len() as u32] {
        out.write_all(&word.to_le_bytes())?;
    }
    out.write_all(b"JSON")?;
    out.write_all(&text)?;
    if n > 0 {
        out.write_all(&(bin.len() as u32).to_le_bytes())?;
        out.write_all(b"BIN\0")?;
        out.write_all(&bin)?;
    }
    Ok(points.written)
}
