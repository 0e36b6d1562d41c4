//! Which instances are ready, and which ones still start.
//!
//! An instance with a metrics page is ready as soon as the page has answered, and stays ready: if its page fails later,
//! it is busy or broken, and does not start. An instance without a page says nothing, so it is ready after
//! `start_delay`.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::act::state::Record;

/// After so many times its `start_delay`, an instance counts as ready although its page has not answered. The page may
/// be broken, and while an instance starts, fewer others start.
const WITHOUT_ANSWER: u32 = 3;

/// Remembers the pages that have answered.
#[derive(Debug)]
pub(super) struct Readiness {
    start_delay: Duration,
    /// The numbers of their instances.
    answered: BTreeSet<u64>,
}

impl Readiness {
    pub(super) fn new(start_delay: Duration) -> Self {
        Self {
            start_delay,
            answered: BTreeSet::new(),
        }
    }

    /// The pages of these instances have answered.
    pub(super) fn answered(&mut self, instances: &BTreeSet<u64>) {
        self.answered.extend(instances);
    }

    /// Forgets all other instances.
    pub(super) fn keep_only(&mut self, running: &BTreeSet<u64>) {
        self.answered.retain(|it| running.contains(it));
    }

    pub(super) fn is_ready(&self, record: &Record, age: Duration) -> bool {
        match record.port {
            None => age >= self.start_delay,
            Some(_) => {
                self.answered.contains(&record.number)
                    || age >= self.start_delay.saturating_mul(WITHOUT_ANSWER)
            }
        }
    }
}
