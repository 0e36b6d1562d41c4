//! A piece of an evacuation: the bodies that a search has found are read, and moved by one command.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kew_engine::{
    BodiesMoved, BodyCursor, BodyLocation, BodyToMove, Command, Decision, FoundBodies, FoundBody,
    Hold, Holder, LIVE_OVERHEAD_BYTES, Outcome, Source, Timestamp, Tries, Turn,
};
use kew_log::{Body, BodyError, BootTime, Job, MovedBytes, VictimEnd};

use super::{DESCRIPTOR_PAUSE_MS, Evacuation, PACE_MS};
use crate::partition::batch::{Batch, Writing};
use crate::partition::loads::Asker;
use crate::partition::space::Space;
use crate::partition::{Partition, to_log};

/// What moves next.
#[derive(Debug)]
pub(super) struct Reading {
    found: Vec<FoundBody>,
    /// The places that are read. One that several messages have is there once.
    places: Vec<BodyLocation>,
}

impl<T> Partition<T> {
    pub(super) fn read_found(&mut self, now: BootTime, from: BodyCursor, found: FoundBodies) {
        let state = &self.state;
        let evacuation = &mut self.evacuation;
        let Some(victim) = &mut evacuation.victim else {
            return;
        };
        (victim.piece, victim.cursor) = (from, found.next);
        evacuation.failed_reads = 0;
        let moved = &victim.moved;
        let holders = found.bodies.iter().flat_map(|body| {
            let own = match &body.holder {
                Holder::Message(at) => Some(*at),
                Holder::Session { .. } => None,
            };
            let first = moved.get(body.at).map(|first| first.holder);
            own.into_iter().chain(first)
        });
        evacuation.pins = holders.map(|at| state.run_of(at)).collect();
        let mut reading = Reading {
            found: Vec::new(),
            places: Vec::new(),
        };
        let (mut shared, mut bodies) = (BTreeSet::new(), Vec::<Body>::new());
        for found in found.bodies {
            let place = found.at.with(Hold::Alone);
            let is_read = found.at.hold() != Hold::Alone
                && (moved.get(place).is_some() || shared.contains(&place));
            if is_read {
                reading.found.push(found);
            } else if let Some(body) = self.log.body(to_log(found.at)) {
                if found.at.hold() != Hold::Alone {
                    shared.insert(place);
                }
                bodies.push(body);
                reading.places.push(place);
                reading.found.push(found);
            }
        }
        if !bodies.is_empty() {
            evacuation.job = Some(Job::read(bodies));
            evacuation.reading = Some(reading);
        } else if !reading.found.is_empty() {
            self.make_ready(reading.found, &BTreeMap::new());
        } else {
            evacuation.step_at = Some(now);
        }
    }

    /// Takes the bodies that a job has read.
    pub(in crate::partition) fn take_bodies(&mut self, bodies: Vec<Result<Bytes, BodyError>>) {
        let now = self.now.boot;
        let evacuation = &mut self.evacuation;
        let Some(Reading { found, places }) = evacuation.reading.take() else {
            return;
        };
        let (mut whole, mut is_without_descriptors) = (BTreeMap::new(), false);
        for (place, read) in places.into_iter().zip(bodies) {
            match read {
                Ok(body) => {
                    whole.insert(place, body);
                }
                Err(BodyError::Io(failure)) if failure.is_no_descriptor() => {
                    is_without_descriptors = true;
                }
                Err(error) => {
                    evacuation.unread_count += 1;
                    tracing::warn!(%error, "a body cannot be moved: its segment stays");
                }
            }
        }
        self.make_ready(found, &whole);
        if is_without_descriptors {
            self.give_up_search(VictimEnd::GivenUp);
            self.evacuation.not_before = now.plus_ms(DESCRIPTOR_PAUSE_MS);
        }
    }

