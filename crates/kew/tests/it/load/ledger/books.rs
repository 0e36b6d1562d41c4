//! The books: the known facts about each queue and message, which every answer must agree with.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kew_client::QueueMessage;

use super::super::text::Texts;
use super::{ChangeVisit, Held, Visit};

pub(super) struct Books {
    pub(super) texts: Texts,
    pub(super) clock_grain: Duration,
    pub(super) queues: BTreeMap<&'static str, QueueBook>,
    pub(super) messages: BTreeMap<u64, Entry>,
    pub(super) counts: Counts,
    pub(super) violations: Vec<String>,
}

#[derive(Default)]
pub(super) struct QueueBook {
    pub(super) gets_in_flight: u64,
    pub(super) gets_unknown: u64,
    /// Until then a request with unknown outcome may hide messages.
    pub(super) unsettled_until: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) acknowledged: u64,
    pub(super) puts: u64,
    pub(super) deliveries: u64,
    pub(super) updates: u64,
    pub(super) deletes: u64,
    pub(super) peeks: u64,
    pub(super) unknown: u64,
    pub(super) refused_receipts: u64,
    pub(super) checks: u64,
    pub(super) receipts_after_restart: u64,
    pub(super) leases_after_restart: u64,
    pub(super) unknown_puts_kept: u64,
    pub(super) unknown_puts_absent: u64,
    pub(super) unknown_deletes_done: u64,
}

/// The known facts about one message.
pub(super) struct Entry {
    pub(super) queue: &'static str,
    pub(super) put_was_answered: bool,
    /// A put or a delivery was answered, so it exists unless it was deleted.
    pub(super) is_sure: bool,
    pub(super) id: Option<String>,
    /// The possible versions of its text now.
    pub(super) versions: BTreeSet<u64>,
    /// Former versions of its text, each with the time when it was known to be replaced.
    pub(super) retired_versions: BTreeMap<u64, Instant>,
    pub(super) next_version: u64,
    /// When it was known to be deleted.
    pub(super) gone: Option<Instant>,
    pub(super) receipt: Option<LatestReceipt>,
    /// Observed dequeue counts, each with the time of the answer.
    pub(super) deliveries: BTreeMap<u64, Instant>,
    /// The queue's unknown gets at the time of the put.
    pub(super) gets_unknown_before: u64,
    pub(super) changes_in_flight: u64,
    /// Updates and deletes with unknown outcome since the message was last seen.
    pub(super) changes_unknown: u64,
    pub(super) delete_may_have_happened: bool,
}

pub(super) struct LatestReceipt {
    pub(super) value: String,
    pub(super) answered: Instant,
    /// The message cannot be delivered before this time.
    pub(super) hidden_until: Instant,
    pub(super) gets_unknown_before: u64,
}

impl Books {
    pub(super) fn queue(&mut self, queue: &'static str) -> &mut QueueBook {
        self.queues.entry(queue).or_default()
    }

    pub(super) fn entry(&mut self, number: u64) -> &mut Entry {
        self.messages
            .get_mut(&number)
            .expect("it was put down when its put began")
    }

    pub(super) fn violate(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Notes a request to `queue` that may have hidden messages for `lease` from now.
    pub(super) fn unknown(&mut self, queue: &'static str, lease: Duration) {
        self.counts.unknown += 1;
        let until = Instant::now() + lease + self.clock_grain;
        let queue = self.queue(queue);
        queue.unsettled_until = queue.unsettled_until.max(Some(until));
    }

    pub(super) fn deliveries_max(&mut self, queue: &'static str, number: u64) -> u64 {
        let (in_flight, unknown) = {
            let queue = self.queue(queue);
            (queue.gets_in_flight, queue.gets_unknown)
        };
        let entry = self.entry(number);
        entry.deliveries.len() as u64 + in_flight + unknown - entry.gets_unknown_before
    }

    /// Checks what every observation of a message must show: that it exists, its text and its id.
    pub(super) fn recognize(
        &mut self,
        visit: &Visit,
        message: &QueueMessage,
    ) -> Option<(u64, u64)> {
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
            // The answers crossed: this one is older than the one that reported the end.
            return None;
        }
        entry.is_sure = true;
        Some((number, version))
    }

    pub(super) fn check_hidden(
        &mut self,
        visit: &Visit,
        number: u64,
        answered: Instant,
        what: &str,
    ) {
        let clock_grain = self.clock_grain;
        let Some(receipt) = &self.entry(number).receipt else {
            return;
        };
        // If its answer came after the request was sent, this receipt may be the later of the two.
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

    pub(super) fn deliver(
        &mut self,
        visit: &Visit,
        message: &QueueMessage,
        answered: Instant,
    ) -> Option<Held> {
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

    /// A change was acknowledged, so no client can have had a later receipt when it was sent.
    pub(super) fn check_receipt_was_latest(&mut self, visit: &ChangeVisit) {
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
    pub(super) fn must_exist(&self) -> bool {
        self.is_sure && self.gone.is_none() && !self.delete_may_have_happened
    }

    /// Clears the unknown changes: the message exists, and its latest receipt is known.
    pub(super) fn see(&mut self) {
        self.changes_unknown = 0;
        self.delete_may_have_happened = false;
    }

    /// Whether the answer to a request sent at `sent` may show `version`.
    fn may_show(&self, version: u64, sent: Instant) -> bool {
        // The version may have been replaced while the answer was on its way.
        let retired = self.retired_versions.get(&version);
        self.versions.contains(&version) || retired.is_some_and(|&retired| retired > sent)
    }

    /// The text has `version` now, and no other.
    pub(super) fn settle_version(&mut self, version: u64) {
        let now = Instant::now();
        let others = self.versions.iter().filter(|other| **other != version);
        self.retired_versions
            .extend(others.map(|&other| (other, now)));
        self.versions = BTreeSet::from([version]);
    }

    /// Removes a version that no message can have.
    pub(super) fn forget_version(&mut self, version: Option<u64>) {
        if let Some(version) = version {
            self.versions.remove(&version);
        }
    }

    /// Whether something other than a broken promise explains that `receipt` was refused.
    pub(super) fn refusal_is_excused(
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
