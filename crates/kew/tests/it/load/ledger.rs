//! What was acknowledged, what may have happened, and the checks of every answer against it.
//!
//! Requests overlap, so an answer may be noted later than one to a request that the server executed
//! after it. Two answers are ordered only if one came before the other's request was sent; the
//! dequeue count orders deliveries of one message besides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use queue_load::{Error, Message, Receipt, Sent};

use super::text::Texts;
use super::writer::Fate;

/// The server counts milliseconds, so a lease may end this much before a finer clock says so.
pub(crate) const CLOCK_GRAIN: Duration = Duration::from_millis(20);

/// How much of an outage or of bad news is worth printing.
const VIOLATIONS_SHOWN: usize = 20;

/// The books, shared by all connections.
pub(crate) struct Ledger {
    books: Mutex<Books>,
    texts: Texts,
}

struct Books {
    texts: Texts,
    clock_grain: Duration,
    queues: BTreeMap<&'static str, QueueBook>,
    messages: BTreeMap<u64, Entry>,
    counts: Counts,
    violations: Vec<String>,
}

#[derive(Default)]
struct QueueBook {
    gets_in_flight: u64,
    gets_unknown: u64,
    /// Until then a request with unknown outcome may hide messages.
    unsettled_until: Option<Instant>,
}

#[derive(Debug, Default)]
struct Counts {
    acknowledged: u64,
    puts: u64,
    deliveries: u64,
    updates: u64,
    deletes: u64,
    peeks: u64,
    unknown: u64,
    refused_receipts: u64,
    checks: u64,
    receipts_after_restart: u64,
    leases_after_restart: u64,
    unknown_puts_kept: u64,
    unknown_puts_absent: u64,
    unknown_deletes_done: u64,
}

/// What is known of one message.
struct Entry {
    queue: &'static str,
    put_was_answered: bool,
    /// A put or a delivery was answered, so it exists unless it is gone.
    is_sure: bool,
    id: Option<String>,
    /// The versions that its text may have now.
    versions: BTreeSet<u64>,
    /// Versions that its text had, each with the time when it was known to have another.
    retired_versions: BTreeMap<u64, Instant>,
    next_version: u64,
    /// When it was known to be gone for good.
    gone: Option<Instant>,
    receipt: Option<LatestReceipt>,
    /// Dequeue counts that were seen, each with the time of the answer.
    deliveries: BTreeMap<u64, Instant>,
    /// The queue's unknown gets at the time of the put.
    gets_unknown_before: u64,
    changes_in_flight: u64,
    /// Updates and deletes with unknown outcome since the message was last seen.
    changes_unknown: u64,
    delete_may_have_happened: bool,
}

struct LatestReceipt {
    value: String,
    answered: Instant,
    /// The message cannot be delivered before this time.
    hidden_until: Instant,
    gets_unknown_before: u64,
}

/// A request to a queue.
#[derive(Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) queue: &'static str,
    pub(crate) number: u64,
    sent: Instant,
    lease: Duration,
}

/// A receipt in a writer's hands.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) queue: &'static str,
    pub(crate) number: u64,
    pub(crate) id: String,
    pub(crate) receipt: String,
}

/// What is to be done to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Delete,
    Update { lease: u32, replace: bool },
}

/// A change on its way.
pub(crate) struct ChangeVisit {
    held: Held,
    change: Change,
    /// The version of the new text, if the change brings one.
    pub(crate) version: Option<u64>,
    sent: Instant,
}

impl Visit {
    pub(crate) fn new(queue: &'static str) -> Self {
        Self {
            queue,
            number: 0,
            sent: Instant::now(),
            lease: Duration::ZERO,
        }
    }
}

