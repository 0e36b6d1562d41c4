//! The one task of a listener that wakes up dequeue tasks: at announcements, at work that comes to an idle queue,
//! and from time to time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::dequeue;
use super::events::Event;
use super::phase::Phase;
use super::shared::{Shared, after};
use crate::error::SourceError;
use crate::push::{DynAnnouncements, Heard};
use crate::source::Source;

/// How long a depth is waited for, because nothing else is heard meanwhile.
const DEPTH_MAX: Duration = Duration::from_secs(5);

/// Looks into the queue while announcers may not know of the listener.
const UNKNOWN_LOOKS: u32 = 4;

/// How long push may take to end.
const CLOSING_MAX: Duration = Duration::from_secs(5);

/// The pause after a panic of a policy or of push.
pub(super) const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Runs until the listener stops.
pub(super) async fn watch<T: Send + Sync + 'static, S: Source>(
    shared: Arc<Shared<T, S>>,
    mut push: Option<Box<dyn DynAnnouncements>>,
) {
    let mut phase = shared.phase.subscribe();
    tokio::select! {
        biased;
        _ = phase.wait_for(|phase| *phase != Phase::Running) => {}
        () = async {
            loop {
                let watched = watch_once(&shared, push.as_deref_mut());
                // It ends by a panic of a policy or of push only: the listener polls, and then tries again.
                let _ = AssertUnwindSafe(watched).catch_unwind().await;
                tracing::error!(target: "kew::worker", "the task that wakes up others panicked");
                shared.tasks.set_push(false);
                ensure_polling(&shared);
                sleep(RESTART_PAUSE).await;
            }
        } => {}
    }
    shared.tasks.set_push(false);
    if let Some(push) = &mut push
        && timeout(CLOSING_MAX, push.close_boxed()).await.is_err()
    {
        tracing::warn!(target: "kew::worker", "closing push took too long");
    }
}

async fn watch_once<T: Send + Sync + 'static, S: Source>(
    shared: &Arc<Shared<T, S>>,
    push: Option<&mut (dyn DynAnnouncements + 'static)>,
) {
    match push {
        Some(push) => hear(shared, push).await,
        None => loop {
            shared.woken.notified().await;
            wake_up(shared).await;
        },
    }
}

/// Hears announcements for ever, and has a task poll while that does not work.
async fn hear<T: Send + Sync + 'static, S: Source>(
    shared: &Arc<Shared<T, S>>,
    push: &mut dyn DynAnnouncements,
) {
    let mut failures = 0;
    loop {
        let error = match push.ready_boxed().await {
            Ok(()) => {
                shared.tasks.set_push(true);
                // Work may have come while nobody heard of it, and may come before announcers know of it.
                recheck(shared).await;
                let unknown_for = push.unknown_for_dyn();
                let looks = if unknown_for.is_zero() {
                    0
                } else {
                    UNKNOWN_LOOKS
                };
                for part in 1..=looks {
                    shared.comes_back(unknown_for / UNKNOWN_LOOKS * part);
                }
                hear_until_error(shared, push, &mut failures).await
            }
            Err(error) => error,
        };
        shared.tasks.set_push(false);
        ensure_polling(shared);
        failures = failures.saturating_add(1);
        let pause = shared.request_delay(&error, failures);
        tracing::warn!(target: "kew::worker", %error, ?pause, "push does not work: polling");
        let resumes_at = after(Instant::now(), pause);
        loop {
            tokio::select! {
                () = sleep_until(resumes_at) => break,
                () = shared.woken.notified() => wake_up(shared).await,
            }
        }
    }
}

async fn hear_until_error<T: Send + Sync + 'static, S: Source>(
    shared: &Arc<Shared<T, S>>,
    push: &mut dyn DynAnnouncements,
    failures: &mut u32,
) -> SourceError {
    let every = shared.settings.recheck.unwrap_or(Duration::MAX);
    let mut rechecks_at = after(Instant::now(), every);
    loop {
        tokio::select! {
            heard = push.next_boxed() => {
                match heard {
                    Ok(Heard::Work(announcement)) => {
                        if announcement.is_for(shared.source.name()) {
                            shared.counters.announcements.increment();
                            announced(shared);
                        }
                    }
                    Ok(Heard::Missed) => recheck(shared).await,
                    Err(error) => return error,
                }
                // It works: the next failure is the first one.
                *failures = 0;
            }
            () = shared.woken.notified() => wake_up(shared).await,
            () = shared.came_back() => announced(shared),
            () = sleep_until(rechecks_at) => {
                recheck(shared).await;
                rechecks_at = after(Instant::now(), every);
            }
        }
    }
}

/// Work was announced: at least one task looks at once, and others as the depth says.
pub(super) fn announced<T: Send + Sync + 'static, S: Source>(shared: &Arc<Shared<T, S>>) {
    shared.tasks.announce();
    ensure_polling(shared);
    // One that sleeps looks at once.
    shared.work.notify_one();
    shared.woken.notify_one();
}

fn ensure_polling<T: Send + Sync + 'static, S: Source>(shared: &Arc<Shared<T, S>>) {
    let started = shared.tasks.start_to(1, shared.settings.tasks_max);
    dequeue::start(shared, started);
}

/// Looks whether there is work that nobody announced. No task ends meanwhile without another look.
async fn recheck<T: Send + Sync + 'static, S: Source>(shared: &Arc<Shared<T, S>>) {
    shared.tasks.announce();
    match depth(shared).await {
        Some(0) => {}
        Some(_) | None => announced(shared),
    }
}

async fn depth<T: Send + Sync + 'static, S: Source>(shared: &Shared<T, S>) -> Option<u64> {
    match timeout(DEPTH_MAX, shared.read_depth()).await {
        Ok(Ok(depth)) => depth,
        Ok(Err(error)) => {
            tracing::warn!(target: "kew::worker", %error, "the depth of the queue is not known");
            None
        }
        Err(_) => None,
    }
}

/// Starts as many tasks as the policy wants for the depth, less those that are active. None for an empty queue.
async fn wake_up<T: Send + Sync + 'static, S: Source>(shared: &Arc<Shared<T, S>>) {
    shared.counters.wake_ups.increment();
    let depth = depth(shared).await;
    let settings = &shared.settings;
    let target = match depth {
        // Others took the work.
        Some(0) => 0,
        depth => settings.wake_up.target(depth),
    };
    let started = shared.tasks.start_to(target, settings.tasks_max);
    dequeue::start(shared, started);
    shared.emit(|| Event::WokeUp { depth, started });
}
