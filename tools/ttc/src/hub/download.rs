//! One file into the cache: locked, resumed, checked, and only then visible.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use futures::StreamExt;
use hf_hub::HFError;
use reqwest::StatusCode;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::cache::create_parent;
use super::error::{HubError, HubErrorKind};
use super::options::Event;
use super::remote::{Meta, Remote, TRIES, pause};

impl Remote<'_> {
    /// Puts `file` into the cache and gives its path there.
    pub(super) async fn file(&self, file: &str, meta: &Meta) -> Result<PathBuf, HubError> {
        let blob = self.cache.blob(&meta.etag);
        create_parent(&blob)?;
        let _lock = self.lock(file, meta)?;
        // Another process may have brought it while the lock was waited for.
        if !fs::metadata(&blob).is_ok_and(|m| m.len() == meta.size) {
            let part = blob.with_added_extension("incomplete");
            // A part from an earlier attempt may itself be damaged: only what came in one go is final.
            let resumed = fs::metadata(&part).is_ok_and(|m| m.len() > 0);
            match self.download(file, meta, &part).await {
                Err(e) if e.kind == HubErrorKind::Hash && resumed => self.download(file, meta, &part).await?,
                done => done?,
            }
            fs::rename(&part, &blob).map_err(|e| HubError::disk("write", &blob, &e))?;
            self.options.emit(Event::Finished { file, total: meta.size });
        }
        self.cache.link(&meta.commit, file, &meta.etag)
    }

    /// The lock that the Python client takes too.
    fn lock(&self, file: &str, meta: &Meta) -> Result<File, HubError> {
        let path = self.cache.lock_path(&meta.etag);
        create_parent(&path)?;
        let fail = |e: std::io::Error| HubError::disk("lock", &path, &e);
        let lock = File::options().create(true).append(true).open(&path).map_err(fail)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                self.options.emit(Event::Waiting { file });
                lock.lock().map_err(fail)?;
            }
            Err(TryLockError::Error(e)) => return Err(fail(e)),
        }
        Ok(lock)
    }

    /// Completes `part` and checks it. A part with wrong contents is removed.
    async fn download(&self, file: &str, meta: &Meta, part: &Path) -> Result<(), HubError> {
        let mut piece = Piece::open(part, meta)?;
        let total = meta.size;
        self.options.emit(Event::Started { file, done: piece.done, total });
        let mut tries = 0;
        while piece.done < total {
            let before = piece.done;
            let Err(e) = self.stream(file, meta, &mut piece).await else { continue };
            // Every piece that arrives renews the patience.
            tries = if piece.done > before { 1 } else { tries + 1 };
            if e.kind != HubErrorKind::Network || tries >= TRIES {
                return Err(e);
            }
            self.options.emit(Event::Retry { file, done: piece.done, why: &e.why });
            tokio::time::sleep(pause(tries)).await;
        }
        piece.file.sync_data().map_err(|e| HubError::disk("write", part, &e))?;
        match piece.sum.matches(&meta.etag) {
            Some(true) => Ok(()),
            None => {
                self.options.emit(Event::Unverified { file });
                Ok(())
            }
            Some(false) => {
                let _ = fs::remove_file(part);
                let why = format!("the bytes that came do not have the checksum {}", meta.etag);
                Err(self.altered(HubErrorKind::Hash, file, why))
            }
        }
    }

    /// Appends to `piece` what one request brings. An early end is an error of the network. `Ok` with less than the
    /// whole means that the piece starts over without ranges.
    async fn stream(&self, file: &str, meta: &Meta, piece: &mut Piece) -> Result<(), HubError> {
        let from = piece.done;
        let request = self.files.download_file_stream().filename(file).revision(&meta.commit);
        // A plain request for the whole, so that servers without ranges can answer it.
        let range = (from > 0 && piece.ranges).then_some(from..meta.size);
        if range.is_none() {
            piece.restart()?;
        }
        let asked_for_rest = range.is_some();
        let (length, mut stream) = match request.maybe_range(range).send().await {
            Ok(answer) => answer,
            Err(HFError::Http { context })
                if asked_for_rest && context.status == StatusCode::RANGE_NOT_SATISFIABLE =>
            {
                return piece.distrust_ranges();
            }
            Err(e) => return Err(self.translate(file, &e)),
        };
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|e| self.translate(file, &e))?;
            if piece.done + chunk.len() as u64 > meta.size {
                if asked_for_rest {
                    return piece.distrust_ranges();
                }
                return Err(self.wrong_size(
                    file,
                    piece,
                    format!("more came than the {} bytes announced", meta.size),
                ));
            }
            piece.push(&chunk)?;
            self.options.emit(Event::Progress { file, done: piece.done, total: meta.size });
        }
        if piece.done == meta.size {
            return Ok(());
        }
        // A body that ends where its own length says was not cut: the server has no more.
        if !asked_for_rest && length == Some(piece.done) {
            let why = format!("{} bytes came of the {} announced", piece.done, meta.size);
            return Err(self.wrong_size(file, piece, why));
        }
        Err(self.network(&format!("the connection ended after {} of {} bytes", piece.done, meta.size)))
    }

    /// The error for a file of another size than the hub said; what came of it is removed.
    fn wrong_size(&self, file: &str, piece: &Piece, why: String) -> HubError {
        let _ = fs::remove_file(&piece.path);
        self.altered(HubErrorKind::Size, file, why)
    }

    fn altered(&self, kind: HubErrorKind, file: &str, why: String) -> HubError {
        HubError::new(
            kind,
            format!("cannot use {file} of {}", self.repo),
            why,
            "try again; if it stays, something between here and the hub alters the file",
        )
    }
}

