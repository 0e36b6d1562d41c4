//! The content of a file: sectors, each of them durable or still on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

pub(super) const SECTOR_SIZE: usize = 512;
const SECTORS_PER_PAGE: u64 = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) size_bytes: u64,
    pub(super) durable_size_bytes: u64,
    /// By number; a sector that is missing holds zeros.
    pub(super) sectors: BTreeMap<u64, Sector>,
    /// What a sync would write.
    pub(super) dirty: BTreeSet<u64>,
    /// What cannot be read.
    pub(super) spoiled: Vec<Range<u64>>,
    /// Shared with every open handle.
    pub(super) open: Arc<()>,
}

#[derive(Clone, Debug)]
pub(super) struct Sector {
    pub(super) durable: [u8; SECTOR_SIZE],
    /// What was written since, each over the one before; a power cut may leave any.
    pub(super) pending: Vec<[u8; SECTOR_SIZE]>,
}

impl Sector {
    pub(super) const ZERO: Self = Self {
        durable: [0; SECTOR_SIZE],
        pending: Vec::new(),
    };

    pub(super) fn current(&self) -> &[u8; SECTOR_SIZE] {
        self.pending.last().unwrap_or(&self.durable)
    }

    /// Version 0 is the durable one.
    pub(super) fn keep(&mut self, version: usize) {
        if version > 0 {
            self.durable = self.pending[version - 1];
        }
        self.pending.clear();
    }
}

/// Four lanes, so that the multiplications need not wait for each other.
pub(super) struct Fingerprint(pub(super) [u64; 4]);

impl Fingerprint {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(32) {
            let mut block = [0; 32];
            block[..chunk.len()].copy_from_slice(chunk);
            for (lane, word) in self.0.iter_mut().zip(block.as_chunks().0) {
                let mixed = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *lane = mixed ^ (mixed >> 29);
            }
        }
    }

    pub(super) fn end(self) -> u64 {
        self.0.into_iter().fold(0, |hash, lane| {
            (hash ^ lane)
                .wrapping_mul(0xff51_afd7_ed55_8ccd)
                .rotate_left(31)
        })
    }
}

impl Inode {
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let available = self.size_bytes.saturating_sub(offset);
        let count = buffer
            .len()
            .min(usize::try_from(available).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < count {
            let (number, within) = sector_at(offset + done as u64);
            let piece = (SECTOR_SIZE - within).min(count - done);
            let target = &mut buffer[done..done + piece];
            match self.sectors.get(&number) {
                Some(sector) => target.copy_from_slice(&sector.current()[within..within + piece]),
                None => target.fill(0),
            }
            done += piece;
        }
        count
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let (number, within) = sector_at(offset + done as u64);
            let piece = (SECTOR_SIZE - within).min(bytes.len() - done);
            self.write_sector(number, within, &bytes[done..done + piece]);
            done += piece;
        }
        self.size_bytes = self.size_bytes.max(offset + bytes.len() as u64);
    }

    pub(super) fn write_sector(&mut self, number: u64, within: usize, bytes: &[u8]) {
        let mut content = self
            .sectors
            .get(&number)
            .map_or([0; SECTOR_SIZE], |sector| *sector.current());
        let target = &mut content[within..within + bytes.len()];
        // What changes nothing leaves one state to choose from. This keeps files of zeros small.
        if target == bytes {
            if self
                .sectors
                .get(&number)
                .is_some_and(|s| !s.pending.is_empty())
            {
                self.dirty.insert(number);
            }
            return;
        }
        target.copy_from_slice(bytes);
        self.sectors
            .entry(number)
            .or_insert(Sector::ZERO)
            .pending
            .push(content);
        self.dirty.insert(number);
    }

    pub(super) fn sync(&mut self) {
        for number in std::mem::take(&mut self.dirty) {
            if let Some(sector) = self.sectors.get_mut(&number) {
                sector.keep(sector.pending.len());
            }
        }
        self.durable_size_bytes = self.size_bytes;
    }

    pub(super) fn lose_writes(&mut self, choice: &mut dyn FnMut(u32) -> u32) {
        let pending: Vec<u64> = self
            .sectors
            .iter()
            .filter(|(_, sector)| !sector.pending.is_empty())
            .map(|(number, _)| *number)
            .collect();
        if pending.is_empty() && self.size_bytes == self.durable_size_bytes {
            return;
        }
        let mode = choice(5);
        let prefix = if mode == 4 {
            pick(choice, pending.len() + 1)
        } else {
            0
        };
        let mut page = None;
        let mut kept_end = 0;
        for (index, number) in pending.into_iter().enumerate() {
            let sector = self.sectors.get_mut(&number).expect("it was just listed");
            let newest = sector.pending.len();
            let version = match mode {
                0 => 0,
                1 => newest,
                2 => pick(choice, newest + 1),
                3 => {
                    let this = number / SECTORS_PER_PAGE;
                    let kept = match page {
                        Some((page, kept)) if page == this => kept,
                        _ => choice(2) == 1,
                    };
                    page = Some((this, kept));
                    if kept { newest } else { 0 }
                }
                _ if index < prefix => newest,
                _ => 0,
            };
            if version > 0 {
                kept_end = (number + 1) * SECTOR_SIZE as u64;
            }
            sector.keep(version);
        }
        self.dirty.clear();
        if choice(2) == 0 {
            let end = self.durable_size_bytes.max(kept_end);
            self.size_bytes = self.size_bytes.min(end);
        }
        self.durable_size_bytes = self.size_bytes;
    }
}

fn sector_at(offset: u64) -> (u64, usize) {
    let within = usize::try_from(offset % SECTOR_SIZE as u64).expect("below a sector's size");
    (offset / SECTOR_SIZE as u64, within)
}

fn pick(choice: &mut dyn FnMut(u32) -> u32, count: usize) -> usize {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    choice(count) as usize
}
