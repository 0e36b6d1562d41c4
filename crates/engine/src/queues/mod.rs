//! What the queues of both services have in common: their messages, how effects and moves change these, and what a
//! snapshot and a repair do with them. [`Profile`] is what is different.

mod backlog;
mod flow;
mod missing;
mod moves;
mod profile;
mod quarantine;
mod receiving;
mod repair;
pub(crate) mod snapshot;

use std::ops::{Deref, DerefMut};

pub(crate) use self::backlog::Backlog;
pub use self::flow::Flow;
pub(crate) use self::missing::Walk;
pub use self::moves::{Moved, MovedOf};
pub(crate) use self::profile::Profile;
pub use self::receiving::Receiving;
use crate::catalogue::{Catalogue, Deadline};
use crate::effect::Effect;
use crate::shared::{Entities, Share};
use crate::table::Slots;
use crate::vocabulary::{EntityName, Hint, Incarnation, SequenceNumber, Timestamp};

/// A queue of a service.
pub(crate) trait Queue: Share {
    /// Its service.
    type Profile: Profile;

    /// Its name.
    fn name(&self) -> &EntityName;

    /// Its messages.
    fn backlog(&self) -> &Backlog<Self::Profile>;

    /// Its messages, to change them.
    fn backlog_mut(&mut self) -> &mut Backlog<Self::Profile>;

    /// Its place among the deadlines of the catalogue.
    fn deadline(&mut self) -> &mut Hint<Deadline>;

    /// When something becomes due next, or earlier.
    fn next_deadline(&self) -> Option<Timestamp>;

    /// Notes what an effect means for the queue itself.
    fn note(&mut self, _at: Timestamp, _effect: &EffectOn<Self>) {}

    /// Notes what a move of a body means for the queue itself.
    fn note_move(&mut self, _moved: &MovedIn<Self>) {}

    /// Notes that messages were set aside.
    fn note_set_aside(&mut self, _first: SequenceNumber, _messages: Slots) {}

    /// Whether its messages end once they have copies elsewhere.
    fn gives_copies(&self) -> bool {
        false
    }

    /// Counts in its [`Flow`] what an effect lets come and leave.
    fn tally(&mut self, at: Timestamp, effect: &EffectOn<Self>);

    /// Adds what another reading of the same history has found of the queue itself.
    fn absorb(&mut self, _other: &Self) {}

    /// Counts a queue that comes.
    fn join(&mut self, _catalogue: &mut Catalogue, _queue: Incarnation) {}

    /// Counts it no longer.
    fn depart(&self, _catalogue: &mut Catalogue, _queue: Incarnation) {}

    /// Counts what has changed.
    fn count(&mut self, _catalogue: &mut Catalogue, _queue: Incarnation) {}

    /// Keeps the catalogue in step after a change.
    fn settle(&mut self, catalogue: &mut Catalogue, queue: Incarnation) {
        *catalogue.copied += self.backlog_mut().take_copied();
        catalogue.waste.append(self.backlog_mut().waste());
        let deadline = self.next_deadline();
        let deadlines = &mut catalogue.deadlines;
        deadlines.note(queue, self.deadline(), deadline);
        self.count(catalogue, queue);
    }
}

/// An effect on a queue of that kind.
pub(crate) type EffectOn<Q> = Effect<<<Q as Queue>::Profile as Profile>::Own>;

/// A body of a queue of that kind that has moved.
pub(crate) type MovedIn<Q> = Moved<<<Q as Queue>::Profile as Profile>::OwnHolder>;

/// All queues of a service, by incarnation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Queues<Q: Queue>(Entities<Q>);

impl<Q: Queue> Default for Queues<Q> {
    fn default() -> Self {
        Self(Entities::default())
    }
}

impl<Q: Queue> Deref for Queues<Q> {
    type Target = Entities<Q>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<Q: Queue> DerefMut for Queues<Q> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<Q: Queue> Queues<Q> {
    /// Applies effects of an event at `at`. An effect whose message or queue is not there changes nothing.
    pub(crate) fn apply_effects(
        &mut self,
        catalogue: &mut Catalogue,
        at: Timestamp,
        effects: &[EffectOn<Q>],
    ) {
        let mut rest = effects;
        while let Some((first, later)) = rest.split_first() {
            let incarnation = first.entity();
            let Some(queue) = self.0.get_mut(&incarnation) else {
                rest = later;
                continue;
            };
            while let Some((effect, later)) = rest.split_first()
                && effect.entity() == incarnation
            {
                queue.note(at, effect);
                if *catalogue.tallies {
                    queue.tally(at, effect);
                }
                queue.backlog_mut().apply(effect, &mut catalogue.live);
                rest = later;
            }
            queue.settle(catalogue, incarnation);
        }
    }

    /// Whether an effect says what is true of what it is about to change. It must when it is decided; applying it
    /// does not ask.
    pub(crate) fn is_exact(&self, effect: &EffectOn<Q>) -> bool {
        let queue = self.get(&effect.entity());
        queue.is_some_and(|queue| queue.backlog().is_exact(effect))
    }

    /// Adds a queue, and gives it its name.
    pub(crate) fn add(&mut self, catalogue: &mut Catalogue, incarnation: Incarnation, queue: Q) {
        let mut queue = queue;
        *queue.deadline() = Hint::default();
        queue.join(catalogue, incarnation);
        queue.backlog().count_live(&mut catalogue.live);
        catalogue.name(queue.name().clone(), incarnation);
        queue.settle(catalogue, incarnation);
        self.0.insert(incarnation, queue);
    }

    /// Removes a queue, and its name unless a later one has that.
    pub(crate) fn take(
        &mut self,
        catalogue: &mut Catalogue,
        incarnation: Incarnation,
    ) -> Option<Q> {
        let mut queue = self.0.remove(&incarnation)?;
        let deadline = std::mem::take(queue.deadline());
        catalogue.forget(queue.name(), incarnation, &deadline);
        queue.backlog().uncount_live(&mut catalogue.live);
        queue.depart(catalogue, incarnation);
        Some(queue)
    }

    /// Looks at a run that had a message to expire, so that it is due again when it has another. Returns how many
    /// messages that are.
    pub(crate) fn raise_expiry(
        &mut self,
        catalogue: &mut Catalogue,
        incarnation: Incarnation,
        run: u64,
    ) -> u32 {
        let Some(queue) = self.0.get_mut(&incarnation) else {
            return 0;
        };
        let looks = queue.backlog_mut().raise_expiry(run);
        queue.settle(catalogue, incarnation);
        looks
    }
}
