//! A hub on loopback with faults to order. It answers what the real one answers: a large file's address redirects to
//! storage, and only the redirect carries commit, checksum and size.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use sha1::Sha1;
use sha2::{Digest, Sha256};

pub const OWNER: &str = "tester";
pub const NAME: &str = "Tiny_dpt";
pub const COMMIT: &str = "61c57447d7b0adc8a1a30b2b0adec7a8935aa2a3";

/// What to do wrong.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Close the connection after so many bytes of a body, so many times.
    pub cut: Option<(usize, u32)>,
    /// Be down once a connection was cut.
    pub down_after_cut: bool,
    /// Answer every request for stored bytes with this status.
    pub storage_down: Option<u16>,
    /// Answer 503 to so many requests first.
    pub busy: u32,
    /// Answer everything with a status and an `X-Error-Code`.
    pub refuse: Option<(u16, &'static str)>,
    /// Ask for this token, else 401.
    pub token: Option<&'static str>,
    /// Change one byte of every body.
    pub corrupt: bool,
    /// Announce so many bytes more than there are.
    pub overstate: isize,
    /// Send the whole file whatever range is asked for.
    pub ignore_ranges: bool,
    /// Wait before every 64 KiB.
    pub slow: Option<Duration>,
    /// Send this ETag for every file.
    pub etag: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub range: Option<String>,
    pub token: Option<String>,
}

#[derive(Default)]
struct State {
    faults: Faults,
    commit: String,
    files: BTreeMap<String, Vec<u8>>,
    requests: Vec<Request>,
    /// Bytes of stored files sent.
    sent: usize,
    stop: bool,
}

