//! What was acknowledged, what may have happened, and the checks of every answer against it.
//!
//! Requests overlap, so an answer may be noted after one to a request that the server executed
//! later. Two answers are ordered only if one arrived before the other's request was sent. In
//! addition, the dequeue count orders deliveries of one message.

mod books;
mod full_check;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kew_client::{Error, PutMessage, QueueMessage, Receipt};

use self::books::{Books, Counts, Entry, LatestReceipt, QueueBook};
use super::text::Texts;
use super::writer::Fate;

/// The server counts milliseconds, so a lease may end this much earlier than by a finer clock.
pub(crate) const CLOCK_GRAIN: Duration = Duration::from_millis(20);

/// The books, shared by all connections.
pub(crate) struct Ledger {
    books: Mutex<Books>,
    texts: Texts,
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

/// A change to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Delete,
    Update { lease: u32, replace: bool },
}

/// A change on its way.
pub(crate) struct ChangeVisit {
    held: Held,
    change: Change,
    /// The version of the new text, if the change has one.
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

    pub(crate) fn put_acknowledged(&self, visit: &Visit, sent: &PutMessage) -> Held {
        let mut books = self.books();
        books.counts.acknowledged += 1;
        books.counts.puts += 1;
        let gets_unknown_before = books.queue(visit.queue).gets_unknown;
        let entry = books.entry(visit.number);
        entry.put_was_answered = true;
        entry.is_sure = true;
        let same_id = entry.id.get_or_insert_with(|| sent.id.clone()) == &sent.id;
        // A client may have received it before the answer to the put was noted.
        if entry.receipt.is_none() && entry.gone.is_none() {
            entry.receipt = Some(LatestReceipt {
                value: sent.receipt.value.clone(),
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
            receipt: sent.receipt.value.clone(),
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

    /// Notes the messages of a get; returns the receipts that are valid now.
    pub(crate) fn delivered(&self, visit: &Visit, messages: &[QueueMessage]) -> Vec<Held> {
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

    pub(crate) fn peeked(&self, visit: &Visit, messages: &[QueueMessage]) {
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
        // If not, a client received it before this answer was noted.
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
                        // If a later receipt is known, it was seen after this one had become stale.
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

    /// The approximate number of messages.
    pub(crate) fn live_count(&self) -> usize {
        let books = self.books();
        let (puts, deletes) = (books.counts.puts, books.counts.deletes);
        usize::try_from(puts.saturating_sub(deletes)).expect("in memory")
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(u64::from(count))
}
