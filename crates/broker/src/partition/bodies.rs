//! Bodies that decisions need before they hand messages out: what is read, and what of it is in memory.
//!
//! A command that misses bodies asks for all that it needs. They are read together, and stay in memory until it was
//! decided. All commands that wait hold a bounded number of bytes. One that would go beyond it waits for its turn,
//! except the oldest: so commands that hold a part of what they need cannot block each other. Behind a receiver some
//! more bodies are [read ahead](Ahead), which the next receivers find: by a job that reads little else, or by one job at a
//! time while nothing is read that is needed.

mod ahead;
mod failing;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use kew_engine::{BodyLocation, Missing};
use kew_log::{Body, BodyError, BootTime};

use self::ahead::{AHEAD_SIZE_BYTES_MAX, Ahead};
use self::failing::Failing;
use super::to_log;
use crate::Target;

/// The most bytes that the commands which wait hold together, unless the oldest needs more.
const HELD_SIZE_BYTES_MAX: u64 = 16 << 20;

/// The most bytes that one job reads, unless one body is larger.
const JOB_SIZE_BYTES: u64 = 1 << 20;

/// A body in memory.
struct Held {
    /// `None` if it is damaged.
    bytes: Option<Bytes>,
    /// The queue for which it was read ahead, if no command has asked for it.
    ahead: Option<Target>,
}

/// What a command waits for.
struct Wanted {
    bodies: Vec<BodyLocation>,
    size_bytes: u64,
    /// Whether it may hold them. Otherwise it waits for others that do.
    is_admitted: bool,
    /// How many are not in memory yet, once it is admitted.
    unread: usize,
}

/// What a job is to read: first what commands need.
pub(super) type ToRead = Vec<(BodyLocation, Body)>;

/// What a job has read. `None` is what it has not tried to read, because the disk has failed before.
pub(super) type ReadBodies = Vec<(BodyLocation, Option<Result<Bytes, BodyError>>)>;

/// The commands for which a read has come to an end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    /// Everything that they need is in memory.
    pub(super) ready: Vec<u64>,
    /// Something cannot be read now.
    pub(super) failed: Vec<u64>,
}

#[derive(Default)]
pub(super) struct Bodies {
    held: HashMap<BodyLocation, Held>,
    /// By the number of the command, so in the order of arrival.
    wanted: BTreeMap<u64, Wanted>,
    /// Those that are not admitted.
    parked: BTreeSet<u64>,
    admitted_bytes: u64,
    /// What admitted commands wait for.
    unread: BTreeSet<(BodyLocation, u64)>,
    /// What is to be read, in the order of the log.
    asked: BTreeSet<BodyLocation>,
    /// What is being read. What is read ahead, for its queue.
    under_way: BTreeMap<BodyLocation, Option<Target>>,
    ahead: Ahead,
    failing: Failing,
    now: BootTime,
}

impl Bodies {
    /// Begins a turn.
    pub(super) fn begin_turn(&mut self, now: BootTime) {
        self.now = now;
        self.failing.begin_turn(now);
        if self.ahead.unused_at().has_passed(now) {
            self.forget_unused();
        }
    }

    /// Whether a turn is to begin soon.
    pub(super) fn awaits_turn(&self) -> bool {
        self.failing.begins_pauses()
    }

    /// A body in memory: `Some(None)` if it is damaged.
    pub(super) fn get(&self, body: BodyLocation) -> Option<Option<&Bytes>> {
        Some(self.held.get(&body)?.bytes.as_ref())
    }

    /// Whether something of this could not be read a moment ago.
    pub(super) fn is_failing(&self, bodies: &BTreeSet<BodyLocation>) -> bool {
        let rests = |body: &BodyLocation| self.failing.rests(*body, self.now);
        !self.failing.is_empty() && bodies.iter().any(rests)
    }

    /// Whether a command waits for bodies.
    pub(super) fn is_any_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// How many bytes may be read ahead for a queue now, of which a command misses these bodies.
    pub(super) fn room_ahead(&self, target: Target, missing: &BTreeSet<BodyLocation>) -> u64 {
        let first = missing.first();
        first.map_or(0, |first| self.ahead.room(target, *first))
    }

