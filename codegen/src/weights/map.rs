//! Memory-mapped reading.

use std::fs::File;
use std::io;
use std::ops::Range;

use memmap2::{Mmap, MmapOptions};

/// Maps `range` (bytes) of `file` read-only; an empty range gives an empty mapping.
///
/// Mapping one tensor at a time instead of the whole file keeps the resident set small: the pages go back
/// when the mapping is dropped.
///
/// # Errors
/// The file does not reach the end of the range, or the system refuses.
#[allow(unsafe_code)]
pub(super) fn map(file: &File, range: Range<u64>) -> io::Result<Mmap> {
    let size = file.metadata()?.len();
    let len = range.end.checked_sub(range.start).and_then(|n| usize::try_from(n).ok());
    let (Some(len), true) = (len, range.end <= size) else {
        let why = format!("bytes {}..{} wanted, the file now has {size}", range.start, range.end);
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    };
    // SAFETY: a mapping is only sound while nobody changes the file under it. No API can promise that for a file;
    // the mapping is read-only, private to this module, lives for one read, and its range was checked just now, so
    // what remains is another process truncating or rewriting the file during that read.
    let map = unsafe { MmapOptions::new().offset(range.start).len(len).map(file)? };
    // Only a hint that the pages will be read once, front to back.
    #[cfg(unix)]
    let _ = map.advise(memmap2::Advice::Sequential);
    Ok(map)
}
