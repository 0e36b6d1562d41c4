//! Progress of long work, as one line on standard error that is written over.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::queue_args::When;

/// How often the line changes.
const INTERVAL: Duration = Duration::from_millis(200);

/// Counts work that is done, by several threads at once.
#[derive(Debug)]
pub(super) struct Progress {
    verb: &'static str,
    start: Instant,
    done: AtomicU64,
    shown: bool,
    /// When the line was last written; `None` if there is none.
    last: Mutex<Option<Instant>>,
}

impl Progress {
    pub(super) fn new(when: When, verb: &'static str) -> Self {
        Self {
            verb,
            start: Instant::now(),
            done: AtomicU64::new(0),
            shown: match when {
                When::Auto => io::stderr().is_terminal(),
                When::Always => true,
                When::Never => false,
            },
            last: Mutex::new(None),
        }
    }

    /// Notes that one more is done.
    pub(super) fn advance(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.show_if_due();
    }

    /// Notes how many are done now.
    pub(super) fn set(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.show_if_due();
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// How many a second so far.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate for people, from counts far below 2^53"
    )]
    pub(super) fn rate(&self) -> f64 {
        self.done() as f64 / self.elapsed().as_secs_f64().max(0.001)
    }

    fn show_if_due(&self) {
        if !self.shown {
            return;
        }
        // Whoever comes while the line is written does without.
        let Ok(mut last) = self.last.try_lock() else {
            return;
        };
        let since = last.map_or_else(|| self.elapsed(), |last| last.elapsed());
        if since >= INTERVAL {
            *last = Some(Instant::now());
            self.show("\r", "");
        }
    }

    fn show(&self, before: &str, after: &str) {
        let mut err = io::stderr().lock();
        // Progress that cannot be shown is no reason to stop.
        let _ = write!(
            err,
            "{before}{} {}, {:.0}/s, {} s   {after}",
            self.done(),
            self.verb,
            self.rate(),
            self.elapsed().as_secs()
        );
        let _ = err.flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let was_shown = self.last.get_mut().is_ok_and(|last| last.is_some());
        if was_shown {
            self.show("\r", "\n");
        }
    }
}
