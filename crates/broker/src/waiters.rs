//! Answers that wait for the log.
//!
//! An answer is shown once the log is durable beyond the record that the answer rests on. So a crash takes
//! nothing back that a client has seen.

use std::collections::BTreeMap;
use std::mem;

use kew_log::LogPosition;

/// Answers by the record they rest on.
#[derive(Debug)]
pub(crate) struct Waiters<A> {
    by_record: BTreeMap<LogPosition, Vec<A>>,
    /// Empty, and kept for its room.
    spare: Vec<A>,
}

/// For how many answers room is kept.
const SPARE_MAX: usize = 1024;

impl<A> Waiters<A> {
    pub(crate) fn new() -> Self {
        Self {
            by_record: BTreeMap::new(),
            spare: Vec::new(),
        }
    }

    /// Keeps an answer until the record at this position is durable.
    pub(crate) fn wait(&mut self, record: LogPosition, answer: A) {
        let spare = &mut self.spare;
        let answers = self.by_record.entry(record);
        answers.or_insert_with(|| mem::take(spare)).push(answer);
    }

    /// Hands out the answers that may be shown once everything before `durable` is durable.
    pub(crate) fn release(&mut self, durable: LogPosition, out: &mut Vec<A>) {
        while let Some(entry) = self.by_record.first_entry() {
            if *entry.key() >= durable {
                break;
            }
            let mut answers = entry.remove();
            out.append(&mut answers);
            if answers.capacity() <= SPARE_MAX {
                self.spare = answers;
            }
        }
    }

    /// Gives up every answer, because it is not known whether the log becomes durable up to them. Each comes with its
    /// record.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = (LogPosition, A)> + use<A> {
        let all = mem::take(&mut self.by_record).into_iter();
        all.flat_map(|(record, answers)| answers.into_iter().map(move |answer| (record, answer)))
    }

    /// How many answers wait.
    pub(crate) fn count(&self) -> usize {
        self.by_record.values().map(Vec::len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_record.is_empty()
    }
}