/// A file on its way: its first `done` bytes are on disk and in the checksum.
struct Piece {
    path: PathBuf,
    file: File,
    done: u64,
    sum: Checksum,
    size: u64,
    /// Whether the server is believed to answer ranges.
    ranges: bool,
}

impl Piece {
    /// Takes over what an earlier attempt left at `path`.
    fn open(path: &Path, meta: &Meta) -> Result<Piece, HubError> {
        let fail = |e: std::io::Error| HubError::disk("write", path, &e);
        let file = File::options().create(true).read(true).append(true).open(path).map_err(fail)?;
        let sum = Checksum::new(&meta.etag, meta.size);
        let mut piece = Piece { path: path.to_owned(), file, done: 0, sum, size: meta.size, ranges: true };
        let left = piece.file.metadata().map_err(fail)?.len();
        if left > meta.size {
            piece.restart()?;
            return Ok(piece);
        }
        let mut buffer = vec![0; 1 << 20];
        while piece.done < left {
            let n = piece.file.read(&mut buffer).map_err(fail)?;
            if n == 0 {
                break;
            }
            piece.sum.update(&buffer[..n]);
            piece.done += n as u64;
        }
        Ok(piece)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        self.file.write_all(bytes).map_err(|e| HubError::disk("write", &self.path, &e))?;
        self.sum.update(bytes);
        self.done += bytes.len() as u64;
        Ok(())
    }

    /// Starts over: the server's answer to a range was not that range. The next request is for the whole.
    fn distrust_ranges(&mut self) -> Result<(), HubError> {
        self.ranges = false;
        self.restart()
    }

    fn restart(&mut self) -> Result<(), HubError> {
        if self.done > 0 || self.file.metadata().is_ok_and(|m| m.len() > 0) {
            self.file.set_len(0).map_err(|e| HubError::disk("write", &self.path, &e))?;
        }
        self.done = 0;
        self.sum = self.sum.again(self.size);
        Ok(())
    }
}

/// The checksum that an ETag promises.
enum Checksum {
    /// Of large files: the sha256 of the contents.
    Sha256(Sha256),
    /// Of small files: the id git gives the contents.
    GitBlob(Sha1),
    /// The ETag is something else.
    None,
}

impl Checksum {
    fn new(etag: &str, size: u64) -> Checksum {
        let hex = etag.bytes().all(|b| b.is_ascii_hexdigit());
        match etag.len() {
            64 if hex => Checksum::Sha256(Sha256::new()),
            40 if hex => Checksum::GitBlob(git_blob(size)),
            _ => Checksum::None,
        }
    }

    /// The same kind, of nothing yet.
    fn again(&self, size: u64) -> Checksum {
        match self {
            Checksum::Sha256(_) => Checksum::Sha256(Sha256::new()),
            Checksum::GitBlob(_) => Checksum::GitBlob(git_blob(size)),
            Checksum::None => Checksum::None,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Checksum::Sha256(sum) => sum.update(bytes),
            Checksum::GitBlob(sum) => sum.update(bytes),
            Checksum::None => {}
        }
    }

    /// `None` if there is nothing to compare.
    fn matches(self, etag: &str) -> Option<bool> {
        let hex = |digest: &[u8]| digest.iter().map(|b| format!("{b:02x}")).collect::<String>();
        match self {
            Checksum::Sha256(sum) => Some(hex(&sum.finalize()).eq_ignore_ascii_case(etag)),
            Checksum::GitBlob(sum) => Some(hex(&sum.finalize()).eq_ignore_ascii_case(etag)),
            Checksum::None => None,
        }
    }
}

/// Git hashes a blob after a line with its kind and size.
fn git_blob(size: u64) -> Sha1 {
    Sha1::new_with_prefix(format!("blob {size}\0"))
}