    /// Drops what was read ahead for a queue and lies before what a command misses: others have taken these messages.
    pub(super) fn pass_by(&mut self, target: Target, missing: &BTreeSet<BodyLocation>) {
        if let Some(first) = missing.first() {
            for body in self.ahead.take_before(target, *first) {
                self.held.remove(&body);
            }
        }
    }

    /// Asks for the bodies that a command needs. One that has asked before keeps what it holds of them.
    pub(super) fn ask(&mut self, command: u64, missing: &Missing) -> Ended {
        let before = self.withdraw(command);
        let wanted = Wanted {
            bodies: missing.bodies.iter().copied().collect(),
            size_bytes: missing.bodies.iter().map(|it| u64::from(it.length)).sum(),
            is_admitted: false,
            unread: 0,
        };
        self.wanted.insert(command, wanted);
        self.parked.insert(command);
        let mut ended = Ended::default();
        if let Some(before) = before.filter(|before| before.is_admitted) {
            self.admit(command, &mut ended);
            for body in before.bodies {
                if !missing.bodies.contains(&body) {
                    self.forget(body);
                }
            }
        }
        self.admit_parked(&mut ended);
        ended
    }

    /// Asks for bodies behind those that a command needs, once that is admitted.
    pub(super) fn ask_ahead(&mut self, command: u64, target: Target, behind: Vec<BodyLocation>) {
        if self.wanted.get(&command).is_some_and(|it| it.is_admitted) {
            self.ahead.ask(target, behind, self.now);
        }
    }

    /// Lets commands hold what they need, in the order of arrival, as far as the bound allows.
    fn admit_parked(&mut self, ended: &mut Ended) {
        while let Some(command) = self.parked.first().copied() {
            let is_oldest = self.wanted.keys().next() == Some(&command);
            let size_bytes = self.wanted.get(&command).map_or(0, |it| it.size_bytes);
            if !is_oldest && self.admitted_bytes + size_bytes > HELD_SIZE_BYTES_MAX {
                return;
            }
            self.admit(command, ended);
        }
    }

    fn admit(&mut self, command: u64, ended: &mut Ended) {
        self.parked.remove(&command);
        let Some(wanted) = self.wanted.get_mut(&command) else {
            return;
        };
        wanted.is_admitted = true;
        self.admitted_bytes += wanted.size_bytes;
        for body in &wanted.bodies {
            if self.failing.is_damaged(*body, self.now) {
                leave_ahead(self.held.get_mut(body), *body, &mut self.ahead, self.now);
                let (bytes, ahead) = (None, None);
                self.held.insert(*body, Held { bytes, ahead });
            }
            if let Some(held) = self.held.get_mut(body) {
                leave_ahead(Some(held), *body, &mut self.ahead, self.now);
                continue;
            }
            wanted.unread += 1;
            self.unread.insert((*body, command));
            if !self.under_way.contains_key(body) {
                self.asked.insert(*body);
            }
        }
        if wanted.unread == 0 {
            ended.ready.push(command);
        }
    }

    /// The next bodies to read, with their places in the log. One whose message has gone may be in no segment: then the
    /// command sees that when it is tried again.
    ///
    /// `is_reading` says that other things are read that are needed.
    pub(super) fn next(
        &mut self,
        find: impl Fn(BodyLocation) -> Option<Body>,
        is_reading: bool,
    ) -> ToRead {
        let (mut to_read, mut size_bytes) = (Vec::new(), 0);
        while size_bytes < JOB_SIZE_BYTES
            && let Some(body) = self.asked.pop_first()
        {
            let found = find(body).unwrap_or_else(|| Body::gone(to_log(body)));
            size_bytes += found.len_bytes();
            self.under_way.insert(body, None);
            to_read.push((body, found));
        }
        if !to_read.is_empty() || !is_reading && self.under_way.is_empty() {
            self.add_ahead(find, &mut to_read, size_bytes);
        }
        to_read
    }

