//! Where a turn writes what happened.

use crate::Event;

/// Where a body lies in the log: a logical place, known before the append.
///
/// Only the log maps it to a file. It stays the same when a record is copied to another segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyLocation {
    /// Log position of the record that holds the body.
    pub record: u64,
    /// Where in that record's payload the body begins.
    pub offset: u32,
    /// How many bytes it has.
    pub length: u32,
}

/// Takes what a turn has to say to the log, in order.
///
/// The runner implements it over the batch that it will append. Neither call can fail: the runner
/// reserved the space before it let the turn decide.
pub trait Journal {
    /// Stores a body ahead of the event that will refer to it.
    fn store_body(&mut self, body: &[u8]) -> BodyLocation;

    /// Stores an event. The turn applies it to the state right after.
    fn record(&mut self, event: &Event);

    /// Whether a body that was stored before is in memory, and stays there until what was decided is
    /// answered. If it must be read from the disk, it may prove damaged.
    fn pin(&mut self, _body: BodyLocation) -> bool {
        true
    }
}
