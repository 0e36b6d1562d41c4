//! The records of a run as bytes, as they were at one moment: in memory for a cold run, and on the disk for a snapshot
//! (`directory.rs`). They never change.
//!
//! Groups of 128 slots are read by themselves: their neighbours are wanted next. The place of a page in memory is its
//! address: two pages are the same if they are one.

pub(crate) mod directory;
pub(super) mod group;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::group::{ToPage, messages, put_messages};
use super::record::{Record, Side};
use crate::vocabulary::codec::{DecodeError, Reader};

/// How many slots are read together.
pub(super) const SLOTS_PER_GROUP: usize = 128;

/// A message of a page: its slot, its record, and what few messages have. A start holds many.
pub(crate) type Paged = (usize, Record, Option<Box<Side>>);

#[derive(Clone, Debug)]
pub(crate) struct Page {
    groups: Arc<[Box<[u8]>]>,
    /// Whether the next read fails, to show what happens then.
    fails_once: Arc<AtomicBool>,
}

impl Page {
    /// Writes messages, which come in the order of their slots.
    pub(super) fn of<'a>(messages: impl Iterator<Item = ToPage<'a>>) -> Self {
        let messages: Vec<ToPage<'a>> = messages.collect();
        let mut groups: Vec<Box<[u8]>> = Vec::new();
        for group in messages.chunk_by(|one, next| group_of(one) == group_of(next)) {
            let index = group.first().map_or(0, group_of);
            groups.resize_with(index, Box::default);
            let mut out = Vec::new();
            put_messages(&mut out, group);
            groups.push(out.into_boxed_slice());
        }
        Self {
            groups: groups.into(),
            fails_once: Arc::default(),
        }
    }

    /// The same, but its first read fails.
    pub(super) fn failing_once(self) -> Self {
        self.fails_once.store(true, Ordering::Relaxed);
        self
    }

    /// Whether this read fails.
    pub(super) fn fails(&self) -> bool {
        self.fails_once.swap(false, Ordering::Relaxed)
    }

    /// Reads a group.
    pub(super) fn group(&self, index: usize) -> Result<Vec<Paged>, DecodeError> {
        match self.groups.get(index).map(AsRef::as_ref) {
            None | Some([]) => Ok(Vec::new()),
            Some(bytes) => {
                let mut r = Reader::new(bytes);
                let messages = messages(&mut r)?;
                r.finish()?;
                Ok(messages)
            }
        }
    }

    /// How many groups there are. The last ones may be missing.
    pub(super) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Whether they are one page.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.groups, &other.groups)
    }
}

/// The group that a message is of.
fn group_of((slot, ..): &ToPage<'_>) -> usize {
    slot / SLOTS_PER_GROUP
}

#[cfg(test)]
mod tests {
    use super::super::record::{DeadLetterCause, MessageState};
    use super::*;
    use crate::vocabulary::{BodyLocation, LeaseGeneration, SequenceNumber, Timestamp};

    #[test]
    fn a_group_has_what_was_written() {
        let at = |record| BodyLocation {
            record,
            offset: 7,
            length: 9,
        };
        let states = [
            MessageState::Ready,
            MessageState::Locked { deferred: false },
            MessageState::Locked { deferred: true },
            MessageState::Scheduled,
            MessageState::Deferred,
        ];
        let causes = [
            None,
            Some(DeadLetterCause::MaxDeliveryCountExceeded),
            Some(DeadLetterCause::Expired),
            Some(DeadLetterCause::MaxTransferHopCountExceeded),
            Some(DeadLetterCause::SessionIdIsNull),
            Some(DeadLetterCause::DestinationUnavailable),
            Some(DeadLetterCause::ByReceiver),
        ];
        let all: Vec<Paged> = (0..600)
            .step_by(7)
            .filter(|slot| !(128..384).contains(slot))
            .map(|slot| {
                let record = Record {
                    expires_at: Timestamp::from_ms(slot as u64 * 1000),
                    generation: LeaseGeneration::new(slot.try_into().unwrap()),
                    deliveries: 3,
                    session: 5,
                    state: states[slot % states.len()],
                    cause: causes[slot % causes.len()],
                    encoding: super::super::BodyEncoding::Raw,
                    hops: 4,
                    ..Record::ready(Timestamp::from_ms(42), at(slot as u64))
                };
                let side = (slot % 2 == 1).then(|| Side {
                    first_number: Some(SequenceNumber::new(8)),
                    source: Some("source".into()),
                    overlays: vec![at(1), at(2)],
                });
                (slot, record, side.map(Box::new))
            })
            .collect();
        let page = Page::of(
            all.iter()
                .map(|(slot, record, side)| (*slot, record, side.as_deref())),
        );
        let read = (0..page.group_count()).flat_map(|index| page.group(index).unwrap());
        assert_eq!(read.collect::<Vec<_>>(), all);
        assert_eq!(page.group(1).unwrap(), []);
        assert_eq!(page.group(9).unwrap(), []);
        assert!(page.is(&page.clone()) && !page.is(&Page::of(std::iter::empty())));
    }
}
