//! Bodies that decisions need before they hand messages out: what is read, and what of it is in memory.
//!
//! A command that misses bodies asks for all that it needs. They are read together, and stay in memory until it was
//! decided. All commands that wait hold a bounded number of bytes. One that would go beyond it waits for its turn,
//! except the oldest: so commands that hold a part of what they need cannot block each other. Behind a receiver some
//! more bodies are read ahead, which the next receivers find.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use kew_engine::{BodyLocation, Missing, Timestamp};
use kew_log::{Body, BodyError, Log};

use super::loads::RETRY_INTERVAL_MS;
use super::to_log;

/// The most bytes that the commands which wait hold together, unless the oldest needs more.
const HELD_SIZE_BYTES_MAX: u64 = 16 << 20;

/// The most bytes that are read ahead and not used yet.
const AHEAD_SIZE_BYTES_MAX: u64 = 4 << 20;

/// The most bytes that one job reads, unless one body is larger.
const JOB_SIZE_BYTES: u64 = 1 << 20;

/// A body that cannot be read so often, with pauses between the tries, is as good as damaged: a bad sector is an error
/// forever, and must not be in the way of all messages behind it.
const FAILURES_MAX: u32 = 3;

/// How long it counts as damaged before it is read again.
const DAMAGED_INTERVAL_MS: u64 = 60_000;

/// How many bodies that cannot be read are remembered.
const FAILING_MAX: usize = 1000;

/// A body in memory.
struct Held {
    /// `None` if it is damaged.
    bytes: Option<Bytes>,
    /// Its place among those that were read ahead, if no command has asked for it.
    ahead: Option<u64>,
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

/// Tries to read a body.
#[derive(Clone, Copy, Debug)]
struct Failing {
    count: u32,
    until: Timestamp,
}

impl Failing {
    /// Whether it counts as damaged.
    fn is_over(&self) -> bool {
        self.count >= FAILURES_MAX
    }
}

/// What a job has read.
pub(super) type ReadBodies = Vec<(BodyLocation, Result<Bytes, BodyError>)>;

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
    /// Those that were read ahead, oldest first.
    ahead: BTreeMap<u64, BodyLocation>,
    ahead_bytes: u64,
    next_ahead: u64,
    /// By the number of the command, so in the order of arrival.
    wanted: BTreeMap<u64, Wanted>,
    /// Those that are not admitted.
    parked: BTreeSet<u64>,
    admitted_bytes: u64,
    /// What admitted commands wait for.
    unread: BTreeSet<(BodyLocation, u64)>,
    /// What is to be read, in the order of the log.
    asked: BTreeSet<BodyLocation>,
    asked_ahead: BTreeSet<BodyLocation>,
    under_way: BTreeSet<BodyLocation>,
    failing: BTreeMap<BodyLocation, Failing>,
    now: Timestamp,
}

impl Bodies {
    /// A body in memory: `Some(None)` if it is damaged.
    pub(super) fn get(&self, body: BodyLocation) -> Option<Option<&Bytes>> {
        Some(self.held.get(&body)?.bytes.as_ref())
    }

    /// Whether something of this could not be read a moment ago.
    pub(super) fn is_failing(&self, bodies: &BTreeSet<BodyLocation>, now: Timestamp) -> bool {
        let rests = |it: &Failing| !it.is_over() && !it.until.has_passed(now);
        let mut failing = self.failing.iter().filter(|(_, it)| rests(it));
        failing.any(|(body, _)| bodies.contains(body))
    }

    /// Asks for the bodies that a command needs. One that has asked before keeps what it holds of them.
    pub(super) fn ask(&mut self, command: u64, missing: &Missing, now: Timestamp) -> Ended {
        self.now = now;
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
        for body in &missing.ahead {
            self.ask_ahead(*body);
        }
        ended
    }

    fn ask_ahead(&mut self, body: BodyLocation) {
        let is_known = self.held.contains_key(&body)
            || self.under_way.contains(&body)
            || self.asked.contains(&body)
            || self.failing.contains_key(&body);
        if !is_known {
            self.asked_ahead.insert(body);
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
            let failing = self.failing.get(body);
            if failing.is_some_and(|it| it.is_over() && !it.until.has_passed(self.now)) {
                let damaged = Held {
                    bytes: None,
                    ahead: None,
                };
                self.held.insert(*body, damaged);
            }
            if let Some(held) = self.held.get_mut(body) {
                if let Some(place) = held.ahead.take() {
                    self.ahead.remove(&place);
                    self.ahead_bytes -= u64::from(body.length);
                }
                continue;
            }
            wanted.unread += 1;
            self.unread.insert((*body, command));
            self.asked_ahead.remove(body);
            if !self.under_way.contains(body) {
                self.asked.insert(*body);
            }
        }
        if wanted.unread == 0 {
            ended.ready.push(command);
        }
    }

