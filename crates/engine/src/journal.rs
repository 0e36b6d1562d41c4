//! Where a turn records its events.

use crate::Event;

/// The location of a body in the log: a logical place, known before the append.
///
/// Only the log maps it to a file. It stays the same when a record is copied to another segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyLocation {
    /// Log position of the record that holds the body.
    pub record: u64,
    /// Where the body begins in that record's payload.
    pub offset: u32,
    /// Its length in bytes.
    pub length: u32,
}

/// Takes the bodies and events of a turn, in order.
///
/// The runner implements it over the batch that it will append. The first two calls cannot fail: the runner
/// reserved the space before the turn.
pub trait Journal {
    /// Stores a body ahead of the event that will refer to it.
    fn store_body(&mut self, body: &[u8]) -> BodyLocation;

    /// Stores an event. The turn applies it to the state right after.
    fn record(&mut self, event: &Event);

    /// Whether a stored body is in memory and stays there until the decision is answered. A body that must
    /// be read from the disk may turn out to be damaged.
    fn pin(&mut self, _body: BodyLocation) -> bool {
        true
    }
}
