//! Kinds of damage, and where they are done.

use std::ops::Range;

use kew_log::FaultyStorage;

use super::{Closed, PAGE_SIZE, SECTOR_SIZE};
use crate::disk::answers::Contents;
use crate::random::Stream;

/// The file with the marks.
const PROOF: &str = "proof";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bit,
    Sector,
    Truncation,
    Stale,
    Misdirected,
    MisdirectedAway,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Bit,
        Self::Sector,
        Self::Truncation,
        Self::Stale,
        Self::Misdirected,
        Self::MisdirectedAway,
    ];
}

/// Changed or missing bytes, in one place or two.
pub(super) struct Damage {
    pub(super) kind: Kind,
    pub(super) places: Vec<Place>,
}

pub(super) struct Place {
    pub(super) file: String,
    pub(super) offset: usize,
    /// The new content; `None` if the file is cut there.
    pub(super) bytes: Option<Vec<u8>>,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.kind)?;
        for place in &self.places {
            let length = place.bytes.as_ref().map_or(0, Vec::len);
            write!(f, ", {} at {} ({length} bytes)", place.file, place.offset)?;
        }
        Ok(())
    }
}

impl Damage {
    /// Does it to a disk.
    pub(super) fn inflict(&self, disk: &FaultyStorage) {
        for place in &self.places {
            let offset = place.offset as u64;
            match &place.bytes {
                Some(bytes) => disk.corrupt(&place.file, offset, bytes),
                None => disk.truncate(&place.file, offset),
            }
        }
    }

    /// Whether it changes any of these bytes of a file, which has that content before.
    pub(super) fn changes(&self, before: &Contents, file: &str, range: Range<usize>) -> bool {
        let Some(before) = before.get(file) else {
            return false;
        };
        let own = self.places.iter().filter(|place| place.file == file);
        own.into_iter().any(|place| {
            range
                .clone()
                .any(|at| match (&place.bytes, at.checked_sub(place.offset)) {
                    (_, None) => false,
                    (None, Some(_)) => true,
                    (Some(bytes), Some(nth)) => bytes
                        .get(nth)
                        .is_some_and(|byte| before.get(at) != Some(byte)),
                })
        })
    }
}

impl Closed {
    /// A damage that changes something, if a few attempts find one.
    pub(super) fn damage(&self, random: &mut Stream) -> Option<Damage> {
        (0..50).find_map(|_| {
            let kind = Kind::ALL[random.index(Kind::ALL.len())];
            let places = self.places(kind, random)?;
            let changes = places.iter().all(|place| {
                let now = self
                    .contents
                    .get(&place.file)
                    .map(|content| &content[place.offset..]);
                match &place.bytes {
                    Some(bytes) => now.is_some_and(|now| !now.starts_with(bytes)),
                    None => now.is_some_and(|now| !now.is_empty()),
                }
            });
            changes.then_some(Damage { kind, places })
        })
    }

    fn places(&self, kind: Kind, random: &mut Stream) -> Option<Vec<Place>> {
        let (file, at) = self.target(random);
        let size = [SECTOR_SIZE, PAGE_SIZE][random.index(2)];
        let content = &self.contents[&file];
        let place = |file: &str, offset: usize, bytes: Option<&[u8]>| Place {
            file: file.to_owned(),
            offset,
            bytes: bytes.map(<[u8]>::to_vec),
        };
        Some(match kind {
            Kind::Bit => {
                let bit = 1_u8 << random.below(8);
                vec![place(&file, at, Some(&[content[at] ^ bit]))]
            }
            Kind::Sector => {
                let offset = at / SECTOR_SIZE * SECTOR_SIZE;
                let count = SECTOR_SIZE.min(content.len() - offset);
                let fill = random.below(3);
                let garbage: Vec<u8> = (0..count)
                    .map(|_| match fill {
                        0 => 0,
                        1 => 0xff,
                        _ => random.next().to_le_bytes()[0],
                    })
                    .collect();
                vec![place(&file, offset, Some(&garbage))]
            }
            Kind::Truncation => vec![place(&file, at, None)],
            Kind::Stale => {
                let (offset, once) = self.once(&file, at, size, random)?;
                vec![place(&file, offset, Some(once))]
            }
            Kind::Misdirected => {
                let (source, offset) = self.target(random);
                let bytes = block(&self.contents[&source], offset, size);
                let offset = at / size * size;
                let count = bytes.len().min(content.len() - offset);
                vec![place(&file, offset, Some(&bytes[..count]))]
            }
            Kind::MisdirectedAway => {
                // The block is missing where it should have been written. It goes to another file, and
                // neither is the proof, so that the proof for the missing one still exists.
                let (other, offset) = self.target(random);
                if file == PROOF || other == PROOF || other == file {
                    return None;
                }
                let (from, once) = self.once(&file, at, size, random)?;
                let bytes = block(content, from, size);
                let offset = offset / size * size;
                let count = bytes.len().min(self.contents[&other].len() - offset);
                vec![
                    place(&file, from, Some(once)),
                    place(&other, offset, Some(&bytes[..count])),
                ]
            }
        })
    }

    /// A byte of a file: often of the last batches, usually of a used part.
    fn target(&self, random: &mut Stream) -> (String, usize) {
        if random.happens(400) {
            let offset = self.last_batches.start + random.index(self.last_batches.len());
            return (self.last_segment.clone(), offset);
        }
        if let Some((file, range)) = &self.segment_end
            && random.happens(200)
        {
            return (file.clone(), range.start + random.index(range.len()));
        }
        let names: Vec<&String> = self
            .contents
            .iter()
            .filter(|(name, content)| {
                !content.is_empty() && (!name.starts_with("ballast") || random.happens(50))
            })
            .map(|(name, _)| name)
            .collect();
        let file = names[random.index(names.len())];
        let content = &self.contents[file];
        let mut offset = random.index(content.len());
        for _ in 0..20 {
            let sector = block(content, offset, SECTOR_SIZE);
            if sector.iter().any(|byte| *byte != 0) {
                break;
            }
            offset = random.index(content.len());
        }
        (file.clone(), offset)
    }

    /// The former content of the block around a byte, from a time when it differed.
    fn once(
        &self,
        file: &str,
        at: usize,
        size: usize,
        random: &mut Stream,
    ) -> Option<(usize, &[u8])> {
        let now = block(&self.contents[file], at, size);
        let mut versions: Vec<&[u8]> = self
            .past
            .iter()
            .filter_map(|past| past.get(file))
            .filter(|content| content.len() > at)
            .map(|content| block(content, at, size))
            .filter(|once| once.len() == now.len() && *once != now)
            .collect();
        versions.dedup();
        if versions.is_empty() {
            return None;
        }
        Some((at / size * size, versions[random.index(versions.len())]))
    }
}

/// The aligned block around a byte.
fn block(content: &[u8], at: usize, size: usize) -> &[u8] {
    let begin = at / size * size;
    &content[begin..content.len().min(begin + size)]
}
