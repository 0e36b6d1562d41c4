//! Announcements of work: a look at once, instead of at the next time.
//!
//! They are hints. One that is missed costs the time until the next look, and so does a queue of announcements that cannot
//! be used: nothing else depends on them.

use std::time::Duration;

use futures_util::FutureExt as _;
use kew_worker::{Announcements as _, BusAnnouncements, Heard};
use tokio::time::{Instant, sleep_until, timeout};

/// The queue of announcements has this time to be ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// As many announcements that wait are taken as one.
const AS_ONE_MAX: usize = 1_000;

/// What is announced for some queues.
#[derive(Debug)]
pub(super) struct Announced {
    hears: BusAnnouncements,
    is_ready: bool,
    retry_at: Instant,
    /// Whether it was logged that nothing is heard.
    is_told: bool,
    queues: Vec<String>,
}

impl Announced {
    pub(super) fn new(hears: BusAnnouncements, queues: Vec<String>) -> Self {
        Self {
            hears,
            is_ready: false,
            retry_at: Instant::now(),
            is_told: false,
            queues,
        }
    }

    /// Waits until work is announced for one of the queues. To drop the future loses nothing.
    pub(super) async fn heard(&mut self) {
        loop {
            if !self.is_ready {
                self.get_ready().await;
                continue;
            }
            if self.next().await {
                self.take_waiting();
                return;
            }
        }
    }

    async fn get_ready(&mut self) {
        sleep_until(self.retry_at).await;
        // If this is dropped, another try must not follow at once.
        self.retry_at = Instant::now() + RETRY;
        match timeout(READY_MAX, self.hears.ready()).await {
            Ok(Ok(())) => {
                self.is_ready = true;
                if std::mem::take(&mut self.is_told) {
                    tracing::info!("announcements are heard again");
                }
            }
            Ok(Err(error)) => self.tell(&error),
            Err(_) => self.tell(&format_args!(
                "there was no answer within {} s",
                READY_MAX.as_secs()
            )),
        }
    }

    /// Whether the next announcement is for one of the queues.
    async fn next(&mut self) -> bool {
        match self.hears.next().await {
            Ok(heard) => self.is_for_us(&heard),
            Err(error) => {
                self.tell(&error);
                self.is_ready = false;
                false
            }
        }
    }

    /// Takes those that have come already: one look is enough for all.
    fn take_waiting(&mut self) {
        for _ in 0..AS_ONE_MAX {
            if self.next().now_or_never().is_none() || !self.is_ready {
                return;
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

    fn tell(&mut self, error: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!("announcements are not heard: {error}");
        }
    }
}
