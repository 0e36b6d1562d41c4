//! The names of recently deleted queues, which are still reserved.
//!
//! Azure deletes a queue in the background and reserves its name for half a minute or more. Kew
//! deletes it at once, so this is an option for testing clients, and off by default. The names are
//! in memory: a restart frees them.
//!
//! Source: *Delete Queue*.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kew_engine::EntityName;
use tokio::time::Instant;

/// How many names are reserved. Above it, the oldest becomes free early.
const NAME_COUNT_MAX: usize = 100_000;

/// The reserved names, for as long as the option says.
#[derive(Debug)]
pub(crate) struct Deletions {
    delay: Duration,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// When each name is free.
    until: BTreeMap<EntityName, Instant>,
    /// The same in order of time. A name that was reserved twice is here twice.
    order: VecDeque<(Instant, EntityName)>,
}

impl Deletions {
    /// With a delay of zero nothing is reserved.
    pub(crate) fn new(delay: Duration) -> Self {
        Self {
            delay,
            held: Mutex::default(),
        }
    }

    /// Reserves the name of a queue that was deleted now.
    pub(crate) fn add(&self, queue: EntityName) {
        if self.delay.is_zero() {
            return;
        }
        let now = Instant::now();
        let until = now + self.delay;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.until.insert(queue.clone(), until);
        held.order.push_back((until, queue));
        held.forget(now);
    }

    /// Whether the name is held.
    pub(crate) fn holds(&self, queue: &EntityName) -> bool {
        if self.delay.is_zero() {
            return false;
        }
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.until
            .get(queue)
            .is_some_and(|until| *until > Instant::now())
    }
}

impl Held {
    fn forget(&mut self, now: Instant) {
        let is_over = |(until, _): &mut (Instant, EntityName)| *until <= now;
        while let Some((until, queue)) = if self.order.len() > NAME_COUNT_MAX {
            self.order.pop_front()
        } else {
            self.order.pop_front_if(is_over)
        } {
            // Held again meanwhile, it is not free yet.
            if self.until.get(&queue) == Some(&until) {
                self.until.remove(&queue);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> EntityName {
        EntityName::storage_queue("a", name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_reserved_for_the_delay() {
        let deletions = Deletions::new(Duration::from_secs(30));
        deletions.add(queue("q"));
        tokio::time::advance(Duration::from_secs(20)).await;
        deletions.add(queue("q"));
        assert!(deletions.holds(&queue("q")) && !deletions.holds(&queue("other")));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(deletions.holds(&queue("q")));
        deletions.add(queue("other"));
        assert!(deletions.holds(&queue("q")));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!deletions.holds(&queue("q")));
    }

    #[tokio::test(start_paused = true)]
    async fn reserved_names_are_bounded() {
        let deletions = Deletions::new(Duration::from_secs(30));
        for number in 0..=NAME_COUNT_MAX {
            deletions.add(queue(&number.to_string()));
        }
        assert!(!deletions.holds(&queue("0")) && deletions.holds(&queue("1")));
        tokio::time::advance(Duration::from_secs(30)).await;
        deletions.add(queue("last"));
        let held = deletions.held.lock().unwrap();
        assert_eq!((held.until.len(), held.order.len()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_delay_no_name_is_reserved() {
        let deletions = Deletions::new(Duration::ZERO);
        deletions.add(queue("q"));
        assert!(!deletions.holds(&queue("q")));
    }
}
