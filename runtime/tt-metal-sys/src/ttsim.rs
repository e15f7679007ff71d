//! Tenstorrent's functional simulator, `libttsim.so`, in a child process: it ends its process on any error.

use crate::tlb::{LARGE_BITS, Ordering, REGISTERS, SMALL_BITS, SMALL_WINDOWS, Window};
use crate::{BANK_BYTES, Error, Info, Link, Result, Xy, bank_at};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Held while a child starts, so that no other child inherits the ends of its socket and pipe.
static OPENING: Mutex<()> = Mutex::new(());

/// A simulated chip with all 14 columns and 10 rows.
pub struct Ttsim {
    info: Info,
    socket: UnixStream,
    child: libc::pid_t,
    stderr: File,
}

const WRITE: u8 = 0;
const MULTICAST: u8 = 1;
const READ: u8 = 2;
const ADVANCE: u8 = 3;

/// op, from x y, to x y, address or clocks, length.
fn header(op: u8, from: Xy, to: Xy, addr: u64, len: usize) -> [u8; 24] {
    let mut h = [0; 24];
    h[..5].copy_from_slice(&[op, from.x, from.y, to.x, to.y]);
    h[8..16].copy_from_slice(&addr.to_le_bytes());
    h[16..24].copy_from_slice(&(len as u64).to_le_bytes());
    h
}

impl Ttsim {
    /// Starts the simulator in `library`, a build of `libttsim.so` for Blackhole.
    pub fn open(library: &Path) -> Result<Ttsim> {
        let unavailable = |e: &dyn std::fmt::Display| {
            Error::Unavailable(format!("cannot start the simulator {}: {e}", library.display()))
        };
        if !library.is_file() {
            return Err(unavailable(&"there is no such file; TTSIM_LIB must name libttsim.so"));
        }
        let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let (ours, theirs) = UnixStream::pair().map_err(|e| unavailable(&e))?;
        let mut pipe = [0; 2];
        // SAFETY: `pipe` has room for the two descriptors.
        if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(unavailable(&io::Error::last_os_error()));
        }
        // SAFETY: both descriptors are new and ours alone.
        let (err_out, err_in) = unsafe { (OwnedFd::from_raw_fd(pipe[0]), OwnedFd::from_raw_fd(pipe[1])) };
        // SAFETY: the child runs `serve` alone, which loads the library and answers requests until its socket closes; it
        // takes no lock that another thread of the parent could hold (glibc makes its allocator usable after fork).
        let child = unsafe { libc::fork() };
        match child {
            -1 => Err(unavailable(&io::Error::last_os_error())),
            0 => {
                drop(ours);
                // SAFETY: plain system calls on descriptors that we own; the process then never returns.
                unsafe {
                    libc::dup2(err_in.as_raw_fd(), 2);
                    libc::dup2(err_in.as_raw_fd(), 1);
                    let code = match serve(library, theirs) {
                        Ok(()) => 0,
                        Err(e) => {
                            let _ = io::stderr().write_all(e.as_bytes());
                            1
                        }
                    };
                    libc::_exit(code)
                }
            }
            _ => {
                let info = Info {
                    columns: (1..=7).chain(10..=16).collect(),
                    rows: (2..=11).collect(),
                    bank_bytes: BANK_BYTES,
                };
                let mut sim = Ttsim { info, socket: ours, child, stderr: File::from(err_out) };
                sim.advance(0)?;
                Ok(sim)
            }
        }
    }

    fn request(&mut self, head: [u8; 24], out: &[u8], into: &mut [u8]) -> Result<()> {
        let mut exchange = || {
            self.socket.write_all(&head)?;
            self.socket.write_all(out)?;
            self.socket.read_exact(&mut [0; 1])?;
            self.socket.read_exact(into)
        };
        exchange().map_err(|e: io::Error| {
            let mut said = String::new();
            let _ = self.stderr.read_to_string(&mut said);
            let last: Vec<&str> = said.lines().rev().take(4).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            Error::Lost(if last.is_empty() { e.to_string() } else { last.join("; ") })
        })
    }
}

impl Link for Ttsim {
    fn info(&self) -> &Info {
        &self.info
    }

    fn write(&mut self, to: Xy, addr: u64, bytes: &[u8]) -> Result<()> {
        self.info.check(to)?;
        self.request(header(WRITE, to, to, addr, bytes.len()), bytes, &mut [])
    }

    fn multicast(&mut self, from: Xy, to: Xy, addr: u64, bytes: &[u8]) -> Result<()> {
        self.info.check_rectangle(from, to)?;
        self.request(header(MULTICAST, from, to, addr, bytes.len()), bytes, &mut [])
    }

    fn read(&mut self, from: Xy, addr: u64, bytes: &mut [u8]) -> Result<()> {
        self.info.check(from)?;
        self.request(header(READ, from, from, addr, bytes.len()), &[], bytes)
    }

    fn advance(&mut self, clocks: u32) -> Result<()> {
        let nowhere = Xy::new(0, 0);
        self.request(header(ADVANCE, nowhere, nowhere, u64::from(clocks), 0), &[], &mut [])
    }
}

impl Drop for Ttsim {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        // SAFETY: the child is ours and not yet waited for.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            libc::waitpid(self.child, std::ptr::null_mut(), 0);
        }
    }
}

