//! Queues in the repair of a damaged log.
//!
//! If a gap has hidden earlier events, an effect may say of an old message what is not true of the one here, and that
//! would be counted wrongly. So effects are made to fit first.

use super::{Backlog, EffectOn, Profile, Queue, Queues};
use crate::catalogue::Catalogue;
use crate::effect::Effect;
use crate::table::{NumberedMessage, Record};
use crate::vocabulary::{EntityName, Incarnation, SequenceNumber, Timestamp};

impl<Q: Queue> Queues<Q> {
    /// Applies effects as they fit these queues, one by one: several can concern the same message. A message does
    /// not leave its queue for one that is not there. One of a topic does, because what went there was a copy.
    pub(crate) fn apply_fitting_effects(
        &mut self,
        catalogue: &mut Catalogue,
        at: Timestamp,
        effects: impl IntoIterator<Item = EffectOn<Q>>,
    ) {
        let mut goes_nowhere = false;
        for effect in effects {
            let stays = goes_nowhere
                && matches!(effect, Effect::Ended { .. })
                && !self.get(&effect.entity()).is_some_and(Queue::gives_copies);
            goes_nowhere =
                matches!(effect, Effect::Arrived { .. }) && !self.contains_key(&effect.entity());
            if !stays {
                let effects = self.fitting(effect);
                self.apply_effects(catalogue, at, &effects);
            }
        }
    }

    /// Makes a number one that was given out: its message is lost, and with the queue its next number may be.
    pub(crate) fn use_number(&mut self, incarnation: Incarnation, number: SequenceNumber) {
        if let Some(queue) = self.get_mut(&incarnation) {
            queue.backlog_mut().use_number(number);
        }
    }

    /// Adds messages that are left of a damaged snapshot to a queue that is there. One that it has stays as it is.
    pub(crate) fn restore_left(
        &mut self,
        catalogue: &mut Catalogue,
        incarnation: Incarnation,
        messages: Vec<NumberedMessage>,
    ) {
        let Some(queue) = self.get_mut(&incarnation) else {
            return;
        };
        let (backlog, live) = (queue.backlog_mut(), &mut catalogue.live);
        for (number, record, side) in messages {
            if !backlog.table().contains(number) {
                let session = backlog.session_left(record.session);
                backlog.push(number, Record { session, ..record }, side, live);
            }
        }
        queue.settle(catalogue, incarnation);
    }

    /// Removes a queue, and returns its messages.
    pub(crate) fn take_messages(
        &mut self,
        catalogue: &mut Catalogue,
        incarnation: Incarnation,
    ) -> Vec<NumberedMessage> {
        let Some(queue) = self.take(catalogue, incarnation) else {
            return Vec::new();
        };
        let entries = queue.backlog().table().entries();
        let messages = entries.map(|it| {
            let side = it.whole_side();
            (it.number, *it.record, side)
        });
        messages.collect()
    }

    /// The effect as it is true of these queues.
    pub(crate) fn fitting(&self, effect: EffectOn<Q>) -> Vec<EffectOn<Q>> {
        match self.get(&effect.entity()) {
            Some(queue) => queue.backlog().fitting(effect),
            None => vec![effect],
        }
    }

    /// Adds the queues and messages that another reading has found. Returns the names of queues whose name is
    /// taken.
    pub(crate) fn absorb(&mut self, catalogue: &mut Catalogue, other: Self) -> Vec<EntityName> {
        let mut refused = Vec::new();
        for (incarnation, queue) in other.0.into_all() {
            if let Some(own) = self.get_mut(&incarnation) {
                own.absorb(&queue);
                let live = &mut catalogue.live;
                own.backlog_mut().absorb(queue.backlog(), live);
                own.settle(catalogue, incarnation);
            } else if catalogue.find(queue.name()).is_some() {
                refused.push(queue.name().clone());
            } else {
                self.add(catalogue, incarnation, queue);
            }
        }
        refused
    }
}

impl<P: Profile> Backlog<P> {
    /// The effect as it is true here.
    fn fitting(&self, effect: Effect<P::Own>) -> Vec<Effect<P::Own>> {
        match effect {
            Effect::Leased {
                at,
                lease,
                ref body,
                ..
            } => {
                let entry = self.table().get(at.number);
                let leased = entry.map(|entry| P::leased(entry.record, at, lease, body.clone()));
                vec![leased.unwrap_or(effect)]
            }
            Effect::Ended { at, .. } => vec![self.ended(at).unwrap_or(effect)],
            Effect::Arrived { .. } => vec![effect],
            Effect::Own(own) => P::fitting(self, own),
        }
    }
}