    /// Makes the command that moves these, as far as their bytes are known: they were read, or have moved with another
    /// message.
    fn make_ready(&mut self, found: Vec<FoundBody>, read: &BTreeMap<BodyLocation, Bytes>) {
        let evacuation = &mut self.evacuation;
        let moved = evacuation.victim.as_ref().map(|victim| &victim.moved);
        let ready = found.into_iter().filter_map(|found| {
            let place = found.at.with(Hold::Alone);
            let is_alone = found.at.hold() == Hold::Alone;
            let first = moved.filter(|_| !is_alone).and_then(|it| it.get(place));
            let source = match first {
                Some(first) => Source::SameAs(first),
                None => Source::Bytes(read.get(&place)?.clone()),
            };
            Some(BodyToMove {
                holder: found.holder,
                from: found.at,
                source,
                event_size_bytes: found.event_size_bytes,
            })
        });
        let bodies: Vec<_> = ready.collect();
        if !bodies.is_empty() {
            let command = Command::MoveBodies { bodies };
            let needed = command.describe().writes.size_bytes_max(&self.state);
            evacuation.ready = Some((command, needed));
        }
        evacuation.step_at = Some(self.now.boot);
    }

    /// The room that the bodies need which this turn moves.
    pub(in crate::partition) fn moves_size_bytes(&self) -> u64 {
        let ready = self.evacuation.ready.as_ref();
        ready.map_or(0, |(_, needed)| *needed)
    }

    /// Moves the bodies that were read, if they have room in this turn.
    pub(in crate::partition) fn move_bodies(
        &mut self,
        now: Timestamp,
        batch: &mut Batch,
        space: Space,
        room_bytes: u64,
    ) {
        let boot = self.now.boot;
        let evacuation = &mut self.evacuation;
        let Some((command, needed)) = evacuation.ready.take() else {
            return;
        };
        if !space.takes_moves(needed) {
            // Bodies that others counted are larger than their segment looks. Another one is emptied meanwhile.
            let end = match space.never_takes(needed) {
                true => VictimEnd::TooLarge,
                false => VictimEnd::GivenUp,
            };
            self.give_up_search(end);
            return;
        }
        if needed > room_bytes {
            evacuation.ready = Some((command, needed));
            evacuation.step_at = Some(boot.plus_ms(PACE_MS));
            return;
        }
        let before_bytes = batch.builder.len_bytes() as u64;
        let mut journal = Writing {
            batch,
            log: &*self.log,
            bodies: None,
        };
        let mut turn = Turn::new(&mut self.state, now, &mut journal);
        let missing = turn.prepare(&command, &mut Tries::default());
        if !missing.is_empty() {
            // It moves what is still in its place when that was read.
            let put_off = self.loads.ask(Asker::Evacuation, &missing);
            let evacuation = &mut self.evacuation;
            evacuation.ready = Some((command, needed));
            evacuation.step_at = Some(boot.plus_ms(PACE_MS).max(put_off.unwrap_or_default()));
            self.note_missing(put_off.is_some());
            return;
        }
        let done = what_moved(turn.decide(command));
        let written_bytes = (batch.builder.len_bytes() as u64).saturating_sub(before_bytes);
        batch.builder.set_moved(MovedBytes {
            written_bytes,
            live_bytes: done.stored_bytes + done.count as u64 * LIVE_OVERHEAD_BYTES,
        });
        self.evacuation.note_moved(boot, done, written_bytes);
    }
}

fn what_moved(decision: Decision) -> BodiesMoved {
    match decision.result {
        Ok(Outcome::BodiesMoved(moved)) => moved,
        Ok(
            Outcome::Initialized
            | Outcome::ServicePropertiesSet
            | Outcome::ServiceProperties(_)
            | Outcome::AccountPut
            | Outcome::AccountRemoved
            | Outcome::Accounts(_)
            | Outcome::Quarantined(_)
            | Outcome::Storage(_)
            | Outcome::Bus(_),
        )
        | Err(_) => BodiesMoved::default(),
    }
}

impl Evacuation {
    fn note_moved(&mut self, now: BootTime, done: BodiesMoved, written_bytes: u64) {
        self.moved_at = now;
        self.step_at = Some(now);
        self.moved_bytes += written_bytes;
        self.moved_count += done.count as u64;
        self.allowance_bytes = self.allowance_bytes.saturating_sub(written_bytes);
        let Some(victim) = &mut self.victim else {
            return;
        };
        victim.has_moved |= done.count > 0;
        if !done.gone.is_empty() {
            // Those of the piece that have not moved are found again, and read.
            victim.cursor = Some(victim.piece);
        }
        for from in done.gone {
            victim.moved.forget(from);
        }
        for (from, first) in done.first {
            victim.moved.note(from, first);
        }
    }
}
