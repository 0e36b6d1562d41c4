//! The messages of a queue of either service, and how effects change them.
//!
//! A message that can be received in the order of its number costs a bit in the table. One that waits for a time
//! (the end of a lease, a lock or a schedule) is in an ordered set by that time. A profile may keep more.
//!
//! Effects bring what the old message counted for, so applying one asks only whether the message is there. It never
//! looks at the next number: in a replay, that may be newer than the run.
//!
//! Invariants: a message is in `timed` if and only if its state says so, unless its record is on a page alone and the table
//! knows it as far; it is in the table's order if and only if its profile says so.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use super::Profile;
use super::snapshot::TAKEN;
use crate::effect::{Arrival, Bodies, Effect, Lease, NewBody, Standing, Was};
use crate::shared::Waste;
use crate::table::{
    Group, GroupRead, Leased, Live, MessageState, PagedMessage, PagedRun, Record, Restoring,
    RunLength, SharedRuns, Side, Table, Taken, Timed, TimedKey, is_timed,
};
use crate::vocabulary::{BodyMove, Incarnation, PageNumber, SequenceNumber, Timestamp};

#[derive(Debug)]
pub(crate) struct Backlog<P> {
    table: Table,
    timed: Timed,
    profile: P,
}

/// Which messages are in the order by time depends on what is in memory: those of the others are on pages.
impl<P: PartialEq> PartialEq for Backlog<P> {
    fn eq(&self, other: &Self) -> bool {
        let has_all = |of: &Self, other: &Self| {
            let mut times = of.timed.iter();
            times.all(|key| other.timed.contains(key) || other.table.is_far(key.1))
        };
        self.table == other.table
            && self.profile == other.profile
            && self.timed.len() as u64 + self.table.far_count()
                == other.timed.len() as u64 + other.table.far_count()
            && has_all(self, other)
            && has_all(other, self)
    }
}

impl<P: Eq> Eq for Backlog<P> {}

/// What the profile keeps reads as the backlog's own.
impl<P> Deref for Backlog<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.profile
    }
}

impl<P> DerefMut for Backlog<P> {
    fn deref_mut(&mut self) -> &mut P {
        &mut self.profile
    }
}

impl<P: Profile> Backlog<P> {
    /// An empty backlog whose next message has this sequence number.
    pub(crate) fn of(profile: P, length: RunLength, next: SequenceNumber) -> Self {
        Self {
            table: Table::new(length, next),
            timed: Timed::new(length),
            profile,
        }
    }

    /// Makes an effect part of the backlog. One whose message is not there changes nothing.
    pub(crate) fn apply(&mut self, effect: &Effect<P::Own>, live: &mut Live) {
        match effect {
            Effect::Arrived { to, message } => self.arrive(to.number, message, live),
            Effect::Leased {
                at,
                lease,
                body,
                was,
            } => self.lease(at.number, lease, body.as_deref(), was, live),
            Effect::Ended {
                at,
                was,
                bodies,
                source_length,
            } => self.end(at.number, was, bodies, *source_length, live),
            Effect::Own(own) => P::apply(self, own, live),
        }
    }

    /// Whether an effect says what is true of what it is about to change.
    pub(crate) fn is_exact(&self, effect: &Effect<P::Own>) -> bool {
        match effect {
            Effect::Arrived { to, message } => {
                !self.table.contains(to.number) && self.profile.is_named(message.session())
            }
            Effect::Leased { at, body, was, .. } => self.table.get(at.number).is_some_and(|it| {
                let replaced = match body.as_deref() {
                    Some(NewBody::Other { was, .. }) => *was,
                    Some(NewBody::Change(_)) | None => it.record.body,
                };
                P::was(it.record) == *was && replaced == it.record.body
            }),
            Effect::Ended {
                at,
                was,
                bodies,
                source_length,
            } => self.table.get(at.number).is_some_and(|it| {
                let is_whole = bodies.sent == it.record.body && bodies.overlays == it.overlays();
                P::was(it.record) == *was && is_whole && it.source_length() == *source_length
            }),
            Effect::Own(own) => P::is_exact(self, own),
        }
    }

    fn arrive(&mut self, number: SequenceNumber, arrival: &Arrival, live: &mut Live) {
        if arrival.rest.is_some() && self.table.contains(number) {
            return;
        }
        let record = Record {
            session: self.profile.session_of(arrival.session()),
            ..arrival.record
        };
        let side = arrival.side().cloned().unwrap_or_default();
        self.push(number, record, side, live);
    }

