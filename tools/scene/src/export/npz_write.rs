//! NPZ for `numpy.load`: a zip of stored `.npy` files. Equal input gives equal bytes.

use std::io::Write;

use half::f16;

use super::{Cloud, ExportError, View, Written};

/// One named array, C order.
#[derive(Clone, Copy, Debug)]
pub struct NpyArray<'a> {
    /// Without `.npy`.
    pub name: &'a str,
    pub shape: &'a [usize],
    pub data: NpyData<'a>,
}

/// The values and how they are stored, little endian.
#[derive(Clone, Copy, Debug)]
pub enum NpyData<'a> {
    F32(&'a [f32]),
    /// Rounded to half precision while writing.
    F16(&'a [f32]),
    U8(&'a [u8]),
}

/// How confidences are stored: `F32` in files, `F16` as `/predict` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfDtype {
    F32,
    F16,
}

/// Writes `pts3d1, conf1, pts3d2, conf2, ...`: `[H, W, 3]` f32 and `[H, W]`, every pixel of every view.
///
/// The threshold does not apply, and padding and non-finite values stay where they are: an array has a place for
/// every pixel. The returned counts say how many there were.
pub fn write_pair_npz(out: &mut impl Write, cloud: &Cloud, conf: ConfDtype) -> Result<Written, ExportError> {
    cloud.check()?;
    let names: Vec<_> = (1..=cloud.views.len()).map(|i| (format!("pts3d{i}"), format!("conf{i}"))).collect();
    let shapes: Vec<_> = cloud.views.iter().map(|v| [v.height as usize, v.width as usize, 3]).collect();
    let mut arrays = Vec::new();
    for ((view, (pts_name, conf_name)), shape) in cloud.views.iter().zip(&names).zip(&shapes) {
        let confidences = match conf {
            ConfDtype::F32 => NpyData::F32(view.conf),
            ConfDtype::F16 => NpyData::F16(view.conf),
        };
        arrays.push(NpyArray { name: pts_name, shape, data: NpyData::F32(view.pts3d) });
        arrays.push(NpyArray { name: conf_name, shape: &shape[..2], data: confidences });
    }
    write_npz(out, &arrays)?;
    let mut written = Written::default();
    for pixel in cloud.views.iter().flat_map(View::pixels) {
        written.points += 1;
        written.padding += usize::from(!pixel.real);
        written.non_finite += usize::from(!pixel.is_finite());
    }
    Ok(written)
}

/// Writes any arrays.
pub fn write_npz(out: &mut impl Write, arrays: &[NpyArray]) -> Result<(), ExportError> {
    let too_large = |_| ExportError::TooLarge { what: "the NPZ" };
    let mut directory = Vec::new();
    let mut offset = 0u64;
    for array in arrays {
        let body = npy(array)?;
        let name = format!("{}.npy", array.name);
        let mut crc = flate2::Crc::new();
        crc.update(&body);
        // From "version needed" to "extra length": the part that both headers share. Stored, 1 January 1980.
        let mut common = Vec::new();
        for half_word in [20u16, 0, 0, 0, 0x21] {
            common.extend(half_word.to_le_bytes());
        }
        let size = u32::try_from(body.len()).map_err(too_large)?;
        for word in [crc.sum(), size, size] {
            common.extend(word.to_le_bytes());
        }
        let name_len = u16::try_from(name.len()).map_err(too_large)?;
        common.extend(name_len.to_le_bytes());
        common.extend([0, 0]);

        out.write_all(b"PK\x03\x04")?;
        out.write_all(&common)?;
        out.write_all(name.as_bytes())?;
        out.write_all(&body)?;

        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&common);
        // Comment length, disk, internal and external attributes: all zero.
        directory.extend([0; 10]);
        directory.extend(u32::try_from(offset).map_err(too_large)?.to_le_bytes());
        directory.extend(name.as_bytes());
        offset += 4 + common.len() as u64 + name.len() as u64 + body.len() as u64;
    }
    let count = u16::try_from(arrays.len()).map_err(too_large)?;
    let directory_at = u32::try_from(offset).map_err(too_large)?;
    out.write_all(&directory)?;
    out.write_all(b"PK\x05\x06\0\0\0\0")?;
    out.write_all(&count.to_le_bytes())?;
    out.write_all(&count.to_le_bytes())?;
    out.write_all(&u32::try_from(directory.len()).map_err(too_large)?.to_le_bytes())?;
    out.write_all(&directory_at.to_le_bytes())?;
    out.write_all(&[0, 0])?;
    Ok(())
}

/// An `.npy` file, format version 1.0.
fn npy(array: &NpyArray) -> Result<Vec<u8>, ExportError> {
    let (descr, found, width) = match array.data {
        NpyData::F32(v) => ("<f4", v.len(), 4),
        NpyData::F16(v) => ("<f2", v.len(), 2),
        NpyData::U8(v) => ("|u1", v.len(), 1),
    };
    let expected = array.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if expected != Some(found) {
        return Err(ExportError::ArrayShape { name: array.name.into(), found, shape: array.shape.to_vec() });
    }
    // A Python tuple: one element still needs its comma.
    let dims: String = array.shape.iter().map(|d| format!("{d}, ")).collect();
    let dims = if array.shape.len() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}").into_bytes();
    // Magic, version and length are 10 bytes; data start at a multiple of 64, after a newline.
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
    header.resize(padded - 1, b' ');
    header.push(b'\n');
    let header_len =
        u16::try_from(header.len()).map_err(|_| ExportError::TooLarge { what: "an NPY header" })?;

    let mut bytes = Vec::with_capacity(10 + header.len() + found * width);
    bytes.extend(b"\x93NUMPY\x01\x00");
    bytes.extend(header_len.to_le_bytes());
    bytes.extend(header);
    match array.data {
        NpyData::F32(v) => bytes.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        NpyData::F16(v) => bytes.extend(v.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes())),
        NpyData::U8(v) => bytes.extend(v),
    }
    Ok(bytes)
}
