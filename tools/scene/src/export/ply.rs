//! PLY, binary little endian: x y z red green blue confidence.

use std::io::Write;

use super::{Cloud, ExportError, Written};

/// Writes the confident points of all views as one vertex list, in camera 1's frame with OpenCV axes.
pub fn write_ply(out: &mut impl Write, cloud: &Cloud) -> Result<Written, ExportError> {
    let points = cloud.points()?;
    write!(
        out,
        "ply\nformat binary_little_endian 1.0\n\
         comment frame: camera 1 (the first image); units: up to one global scale\n\
         comment axes: OpenCV, x right, y down, z forward\n"
    )?;
    // A header is ASCII lines; anything else in a note would break the readers that count bytes.
    for line in cloud.note.lines() {
        let ascii: String =
            line.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect();
        writeln!(out, "comment {ascii}")?;
    }
    write!(
        out,
        "element vertex {}\n\
         property float x\nproperty float y\nproperty float z\n\
         property uchar red\nproperty uchar green\nproperty uchar blue\n\
         property float confidence\nend_header\n",
        points.xyz.len()
    )?;
    let mut record = Vec::with_capacity(points.xyz.len() * 19);
    for ((xyz, rgb), conf) in points.xyz.iter().zip(&points.rgb).zip(&points.conf) {
        record.extend(xyz.iter().flat_map(|v| v.to_le_bytes()));
        record.extend(rgb);
        record.extend(conf.to_le_bytes());
    }
    out.write_all(&record)?;
    Ok(points.written)
}
