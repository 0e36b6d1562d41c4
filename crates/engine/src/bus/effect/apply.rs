//! How effects change bus queues.

use super::{BusArrival, BusEffect};
use crate::bus::BusMessageState;
use crate::bus::backlog::Backlog;
use crate::bus::queue::BusQueue;
use crate::bus::queues::Queues;
use crate::bus::session::RELEASING;
use crate::catalogue::Catalogue;
use crate::table::{Live, Record, Side};
use crate::vocabulary::{SequenceNumber, Timestamp};

impl Queues {
    /// Applies effects of an event at `at`. An effect whose message or entity is not there changes nothing.
    pub(crate) fn apply_effects(
        &mut self,
        catalogue: &mut Catalogue,
        at: Timestamp,
        effects: &[BusEffect],
    ) {
        let mut rest = effects;
        while let Some((first, later)) = rest.split_first() {
            let incarnation = first.entity();
            let Some(entity) = self.get_mut(&incarnation) else {
                rest = later;
                continue;
            };
            while let Some((effect, later)) = rest.split_first()
                && effect.entity() == incarnation
            {
                entity.apply(at, effect, &mut catalogue.live);
                rest = later;
            }
            entity.note_deadline(catalogue, incarnation);
        }
    }

    /// Whether an effect says what is true of the message that it is about to change. It must when it is
    /// decided; applying it does not ask.
    pub(crate) fn is_exact(&self, effect: &BusEffect) -> bool {
        let Some(entity) = self.get(&effect.entity()) else {
            return false;
        };
        let backlog = &entity.backlog;
        match effect {
            BusEffect::Arrived { to, message } => {
                let sessions = &backlog.sessions;
                let session = message.session.as_ref();
                let named = session.map(|session| sessions.named(&session.id));
                backlog.get(to.number).is_none() && named.as_ref() == session
            }
            BusEffect::Leased { at, was, .. } => {
                let message = backlog.get(at.number);
                message.is_some_and(|message| message.was() == *was)
            }
            BusEffect::Ended { at, .. } => {
                let message = backlog.get(at.number);
                message.is_some_and(|message| message.ended(*at) == *effect)
            }
            BusEffect::SessionReleasing { session, .. } => {
                let found = backlog.sessions.find(session);
                found.is_some_and(|(_, session)| !session.messages.locked.is_empty())
            }
            BusEffect::SessionFreed { session, .. } => {
                let found = backlog.sessions.find(session);
                found.is_some_and(|(_, session)| session.messages.locked.is_empty())
            }
        }
    }
}

impl BusQueue {
    fn apply(&mut self, at: Timestamp, effect: &BusEffect, live: &mut Live) {
        self.used_at = at;
        match effect {
            BusEffect::Arrived { to, message } => {
                if let (Some(hash), Some(window_ms)) =
                    (message.id_hash, self.options.duplicate_window_ms)
                {
                    self.duplicates.note(hash, window_ms, at);
                }
                self.backlog.arrive(at, to.number, message, live);
            }
            BusEffect::Leased {
                at,
                lease,
                overlay,
                was,
            } => self.backlog.lease(at.number, lease, *overlay, was, live),
            BusEffect::Ended {
                at,
                was,
                bodies,
                source_length,
            } => (self.backlog).end(at.number, was, bodies, *source_length, live),
            BusEffect::SessionReleasing { session, .. } => {
                let sessions = &mut self.backlog.sessions;
                sessions.change_named(session, |session| session.locked_until = RELEASING);
            }
            BusEffect::SessionFreed { session, .. } => {
                let sessions = &mut self.backlog.sessions;
                sessions.change_named(session, |session| session.locked_until = Timestamp::ZERO);
            }
        }
    }
}

impl Backlog {
    fn arrive(
        &mut self,
        now: Timestamp,
        number: SequenceNumber,
        arrival: &BusArrival,
        live: &mut Live,
    ) {
        if self.get(number).is_some() {
            return;
        }
        let session = arrival.session.as_ref();
        let session = session.map_or(0, |session| self.sessions.ensure(session));
        let state = match arrival.scheduled_at {
            Some(_) => BusMessageState::Scheduled,
            None => BusMessageState::Ready,
        };
        let record = Record {
            expires_at: arrival.expires_at,
            due_at: arrival.scheduled_at.unwrap_or(Timestamp::NEVER),
            generation: arrival.generation,
            deliveries: arrival.deliveries,
            session,
            state,
            cause: arrival.cause,
            hops: arrival.hops,
            ..Record::ready(now, arrival.bodies.sent)
        };
        let side = Side {
            first_number: arrival.first_number.filter(|first| *first != number),
            source: arrival.source.clone(),
            overlays: arrival.bodies.overlays.clone(),
        };
        self.push(number, record, side, live);
    }
}