    /// Adds a message. Nothing happens if there is one of that number: `apply` is total.
    pub(crate) fn push(
        &mut self,
        number: SequenceNumber,
        record: Record,
        side: Side,
        live: &mut Live,
    ) {
        // One that is the number itself says nothing, and a snapshot does not keep it.
        let side = Side {
            first_number: side.first_number.filter(|first| *first != number),
            ..side
        };
        if self.insert(number, record, side, live) {
            self.table.use_number(number);
        }
    }

    /// Notes that a number was given out.
    pub(crate) fn use_number(&mut self, number: SequenceNumber) {
        self.table.use_number(number);
    }

    /// Adds a message, without regard to the next number. Returns false if its number is taken.
    fn insert(
        &mut self,
        number: SequenceNumber,
        record: Record,
        side: Side,
        live: &mut Live,
    ) -> bool {
        let is_ready = self.profile.is_in_order(record.state, record.session);
        let more = (side.overlays.len(), side.source_length());
        if !self.table.insert(number, record, side, is_ready, live) {
            return false;
        }
        self.index_new(number, &record, more);
        self.table.lower_expiry(number, P::expiry(&record));
        true
    }

    /// Restores messages of a snapshot. Returns false at one whose number is taken, or was never given out.
    pub(crate) fn restore<E>(
        &mut self,
        live: &mut Live,
        mut next: impl FnMut(&P) -> Result<Option<(SequenceNumber, Record, Side)>, E>,
    ) -> Result<bool, E> {
        let mut restoring = Restoring::default();
        while let Some((number, record, side)) = next(&self.profile)? {
            if number >= self.next() {
                return Ok(false);
            }
            let is_ready = self.profile.is_in_order(record.state, record.session);
            let more = (side.overlays.len(), side.source_length());
            let (message, expiry) = ((number, record, side), P::expiry(&record));
            if !(self.table).restore(&mut restoring, message, is_ready, expiry, live) {
                return Ok(false);
            }
            self.index_new(number, &record, more);
        }
        Ok(self.table.add_restored(&mut restoring, live))
    }

    /// Restores a run without its page: what its directory says is all that the orders need ([`PagedRun::is_plain`]).
    /// Returns false if one of its numbers is taken, or was never given out.
    pub(crate) fn restore_cold(
        &mut self,
        run: &PagedRun,
        page: PageNumber,
        live: &mut Live,
    ) -> bool {
        let profile = &self.profile;
        let is_in_order = |state| profile.is_in_order(state, 0);
        if !self.table.restore_cold(run, page, is_in_order, live) {
            return false;
        }
        let length = self.table.length();
        let (first, count) = run.first_and_count(length);
        self.profile.came_plain(first, count);
        for (number, state, until) in run.told_states(length) {
            self.enter(number, Standing { state, until }, 0);
        }
        // Their times are on the page alone.
        for (number, state) in run.waiting_states(length) {
            self.profile.enter(number, state, 0);
        }
        true
    }

