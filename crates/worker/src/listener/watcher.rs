//! The one task of a listener that wakes up dequeue tasks: at announcements, at work that comes to an idle queue,
//! and from time to time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::dequeue;
use super::events::Event;
use super::phase::Phase;
use super::shared::Shared;
use crate::error::SourceError;
use crate::push::{DynAnnouncements, Heard};
use crate::source::Source;

/// How long a depth is waited for, because nothing else is heard meanwhile.
const DEPTH_MAX: Duration = Duration::from_secs(5);

/// A time that does not come.
const NEVER: Duration = Duration::from_hours(24 * 365);

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
            match &mut push {
                Some(push) => hear(&shared, push.as_mut()).await,
                None => loop {
                    shared.woken.notified().await;
                    wake_up(&shared).await;
                },
            }
        } => {}
    }
    shared.tasks.set_push(false);
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
                // Work may have come while nobody heard of it.
                recheck(shared).await;
                hear_until_error(shared, push, &mut failures).await
            }
            Err(error) => error,
        };
        shared.tasks.set_push(false);
        ensure_polling(shared);
        failures = failures.saturating_add(1);
        let pause = shared.request_delay(&error, failures);
        tracing::warn!(target: "kew::worker", %error, ?pause, "push does not work: polling");
        let resumes_at = Instant::now() + pause;
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
    let every = shared.settings.recheck.unwrap_or(NEVER);
    let mut rechecks_at = Instant::now() + every;
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
            () = sleep_until(rechecks_at) => {
                recheck(shared).await;
                rechecks_at = Instant::now() + every;
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
