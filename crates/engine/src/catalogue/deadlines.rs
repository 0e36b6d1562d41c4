//! The entities with a deadline, in the order in which a tick serves them: by time, and those that were served
//! behind the others that are due.

use std::collections::BTreeSet;

use crate::vocabulary::{Incarnation, Timestamp};

/// How many messages that a due thing looks at count as one more thing.
pub(crate) const LOOKS_PER_UNIT: u32 = 64;

/// When an entity was last served: at that time, as the one of that number. Zero if it never was.
type Served = (Timestamp, u64);

/// What an entity keeps of its deadline.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadline {
    /// The key under which it is in the set.
    key: Option<Served>,
    served: Served,
    /// Whether nothing that is due is done for now.
    pub(crate) rests: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// A deadline before the entity was last served counts as if it were then: so others that are due come first.
    by_time: BTreeSet<(Timestamp, u64, Incarnation)>,
    served: u64,
}

impl Deadlines {
    /// The first entity that does not rest. If it is not due, none is.
    pub(crate) fn first(&self) -> Option<(Timestamp, Incarnation)> {
        self.by_time.first().map(|(at, _, entity)| (*at, *entity))
    }

    /// Notes an entity's present deadline.
    pub(crate) fn note(
        &mut self,
        entity: Incarnation,
        noted: &mut Deadline,
        deadline: Option<Timestamp>,
    ) {
        let deadline = deadline.filter(|_| !noted.rests);
        let key = deadline.map(|deadline| (deadline, 0).max(noted.served));
        if key != noted.key {
            self.remove(entity, noted);
            noted.key = key;
            if let Some((at, number)) = key {
                self.by_time.insert((at, number, entity));
            }
        }
    }

    /// Notes that a tick has served an entity: others that are due come before it now.
    pub(crate) fn serve(
        &mut self,
        entity: Incarnation,
        noted: &mut Deadline,
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) {
        self.served += 1;
        noted.served = (now, self.served);
        self.note(entity, noted, deadline);
    }

    /// Gives an entity the turn that it had before a restart, which forgets turns and rests.
    #[cfg(test)]
    pub(crate) fn take_over(
        &mut self,
        entity: Incarnation,
        (noted, before): (&mut Deadline, Deadline),
        deadline: Option<Timestamp>,
    ) {
        self.served = self.served.max(before.served.1);
        (noted.served, noted.rests) = (before.served, before.rests);
        self.note(entity, noted, deadline);
    }

    /// Removes an entity.
    pub(crate) fn remove(&mut self, entity: Incarnation, noted: &Deadline) {
        if let Some((at, number)) = noted.key {
            self.by_time.remove(&(at, number, entity));
        }
    }
}
