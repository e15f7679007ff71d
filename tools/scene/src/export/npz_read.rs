//! Reads `.npz` files as numpy writes them (`savez`, `savez_compressed`), every value as f32.

use std::io::Read;

use half::f16;
use thiserror::Error;

/// One array of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct NpzArray {
    /// Without `.npy`.
    pub name: String,
    pub shape: Vec<usize>,
    /// C order. Integers beyond 24 bits and f64 lose digits.
    pub data: Vec<f32>,
}

#[derive(Clone, Debug, PartialEq, Error)]
pub enum NpzError {
    #[error("not an NPZ: {0}; write it with numpy.savez")]
    NotZip(&'static str),
    #[error("{name}: {what}")]
    Entry { name: String, what: String },
}

/// All arrays together may not be larger than this, so that a small file cannot claim the machine's memory.
const MAX_TOTAL: u64 = 8 << 30;
/// Deflate cannot shrink more than this, so a larger claim is a lie.
const MAX_DEFLATE_RATIO: u64 = 1040;

/// Reads stored and deflated entries of f2, f4, f8, i4, i8, u1 and bool, little endian, C order.
pub fn read_npz(bytes: &[u8]) -> Result<Vec<NpzArray>, NpzError> {
    let (count, mut at) = central_directory(bytes)?;
    let mut arrays = Vec::new();
    let mut total = 0u64;
    for _ in 0..count {
        let (entry, next) = central_entry(bytes, at)?;
        at = next;
        let file = entry.name.clone();
        let fail = |what: String| NpzError::Entry { name: file.clone(), what };
        total += entry.size;
        if total > MAX_TOTAL {
            return Err(fail(format!("the arrays are larger than {} GiB together", MAX_TOTAL >> 30)));
        }
        let body = entry_bytes(bytes, &entry).map_err(fail)?;
        let (shape, data) = parse_npy(&body).map_err(fail)?;
        let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name).into();
        arrays.push(NpzArray { name, shape, data });
    }
    Ok(arrays)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// Number of entries and where their list starts.
fn central_directory(bytes: &[u8]) -> Result<(usize, usize), NpzError> {
    if !bytes.starts_with(b"PK") {
        return Err(NpzError::NotZip("no zip signature"));
    }
    // The end record is 22 bytes and a comment of up to 65535.
    let first = bytes.len().saturating_sub(22 + 65535);
    let tail = &bytes[first..];
    let end = tail.windows(4).rposition(|w| w == b"PK\x05\x06").map(|p| first + p);
    let end = end.ok_or(NpzError::NotZip("no end of the zip directory, the file is truncated"))?;
    let record = u16_at(bytes, end + 10).zip(u32_at(bytes, end + 16));
    let (count, start) = record.ok_or(NpzError::NotZip("the end of the zip directory is cut"))?;
    if count == u16::MAX || start == u32::MAX {
        return Err(NpzError::NotZip("zip64 directories (over 4 GiB or 65534 arrays) are not read"));
    }
    Ok((count.into(), start as usize))
}

struct Entry {
    name: String,
    method: u16,
    crc: u32,
    packed: u64,
    size: u64,
    local: usize,
}

fn central_entry(bytes: &[u8], at: usize) -> Result<(Entry, usize), NpzError> {
    let parse = || {
        let head = bytes.get(at..at.checked_add(46)?)?;
        if !head.starts_with(b"PK\x01\x02") {
            return None;
        }
        let [name_len, extra, comment] = [28, 30, 32].map(|o| u16_at(head, o).map(usize::from));
        let name_end = at + 46 + name_len?;
        let entry = Entry {
            name: String::from_utf8_lossy(bytes.get(at + 46..name_end)?).into_owned(),
            method: u16_at(head, 10)?,
            crc: u32_at(head, 16)?,
            packed: u32_at(head, 20)?.into(),
            size: u32_at(head, 24)?.into(),
            local: u32_at(head, 42)? as usize,
        };
        Some((entry, name_end + extra? + comment?))
    };
    parse().ok_or(NpzError::NotZip("the zip directory is damaged"))
}

fn entry_bytes(bytes: &[u8], entry: &Entry) -> Result<Vec<u8>, String> {
    if entry.packed.max(entry.size) == u64::from(u32::MAX) {
        return Err("zip64 entries (over 4 GiB) are not read".into());
    }
    let packed = || {
        let head = bytes.get(entry.local..entry.local.checked_add(30)?)?;
        // The local header repeats the name and has an extra field of its own (numpy reserves zip64 room there).
        let start = entry.local + 30 + usize::from(u16_at(head, 26)?) + usize::from(u16_at(head, 28)?);
        head.starts_with(b"PK\x03\x04").then(|| bytes.get(start..start + entry.packed as usize))?
    };
    let packed = packed().ok_or("the entry lies outside the file, it is truncated")?;
    let body = match entry.method {
        0 if entry.size == entry.packed => packed.to_vec(),
        8 if entry.size <= entry.packed.saturating_mul(MAX_DEFLATE_RATIO) => {
            let mut body = Vec::with_capacity(entry.size as usize);
            let read = flate2::read::DeflateDecoder::new(packed).take(entry.size + 1).read_to_end(&mut body);
            read.map_err(|e| format!("cannot inflate: {e}"))?;
            body
        }
        0 | 8 => return Err("the sizes in the zip directory contradict each other".into()),
        other => return Err(format!("zip method {other} is not read, only stored and deflate")),
    };
    let mut crc = flate2::Crc::new();
    crc.update(&body);
    if body.len() as u64 != entry.size || crc.sum() != entry.crc {
        return Err("the checksum does not match, the file is damaged".into());
    }
    Ok(body)
}

fn parse_npy(bytes: &[u8]) -> Result<(Vec<usize>, Vec<f32>), String> {
    let split = || {
        let rest = bytes.strip_prefix(b"\x93NUMPY")?;
        let (header_len, start): (usize, usize) = match rest.first()? {
            1 => (usize::from(u16_at(rest, 2)?), 4),
            2 | 3 => (u32_at(rest, 2)? as usize, 6),
            _ => return None,
        };
        let end = start.checked_add(header_len)?;
        Some((std::str::from_utf8(rest.get(start..end)?).ok()?, rest.get(end..)?))
    };
    let (header, values) = split().ok_or("not an NPY file of version 1 to 3")?;
    let descr = field(header, "descr").ok_or("the NPY header has no descr")?;
    if field(header, "fortran_order") != Some("False") {
        return Err("Fortran order is not read; store numpy.ascontiguousarray(x)".into());
    }
    let shape = field(header, "shape").and_then(parse_shape).ok_or("the NPY header has no shape")?;
    let wanted = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).ok_or("the shape is too large")?;

