//! What a partition asks of bus queues.

use super::State;
use crate::bus::{Arrival, Awaited};
use crate::vocabulary::{EntityName, Incarnation, Timestamp, Token};

impl State {
    /// The things that the arrival has brought, as far as something of the kind is still there. A message
    /// brings at most one. A session that was freed also brings the end of the lock that its last holder waits
    /// for.
    pub fn awaited(&self, arrival: Arrival) -> [Option<(Incarnation, Awaited)>; 2] {
        self.bus.awaited(arrival)
    }

    /// The entities whose receivers a change of the settings of this one concerns: itself and, if it is a topic, its
    /// subscriptions with their sub-queues.
    pub fn changed_with(&self, entity: Incarnation) -> impl Iterator<Item = Incarnation> + '_ {
        let subscriptions = self.catalogue.subscriptions_of(entity);
        std::iter::once(entity).chain(subscriptions.flat_map(Incarnation::with_sub_queues))
    }

    /// The bus queue of that name, if it has messages to receive without a session.
    pub fn has_ready(&self, name: &EntityName) -> Option<Incarnation> {
        self.bus.has_ready(&self.catalogue, name)
    }

    /// The bus queue of that name, if it has a session with messages that is not locked.
    pub fn has_session(&self, name: &EntityName) -> Option<Incarnation> {
        self.bus.has_session(&self.catalogue, name)
    }

    /// Whether a receiver that waits at this entity should look, so that neither the queue nor its topic is taken for
    /// idle.
    pub fn is_use_due(&self, entity: Incarnation, now: Timestamp) -> bool {
        self.bus.is_use_due(entity, now)
    }

    /// The thing that a receiver waits for after it was given nothing, if it passed over messages: they have
    /// expired, and may hide others until they are removed.
    pub fn passed_over(
        &self,
        name: &EntityName,
        session: Option<Token>,
    ) -> Option<(Incarnation, Awaited)> {
        self.bus.passed_over(&self.catalogue, name, session)
    }

    /// Whether an entity may have messages that have expired and were not removed yet.
    pub fn may_have_expired(&self, entity: Incarnation, now: Timestamp) -> bool {
        self.bus.may_have_expired(entity, now)
    }

    /// Whether a bus queue or sub-queue of that incarnation exists.
    pub fn is_bus_queue(&self, entity: Incarnation) -> bool {
        self.bus.contains_key(&entity)
    }
}
