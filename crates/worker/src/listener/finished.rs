//! Messages whose work is done and which could not be deleted.

use std::collections::{HashMap, VecDeque};

/// The most messages that are remembered. The oldest are forgotten first.
const KEYS_MAX: usize = 10_000;

/// What was done with a message before its delete failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// All handlers succeeded.
    Handled,
    /// It lies where failed messages lie.
    Buried,
}

/// Keys of finished messages.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    keys: HashMap<String, Done>,
    order: VecDeque<String>,
}

impl Finished {
    /// Remembers a message. One without a key cannot be known again.
    pub(crate) fn add(&mut self, key: &str, done: Done) {
        if key.is_empty() || self.keys.insert(key.to_owned(), done).is_some() {
            return;
        }
        self.order.push_back(key.to_owned());
        if self.order.len() > KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Done> {
        self.keys.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut finished = Finished::default();
        for number in 0..=KEYS_MAX {
            finished.add(&number.to_string(), Done::Handled);
            finished.add("1", Done::Buried);
        }
        assert_eq!(
            (finished.get("0"), finished.get("1")),
            (None, Some(Done::Buried))
        );
        finished.add("", Done::Handled);
        assert_eq!(finished.get(""), None);
        assert_eq!(
            (finished.keys.len(), finished.order.len()),
            (KEYS_MAX, KEYS_MAX)
        );
    }
}
