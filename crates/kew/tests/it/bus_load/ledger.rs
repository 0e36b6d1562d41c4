//! What clients of Service Bus learned, and the possible states of each message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use kew_client::{Locked, Received, Uuid};

use super::{DEAD_LETTERS, FORWARDS, PLAIN, number_in};

/// How far apart two readings of one clock may be, in milliseconds.
const CLOCK_GRAIN_MS: i64 = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    #[default]
    No,
    Perhaps,
    Yes,
}

#[derive(Clone, Debug, Default)]
struct Record {
    queue: &'static str,
    session: Option<String>,
    sent: Known,
    completed: Known,
    is_dead: Known,
    /// When its lock ends, by the server's clock; `None` without a lock.
    locked_until_ms: Option<i64>,
    /// A lock that is kept until after a restart.
    kept: Option<(Uuid, i64)>,
    /// Failed deliveries that were acknowledged since it arrived in its queue.
    failures: u32,
}

/// A lock of before a restart.
pub(super) struct KeptLock {
    pub(super) number: u64,
    pub(super) queue: &'static str,
    pub(super) lock: Uuid,
    until_ms: i64,
}

#[derive(Debug, Default)]
struct Inner {
    records: BTreeMap<u64, Record>,
    broken: Vec<String>,
    accepted: u64,
    repeated: u64,
    delivered: u64,
    completed: u64,
    given_back: u64,
    dead_letters: u64,
    locks_after_a_restart: u64,
    looks: u64,
}

/// Shared by all clients.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Inner>);

