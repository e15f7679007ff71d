//! A chip that remembers what was written and computes nothing.

use crate::{BANK_BYTES, Info, Link, Result, Xy};
use std::collections::BTreeMap;

/// One access as the link saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Write { to: Xy, addr: u64, bytes: usize },
    Multicast { from: Xy, to: Xy, addr: u64, bytes: usize },
    Read { from: Xy, addr: u64, bytes: usize },
    Advance { clocks: u32 },
}

/// Records every access. Memory reads back what was written and zero elsewhere.
pub struct Null {
    info: Info,
    pub records: Vec<Record>,
    pages: BTreeMap<(Xy, u64), Box<[u8; PAGE]>>,
}

const PAGE: usize = 4096;

impl Null {
    pub fn new(columns: Vec<u8>, rows: Vec<u8>) -> Null {
        let info = Info { columns, rows, bank_bytes: BANK_BYTES };
        Null { info, records: vec![], pages: BTreeMap::new() }
    }

    fn store(&mut self, to: Xy, addr: u64, bytes: &[u8]) {
        for (at, &byte) in (addr..).zip(bytes) {
            let page = self.pages.entry((to, at / PAGE as u64)).or_insert_with(|| Box::new([0; PAGE]));
            page[at as usize % PAGE] = byte;
        }
    }
}

impl Link for Null {
    fn info(&self) -> &Info {
        &self.info
    }

    fn write(&mut self, to: Xy, addr: u64, bytes: &[u8]) -> Result<()> {
        self.info.check(to)?;
        self.records.push(Record::Write { to, addr, bytes: bytes.len() });
        self.store(to, addr, bytes);
        Ok(())
    }

    fn multicast(&mut self, from: Xy, to: Xy, addr: u64, bytes: &[u8]) -> Result<()> {
        self.info.check_rectangle(from, to)?;
        self.records.push(Record::Multicast { from, to, addr, bytes: bytes.len() });
        for x in self.info.columns.clone().into_iter().filter(|x| (from.x..=to.x).contains(x)) {
            for y in from.y..=to.y {
                self.store(Xy::new(x, y), addr, bytes);
            }
        }
        Ok(())
    }

    fn read(&mut self, from: Xy, addr: u64, bytes: &mut [u8]) -> Result<()> {
        self.info.check(from)?;
        self.records.push(Record::Read { from, addr, bytes: bytes.len() });
        for (at, byte) in (addr..).zip(bytes) {
            *byte = self.pages.get(&(from, at / PAGE as u64)).map_or(0, |p| p[at as usize % PAGE]);
        }
        Ok(())
    }

    fn advance(&mut self, clocks: u32) -> Result<()> {
        self.records.push(Record::Advance { clocks });
        Ok(())
    }
}
