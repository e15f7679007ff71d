//! The bytes of an artifact: a mapped file, or memory.

use crate::RuntimeError;
use memmap2::{Mmap, MmapMut};
use std::path::Path;

/// Page-aligned, read-only from here on.
pub enum Bytes {
    File(Mmap),
    Memory(MmapMut),
}

impl Bytes {
    /// Maps a file.
    #[allow(unsafe_code)]
    pub fn open(path: &Path) -> Result<Bytes, RuntimeError> {
        let fail = |source| RuntimeError::Open { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(fail)?;
        if file.metadata().map_err(fail)?.len() == 0 {
            return Err(RuntimeError::artifact(format!("{} is empty", path.display())));
        }
        // SAFETY: sound while nobody changes the file under the mapping, which no API can promise. Everything that indexes
        // was checked against hashes when it was loaded; a later rewrite changes numbers, a truncation ends the process.
        let map = unsafe { Mmap::map(&file) }.map_err(fail)?;
        Ok(Bytes::File(map))
    }

    /// Zeroed memory of `len` bytes, to be written once.
    pub fn zeroed(len: usize) -> Result<MmapMut, RuntimeError> {
        MmapMut::map_anon(len.max(1)).map_err(|e| RuntimeError::Start {
            what: format!("no {len} bytes of memory: {e}"),
            next: "close other programs, or choose a smaller size or bf16".into(),
        })
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::File(map) => map,
            Bytes::Memory(map) => map,
        }
    }
}