    macro_rules! read {
        ($ty:ty, $to_f32:expr) => {{
            const N: usize = size_of::<$ty>();
            check_len(wanted, N, values.len())?;
            values.as_chunks::<N>().0.iter().map(|b| $to_f32(<$ty>::from_le_bytes(*b))).collect()
        }};
    }
    let data = match descr.trim_matches(['\'', '"']) {
        "<f2" => read!(f16, f16::to_f32),
        "<f4" => read!(f32, |v| v),
        "<f8" => read!(f64, |v| v as f32),
        "<i4" => read!(i32, |v| v as f32),
        "<i8" => read!(i64, |v| v as f32),
        "|u1" | "<u1" => read!(u8, f32::from),
        "|b1" | "<b1" => read!(u8, |v| f32::from(u8::from(v != 0))),
        other => return Err(format!("dtype {other} is not read; store float32")),
    };
    Ok((shape, data))
}

fn check_len(wanted: usize, width: usize, found: usize) -> Result<(), String> {
    match wanted.checked_mul(width) == Some(found) {
        true => Ok(()),
        false => Err(format!("the shape needs {wanted} values of {width} bytes, there are {found} bytes")),
    }
}

/// The text of `'key': value` in the header's Python dictionary; a tuple keeps its parentheses.
fn field<'h>(header: &'h str, key: &str) -> Option<&'h str> {
    let at = header.find(&format!("'{key}'"))? + key.len() + 2;
    let value = header.get(at..)?.trim_start().strip_prefix(':')?.trim_start();
    let end = if value.starts_with('(') { value.find(')')? + 1 } else { value.find([',', '}'])? };
    Some(value.get(..end)?.trim_end())
}

fn parse_shape(tuple: &str) -> Option<Vec<usize>> {
    let inner = tuple.strip_prefix('(')?.strip_suffix(')')?;
    inner.split(',').map(str::trim).filter(|d| !d.is_empty()).map(|d| d.parse().ok()).collect()
}