type Rd32 = unsafe extern "C" fn(u32, u32) -> u32;
type RdBytes = unsafe extern "C" fn(u64, *mut u8, u32);
type WrBytes = unsafe extern "C" fn(u64, *const u8, u32);

/// The simulated PCIe function: BAR addresses and the windows' present targets.
struct Bars {
    read: RdBytes,
    write: WrBytes,
    bar0: u64,
    bar4: u64,
    set: HashMap<u32, [u32; 3]>,
}

impl Bars {
    /// Points a window and returns the bus address of `w.addr` in it.
    fn point(&mut self, w: Window) -> u64 {
        // DRAM banks have a large window each; workers share two small ones, unicast and multicast.
        let (index, words, base, bits) = if let Some(bank) = bank_at(w.to) {
            let bank = bank as u32;
            (SMALL_WINDOWS + bank, w.large(), self.bar4 + (u64::from(bank) << LARGE_BITS), LARGE_BITS)
        } else {
            let index = u32::from(w.multicast_from.is_some());
            (index, w.small(), self.bar0 + (u64::from(index) << SMALL_BITS), SMALL_BITS)
        };
        if self.set.insert(index, words) != Some(words) {
            for (i, word) in words.iter().enumerate() {
                let at = self.bar0 + REGISTERS + 12 * u64::from(index) + 4 * i as u64;
                // SAFETY: a four-byte write from a live word.
                unsafe { (self.write)(at, word.to_le_bytes().as_ptr(), 4) };
            }
        }
        base + (w.addr & ((1 << bits) - 1))
    }

    /// Calls `access` for each piece of `[addr, addr + len)` that lies in one window: bus address and range.
    fn pieces(
        &mut self,
        w: Window,
        len: usize,
        mut access: impl FnMut(&mut Bars, u64, std::ops::Range<usize>),
    ) {
        let size: u64 = if bank_at(w.to).is_some() { 1 << 30 } else { 1 << SMALL_BITS };
        let mut done = 0;
        while done < len {
            let addr = w.addr + done as u64;
            let n = (len - done).min((size - addr % size) as usize);
            let bus = self.point(Window { addr, ..w });
            access(self, bus, done..done + n);
            done += n;
        }
    }
}

fn serve(library: &Path, mut socket: UnixStream) -> std::result::Result<(), String> {
    // SAFETY: the library is the simulator that the user named; its exported functions have the signatures of ttsim's
    // `libttsim.h`, and it is used from this thread alone.
    let (lib, config) = unsafe {
        let lib = libloading::Library::new(library).map_err(|e| e.to_string())?;
        let init: libloading::Symbol<unsafe extern "C" fn()> =
            lib.get(b"libttsim_init\0").map_err(|e| e.to_string())?;
        init();
        let config: Rd32 = *lib.get(b"libttsim_pci_config_rd32\0").map_err(|e| e.to_string())?;
        (lib, config)
    };
    // SAFETY: as above.
    let (read, write, clock, bar) = unsafe {
        let id = config(0, 0);
        if id != 0xB140_1E52 {
            return Err(format!("PCI id {id:08x} is no Blackhole (1e52:b140)"));
        }
        let read: RdBytes = *lib.get(b"libttsim_pci_mem_rd_bytes\0").map_err(|e| e.to_string())?;
        let write: WrBytes = *lib.get(b"libttsim_pci_mem_wr_bytes\0").map_err(|e| e.to_string())?;
        let clock: unsafe extern "C" fn(u32) = *lib.get(b"libttsim_clock\0").map_err(|e| e.to_string())?;
        let bar = |at: u32| u64::from(config(0, at) & !0xF) | u64::from(config(0, at + 4)) << 32;
        (read, write, clock, [bar(0x10), bar(0x20)])
    };
    let mut bars = Bars { read, write, bar0: bar[0], bar4: bar[1], set: HashMap::new() };
    let mut head = [0; 24];
    let mut data = vec![];
    while socket.read_exact(&mut head).is_ok() {
        let addr = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
        let len = u64::from_le_bytes(head[16..24].try_into().expect("eight bytes")) as usize;
        let (from, to) = (Xy::new(head[1], head[2]), Xy::new(head[3], head[4]));
        let multicast_from = (head[0] == MULTICAST).then_some(from);
        let window = Window { to, multicast_from, addr, ordering: Ordering::Strict };
        data.resize(len, 0);
        match head[0] {
            WRITE | MULTICAST => {
                socket.read_exact(&mut data).map_err(|e| e.to_string())?;
                // SAFETY: the range lies in `data`.
                bars.pieces(window, len, |b, bus, r| unsafe {
                    (b.write)(bus, data[r.clone()].as_ptr(), r.len() as u32)
                });
                data.clear();
            }
            READ => {
                // SAFETY: the range lies in `data`.
                bars.pieces(window, len, |b, bus, r| unsafe {
                    (b.read)(bus, data[r.clone()].as_mut_ptr(), r.len() as u32)
                });
            }
            // SAFETY: no pointers.
            _ => unsafe { clock(addr as u32) },
        }
        socket.write_all(&[0]).and_then(|()| socket.write_all(&data)).map_err(|e| e.to_string())?;
    }
    Ok(())
}
