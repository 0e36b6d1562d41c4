//! How many handshakes are under way, and which one gives way when there are too many.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The handshakes under way, oldest first.
#[derive(Debug)]
pub(crate) struct Handshakes {
    count_max: usize,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    begun_count: u64,
    /// By when they began. Dropping the sender ends the handshake.
    turns: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A place among the handshakes under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    of: &'a Handshakes,
    number: u64,
    taken: oneshot::Receiver<()>,
}

impl Handshakes {
    pub(crate) fn new(count_max: usize) -> Self {
        Self {
            count_max: count_max.max(1),
            under_way: Mutex::default(),
        }
    }

    /// Takes a place, the oldest one's if no other is free.
    pub(crate) fn begin(&self) -> Turn<'_> {
        let (sender, taken) = oneshot::channel();
        let mut under_way = self.lock();
        if under_way.turns.len() >= self.count_max {
            under_way.turns.pop_first();
        }
        let number = under_way.begun_count;
        under_way.begun_count += 1;
        under_way.turns.insert(number, sender);
        drop(under_way);
        Turn {
            of: self,
            number,
            taken,
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Resolves when a newer handshake has taken the place.
    pub(crate) async fn is_over(&mut self) {
        // Nothing is ever sent: that the sender is gone is the message.
        let _ = (&mut self.taken).await;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.lock().turns.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_over(turn: &mut Turn<'_>) -> bool {
        turn.taken.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_oldest_gives_way_and_no_other() {
        let handshakes = Handshakes::new(2);
        let mut first = handshakes.begin();
        let mut second = handshakes.begin();
        assert!(!is_over(&mut first));
        let mut third = handshakes.begin();
        assert!(is_over(&mut first) && !is_over(&mut second) && !is_over(&mut third));
        drop(second);
        let _fourth = handshakes.begin();
        assert!(!is_over(&mut third), "a free place is taken first");
        drop((first, third));
        assert_eq!(handshakes.lock().turns.len(), 1);
    }
}
