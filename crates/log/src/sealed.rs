//! A batch as a log of another crate keeps it.

use bytes::Bytes;

use crate::batch::{Entries, Entry};
use crate::format::RECORD_HEADER_SIZE;
use crate::{BodyLocation, LogPosition};

/// A batch that is complete: [`BatchBuilder::seal`](crate::BatchBuilder::seal).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Its record, with header and padding.
    pub record: Bytes,
    /// Its content checksum, which the next batch continues. It is the same in every copy of the log.
    pub content: u32,
    /// Where the next batch begins.
    pub end: LogPosition,
    /// Where the padding begins.
    pub(crate) payload_end: usize,
}

impl Sealed {
    /// Its events, in order.
    pub fn events(&self) -> impl Iterator<Item = &[u8]> {
        let payload = &self.record[RECORD_HEADER_SIZE..self.payload_end];
        Entries::new(payload).filter_map(|entry| {
            match entry.expect("the payload was built as entries") {
                Entry::Event(event) => Some(event),
                Entry::Body { .. } => None,
            }
        })
    }

    /// One of its bodies. `None` if it has none there. What is left of a damaged body is not told from a whole one.
    pub fn body(&self, at: BodyLocation) -> Option<Bytes> {
        let begin = RECORD_HEADER_SIZE + at.offset as usize;
        let end = begin + at.length as usize;
        (end <= self.payload_end).then(|| self.record.slice(begin..end))
    }
}

#[cfg(test)]
mod tests {
    use crate::{BatchBuilder, BodyLocation, Epoch, LogId, LogPosition};

    #[test]
    fn a_sealed_batch_has_its_events_and_bodies() {
        let at = LogPosition::new(4096);
        let mut batch = BatchBuilder::at(at);
        batch.push_event(b"one");
        let body = batch.push_body(b"body");
        batch.push_event(b"three");
        let seal =
            |batch: BatchBuilder, previous| batch.seal(LogId::default(), Epoch::new(1), previous);
        let sealed = seal(batch, 7);
        assert_eq!(
            sealed.events().collect::<Vec<_>>(),
            [b"one".as_slice(), b"three"]
        );
        assert_eq!(sealed.body(body).as_deref(), Some(b"body".as_slice()));
        assert_eq!(sealed.end, at.plus(sealed.record.len() as u64));
        let behind = BodyLocation {
            length: body.length + 16,
            ..body
        };
        assert_eq!(sealed.body(behind), None);
        let beat = seal(BatchBuilder::at(at), 7);
        assert_eq!(beat.events().count(), 0);
        assert_eq!(beat.end, at.plus(48));
        // A batch continues the one before.
        assert_ne!(beat.content, seal(BatchBuilder::at(at), 8).content);
    }
}
