//! The receiver of a log's contents when it is opened.

use std::error::Error;

use crate::{Epoch, LogPosition, PageContent, PageLeft, PageNumber};

/// An error of the owner of the events, kept as the source of the log's own.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Rebuilds a state from a snapshot and the events after it.
pub trait Replay {
    /// Begins with an empty state. Called again if a snapshot turns out to be damaged.
    fn begin(&mut self);

    /// The snapshot at this position comes next.
    fn snapshot_begin(&mut self, position: LogPosition) {
        let _ = position;
    }

    /// Takes the next part of the snapshot, in the order in which they were given.
    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError>;

    /// Whether the next page of the snapshot need not be read. It is asked about each one, in the order in which they were
    /// given, and after all pages before it were taken. What is passed over may be damaged, or missing. It
    /// is read all the same if an older snapshot, or the log from its beginning, could take the place of this one.
    fn passes_over(&mut self, page: PageNumber) -> Result<bool, BoxError> {
        let _ = page;
        Ok(false)
    }

    /// The next page that is taken lies in a file with damage. Perhaps only one copy of it is left.
    fn page_is_at_risk(&mut self) {}

    /// Takes the next page of the snapshot. They come after all parts, in the order in which they were given. A log whose
    /// snapshots have no pages has none.
    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        let _ = content;
        Err(format!("nothing here knows what page {} is", page.as_u64()).into())
    }

    /// Takes what is left of the next page of the snapshot, if that is enough: both copies of it are damaged. Returns whether
    /// it is. If not, the snapshot cannot be used. It is asked only if no older snapshot, and no log from its beginning, could
    /// take the place of this one.
    fn snapshot_page_left(&mut self, page: PageNumber, left: &PageLeft) -> Result<bool, BoxError> {
        let _ = (page, left);
        Ok(false)
    }

    /// All parts and pages of the snapshot have come.
    fn snapshot_end(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// A record begins whose events follow. It may have none.
    fn batch(&mut self, record: LogPosition, epoch: Epoch, time_ms: u64) {
        let _ = (record, epoch, time_ms);
    }

    /// Takes the next event after the snapshot, with the position of the record that holds it.
    fn event(&mut self, record: LogPosition, event: &[u8]) -> Result<(), BoxError>;

    /// All events of the record have come.
    fn batch_end(&mut self) {}
}

/// Discards its input: for inspecting a log without its owner.
pub(crate) struct Ignore;

impl Replay for Ignore {
    fn begin(&mut self) {}

    fn snapshot_part(&mut self, _part: &[u8]) -> Result<(), BoxError> {
        Ok(())
    }

    fn snapshot_page(&mut self, _page: PageNumber, _: &PageContent) -> Result<(), BoxError> {
        Ok(())
    }

    fn event(&mut self, _record: LogPosition, _event: &[u8]) -> Result<(), BoxError> {
        Ok(())
    }
}
