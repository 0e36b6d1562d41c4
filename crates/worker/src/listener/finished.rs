//! Messages whose work is done and which could not be deleted.

use std::collections::{HashSet, VecDeque};

/// The most messages that are remembered. The oldest are forgotten first.
const KEYS_MAX: usize = 10_000;

/// Keys of finished messages.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    keys: HashSet<String>,
    order: VecDeque<String>,
}

impl Finished {
    pub(crate) fn add(&mut self, key: &str) {
        if !self.keys.insert(key.to_owned()) {
            return;
        }
        self.order.push_back(key.to_owned());
        if self.order.len() > KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut finished = Finished::default();
        for number in 0..=KEYS_MAX {
            finished.add(&number.to_string());
            finished.add("1");
        }
        assert!(!finished.has("0") && finished.has("2"));
        assert_eq!(
            (finished.keys.len(), finished.order.len()),
            (KEYS_MAX, KEYS_MAX)
        );
    }
}
