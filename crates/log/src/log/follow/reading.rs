//! What the jobs of a follower do.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;

use super::super::SegmentLog;
use crate::format::FIRST_POSITION;
use crate::piece::Room;
use crate::recovery::Opening;
use crate::replay::{BoxError, Replay};
use crate::seam::{Batches, FollowError, LogEnd, PageChoice, Piece, Seen};
use crate::segment::Salts;
use crate::storage::Storage;
use crate::{
    Epoch, LogOptions, LogPosition, OpenError, PageContent, PageLeft, PageNumber, Recovery,
};

/// How much a job reads, unless one batch or page is larger, and one part more.
const PIECE_SIZE_BYTES: u64 = 128 * 1024;

/// A log, as far as it was followed. It is in the follower or in a job.
pub(crate) struct Cursor {
    storage: Arc<dyn Storage>,
    options: LogOptions,
    salts: Salts,
    pages: Box<dyn PageChoice>,
    /// `None` before the first job.
    opening: Option<Opening>,
}

/// The outcome of a job that reads.
pub(crate) struct Followed {
    /// What was read, also if there was an error behind it. `None` once it was taken.
    pieces: Option<Vec<Piece>>,
    /// And whether everything was read.
    pub(crate) read: Result<(Box<Cursor>, bool), OpenError>,
}

impl Followed {
    pub(crate) fn take(&mut self) -> Vec<Piece> {
        self.pieces.take().unwrap_or_default()
    }

    pub(super) fn is_taken(&self) -> bool {
        self.pieces.is_none()
    }
}

impl Cursor {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        options: LogOptions,
        salts: Salts,
        pages: Box<dyn PageChoice>,
    ) -> Self {
        Self {
            storage,
            options,
            salts,
            pages,
            opening: None,
        }
    }

    pub(super) fn seen(&self) -> Seen {
        self.opening.as_ref().map(Opening::seen).unwrap_or_default()
    }

    /// Reads the next piece.
    pub(crate) fn run(mut self: Box<Self>) -> Followed {
        let mut pieces = Vec::new();
        let read = self.read(&mut pieces);
        Followed {
            pieces: Some(pieces),
            read: read.map(|is_whole| (self, is_whole)),
        }
    }

    fn read(&mut self, pieces: &mut Vec<Piece>) -> Result<bool, OpenError> {
        let opening = match &mut self.opening {
            Some(opening) => opening,
            None => {
                self.options.check().map_err(OpenError::Options)?;
                let opening = Opening::begin(&*self.storage, self.salts, FIRST_POSITION)?;
                self.opening.insert(opening)
            }
        };
        let mut collecting = Collecting {
            pieces,
            pages: &mut *self.pages,
            is_at_risk: false,
            has_open_batch: false,
        };
        let mut room = Room::of_bytes(PIECE_SIZE_BYTES);
        let read = opening.read(&*self.storage, &mut collecting, &mut room);
        collecting.drop_open_batch();
        read
    }
}

/// Makes this process the owner of a log, all of which was read.
pub(crate) struct Promote {
    pub(super) cursor: Box<Cursor>,
    pub(super) epoch: Epoch,
}

/// The outcome of a promotion.
pub(crate) type Promoted = Result<Box<(SegmentLog, Recovery)>, FollowError>;

impl Promote {
    pub(crate) fn run(self) -> Promoted {
        let Cursor {
            storage,
            options,
            salts,
            opening,
            ..
        } = *self.cursor;
        let opening = opening.expect("a log that was read was looked at");
        let newest = opening.seen().epoch;
        if self.epoch <= newest {
            return Err(LogEnd::Fenced(newest).into());
        }
        let recovered = opening.adopt(&*storage, &options, self.epoch)?;
        let owned = SegmentLog::resume(storage, options, salts, recovered);
        Ok(Box::new(owned))
    }
}

/// Collects what is read as pieces.
struct Collecting<'a> {
    pieces: &'a mut Vec<Piece>,
    pages: &'a mut dyn PageChoice,
    /// The next page is.
    is_at_risk: bool,
    /// The last batch may get more events.
    has_open_batch: bool,
}

impl Collecting<'_> {
    /// A batch is handed out whole or not at all, also if one of its entries is malformed.
    fn drop_open_batch(&mut self) {
        if mem::take(&mut self.has_open_batch) {
            self.batches().drop_last();
        }
    }

    fn batches(&mut self) -> &mut Batches {
        if !matches!(self.pieces.last(), Some(Piece::Batches(_))) {
            self.pieces.push(Piece::Batches(Batches::default()));
        }
        match self.pieces.last_mut() {
            Some(Piece::Batches(batches)) => batches,
            _ => unreachable!("the last piece has batches"),
        }
    }
}

impl Replay for Collecting<'_> {
    fn begin(&mut self) {
        // What is void need not be handed out.
        self.pieces.clear();
        self.pieces.push(Piece::Begin);
        self.pages.begin();
    }

    fn snapshot_begin(&mut self, position: LogPosition) {
        self.pieces.push(Piece::SnapshotBegin(position));
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        self.pieces.push(Piece::Part(Bytes::copy_from_slice(part)));
        Ok(())
    }

    fn passes_over(&mut self, page: PageNumber) -> Result<bool, BoxError> {
        let passes_over = self.pages.passes_over(page);
        if passes_over {
            self.pieces.push(Piece::PassedOver(page));
        }
        Ok(passes_over)
    }

    fn page_is_at_risk(&mut self) {
        self.is_at_risk = true;
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        self.pages.note(page, content)?;
        self.pieces.push(Piece::Page {
            number: page,
            content: content.clone(),
            is_at_risk: mem::take(&mut self.is_at_risk),
        });
        Ok(())
    }

    fn snapshot_page_left(&mut self, page: PageNumber, left: &PageLeft) -> Result<bool, BoxError> {
        let is_enough = self.pages.note_left(page, left)?;
        if is_enough {
            self.pieces.push(Piece::PageLeft {
                number: page,
                left: left.clone(),
            });
        }
        Ok(is_enough)
    }

    fn snapshot_end(&mut self) -> Result<(), BoxError> {
        self.pieces.push(Piece::SnapshotEnd);
        Ok(())
    }

    fn batch(&mut self, record: LogPosition, epoch: Epoch, time_ms: u64) {
        self.has_open_batch = true;
        self.batches().begin(record, epoch, time_ms);
    }

    fn batch_end(&mut self) {
        self.has_open_batch = false;
    }

    fn event(&mut self, _record: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        self.batches().push_event(event);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seam::AllPages;

    #[test]
    fn a_batch_is_handed_out_whole_or_not_at_all() {
        let mut pieces = Vec::new();
        let mut collecting = Collecting {
            pieces: &mut pieces,
            pages: &mut AllPages,
            is_at_risk: false,
            has_open_batch: false,
        };
        collecting.begin();
        for record in [8, 16, 24] {
            let record = LogPosition::new(record);
            collecting.batch(record, Epoch::default(), 5);
            collecting.event(record, b"one").unwrap();
            collecting.event(record, b"two").unwrap();
            if record.as_u64() < 24 {
                collecting.batch_end();
            }
        }
        // The third entry of the last one is malformed.
        collecting.drop_open_batch();
        let [Piece::Begin, Piece::Batches(batches)] = &pieces[..] else {
            panic!("{pieces:?}");
        };
        let records = batches.iter().map(|it| it.record.as_u64());
        assert_eq!(records.collect::<Vec<_>>(), [8, 16]);
        for batch in batches.iter() {
            assert_eq!(batch.events().collect::<Vec<_>>(), [b"one", b"two"]);
        }
    }
}
