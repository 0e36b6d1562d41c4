//! Announcements of work: a look at once, instead of at the next time.
//!
//! They are hints. One that is missed costs the time until the next look, and so does a queue or subscription of
//! announcements that cannot be used: nothing else depends on them.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kew_worker::{Announcements, Heard};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The queue or subscription of announcements has this time to be ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// What is announced for some queues.
pub(super) struct Announced {
    /// Goes on where it was, however often a look interrupts it.
    listening: Pin<Box<dyn Future<Output = Infallible> + Send>>,
    /// Announcements since the last look are one.
    heard: Arc<Notify>,
}

impl Announced {
    /// Nothing is connected yet.
    pub(super) fn new(hears: impl Announcements + 'static, queues: Vec<String>) -> Self {
        let heard = Arc::new(Notify::new());
        let listener = Listener {
            hears,
            heard: heard.clone(),
            is_told: false,
            queues,
        };
        Self {
            listening: Box::pin(listener.listen()),
            heard,
        }
    }

    /// Waits until work is announced for one of the queues. To drop the future loses nothing.
    pub(super) async fn heard(&mut self) {
        tokio::select! {
            biased;
            never = &mut self.listening => match never {},
            () = self.heard.notified() => {}
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
    heard: Arc<Notify>,
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
        loop {
            match self.hears.next().await {
                Ok(heard) if self.is_for_us(&heard) => self.heard.notify_one(),
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
