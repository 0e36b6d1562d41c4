//! Messages whose work is done and which could not be deleted.

use std::collections::{HashMap, VecDeque};

use crate::source::Key;

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
    keys: HashMap<Key, Done>,
    order: VecDeque<Key>,
}

impl Finished {
    /// Remembers a message. One without a key cannot be known again.
    pub(crate) fn add(&mut self, key: &Key, done: Done) {
        if key.is_unknown() || self.keys.insert(key.clone(), done).is_some() {
            return;
        }
        self.order.push_back(key.clone());
        if self.order.len() > KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Done> {
        self.keys.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut finished = Finished::default();
        for number in 0..=i64::try_from(KEYS_MAX).unwrap() {
            finished.add(&Key::numbered(number, 0), Done::Handled);
            finished.add(&Key::numbered(1, 0), Done::Buried);
        }
        assert_eq!(
            (
                finished.get(&Key::numbered(0, 0)),
                finished.get(&Key::numbered(1, 0))
            ),
            (None, Some(Done::Buried))
        );
        finished.add(&Key::default(), Done::Handled);
        assert_eq!(finished.get(&Key::default()), None);
        assert_eq!(
            (finished.keys.len(), finished.order.len()),
            (KEYS_MAX, KEYS_MAX)
        );
    }
}