/// Stops when dropped.
pub struct Hub {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl Hub {
    pub fn new(files: &[(&str, Vec<u8>)]) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let address = listener.local_addr().expect("its address");
        let files = files.iter().map(|(name, bytes)| (name.to_string(), bytes.clone())).collect();
        let state = Arc::new(Mutex::new(State { commit: COMMIT.to_owned(), files, ..State::default() }));
        let shared = state.clone();
        let thread = std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                if shared.lock().expect("not poisoned").stop {
                    break;
                }
                let (Ok(stream), shared) = (stream, shared.clone()) else { continue };
                // A client that hangs up is no fault of the server.
                open.push(std::thread::spawn(move || drop(answer(stream, address, &shared))));
            }
            open.into_iter().for_each(|t| t.join().expect("no panic while answering"));
        });
        Hub { address, state, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn faults(&self, faults: Faults) {
        self.state.lock().expect("not poisoned").faults = faults;
    }

    /// `main` now means `commit`.
    pub fn commit(&self, commit: &str) {
        self.state.lock().expect("not poisoned").commit = commit.to_owned();
    }

    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().expect("not poisoned").requests.clone()
    }

    /// Requests that asked for stored bytes.
    pub fn downloads(&self) -> Vec<Request> {
        self.requests().into_iter().filter(|r| r.method == "GET" && r.path.starts_with("/storage/")).collect()
    }

    pub fn sent(&self) -> usize {
        self.state.lock().expect("not poisoned").sent
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Ok(mut state) = self.state.lock() {
            state.stop = true;
        }
        // Wakes the thread, which then sees `stop`.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

pub fn git_blob(bytes: &[u8]) -> String {
    let mut sum = Sha1::new_with_prefix(format!("blob {}\0", bytes.len()));
    sum.update(bytes);
    sum.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

fn answer(stream: TcpStream, address: SocketAddr, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let mut request = Request {
        method: words.next().unwrap_or_default().to_owned(),
        path: words.next().unwrap_or_default().to_owned(),
        range: None,
        token: None,
    };
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        let Some((name, value)) = header.split_once(':') else { continue };
        match name.to_ascii_lowercase().as_str() {
            "range" => request.range = Some(value.trim().to_owned()),
            "authorization" => request.token = value.trim().strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    let (faults, commit, files, busy) = {
        let mut state = state.lock().expect("not poisoned");
        state.requests.push(request.clone());
        let busy = state.faults.busy > 0;
        state.faults.busy = state.faults.busy.saturating_sub(1);
        (state.faults.clone(), state.commit.clone(), state.files.clone(), busy)
    };

    let plain = |status: u16, headers: &str| {
        write!(&stream, "HTTP/1.1 {status} x\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n")
    };
    if busy {
        return plain(503, "");
    }
    if let Some((status, code)) = faults.refuse {
        return plain(status, &format!("X-Error-Code: {code}\r\n"));
    }
    if faults.token.is_some() && faults.token != request.token.as_deref() {
        return plain(401, "X-Error-Code: GatedRepo\r\n");
    }
    if let Some(file) = request.path.strip_prefix("/storage/") {
        return match (files.get(file), faults.storage_down) {
            (_, Some(status)) => plain(status, ""),
            (Some(bytes), None) => send(&stream, &request, bytes, "ETag: \"storage\"\r\n", &faults, state),
            (None, None) => plain(404, ""),
        };
    }
    let Some(path) = request.path.strip_prefix(&format!("/{OWNER}/{NAME}/resolve/")) else {
        return plain(404, "X-Error-Code: RepoNotFound\r\n");
    };
    let (revision, file) = path.split_once('/').unwrap_or((path, ""));
    if revision != "main" && revision != commit {
        return plain(404, "X-Error-Code: RevisionNotFound\r\n");
    }
    let Some(bytes) = files.get(file) else {
        return plain(404, "X-Error-Code: EntryNotFound\r\n");
    };
    let commit = format!("X-Repo-Commit: {commit}\r\n");
    if file.ends_with(".safetensors") {
        let etag = faults.etag.map_or_else(|| sha256(bytes), str::to_owned);
        let size = bytes.len().strict_add_signed(faults.overstate);
        let linked = format!("X-Linked-Etag: \"{etag}\"\r\nX-Linked-Size: {size}\r\n");
        return plain(302, &format!("{commit}{linked}Location: http://{address}/storage/{file}\r\n"));
    }
    send(&stream, &request, bytes, &format!("{commit}ETag: \"{}\"\r\n", git_blob(bytes)), &faults, state)
}

fn send(
    mut stream: &TcpStream,
    request: &Request,
    bytes: &[u8],
    headers: &str,
    faults: &Faults,
    state: &Mutex<State>,
) -> std::io::Result<()> {
    let from = request.range.as_deref().filter(|_| !faults.ignore_ranges).map(|range| {
        let first = range.strip_prefix("bytes=").and_then(|r| r.split('-').next());
        first.and_then(|f| f.parse::<usize>().ok()).expect("a range from somewhere on")
    });
    if from.is_some_and(|from| from >= bytes.len()) {
        return write!(stream, "HTTP/1.1 416 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let mut body = bytes[from.unwrap_or(0)..].to_vec();
    if faults.corrupt {
        body[0] ^= 1;
    }
    let status = if from.is_some() { 206 } else { 200 };
    write!(
        stream,
        "HTTP/1.1 {status} x\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    if request.method == "HEAD" {
        return Ok(());
    }
    let cut = {
        let faults = &mut state.lock().expect("not poisoned").faults;
        match &mut faults.cut {
            Some((after, times)) if *times > 0 => {
                *times -= 1;
                let after = *after;
                faults.storage_down = faults.down_after_cut.then_some(502).or(faults.storage_down);
                Some(after)
            }
            _ => None,
        }
    };
    body.truncate(cut.unwrap_or(body.len()));
    for piece in body.chunks(1 << 16) {
        if let Some(pause) = faults.slow {
            std::thread::sleep(pause);
        }
        stream.write_all(piece)?;
        state.lock().expect("not poisoned").sent += piece.len();
    }
    Ok(())
}
