//! A Blackhole as the host sees it: tiles on a NoC, each with an address space, reached through PCIe windows.
//!
//! Coordinates are *translated* NoC coordinates everywhere: worker columns are compacted, harvested ones lie at the right
//! end, and DRAM banks have x = 17 or 18 (tt-umd, `blackhole_140_arch.yaml`). They are never mixed with physical ones.

mod null;
pub mod tlb;
mod ttsim;

pub use null::{Null, Record};
pub use ttsim::Ttsim;

/// A tile's translated NoC coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xy {
    pub x: u8,
    pub y: u8,
}

impl Xy {
    pub const fn new(x: u8, y: u8) -> Xy {
        Xy { x, y }
    }
}

impl std::fmt::Display for Xy {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "({}, {})", self.x, self.y)
    }
}

/// What a chip says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Translated x of each usable worker column, ascending.
    pub columns: Vec<u8>,
    /// Translated y of each worker row, ascending.
    pub rows: Vec<u8>,
    /// Bytes usable in each DRAM bank.
    pub bank_bytes: u64,
}

impl Info {
    pub fn is_worker(&self, at: Xy) -> bool {
        self.columns.contains(&at.x) && self.rows.contains(&at.y)
    }

    /// Refuses an access to what is neither a worker nor a bank's port.
    pub fn check(&self, at: Xy) -> Result<()> {
        let known = self.is_worker(at) || bank_at(at).is_some();
        known.then_some(()).ok_or_else(|| Error::Refused(format!("{at} is no worker and no DRAM port")))
    }

    /// Refuses a multicast rectangle whose corners are no workers, or that is turned around.
    pub fn check_rectangle(&self, from: Xy, to: Xy) -> Result<()> {
        let known = self.is_worker(from) && self.is_worker(to) && from.x <= to.x && from.y <= to.y;
        known
            .then_some(())
            .ok_or_else(|| Error::Refused(format!("{from} to {to} is no rectangle of workers")))
    }
}

/// DRAM banks of the chip; tile `t` of an interleaved tensor lies in bank `t % BANKS`.
pub const BANKS: usize = 8;
/// Bytes of a worker's L1.
pub const L1_BYTES: u64 = 1536 * 1024;
/// Usable bytes of a DRAM bank: 4 GiB less the register aperture at its top.
pub const BANK_BYTES: u64 = 0xFF00_0000;

/// The NoC port of a bank that workers and the host use (tt-metal's worker endpoint on NoC 0).
pub const fn bank(b: usize) -> Xy {
    const Y: [u8; BANKS] = [14, 15, 18, 21, 14, 17, 20, 23];
    Xy::new(17 + (b / 4) as u8, Y[b])
}

/// The bank whose port that is.
pub fn bank_at(at: Xy) -> Option<usize> {
    (0..BANKS).find(|&b| bank(b) == at)
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The link cannot be made: what is missing and how to get it.
    #[error("{0}")]
    Unavailable(String),
    /// The chip or its simulator stopped answering.
    #[error("the device stopped: {0}")]
    Lost(String),
    /// An access that no window can make.
    #[error("refused: {0}")]
    Refused(String),
}

pub type Result<T> = std::result::Result<T, Error>;

/// A chip that can be written, read and let run. Addresses are byte addresses in the target tile's space.
pub trait Link: Send {
    fn info(&self) -> &Info;

    /// Writes bytes to one tile. Register space takes whole 32-bit words only.
    fn write(&mut self, to: Xy, addr: u64, bytes: &[u8]) -> Result<()>;

    /// Writes the same bytes to every worker of the rectangle from `from` to `to`, both included.
    fn multicast(&mut self, from: Xy, to: Xy, addr: u64, bytes: &[u8]) -> Result<()>;

    fn read(&mut self, from: Xy, addr: u64, bytes: &mut [u8]) -> Result<()>;

    /// Lets time pass: a simulator runs that many clocks, a card waits a moment.
    fn advance(&mut self, clocks: u32) -> Result<()>;

    fn write32(&mut self, to: Xy, addr: u64, value: u32) -> Result<()> {
        self.write(to, addr, &value.to_le_bytes())
    }

    fn read32(&mut self, from: Xy, addr: u64) -> Result<u32> {
        let mut word = [0; 4];
        self.read(from, addr, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }
}