impl Ledger {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, number: u64, change: impl FnOnce(&mut Record) -> T) -> T {
        change(self.inner().records.entry(number).or_default())
    }

    /// A promise was broken.
    pub(super) fn broken(&self, what: String) {
        self.inner().broken.push(what);
    }

    /// A client is about to send a new message: returns its number.
    pub(super) fn sending(&self, queue: &'static str, session: Option<String>) -> u64 {
        let mut inner = self.inner();
        let number = inner.records.len() as u64 + 1;
        let record = Record {
            queue,
            session,
            sent: Known::Perhaps,
            ..Record::default()
        };
        inner.records.insert(number, record);
        number
    }

    pub(super) fn sent(&self, number: u64, is_repeat: bool) {
        let mut inner = self.inner();
        inner.accepted += 1;
        inner.repeated += u64::from(is_repeat);
        if let Some(record) = inner.records.get_mut(&number) {
            record.sent = Known::Yes;
        }
    }

    /// A client received a message: its number, and its place in the queue.
    pub(super) fn delivered(&self, queue: &'static str, message: &Locked) -> (u64, i64) {
        let number = number_in(message);
        self.seen(number, message);
        let now_ms = now_ms();
        let mut inner = self.inner();
        inner.delivered += 1;
        let mut broken = Vec::new();
        if let Some(record) = inner.records.get_mut(&number) {
            if let Some(until_ms) = record.locked_until_ms
                && now_ms + CLOCK_GRAIN_MS < until_ms
            {
                broken.push("was given to two");
            }
            let goes_to = if record.queue == FORWARDS {
                PLAIN
            } else {
                record.queue
            };
            match queue {
                DEAD_LETTERS if record.is_dead == Known::No => broken.push("is no dead letter"),
                DEAD_LETTERS => record.is_dead = Known::Yes,
                _ if record.is_dead == Known::Yes => broken.push("is a dead letter"),
                _ if queue != goes_to => broken.push("is in another queue"),
                _ => record.is_dead = Known::No,
            }
            if message.delivery_count() < record.failures {
                broken.push("has forgotten a failed delivery");
            }
            record.locked_until_ms = message.locked_until().map(ms_of);
            record.kept = None;
        }
        for what in broken {
            let record = inner.records.get(&number).cloned();
            let text = format!("message {number} {what} in {queue}: {record:?}");
            inner.broken.push(text);
        }
        (number, message.sequence_number().unwrap_or_default())
    }

    /// A message was shown: a client sent it, and none completed it.
    pub(super) fn seen(&self, number: u64, message: &Received) {
        let mut inner = self.inner();
        let what = match inner.records.get(&number) {
            None => "was never sent",
            Some(record) if record.completed == Known::Yes => "was completed, and is shown",
            Some(record)
                if record.is_dead == Known::No && message.delivery_count() < record.failures =>
            {
                "has forgotten a failed delivery"
            }
            Some(_) => {
                if let Some(record) = inner.records.get_mut(&number) {
                    (record.sent, record.completed) = (Known::Yes, Known::No);
                }
                return;
            }
        };
        inner.broken.push(format!("message {number} {what}"));
    }

    /// A client is about to end the lock of a message.
    pub(super) fn ending_lock(&self, number: u64) {
        self.with(number, |record| {
            record.locked_until_ms = None;
            record.is_dead = record.is_dead.max_with_perhaps();
        });
    }

    pub(super) fn became_a_dead_letter(&self, number: u64) {
        self.inner().dead_letters += 1;
        self.with(number, |record| record.is_dead = Known::Yes);
    }

    pub(super) fn giving_back(&self, number: u64) {
        self.with(number, |record| record.locked_until_ms = None);
    }

    pub(super) fn gave_back(&self, number: u64) {
        self.inner().given_back += 1;
        self.with(number, |record| record.failures += 1);
    }

    pub(super) fn completing(&self, number: u64) {
        self.with(number, |record| {
            record.locked_until_ms = None;
            record.kept = None;
            record.completed = Known::Perhaps;
        });
    }

    pub(super) fn completed(&self, number: u64) {
        self.inner().completed += 1;
        self.with(number, |record| record.completed = Known::Yes);
    }

    /// A client continues with other work, and keeps the lock.
    pub(super) fn keeps(&self, number: u64, message: &Locked) {
        let lock = message.lock_token();
        self.with(number, |record| {
            record.kept = record.locked_until_ms.map(|until_ms| (lock, until_ms));
        });
    }

    /// Some locks of before, which must still hold.
    pub(super) fn some_locks(&self) -> Vec<KeptLock> {
        let soon_ms = now_ms() + 1500;
        let inner = self.inner();
        let kept = inner.records.iter().filter_map(|(number, record)| {
            let (lock, until_ms) = record.kept?;
            let queue = if record.queue == FORWARDS {
                PLAIN
            } else {
                record.queue
            };
            (until_ms > soon_ms).then_some(KeptLock {
                number: *number,
                queue,
                lock,
                until_ms,
            })
        });
        kept.take(5).collect()
    }

    pub(super) fn completed_after_a_restart(&self, number: u64) {
        self.inner().locks_after_a_restart += 1;
        self.completed(number);
    }

    /// It may have ended by now: a machine can stand still for longer than it lasts.
    pub(super) fn lock_was_refused(&self, kept: &KeptLock, why: &str) {
        let number = kept.number;
        let record = self.with(number, |record| record.clone());
        if now_ms() + CLOCK_GRAIN_MS < kept.until_ms {
            self.broken(format!(
                "message {number}: its lock of before the restart is refused, {why}: {record:?}"
            ));
        }
    }

    pub(super) fn all_locks_ended(&self) {
        for record in self.inner().records.values_mut() {
            record.locked_until_ms = None;
            record.kept = None;
        }
    }

    /// Where everything was found, by a look at everything.
    pub(super) fn check_places(&self, found: &BTreeMap<u64, Vec<&'static str>>) {
        let mut inner = self.inner();
        inner.looks += 1;
        let mut broken = Vec::new();
        for (number, record) in &mut inner.records {
            let places = found.get(number).map_or(&[][..], Vec::as_slice);
            let is_lost = record.sent == Known::Yes && record.completed == Known::No;
            if places.len() > 1 || (places.is_empty() && is_lost) {
                broken.push(format!("message {number} is in {places:?}: {record:?}"));
            }
            match places {
                [DEAD_LETTERS] if record.is_dead == Known::No => {
                    broken.push(format!("message {number} is no dead letter: {record:?}"));
                }
                [DEAD_LETTERS] => record.is_dead = Known::Yes,
                [_] if record.is_dead == Known::Yes => {
                    broken.push(format!("message {number} is a dead letter: {record:?}"));
                }
                [_] => record.is_dead = Known::No,
                _ => {
                    // It never arrived, or was completed.
                    record.completed = Known::Yes;
                }
            }
        }
        inner.broken.append(&mut broken);
    }

    /// Whether messages are left in a queue, or in one session of it, by the last look.
    pub(super) fn waits_in(&self, queue: &str, session: Option<&str>) -> bool {
        self.inner().records.values().any(|record| {
            let place = match (record.is_dead, record.queue) {
                (Known::Yes, _) => DEAD_LETTERS,
                (_, FORWARDS) => PLAIN,
                (_, queue) => queue,
            };
            let is_meant = session.is_none() || record.session.as_deref() == session;
            record.completed == Known::No && place == queue && is_meant
        })
    }

    /// The sessions with messages left.
    pub(super) fn sessions_left(&self) -> BTreeSet<String> {
        let inner = self.inner();
        let left = inner.records.values();
        let left = left.filter(|record| record.completed == Known::No);
        left.filter_map(|record| record.session.clone()).collect()
    }

    pub(super) fn assert_sound(&self) {
        let inner = self.inner();
        let first: Vec<_> = inner.broken.iter().take(10).collect();
        assert!(
            first.is_empty(),
            "{} broken: {first:#?}",
            inner.broken.len()
        );
    }

    pub(super) fn assert_empty(&self) {
        self.assert_sound();
        let inner = self.inner();
        let left = inner.records.iter();
        let left: Vec<_> = left
            .filter(|(_, record)| record.completed != Known::Yes)
            .take(10)
            .collect();
        assert!(left.is_empty(), "{left:#?}");
    }

    /// These must have happened, or the test proves nothing.
    pub(super) fn assert_tried(&self) {
        let inner = self.inner();
        for count in [
            inner.repeated,
            inner.completed,
            inner.given_back,
            inner.dead_letters,
            inner.locks_after_a_restart,
        ] {
            assert!(count > 0, "{}", report(&inner));
        }
    }

    pub(super) fn report(&self) -> String {
        report(&self.inner())
    }
}

fn report(inner: &Inner) -> String {
    let unknown = inner.records.values();
    let unknown = unknown
        .filter(|record| record.sent == Known::Perhaps)
        .count();
    format!(
        "bus_accepted={} bus_repeated={} bus_never_seen_again={unknown} bus_delivered={} \
         bus_completed={} bus_given_back={} bus_dead_letters={} bus_locks_after_a_restart={} \
         bus_looks={}",
        inner.accepted,
        inner.repeated,
        inner.delivered,
        inner.completed,
        inner.given_back,
        inner.dead_letters,
        inner.locks_after_a_restart,
        inner.looks,
    )
}

impl Known {
    fn max_with_perhaps(self) -> Self {
        if self == Self::Yes {
            self
        } else {
            Self::Perhaps
        }
    }
}

fn now_ms() -> i64 {
    ms_of(SystemTime::now())
}

/// Milliseconds since 1970.
fn ms_of(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    i64::try_from(ms).unwrap_or(i64::MAX)
}