    /// Adds what is read ahead to a job, for one queue after the other.
    fn add_ahead(
        &mut self,
        find: impl Fn(BodyLocation) -> Option<Body>,
        to_read: &mut ToRead,
        mut size_bytes: u64,
    ) {
        if self.ahead.has_asked() && self.ahead.size_bytes() > AHEAD_SIZE_BYTES_MAX / 2 {
            self.forget_unused();
        }
        while size_bytes < JOB_SIZE_BYTES
            && let Some((target, asked, room_bytes)) = self.ahead.next()
        {
            let mut left_bytes = room_bytes.min(JOB_SIZE_BYTES - size_bytes);
            let mut reading_bytes = 0;
            for body in asked {
                let is_there = self.held.contains_key(&body) || self.under_way.contains_key(&body);
                if is_there || self.failing.has(body) {
                    continue;
                }
                let Some(found) = find(body) else {
                    continue;
                };
                if found.len_bytes() > left_bytes {
                    break;
                }
                left_bytes -= found.len_bytes();
                reading_bytes += found.len_bytes();
                self.under_way.insert(body, Some(target));
                to_read.push((body, found));
            }
            size_bytes += reading_bytes;
            self.ahead.begin_read(target, reading_bytes);
        }
    }

    /// Takes what a job has read.
    pub(super) fn take(&mut self, read: ReadBodies) -> Ended {
        let mut ended = Ended::default();
        let mut read_ahead = BTreeSet::new();
        for (body, read) in read {
            let ahead = self.under_way.remove(&body).flatten();
            read_ahead.extend(ahead);
            match read {
                Some(read) => self.take_one(body, read, ahead, &mut ended),
                None if self.owners(body).is_empty() => {}
                None => drop(self.asked.insert(body)),
            }
        }
        for target in read_ahead {
            self.ahead.end_read(target);
        }
        ended
    }

    fn take_one(
        &mut self,
        body: BodyLocation,
        read: Result<Bytes, BodyError>,
        ahead: Option<Target>,
        ended: &mut Ended,
    ) {
        let is_needed = !self.owners(body).is_empty();
        match read {
            Ok(bytes) => {
                self.failing.forget(body);
                if is_needed {
                    self.hold(body, Some(bytes));
                } else if let Some(target) = ahead {
                    self.hold_ahead(target, body, bytes);
                }
            }
            // It is not tried again at once.
            Err(BodyError::Io(_)) if !is_needed => {
                self.failing.note(body, false, self.now);
            }
            Err(_) if !is_needed => {}
            Err(BodyError::Damaged { .. } | BodyError::Gone(_)) => self.hold(body, None),
            Err(BodyError::Io(failure)) => {
                // To have no descriptor says nothing of the body.
                let counts = !failure.is_no_descriptor();
                if !self.failing.note(body, counts, self.now) {
                    return ended.failed.extend(self.owners(body));
                }
                self.hold(body, None);
            }
        }
        self.note_there(body, ended);
    }

    fn owners(&self, body: BodyLocation) -> Vec<u64> {
        let owners = self.unread.range((body, 0)..=(body, u64::MAX));
        owners.map(|(_, command)| *command).collect()
    }

    fn hold(&mut self, body: BodyLocation, bytes: Option<Bytes>) {
        self.forget(body);
        self.held.insert(body, Held { bytes, ahead: None });
    }

    fn hold_ahead(&mut self, target: Target, body: BodyLocation, bytes: Bytes) {
        if !self.held.contains_key(&body) && self.ahead.hold(target, body) {
            let ahead = Some(target);
            let bytes = Some(bytes);
            self.held.insert(body, Held { bytes, ahead });
        }
    }

    /// Notes for the commands that wait for a body that it was read.
    fn note_there(&mut self, body: BodyLocation, ended: &mut Ended) {
        for command in self.owners(body) {
            self.unread.remove(&(body, command));
            if let Some(wanted) = self.wanted.get_mut(&command) {
                wanted.unread -= 1;
                if wanted.unread == 0 {
                    ended.ready.push(command);
                }
            }
        }
    }