    /// The next bodies to read, with their places in the log. One whose message has gone may be in no segment: then the
    /// command sees that when it is tried again.
    pub(super) fn next(&mut self, log: &Log) -> Vec<(BodyLocation, Body)> {
        let (mut to_read, mut size_bytes) = (Vec::new(), 0);
        let is_needed = !self.asked.is_empty();
        while size_bytes < JOB_SIZE_BYTES {
            let asked = match is_needed {
                true => &mut self.asked,
                false => &mut self.asked_ahead,
            };
            let Some(body) = asked.pop_first() else {
                break;
            };
            let found = log.body(to_log(body));
            let found = found.unwrap_or_else(|| Body::gone(to_log(body)));
            size_bytes += found.len_bytes();
            self.under_way.insert(body);
            to_read.push((body, found));
        }
        to_read
    }

    /// Takes what a job has read.
    pub(super) fn take(&mut self, read: ReadBodies, now: Timestamp) -> Ended {
        self.now = now;
        let mut ended = Ended::default();
        for (body, read) in read {
            self.under_way.remove(&body);
            match read {
                Ok(bytes) => {
                    self.failing.remove(&body);
                    self.hold(body, Some(bytes));
                }
                Err(BodyError::Damaged { .. } | BodyError::Gone(_)) => self.hold(body, None),
                Err(BodyError::Io(_)) if self.owners(body).is_empty() => continue,
                Err(BodyError::Io(failure)) => {
                    // To have no descriptor says nothing of the body.
                    let counts = !failure.is_no_descriptor();
                    if !self.note_failure(body, counts) {
                        ended.failed.extend(self.owners(body));
                        continue;
                    }
                    self.hold(body, None);
                }
            }
            self.note_there(body, &mut ended);
        }
        self.trim_ahead(AHEAD_SIZE_BYTES_MAX);
        ended
    }

    fn owners(&self, body: BodyLocation) -> Vec<u64> {
        let owners = self.unread.range((body, 0)..=(body, u64::MAX));
        owners.map(|(_, command)| *command).collect()
    }

    /// Notes that a body could not be read. Returns whether it counts as damaged now.
    fn note_failure(&mut self, body: BodyLocation, counts: bool) -> bool {
        let now = self.now;
        if self.failing.len() >= FAILING_MAX {
            self.failing.retain(|_, it| !it.until.has_passed(now));
        }
        let failing = self.failing.entry(body).or_insert(Failing {
            count: 0,
            until: now,
        });
        failing.count += u32::from(counts);
        let pause_ms = match failing.is_over() {
            true => DAMAGED_INTERVAL_MS,
            false => RETRY_INTERVAL_MS,
        };
        failing.until = now.plus_ms(pause_ms);
        failing.is_over()
    }

    fn hold(&mut self, body: BodyLocation, bytes: Option<Bytes>) {
        self.forget(body);
        let is_ahead = self.owners(body).is_empty();
        let ahead = is_ahead.then(|| {
            self.next_ahead += 1;
            self.ahead.insert(self.next_ahead, body);
            self.ahead_bytes += u64::from(body.length);
            self.next_ahead
        });
        self.held.insert(body, Held { bytes, ahead });
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
    pub(super) fn forget(&mut self, body: BodyLocation) {
        if !self.held.is_empty()
            && let Some(held) = self.held.remove(&body)
            && let Some(place) = held.ahead
        {
            self.ahead.remove(&place);
            self.ahead_bytes -= u64::from(body.length);
        }
    }

    /// Drops what was read ahead first, beyond so many bytes.
    fn trim_ahead(&mut self, size_bytes_max: u64) {
        while self.ahead_bytes > size_bytes_max
            && let Some(body) = self.ahead.values().next().copied()
        {
            self.forget(body);
        }
    }

    /// Drops everything that no command waits for.
    pub(super) fn forget_ahead(&mut self) {
        self.asked_ahead.clear();
        self.trim_ahead(0);
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
        while let Some((command, _)) = self.wanted.pop_first() {
            self.parked.remove(&command);
        }
        self.admitted_bytes = 0;
        self.unread.clear();
        self.asked.clear();
        self.held.clear();
        self.ahead.clear();
        self.ahead_bytes = 0;
    }

    /// How many bytes are in memory.
    #[cfg(test)]
    fn held_bytes(&self) -> u64 {
        let held = self.held.values().filter_map(|it| it.bytes.as_ref());
        held.map(|bytes| bytes.len() as u64).sum()
    }
}

/// Reads bodies: those that lie beside each other together.
pub(super) fn read(bodies: Vec<(BodyLocation, Body)>) -> ReadBodies {
    let (places, bodies): (Vec<_>, Vec<_>) = bodies.into_iter().unzip();
    let read = Body::read_all(&bodies).into_iter();
    let read = read.inspect(|read| match read {
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
    });
    places.into_iter().zip(read).collect()
}

#[cfg(test)]
mod tests;
