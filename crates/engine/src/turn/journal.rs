//! Where a turn records its events.

use crate::event::Event;
use crate::vocabulary::{BodyLocation, Incarnation};

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

    /// A bus queue has changed without an event: a look has found that nothing of a run expires yet.
    fn looked(&mut self, _queue: Incarnation) {}
}
