//! How a listener ends: in two steps with a deadline each.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::phase::Phase;
use super::shared::{Shared, after};
use crate::source::Source;

/// How long a listener may take to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// How long handlers may take to finish. Default 20 s.
    pub finish_within: Duration,
    /// After that handlers are dropped, and their messages are returned for so long. Default 5 s. What is still
    /// there then is dropped too, and comes back when its lease ends.
    ///
    /// A message goes back once all receives of the listener have ended, so that none of them gets it again. For those
    /// it waits at most 1 s, and at most half of this time.
    pub return_within: Duration,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            finish_within: Duration::from_secs(20),
            return_within: Duration::from_secs(5),
        }
    }
}

/// How a listener stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// Messages that were completed while it stopped.
    pub completed: u64,
    /// Messages that were returned unfinished.
    pub returned: u64,
    /// Tasks that were dropped after both deadlines. Their messages come back when their leases end.
    pub dropped_tasks: usize,
}

/// The one stop of a listener.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    has_begun: AtomicBool,
    report: watch::Sender<Option<StopReport>>,
}

impl Stopping {
    pub(super) async fn run<T: Send + Sync + 'static, S: Source>(
        &self,
        shared: &Arc<Shared<T, S>>,
        stop: Stop,
    ) -> StopReport {
        let mut report = self.report.subscribe();
        if !self.has_begun.swap(true, Ordering::SeqCst) {
            // A task of its own: it goes on if this future is dropped.
            let (shared, told) = (shared.clone(), self.report.clone());
            tokio::spawn(async move {
                // A policy that panics must not leave others waiting for the end.
                let stopped = AssertUnwindSafe(stop_shared(&shared, stop)).catch_unwind();
                let report = stopped.await.unwrap_or_default();
                shared.advance(Phase::Aborted);
                told.send_replace(Some(report));
            });
        }
        let told = report.wait_for(Option::is_some).await;
        told.ok().and_then(|report| *report).unwrap_or_default()
    }
}

async fn stop_shared<T: Send + Sync + 'static, S: Source>(
    shared: &Shared<T, S>,
    stop: Stop,
) -> StopReport {
    shared.receives.stops_within(stop.return_within);
    shared.advance(Phase::Finishing);
    let before = shared.state();
    let mut running = shared.running.subscribe();
    let finishes_at = after(Instant::now(), stop.finish_within);
    let mut dropped_tasks = 0;
    for (phase, until) in [
        (Phase::Finishing, finishes_at),
        (Phase::Returning, after(finishes_at, stop.return_within)),
    ] {
        shared.advance(phase);
        let all_ended = running.wait_for(|running| *running == 0);
        if timeout_at(until, all_ended).await.is_ok() {
            break;
        }
        dropped_tasks = *shared.running.borrow();
    }
    if *shared.running.borrow() == 0 {
        dropped_tasks = 0;
    }
    shared.advance(Phase::Aborted);
    let after = shared.state();
    StopReport {
        completed: after.completed - before.completed,
        returned: after.returned - before.returned,
        dropped_tasks,
    }
}
