//! Several queues that share the work of one, after it was too much for one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::target::Target;
use crate::error::SourceError;
use crate::source::{Outgoing, SourceName};

/// How long a queue that was busy gets no messages.
const BUSY_PAUSE: Duration = Duration::from_secs(10);

/// After so long without a busy queue, one queue less is used.
const CALM: Duration = Duration::from_mins(10);

/// Spreads messages over several queues. At first all go to the first queue. Each time that a queue in use is busy
/// (503, or `server-busy`), one more is used, in turn; after ten calm minutes one less. A busy queue gets nothing for
/// ten seconds.
///
/// Run a listener for each of the queues: with push, those of unused queues cost nothing.
#[derive(Debug)]
pub struct Sharded<K> {
    targets: Vec<K>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many queues are in use, from 1.
    used: usize,
    next: usize,
    busy_until: Vec<Option<Instant>>,
    changed_at: Instant,
}

impl<K: Target> Sharded<K> {
    /// Over these queues, in this order.
    ///
    /// # Panics
    ///
    /// Without a queue.
    pub fn new(targets: Vec<K>) -> Self {
        assert!(!targets.is_empty(), "a sharded target needs a queue");
        let state = State {
            used: 1,
            next: 0,
            busy_until: vec![None; targets.len()],
            changed_at: Instant::now(),
        };
        Self {
            targets,
            state: Mutex::new(state),
        }
    }

    /// How many queues are in use.
    pub fn used(&self) -> usize {
        self.state().used
    }

    /// The next queue in use that is not busy. `None`: all are.
    fn choose(&self) -> Option<usize> {
        let (mut state, now) = (self.state(), Instant::now());
        if state.used > 1 && now.duration_since(state.changed_at) >= CALM {
            state.used -= 1;
            state.changed_at = now;
        }
        for _ in 0..state.used {
            let index = state.next % state.used;
            state.next = index + 1;
            let until = state.busy_until.get(index).copied().flatten();
            if until.is_none_or(|until| until <= now) {
                return Some(index);
            }
        }
        None
    }

    fn was_busy(&self, index: usize) {
        let (mut state, now) = (self.state(), Instant::now());
        if let Some(until) = state.busy_until.get_mut(index) {
            *until = Some(now + BUSY_PAUSE);
        }
        state.changed_at = now;
        if state.used < self.targets.len() {
            // The new one is next.
            state.next = state.used;
            state.used += 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Target> Target for Sharded<K> {
    fn name(&self) -> &SourceName {
        self.targets
            .first()
            .map(K::name)
            .expect("a sharded target has a queue")
    }

    fn carries_properties(&self) -> bool {
        self.targets.iter().all(K::carries_properties)
    }

    /// Only a queue that is certain not to have the message is replaced by another one.
    async fn send(&self, message: &Outgoing) -> Result<SourceName, SourceError> {
        let mut last = SourceError::busy("all queues are busy");
        for _ in 0..self.targets.len() {
            let Some(index) = self.choose() else {
                break;
            };
            let Some(target) = self.targets.get(index) else {
                break;
            };
            match target.send(message).await {
                Err(error) if error.is_busy() => {
                    self.was_busy(index);
                    last = error;
                }
                sent => return sent,
            }
        }
        Err(last)
    }

    /// Of all queues together, as far as they know.
    async fn depth(&self) -> Result<Option<u64>, SourceError> {
        let mut sum = None;
        for target in &self.targets {
            if let Some(depth) = target.depth().await? {
                sum = Some(sum.unwrap_or(0) + depth);
            }
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use kew_client::ErrorKind;

    use super::*;

    #[derive(Debug)]
    struct Shard {
        name: SourceName,
        busy: AtomicU32,
        sent: AtomicU32,
    }

    impl Target for Shard {
        fn name(&self) -> &SourceName {
            &self.name
        }

        fn carries_properties(&self) -> bool {
            false
        }

        async fn send(&self, _: &Outgoing) -> Result<SourceName, SourceError> {
            let refuses = |busy: u32| busy.checked_sub(1);
            if self
                .busy
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuses)
                .is_ok()
            {
                return Err(SourceError::busy("503"));
            }
            self.sent.fetch_add(1, Ordering::SeqCst);
            Ok(self.name.clone())
        }

        async fn depth(&self) -> Result<Option<u64>, SourceError> {
            Ok(Some(self.sent.load(Ordering::SeqCst).into()))
        }
    }

    fn sharded(busy: [u32; 3]) -> Sharded<Shard> {
        let shard = |busy| Shard {
            name: SourceName::new("a", "q"),
            busy: AtomicU32::new(busy),
            sent: AtomicU32::new(0),
        };
        Sharded::new(busy.map(shard).into())
    }

    async fn send(sharded: &Sharded<Shard>, count: u32) -> [u32; 3] {
        for _ in 0..count {
            sharded.send(&Outgoing::default()).await.unwrap();
        }
        let sent = sharded
            .targets
            .iter()
            .map(|it| it.sent.load(Ordering::SeqCst));
        sent.collect::<Vec<_>>().try_into().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn work_spreads_after_503_and_comes_together_again() {
        let target = sharded([0, 0, 0]);
        assert_eq!(send(&target, 6).await, [6, 0, 0]);
        target.targets[0].busy.store(1, Ordering::SeqCst);
        assert_eq!(send(&target, 4).await, [6, 4, 0], "the first one pauses");
        tokio::time::advance(BUSY_PAUSE).await;
        assert_eq!(send(&target, 4).await, [8, 6, 0]);
        assert_eq!(target.used(), 2);
        tokio::time::advance(CALM).await;
        assert_eq!(send(&target, 4).await, [12, 6, 0]);
        assert_eq!(target.depth().await, Ok(Some(18)));
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_are_busy_the_sender_knows() {
        let target = sharded([1, 1, 1]);
        let error = target.send(&Outgoing::default()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_busy()),
            (ErrorKind::TryAgainLater, true)
        );
        assert_eq!(target.used(), 3);
        tokio::time::advance(BUSY_PAUSE).await;
        assert_eq!(send(&target, 3).await, [1, 1, 1]);
    }
}
