//! Steps of the full check, while no other requests run, and the results of a test.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{Held, Ledger};

/// How many violations are printed.
const VIOLATIONS_SHOWN: usize = 20;

impl Ledger {
    /// Whether requests with unknown outcome may still hide messages of `queue`.
    pub(crate) fn is_unsettled(&self, queue: &'static str) -> bool {
        let until = self.books().queue(queue).unsettled_until;
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Messages that exist, or existed before a delete with unknown outcome, and that are not in
    /// `found`, with their latest receipts, if known.
    pub(crate) fn missing(&self, queue: &'static str, found: &BTreeSet<u64>) -> Vec<Held> {
        let books = self.books();
        let missing = books.messages.iter().filter(|(number, entry)| {
            entry.queue == queue && entry.is_sure && entry.gone.is_none() && !found.contains(number)
        });
        // A message that was only peeked at has no known receipt: its put was never answered. If a
        // get of unknown outcome hides it, it becomes visible when that lease ends.
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

    /// Notes that a receipt from before a restart was valid after it.
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

    /// Settles the unknown outcomes of a queue whose messages have all been found.
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
            // Whatever happened to it, it must not reappear.
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

    /// A summary of the clients' operations.
    pub(crate) fn report(&self) -> String {
        format!("{:?}", self.books().counts)
    }

    /// Fails the test if the loop has not tried what it should.
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
}
