//! Announcements of work: a look at once, instead of at the next time.
//!
//! They are hints. One that is missed costs the time until the next look, and so does a queue or subscription of
//! announcements that cannot be used: nothing else depends on them. What is announced before the connection is there is
//! missed, so a look follows as soon as it is.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kew_worker::{Announcements, Heard};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::Woken;

/// The queue or subscription of announcements has this time to be ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// What is announced for some queues.
pub(super) struct Announced {
    /// Goes on where it was, however often a look interrupts it.
    listening: Pin<Box<dyn Future<Output = Infallible> + Send>>,
    told: Arc<Told>,
}

/// What the listener tells. Several of one kind are one, until somebody takes it.
#[derive(Default)]
struct Told {
    listening: Notify,
    announced: Notify,
}

impl Announced {
    /// Nothing is connected yet.
    pub(super) fn new(hears: impl Announcements + 'static, queues: Vec<String>) -> Self {
        let told = Arc::new(Told::default());
        let listener = Listener {
            hears,
            told: told.clone(),
            is_told: false,
            queues,
        };
        Self {
            listening: Box::pin(listener.listen()),
            told,
        }
    }

    /// Waits until work is announced for one of the queues, or announcements begin to be heard. To drop the future loses
    /// nothing.
    pub(super) async fn woken(&mut self) -> Woken {
        tokio::select! {
            biased;
            never = &mut self.listening => match never {},
            () = self.told.announced.notified() => Woken::Announced,
            () = self.told.listening.notified() => Woken::Listening,
        }
    }
}

impl fmt::Debug for Announced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announced").finish_non_exhaustive()
    }
}

struct Listener<A> {
    hears: A,
    told: Arc<Told>,
    /// Whether it was logged that nothing is heard.
    is_told: bool,
    queues: Vec<String>,
}

impl<A: Announcements> Listener<A> {
    async fn listen(mut self) -> Infallible {
        loop {
            match timeout(READY_MAX, self.hears.ready()).await {
                Ok(Ok(())) => self.hear().await,
                Ok(Err(error)) => self.tell(&error),
                Err(_) => self.tell(&format_args!(
                    "there was no answer within {} s",
                    READY_MAX.as_secs()
                )),
            }
            sleep(RETRY).await;
        }
    }

    /// Hears until that fails.
    async fn hear(&mut self) {
        if std::mem::take(&mut self.is_told) {
            tracing::info!("announcements are heard again");
        }
        self.told.listening.notify_one();
        loop {
            match self.hears.next().await {
                Ok(heard) if self.is_for_us(&heard) => self.told.announced.notify_one(),
                Ok(_) => {}
                Err(error) => return self.tell(&error),
            }
        }
    }

    /// The account has any name that its announcer gave it.
    fn is_for_us(&self, heard: &Heard) -> bool {
        match heard {
            Heard::Work(work) => self
                .queues
                .iter()
                .any(|it| it.eq_ignore_ascii_case(&work.queue)),
            // Some were missed.
            _ => true,
        }
    }

    fn tell(&mut self, error: &dyn fmt::Display) {
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!("announcements are not heard: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use kew_worker::{Announcement, SourceError};
    use tokio::time::Instant;

    use super::*;

    /// It takes a while to be ready, and fails again and again.
    struct Flaky {
        /// What is heard before it fails.
        heard: Vec<Heard>,
        left: Vec<Heard>,
    }

    impl Announcements for Flaky {
        async fn ready(&mut self) -> Result<(), SourceError> {
            sleep(Duration::from_millis(300)).await;
            self.left.clone_from(&self.heard);
            Ok(())
        }

        async fn next(&mut self) -> Result<Heard, SourceError> {
            sleep(Duration::from_secs(1)).await;
            let next = self.left.pop();
            next.ok_or_else(|| SourceError::refused("it has ended"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_connection_wakes_the_agent_before_anything_is_heard() {
        let work = |queue: &str| {
            Heard::Work(Announcement {
                account: "any".into(),
                queue: queue.into(),
                size_bytes: None,
                sender: "test".into(),
            })
        };
        let hears = Flaky {
            heard: vec![work("jobs"), work("other")],
            left: Vec::new(),
        };
        let mut announced = Announced::new(hears, vec!["jobs".to_owned()]);
        let began = Instant::now();
        let mut woken = Vec::new();
        for _ in 0..4 {
            woken.push((announced.woken().await, began.elapsed().as_millis()));
        }
        let expected = [
            (Woken::Listening, 300),
            (Woken::Announced, 2_300),
            // It failed at 3.3 s, and tried again 10 s later.
            (Woken::Listening, 13_600),
            (Woken::Announced, 15_600),
        ];
        assert_eq!(woken, expected);
    }
}
