//! Where a turn records its events.

use bytes::Bytes;

use crate::event::Event;
use crate::vocabulary::{BodyLocation, BodyRead, Incarnation};

/// Takes the bodies and events of a turn, in order.
///
/// The runner implements it over the batch that it will append. The first two calls cannot fail: the runner
/// reserved the space before the turn.
pub trait Journal {
    /// Stores a body ahead of the event that will refer to it.
    fn store_body(&mut self, body: &[u8]) -> BodyLocation;

    /// Stores an event. The turn applies it to the state right after.
    fn record(&mut self, event: &Event);

    /// What is known of a stored body. A decision that hands a message out and removes it asks before, so that no
    /// message is removed whose bytes turn out to be damaged.
    fn body(&mut self, _body: BodyLocation) -> BodyRead {
        BodyRead::Whole
    }

    /// The bytes of a body of which [`body`](Self::body) says that they are whole. Rules look at those of messages that
    /// their topic keeps.
    fn bytes(&mut self, _body: BodyLocation) -> Option<Bytes> {
        None
    }

    /// A bus queue has changed without an event: a look has found that nothing of a run expires yet.
    fn looked(&mut self, _queue: Incarnation) {}
}