    /// Restores a run of which these messages are left on its page. Those that are lost enter no order of a session, but
    /// count ([`PagedRun::can_be_damaged`]). Returns the groups that have some of them, or an error if the run does not fit.
    pub(super) fn restore_damaged(
        &mut self,
        (entity, run): (Incarnation, &PagedRun),
        page: PageNumber,
        left: Vec<PagedMessage>,
        live: &mut Live,
    ) -> Result<Vec<Group>, &'static str> {
        let is_known = |session| session == 0 || self.profile.has_session(session);
        let all = left.iter().chain(run.here());
        if !all.map(|(_, record, _)| record.session).all(is_known) {
            return Err("message of a session that is not there, on a damaged page");
        }
        let profile = &self.profile;
        let is_in_order = |state| profile.is_in_order(state, 0);
        if !self.table.restore_cold(run, page, is_in_order, live) {
            return Err(TAKEN);
        }
        let lost = self.table.add_left((entity, run.index), left, live);
        let length = self.table.length();
        let told = run.told_states(length);
        let told = told.map(|(number, state, until)| (number, Standing { state, until }));
        let told: BTreeMap<_, _> = told.collect();
        let waiting: BTreeMap<_, _> = run.waiting_states(length).collect();
        for (number, record) in self.table.known_of_run(run.index) {
            match (record, told.get(&number), waiting.get(&number)) {
                (Some((record, more)), ..) => self.index_new(number, &record, more),
                (None, Some(standing), _) => {
                    self.profile.came_lost();
                    self.enter(number, *standing, 0);
                }
                // Its time is on the page alone.
                (None, None, waiting) => {
                    self.profile.came_lost();
                    let state = waiting.copied().unwrap_or(MessageState::Ready);
                    self.profile.enter(number, state, 0);
                }
            }
        }
        Ok(lost)
    }

    /// Takes records that were read.
    pub(super) fn take_read(&mut self, read: GroupRead, live: &mut Live) -> Taken {
        let mut came = Vec::new();
        let taken = self.table.take_read(read, &mut came, live);
        came.into_iter().for_each(|key| self.timed.insert(key));
        taken
    }

    /// Takes records of a run out of memory: see [`Table::evict`].
    pub(super) fn evict(&mut self, run: u64, far_from: Timestamp, live: &mut Live) {
        let left = self.table.evict(run, far_from, live);
        self.leave_order(&left.unwrap_or_default());
    }

    /// Takes messages out of the order by time: their runs keep in mind that they wait.
    pub(super) fn leave_order(&mut self, left: &[TimedKey]) {
        left.iter().for_each(|key| self.timed.remove(key));
    }

    fn index_new(&mut self, number: SequenceNumber, record: &Record, more: (usize, Option<u32>)) {
        self.profile.came(number, record.session, more);
        self.enter(number, P::standing(record), record.session);
    }

    /// Removes a message that counted for `was` and had these bodies; nothing happens if there is none.
    pub(crate) fn end(
        &mut self,
        number: SequenceNumber,
        was: &Was,
        bodies: &Bodies,
        source_length: Option<u32>,
        live: &mut Live,
    ) {
        let sizes = (bodies.size_bytes(), bodies.sent.borrowed_bytes());
        if (self.table).remove(number, sizes, bodies.all(), live) {
            self.leave(number, was);
            let more = (bodies.overlays.len(), source_length);
            self.profile.left(number, was.session, more);
        }
    }

    /// Gives a message that counted for `was` a lease, and with it a body if there is one. Nothing happens if there
    /// is no such message.
    pub(crate) fn lease(
        &mut self,
        number: SequenceNumber,
        lease: &Lease,
        body: Option<&NewBody>,
        was: &Was,
        live: &mut Live,
    ) {
        let Standing { state, until } = lease.standing;
        let is_ready = self.profile.is_in_order(state, was.session);
        if !self
            .table
            .lease(number, is_ready, &leased(lease, body), live)
        {
            return;
        }
        if let Some(body) = body {
            self.count_body(number, *body, live);
        }
        self.leave(number, was);
        self.enter(number, lease.standing, was.session);
        if state == MessageState::Ready {
            self.table.lower_expiry(number, until);
        }
    }

    fn count_body(&mut self, number: SequenceNumber, body: NewBody, live: &mut Live) {
        let (added, taken) = match body {
            NewBody::Other { body, was } => {
                let (added, taken) = (body.location.borrowed_bytes(), was.borrowed_bytes());
                self.table.rebalance(number, added, taken);
                (body.location, Some(was).filter(|it| it.is_of_a_body()))
            }
            NewBody::Change(overlay) => {
                self.table.add_overlay(number, overlay, live);
                self.profile.changed();
                (overlay, None)
            }
        };
        let taken_bytes = taken.map_or(0, |taken| taken.length);
        self.table
            .resize(number, added.length.into(), taken_bytes.into());
        self.table.recount(number, added, taken, live);
    }

    /// Removes all messages of the runs whose numbers lie in a range, by the counts of the runs: only for a profile
    /// that keeps nothing of each message. If they are leased or delayed, the range must cover the whole backlog.
    pub(crate) fn end_range(
        &mut self,
        from: SequenceNumber,
        until: SequenceNumber,
        live: &mut Live,
    ) {
        if from < until && self.table.is_within(from, until) {
            self.uncount_live(live);
            let next = self.next().max(until);
            let length = self.table.length();
            let table = std::mem::replace(&mut self.table, Table::new(length, next));
            let timed = std::mem::replace(&mut self.timed, Timed::new(length));
            self.waste().push((table, timed));
        } else {
            self.table.remove_runs(from, until, live);
        }
    }

    fn enter(&mut self, number: SequenceNumber, standing: Standing, session: u32) {
        if is_timed(standing.state) {
            self.timed.insert((standing.until, number));
        }
        self.profile.enter(number, standing.state, session);
    }

    fn leave(&mut self, number: SequenceNumber, was: &Was) {
        let Standing { state, until } = was.standing;
        if is_timed(state) {
            self.timed.remove(&(until, number));
        }
        self.profile.uncount(state);
    }

    /// Gives a message a body, or a change to its properties, in another place, if it is in the old one. Returns
    /// whether it is.
    pub(crate) fn move_message_body(
        &mut self,
        number: SequenceNumber,
        body: BodyMove,
        live: &mut Live,
    ) -> bool {
        self.table.move_body(number, body, live)
    }

    /// Changes what few messages have, but not their bytes.
    pub(crate) fn change_side(&mut self, number: SequenceNumber, change: impl FnOnce(&mut Side)) {
        self.table.change_side(number, change);
    }

    /// Corrects a run's hint: other messages than those that are there may have set it. Returns how many messages it
    /// has looked at.
    pub(crate) fn raise_expiry(&mut self, index: u64) -> u32 {
        self.table.raise_expiry(index, P::expiry)
    }

    /// Adds the messages that another reading of the same history has found and that are missing here.
    pub(crate) fn absorb(&mut self, other: &Self, live: &mut Live) {
        self.set_next(self.next().max(other.next()));
        self.profile.absorb(&other.profile, live);
        for entry in other.table.entries() {
            if !self.table.contains(entry.number) {
                let session = (self.profile).session_from(&other.profile, entry.record.session);
                let record = Record {
                    session,
                    ..*entry.record
                };
                let side = entry.whole_side();
                self.insert(entry.number, record, side, live);
            }
        }
    }

    /// Changes all messages, in a repair. Their orders must stay as they are.
    pub(crate) fn change_all(&mut self, change: impl Fn(&mut Record)) {
        self.table.change_all(change);
    }

    /// Moves past the messages whose time has come at `now`, in at most `budget` steps. Returns false if the
    /// steps ran out.
    pub(crate) fn pass_shown(&mut self, now: Timestamp, budget: &mut u32) -> bool {
        self.timed.pass_shown(now, budget)
    }

    /// Counts its bodies in a partition.
    pub(crate) fn count_live(&self, live: &mut Live) {
        self.table.count_live(live);
        self.profile.count_live(live);
    }

    /// Counts its bodies no longer, because it goes as a whole.
    pub(crate) fn uncount_live(&self, live: &mut Live) {
        self.table.uncount_live(live);
        self.profile.uncount_live(live);
    }

    /// The messages, for a snapshot.
    pub(crate) fn share(&self) -> SharedRuns {
        self.table.share()
    }

    /// What has left the backlog and takes long to free.
    pub(crate) fn waste(&mut self) -> &mut Waste {
        self.table.waste()
    }

    /// How many messages were copied since the last call because a snapshot had them.
    pub(crate) fn take_copied(&mut self) -> u64 {
        self.table.take_copied() + self.profile.take_copied()
    }

    /// The messages by number.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Likewise, to read some of them into memory, or to take them out of it.
    pub(super) fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }

    /// Those that wait for a time, to remove some.
    pub(super) fn timed_mut(&mut self) -> &mut Timed {
        &mut self.timed
    }

    /// Those that wait for a time, in that order: all that come before [`Table::far_first`].
    pub(crate) fn timed(&self) -> &Timed {
        &self.timed
    }

    /// How many wait for a time.
    pub(crate) fn timed_count(&self) -> u64 {
        self.timed.len() as u64 + self.table.far_count()
    }

    /// When the first of them is due, or earlier.
    pub(crate) fn first_time(&self) -> Option<Timestamp> {
        let first = self.timed.first().map(|(at, _)| *at);
        let far = self.table.far_first().map(|(at, _)| at);
        first.into_iter().chain(far).min()
    }

    /// Whether there is a message of that number, expired or not.
    pub(crate) fn holds(&self, number: SequenceNumber) -> bool {
        self.table.contains(number)
    }

    /// How many messages there are, in any state, and expired ones that no tick has removed.
    pub(crate) fn count(&self) -> u64 {
        self.table.count()
    }

    /// The sequence number of the next message.
    pub(crate) fn next(&self) -> SequenceNumber {
        self.table.next()
    }

    /// Gives the next message another number.
    pub(crate) fn set_next(&mut self, next: SequenceNumber) {
        self.table.set_next(next);
    }

    /// Leaves out the next `count` numbers.
    pub(crate) fn skip_numbers(&mut self, count: u64) {
        self.table.skip_numbers(count);
    }
}

/// What a lease, and another body if there is one, make of a record.
fn leased(lease: &Lease, body: Option<&NewBody>) -> Leased {
    let Standing { state, until } = lease.standing;
    let body = match body {
        Some(NewBody::Other { body, .. }) => Some(*body),
        Some(NewBody::Change(_)) | None => None,
    };
    Leased {
        generation: lease.generation,
        deliveries: lease.deliveries,
        state,
        until,
        body,
    }
}