/// Requests of writers.
impl Ledger {
    pub(crate) fn new(queues: &[&'static str], texts: Texts, clock_grain: Duration) -> Self {
        let queues = queues.iter().map(|&queue| (queue, QueueBook::default()));
        Self {
            texts,
            books: Mutex::new(Books {
                texts,
                clock_grain,
                queues: queues.collect(),
                messages: BTreeMap::new(),
                counts: Counts::default(),
                violations: Vec::new(),
            }),
        }
    }

    /// The text of a version of a message.
    pub(crate) fn compose(&self, number: u64, version: u64) -> String {
        self.texts.compose(number, version)
    }

    pub(crate) fn begin_put(&self, queue: &'static str, delay: u32) -> Visit {
        let mut books = self.books();
        let number = books
            .messages
            .last_key_value()
            .map_or(1, |(last, _)| last + 1);
        let entry = Entry {
            queue,
            put_was_answered: false,
            is_sure: false,
            id: None,
            versions: BTreeSet::from([0]),
            retired_versions: BTreeMap::new(),
            next_version: 1,
            gone: None,
            receipt: None,
            deliveries: BTreeMap::new(),
            gets_unknown_before: books.queue(queue).gets_unknown,
            changes_in_flight: 0,
            changes_unknown: 0,
            delete_may_have_happened: false,
        };
        books.messages.insert(number, entry);
        Visit {
            number,
            lease: seconds(delay),
            ..Visit::new(queue)
        }
    }

    pub(crate) fn put_acknowledged(&self, visit: &Visit, sent: &Sent) -> Held {
        let mut books = self.books();
        books.counts.acknowledged += 1;
        books.counts.puts += 1;
        let gets_unknown_before = books.queue(visit.queue).gets_unknown;
        let entry = books.entry(visit.number);
        entry.put_was_answered = true;
        entry.is_sure = true;
        let same_id = entry.id.get_or_insert_with(|| sent.id.clone()) == &sent.id;
        // Somebody may have received it before the answer to the put was noted.
        if entry.receipt.is_none() && entry.gone.is_none() {
            entry.receipt = Some(LatestReceipt {
                value: sent.receipt.clone(),
                answered: Instant::now(),
                hidden_until: visit.sent + visit.lease,
                gets_unknown_before,
            });
        }
        if !same_id {
            books.violate(format!(
                "message {} changed its id after the put",
                visit.number
            ));
        }
        Held {
            queue: visit.queue,
            number: visit.number,
            id: sent.id.clone(),
            receipt: sent.receipt.clone(),
        }
    }

    pub(crate) fn put_failed(&self, visit: &Visit, fate: Fate) {
        let mut books = self.books();
        match fate {
            Fate::Unknown => books.unknown(visit.queue, visit.lease),
            Fate::NeverHappened => books.entry(visit.number).gone = Some(visit.sent),
            Fate::ReceiptRefused => books.violate("a put was refused for a receipt".to_owned()),
        }
    }

    pub(crate) fn begin_get(&self, queue: &'static str, lease: u32) -> Visit {
        self.books().queue(queue).gets_in_flight += 1;
        Visit {
            lease: seconds(lease),
            ..Visit::new(queue)
        }
    }

    /// Notes what a get brought; returns the receipts that are good now.
    pub(crate) fn delivered(&self, visit: &Visit, messages: &[Message]) -> Vec<Held> {
        let mut books = self.books();
        let answered = Instant::now();
        books.counts.acknowledged += 1;
        let held = messages
            .iter()
            .filter_map(|message| books.deliver(visit, message, answered))
            .collect();
        books.queue(visit.queue).gets_in_flight -= 1;
        held
    }

    pub(crate) fn get_failed(&self, visit: &Visit, fate: Fate) {
        let mut books = self.books();
        let queue = books.queue(visit.queue);
        queue.gets_in_flight -= 1;
        if fate == Fate::Unknown {
            queue.gets_unknown += 1;
            books.unknown(visit.queue, visit.lease);
        }
    }

    pub(crate) fn peeked(&self, visit: &Visit, messages: &[Message]) {
        let mut books = self.books();
        let answered = Instant::now();
        books.counts.acknowledged += 1;
        books.counts.peeks += 1;
        for message in messages {
            let Some((number, _)) = books.recognize(visit, message) else {
                continue;
            };
            books.check_hidden(visit, number, answered, "peeked at");
            let most = books.deliveries_max(visit.queue, number);
            let entry = books.entry(number);
            let least = entry
                .deliveries
                .iter()
                .filter(|(_, noted)| **noted < visit.sent);
            let least = least.map(|(count, _)| *count).max().unwrap_or(0);
            let count = message.dequeue_count;
            if count < least || count > most {
                books.violate(format!(
                    "message {number} peeked at with dequeue count {count}, not {least} to {most}"
                ));
            }
        }
    }

    pub(crate) fn begin_change(&self, held: &Held, change: Change) -> ChangeVisit {
        let mut books = self.books();
        let sent = Instant::now();
        let entry = books.entry(held.number);
        entry.changes_in_flight += 1;
        let mut version = None;
        if let Change::Update { lease, replace } = change {
            if replace {
                version = Some(entry.next_version);
                entry.versions.insert(entry.next_version);
                entry.next_version += 1;
            }
            if let Some(receipt) = &mut entry.receipt {
                // From now on the old lease may have ended early.
                receipt.hidden_until = receipt.hidden_until.min(sent + seconds(lease));
            }
        }
        ChangeVisit {
            held: held.clone(),
            change,
            version,
            sent,
        }
    }

    pub(crate) fn deleted(&self, visit: &ChangeVisit) {
        let mut books = self.books();
        books.counts.acknowledged += 1;
        books.counts.deletes += 1;
        let entry = books.entry(visit.held.number);
        entry.changes_in_flight -= 1;
        entry.gone = Some(Instant::now());
        books.check_receipt_was_latest(visit);
    }

    pub(crate) fn updated(&self, visit: &ChangeVisit, receipt: &Receipt) -> Held {
        let mut books = self.books();
        books.counts.acknowledged += 1;
        books.counts.updates += 1;
        books.check_receipt_was_latest(visit);
        let gets_unknown_before = books.queue(visit.held.queue).gets_unknown;
        let entry = books.entry(visit.held.number);
        entry.changes_in_flight -= 1;
        let latest = entry.receipt.as_ref().map(|latest| &latest.value);
        // If not, somebody received it before this answer was noted.
        if latest == Some(&visit.held.receipt) {
            entry.see();
            if let Some(version) = visit.version {
                entry.settle_version(version);
            }
            let Change::Update { lease, .. } = visit.change else {
                unreachable!("only an update is answered with a receipt");
            };
            entry.receipt = Some(LatestReceipt {
                value: receipt.value.clone(),
                answered: Instant::now(),
                hidden_until: visit.sent + seconds(lease),
                gets_unknown_before,
            });
        }
        Held {
            receipt: receipt.value.clone(),
            ..visit.held.clone()
        }
    }

    pub(crate) fn change_failed(&self, visit: &ChangeVisit, fate: Fate, error: &Error) {
        let mut books = self.books();
        let answered = Instant::now();
        let queue = visit.held.queue;
        let clock_grain = books.clock_grain;
        let (gets_in_flight, gets_unknown) = {
            let queue = books.queue(queue);
            (queue.gets_in_flight, queue.gets_unknown)
        };
        let entry = books.entry(visit.held.number);
        entry.changes_in_flight -= 1;
        match fate {
            Fate::Unknown => {
                entry.changes_unknown += 1;
                let lease = match visit.change {
                    Change::Delete => {
                        // With a later receipt it was seen after this one had become stale.
                        let latest = entry.receipt.as_ref();
                        entry.delete_may_have_happened |=
                            latest.is_none_or(|latest| latest.value == visit.held.receipt);
                        Duration::ZERO
                    }
                    Change::Update { lease, .. } => seconds(lease),
                };
                books.unknown(queue, lease);
            }
            Fate::NeverHappened => entry.forget_version(visit.version),
            Fate::ReceiptRefused => {
                entry.forget_version(visit.version);
                let excused = entry.changes_in_flight > 0
                    || entry.refusal_is_excused(
                        &visit.held.receipt,
                        answered + clock_grain,
                        gets_in_flight > 0,
                        gets_unknown,
                    );
                books.counts.refused_receipts += 1;
                if !excused {
                    let number = visit.held.number;
                    let change = visit.change;
                    books.violate(format!(
                        "the latest receipt of message {number} was refused: {change:?}: {error}"
                    ));
                }
            }
        }
    }

    pub(crate) fn violation(&self, what: String) {
        self.books().violate(what);
    }

    /// How many operations have been answered with success.
    pub(crate) fn acknowledged_count(&self) -> u64 {
        self.books().counts.acknowledged
    }

    /// About how many messages there are.
    pub(crate) fn live_count(&self) -> usize {
        let books = self.books();
        let (puts, deletes) = (books.counts.puts, books.counts.deletes);
        usize::try_from(puts.saturating_sub(deletes)).expect("in memory")
    }
}

/// Steps of the full check, while nothing else runs.
impl Ledger {
    /// Whether requests with unknown outcome may still hide messages of `queue`.
    pub(crate) fn is_unsettled(&self, queue: &'static str) -> bool {
        let until = self.books().queue(queue).unsettled_until;
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Messages that exist, or existed before a delete with unknown outcome, and that `found` does
    /// not have, with their latest receipts, as far as one is known.
    pub(crate) fn missing(&self, queue: &'static str, found: &BTreeSet<u64>) -> Vec<Held> {
        let books = self.books();
        let missing = books.messages.iter().filter(|(number, entry)| {
            entry.queue == queue && entry.is_sure && entry.gone.is_none() && !found.contains(number)
        });
        // One that was only ever peeked at has no known receipt: its put was never answered. If a get of
        // unknown outcome hides it, it shows when that lease ends.
        missing
            .filter_map(|(&number, entry)| {
                Some(Held {
                    queue,
                    number,
                    id: entry.id.clone()?,
                    receipt: entry.receipt.as_ref()?.value.clone(),
                })
            })
            .collect()
    }

    /// Notes that a receipt from before a restart was good after it.
    pub(crate) fn receipt_outlived_a_restart(&self) {
        self.books().counts.receipts_after_restart += 1;
    }

    /// Counts leases from before a restart that are still running: the check relies on them.
    pub(crate) fn count_running_leases(&self) {
        let mut books = self.books();
        let now = Instant::now();
        let running = books.messages.values().filter(|entry| {
            let lease = entry
                .receipt
                .as_ref()
                .filter(|receipt| receipt.hidden_until > now);
            entry.must_exist() && lease.is_some()
        });
        let running = running.count() as u64;
        books.counts.leases_after_restart += running;
    }

    /// Settles what was unknown of a queue whose messages have all been found.
    pub(crate) fn settle(&self, queue: &'static str, found: &BTreeSet<u64>) {
        let mut books = self.books();
        let now = Instant::now();
        let books = &mut *books;
        for (number, entry) in &mut books.messages {
            if entry.queue != queue || entry.gone.is_some() {
                continue;
            }
            if found.contains(number) {
                books.counts.unknown_puts_kept += u64::from(!entry.put_was_answered);
                entry.put_was_answered = true;
                continue;
            }
            if entry.is_sure && !entry.delete_may_have_happened {
                books
                    .violations
                    .push(format!("LOST message {number} of {queue}"));
            } else if entry.is_sure {
                books.counts.unknown_deletes_done += 1;
            } else {
                books.counts.unknown_puts_absent += 1;
            }
            // Whatever became of it, it must not appear any more.
            entry.gone = Some(now);
        }
        books.counts.checks += 1;
    }

    /// Fails the test if any check has failed.
    pub(crate) fn assert_sound(&self) {
        let books = self.books();
        let shown = books.violations.iter().take(VIOLATIONS_SHOWN);
        let shown: Vec<&str> = shown.map(String::as_str).collect();
        let count = books.violations.len();
        assert!(
            count == 0,
            "{count} violations:\n{}\n{:?}",
            shown.join("\n"),
            books.counts
        );
    }

    /// What the clients did.
    pub(crate) fn report(&self) -> String {
        format!("{:?}", self.books().counts)
    }

    /// Fails the test if the loop has not tried what it is for.
    pub(crate) fn assert_tried(&self) {
        let books = self.books();
        let counts = &books.counts;
        for (name, count) in [
            ("deliveries", counts.deliveries),
            ("deletes", counts.deletes),
            ("updates", counts.updates),
            ("requests with unknown outcome", counts.unknown),
            (
                "receipts used after a restart",
                counts.receipts_after_restart,
            ),
            (
                "leases that outlived a restart",
                counts.leases_after_restart,
            ),
        ] {
            assert!(count > 0, "the loop saw no {name}: {counts:?}");
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn queue(&mut self, queue: &'static str) -> &mut QueueBook {
        self.queues.entry(queue).or_default()
    }

    fn entry(&mut self, number: u64) -> &mut Entry {
        self.messages
            .get_mut(&number)
            .expect("it was put down when its put began")
    }

    fn violate(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Notes a request to `queue` that may have hidden messages for `lease` from now.
    fn unknown(&mut self, queue: &'static str, lease: Duration) {
        self.counts.unknown += 1;
        let until = Instant::now() + lease + self.clock_grain;
        let queue = self.queue(queue);
        queue.unsettled_until = queue.unsettled_until.max(Some(until));
    }

    fn deliveries_max(&mut self, queue: &'static str, number: u64) -> u64 {
        let (in_flight, unknown) = {
            let queue = self.queue(queue);
            (queue.gets_in_flight, queue.gets_unknown)
        };
        let entry = self.entry(number);
        entry.deliveries.len() as u64 + in_flight + unknown - entry.gets_unknown_before
    }

    /// Checks what every sight of a message must show: that it exists, its text and its id.
    fn recognize(&mut self, visit: &Visit, message: &Message) -> Option<(u64, u64)> {
        let Some((number, version)) = self.texts.recognize(&message.text) else {
            let begin: String = message.text.chars().take(60).collect();
            self.violate(format!("ALTERED text in {}: {begin}", visit.queue));
            return None;
        };
        let Some(entry) = self.messages.get_mut(&number) else {
            self.violate(format!("PHANTOM message {number} in {}", visit.queue));
            return None;
        };
        let same_id = entry.id.get_or_insert_with(|| message.id.clone()) == &message.id;
        let problem = if entry.queue != visit.queue {
            Some("is in another queue".to_owned())
        } else if !same_id {
            Some("changed its id".to_owned())
        } else if entry.gone.is_some_and(|gone| gone < visit.sent) {
            Some("was gone: RESURRECTED".to_owned())
        } else if entry.gone.is_none() && !entry.may_show(version, visit.sent) {
            Some(format!(
                "has version {version}, not one of {:?}",
                entry.versions
            ))
        } else {
            None
        };
        if let Some(problem) = problem {
            self.violate(format!("message {number} of {} {problem}", visit.queue));
            return None;
        }
        let entry = self.entry(number);
        if entry.gone.is_some() {
            // The answers crossed: this one is older than the news of the end.
            return None;
        }
        entry.is_sure = true;
        Some((number, version))
    }

    fn check_hidden(&mut self, visit: &Visit, number: u64, answered: Instant, what: &str) {
        let clock_grain = self.clock_grain;
        let Some(receipt) = &self.entry(number).receipt else {
            return;
        };
        // A receipt that was answered after the request was sent may be the later of the two.
        let is_earlier = receipt.answered < visit.sent;
        let early = receipt
            .hidden_until
            .checked_duration_since(answered + clock_grain);
        if let Some(early) = early.filter(|_| is_earlier) {
            self.violate(format!(
                "message {number} of {} {what} {early:?} EARLY",
                visit.queue
            ));
        }
    }

    fn deliver(&mut self, visit: &Visit, message: &Message, answered: Instant) -> Option<Held> {
        self.counts.deliveries += 1;
        let (number, version) = self.recognize(visit, message)?;
        let count = message.dequeue_count;
        let last = self.entry(number).deliveries.last_key_value();
        let last = last.map(|(&count, &noted)| (count, noted));
        // The get itself is still counted among those in flight.
        let most = self.deliveries_max(visit.queue, number);
        if self
            .entry(number)
            .deliveries
            .insert(count, answered)
            .is_some()
        {
            self.violate(format!(
                "message {number} delivered twice with dequeue count {count}"
            ));
        }
        if count > most {
            self.violate(format!(
                "message {number} has dequeue count {count} of at most {most}"
            ));
        }
        if let Some((last_count, noted)) = last.filter(|(last_count, _)| *last_count > count) {
            if noted < visit.sent {
                self.violate(format!(
                    "message {number} has dequeue count {count} after {last_count}"
                ));
            }
            // The answers crossed: a later delivery has been noted, and its receipt is the latest.
            return None;
        }
        self.check_hidden(visit, number, answered, "delivered");

        let receipt = message.receipt.clone().expect("a get brings receipts");
        let gets_unknown_before = self.queue(visit.queue).gets_unknown;
        let entry = self.entry(number);
        if entry.changes_in_flight == 0 {
            entry.settle_version(version);
        }
        entry.see();
        entry.receipt = Some(LatestReceipt {
            value: receipt.value.clone(),
            answered,
            hidden_until: visit.sent + visit.lease,
            gets_unknown_before,
        });
        Some(Held {
            queue: visit.queue,
            number,
            id: message.id.clone(),
            receipt: receipt.value,
        })
    }

    /// A change was acknowledged, so nobody can have had a later receipt when it was sent.
    fn check_receipt_was_latest(&mut self, visit: &ChangeVisit) {
        let number = visit.held.number;
        let latest = self.entry(number).receipt.as_ref();
        let superseded = latest.is_some_and(|latest| {
            latest.value != visit.held.receipt && latest.answered < visit.sent
        });
        if superseded {
            let change = visit.change;
            self.violate(format!(
                "a STALE receipt of message {number} was good: {change:?}"
            ));
        }
    }
}

impl Entry {
    fn must_exist(&self) -> bool {
        self.is_sure && self.gone.is_none() && !self.delete_may_have_happened
    }

    /// Takes back what was unknown: the message is there, and its latest receipt is known.
    fn see(&mut self) {
        self.changes_unknown = 0;
        self.delete_may_have_happened = false;
    }

    /// Whether a request that was sent at `sent` may be answered with `version`.
    fn may_show(&self, version: u64, sent: Instant) -> bool {
        // The version may have been replaced while the answer was on its way.
        let retired = self.retired_versions.get(&version);
        self.versions.contains(&version) || retired.is_some_and(|&retired| retired > sent)
    }

    /// The text has `version` now, and no other.
    fn settle_version(&mut self, version: u64) {
        let now = Instant::now();
        let others = self.versions.iter().filter(|other| **other != version);
        self.retired_versions
            .extend(others.map(|&other| (other, now)));
        self.versions = BTreeSet::from([version]);
    }

    /// Takes back a version that no message can have.
    fn forget_version(&mut self, version: Option<u64>) {
        if let Some(version) = version {
            self.versions.remove(&version);
        }
    }

    /// Whether something else than a broken promise explains that `receipt` was refused.
    fn refusal_is_excused(
        &self,
        receipt: &str,
        answered: Instant,
        gets_in_flight: bool,
        gets_unknown: u64,
    ) -> bool {
        let Some(latest) = &self.receipt else {
            return true;
        };
        let lease_is_over = answered >= latest.hidden_until;
        let may_be_delivered = gets_in_flight || gets_unknown > latest.gets_unknown_before;
        latest.value != receipt
            || self.gone.is_some()
            || self.changes_unknown > 0
            || lease_is_over && may_be_delivered
    }
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(u64::from(count))
}
