//! Encodings of the NoC windows in BAR0 and BAR4 (tt-umd `blackhole_implementation.hpp`, TLB_2M_OFFSET and TLB_4G_OFFSET).

use crate::Xy;

/// Windows of 2 MiB in BAR0, window `w` at `w << 21`.
pub const SMALL_WINDOWS: u32 = 202;
pub const SMALL_BITS: u32 = 21;
/// Windows of 4 GiB in BAR4, window `w` at `w << 32`; their registers follow those of the small ones.
pub const LARGE_BITS: u32 = 32;
/// Offset in BAR0 of the window registers, three little-endian words each.
pub const REGISTERS: u64 = 0x1FC0_0000;

/// Order of accesses through a window: posted writes of one window are seen in order with `Strict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    Relaxed = 0,
    Strict = 1,
}

/// Where a window points: one tile, or a rectangle of workers that all receive the same writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub to: Xy,
    pub multicast_from: Option<Xy>,
    pub addr: u64,
    pub ordering: Ordering,
}

impl Window {
    fn fields(&self, bits: u32, base: u32) -> u128 {
        let at = |value: u8, bit: u32| u128::from(value) << (base + bit);
        let mut v = u128::from(self.addr >> bits) | at(self.to.x, 0) | at(self.to.y, 6);
        if let Some(from) = self.multicast_from {
            v |= at(from.x, 12) | at(from.y, 18) | at(1, 26);
        }
        v | at(self.ordering as u8, 27)
    }

    /// Register words of a 2 MiB window: local offset 43 bits, coordinates from bit 43.
    pub fn small(&self) -> [u32; 3] {
        words(self.fields(SMALL_BITS, 43))
    }

    /// Register words of a 4 GiB window: local offset 32 bits, coordinates from bit 32.
    pub fn large(&self) -> [u32; 3] {
        words(self.fields(LARGE_BITS, 32))
    }
}

fn words(v: u128) -> [u32; 3] {
    [v as u32, (v >> 32) as u32, (v >> 64) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit positions as the table in tt-umd lists them.
    #[test]
    fn fields_lie_where_the_hardware_reads_them() {
        let w = Window {
            to: Xy::new(0x2A, 0x15),
            multicast_from: Some(Xy::new(3, 2)),
            addr: 5 << 21,
            ordering: Ordering::Strict,
        };
        let v = 5u128 | 0x2A << 43 | 0x15 << 49 | 3 << 55 | 2 << 61 | 1 << 69 | 1 << 70;
        assert_eq!(w.small(), words(v));
        let w = Window { addr: 7 << 32, multicast_from: None, ordering: Ordering::Relaxed, ..w };
        assert_eq!(w.large(), words(7u128 | 0x2A << 32 | 0x15 << 38));
    }
}