    /// Forgets a body: its message was handed out.
    pub(super) fn use_up(&mut self, body: BodyLocation) {
        if !self.held.is_empty()
            && let Some(mut held) = self.held.remove(&body)
        {
            leave_ahead(Some(&mut held), body, &mut self.ahead, self.now);
        }
    }

    fn forget(&mut self, body: BodyLocation) {
        if let Some(held) = self.held.remove(&body)
            && let Some(target) = held.ahead
        {
            self.ahead.leave(target, body);
        }
    }

    /// Drops what was read ahead for queues that have not used it for a while.
    fn forget_unused(&mut self) {
        for body in self.ahead.take_unused(self.now) {
            self.held.remove(&body);
        }
    }

    /// When something is to be dropped that was read ahead.
    pub(super) fn unused_at(&self) -> BootTime {
        self.ahead.unused_at()
    }

    /// Ends the wait of a command, if it waits for bodies: what it held is dropped.
    pub(super) fn release(&mut self, command: u64) -> Ended {
        let mut ended = Ended::default();
        if let Some(wanted) = self.withdraw(command) {
            for body in wanted.bodies {
                self.forget(body);
            }
            self.admit_parked(&mut ended);
        }
        ended
    }

    /// Takes back what a command has asked for.
    fn withdraw(&mut self, command: u64) -> Option<Wanted> {
        let wanted = self.wanted.remove(&command)?;
        self.parked.remove(&command);
        if wanted.is_admitted {
            self.admitted_bytes -= wanted.size_bytes;
            for body in &wanted.bodies {
                if self.unread.remove(&(*body, command)) && self.owners(*body).is_empty() {
                    self.asked.remove(body);
                }
            }
        }
        Some(wanted)
    }

    /// Ends all waits.
    pub(super) fn release_all(&mut self) {
        self.wanted.clear();
        self.parked.clear();
        self.admitted_bytes = 0;
        self.unread.clear();
        self.asked.clear();
        self.ahead = Ahead::default();
        self.held.clear();
    }

    /// How many bytes are in memory.
    #[cfg(test)]
    fn held_bytes(&self) -> u64 {
        let held = self.held.values().filter_map(|it| it.bytes.as_ref());
        held.map(|bytes| bytes.len() as u64).sum()
    }
}

/// A command makes use of a body that was read ahead, if it was.
fn leave_ahead(held: Option<&mut Held>, body: BodyLocation, ahead: &mut Ahead, now: BootTime) {
    if let Some(target) = held.and_then(|held| held.ahead.take()) {
        ahead.note_use(target, body, now);
        ahead.leave(target, body);
    }
}

/// How many bodies are read before it is looked whether the disk fails. That can take seconds for each.
const READ_AT_ONCE: usize = 32;

/// Reads bodies, as long as the disk does not fail: those that lie beside each other together.
pub(super) fn read(to_read: ToRead) -> ReadBodies {
    let (places, bodies): (Vec<_>, Vec<_>) = to_read.into_iter().unzip();
    let mut read = Vec::with_capacity(bodies.len());
    for bodies in bodies.chunks(READ_AT_ONCE) {
        let results = Body::read_all(bodies);
        let has_failed = results.iter().any(|it| matches!(it, Err(BodyError::Io(_))));
        results.iter().for_each(tell);
        read.extend(results.into_iter().map(Some));
        if has_failed {
            break;
        }
    }
    read.resize_with(places.len(), || None);
    places.into_iter().zip(read).collect()
}

fn tell(read: &Result<Bytes, BodyError>) {
    match read {
        Ok(_) => {}
        Err(error @ BodyError::Damaged { .. }) => {
            tracing::error!(%error, "a message body is damaged: the message is not deleted");
        }
        // Nearly always its message has gone too.
        Err(error @ BodyError::Gone(_)) => {
            tracing::debug!(%error, "a message body is in no segment");
        }
        Err(error @ BodyError::Io(_)) => {
            tracing::warn!(%error, "a message body cannot be read: commands that need it are to be tried again");
        }
    }
}

#[cfg(test)]
mod tests;
