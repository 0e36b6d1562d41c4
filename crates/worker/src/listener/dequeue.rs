//! A dequeue task: receives messages, and has them handled.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use kew_client::ErrorKind;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};

use super::batch::begin_all;
use super::events::Event;
use super::handling::handle;
use super::phase::Phase;
use super::shared::Shared;
use super::watcher::RESTART_PAUSE;
use crate::error::SourceError;
use crate::policy::{IdleAnswer, IdleState};
use crate::source::{Ask, Intake, Source};

/// How long a task that has few places waits for more of them, so that it receives batches. Those that wait for
/// messages do so only while handlers are swift: others would leave places without work.
const GATHERING: Duration = Duration::from_millis(5);

/// How long a task may take to return what it received and did not handle.
const CLOSING_MAX: Duration = Duration::from_secs(10);

/// Starts dequeue tasks that are already counted. With more than ten they begin apart.
pub(super) fn start<T: Send + Sync + 'static, S: Source>(shared: &Arc<Shared<T, S>>, count: u32) {
    let spread = match count {
        0..=10 => Duration::ZERO,
        11.. => Duration::from_millis(100),
    };
    for number in 0..count {
        let delay = spread * number / count;
        let task = Dequeue::new(shared.clone());
        shared.spawn(supervise(task, delay));
    }
}

/// Runs a task, and another one in its place if it ends by a panic of a policy or of a source.
async fn supervise<T: Send + Sync + 'static, S: Source>(
    mut task: Dequeue<T, S>,
    mut delay: Duration,
) {
    loop {
        let shared = task.shared.clone();
        if AssertUnwindSafe(task.run(delay))
            .catch_unwind()
            .await
            .is_ok()
        {
            return;
        }
        tracing::error!(target: "kew::worker", "a dequeue task panicked");
        // The one that panicked is not counted any more.
        let may_start = shared.phase() == Phase::Running;
        if !may_start || shared.tasks.start(1, shared.settings.tasks_max) == 0 {
            return;
        }
        task = Dequeue::new(shared);
        delay = RESTART_PAUSE;
    }
}

struct Dequeue<T: Send + Sync + 'static, S: Source> {
    shared: Arc<Shared<T, S>>,
    phase: watch::Receiver<Phase>,
    intake: Option<S::Intake>,
    /// Places for messages that are not received yet.
    places: Option<OwnedSemaphorePermit>,
    idle_count: u32,
    failures: u32,
    /// Since when messages are waited for, of a source that waits.
    waits_since: Option<Instant>,
    /// It is not counted any more.
    has_ended: bool,
}

/// What came of one look into the queue.
enum Look<L> {
    Messages(Vec<L>),
    Empty {
        answer: IdleAnswer,
        /// The source has waited for the sleep of the answer already.
        has_waited: bool,
    },
    Failed(SourceError),
    Stopped,
}

impl<T: Send + Sync + 'static, S: Source> Dequeue<T, S> {
    fn new(shared: Arc<Shared<T, S>>) -> Self {
        shared.receives.begin();
        Self {
            phase: shared.phase.subscribe(),
            shared,
            intake: None,
            places: None,
            idle_count: 0,
            failures: 0,
            waits_since: None,
            has_ended: false,
        }
    }

    async fn run(mut self, delay: Duration) {
        if self.pause(delay).await {
            while self.turn().await {}
        }
        self.end();
        if let Some(intake) = self.intake.take() {
            match timeout(CLOSING_MAX, intake.close()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(target: "kew::worker", %error, "messages return when their leases end");
                }
                Err(_) => {
                    tracing::debug!(target: "kew::worker", "closing a source took too long");
                }
            }
        }
    }

    /// Looks into the queue once. Whether the task goes on.
    async fn turn(&mut self) -> bool {
        // To wait on is no request.
        let pause = match self.waits_since {
            None => self.shared.pause(),
            Some(_) => Duration::ZERO,
        };
        if !self.take_places().await || !self.pause(pause).await {
            return false;
        }
        // Announcements that come later are not taken into account by this look.
        let generation = self.shared.tasks.generation();
        match self.look().await {
            Look::Messages(leases) => {
                self.received(leases).await;
                true
            }
            Look::Empty { answer, has_waited } => {
                self.idle_count = self.idle_count.saturating_add(1);
                if answer.ends && self.shared.tasks.try_end(generation) {
                    self.has_ended = true;
                    return false;
                }
                if has_waited {
                    return true;
                }
                self.places = None;
                self.idle(answer.sleep).await
            }
            Look::Failed(error) => self.failed(&error).await,
            Look::Stopped => false,
        }
    }

    async fn look(&mut self) -> Look<S::Lease> {
        let shared = self.shared.clone();
        let mut phase = self.phase.clone();
        if S::Intake::WAITS {
            self.waits_since.get_or_insert_with(Instant::now);
        }
        let intake = match &mut self.intake {
            Some(intake) => intake,
            none => {
                let opened = tokio::select! {
                    biased;
                    _ = phase.wait_for(|it| *it != Phase::Running) => return Look::Stopped,
                    opened = shared.source.open() => opened,
                };
                match opened {
                    Ok(intake) => none.insert(intake),
                    Err(error) => return Look::Failed(error),
                }
            }
        };
        let count = self.places.as_ref().map_or(1, |it| it.num_permits());
        let ask = Ask {
            count: u32::try_from(count).unwrap_or(u32::MAX),
            lease: shared.lease(),
        };
        let state = IdleState {
            source: shared.source.name(),
            idle_count: self.idle_count.saturating_add(1),
            chance: shared.chance.fraction(),
        };
        let answer = shared.settings.idle.answer(&state);
        let began = Instant::now();
        let got = if S::Intake::WAITS {
            let received = tokio::select! {
                biased;
                _ = phase.wait_for(|it| *it != Phase::Running) => return Look::Stopped,
                received = timeout(answer.sleep, intake.receive(ask)) => received,
            };
            match received {
                Ok(got) => got,
                Err(_) => {
                    let has_waited = true;
                    return Look::Empty { answer, has_waited };
                }
            }
        } else {
            // Not to be dropped: its messages would be hidden from everybody.
            let got = intake.receive(ask).await;
            shared.observe_request(began, got.as_ref().err());
            got
        };
        match got {
            Ok(leases) if leases.is_empty() => {
                shared.counters.empty_polls.increment();
                let has_waited = false;
                Look::Empty { answer, has_waited }
            }
            Ok(leases) => Look::Messages(leases),
            Err(error) => Look::Failed(error),
        }
    }

    /// Has the messages handled. Those of an ordered source are handled one by one, before the next look.
    async fn received(&mut self, leases: Vec<S::Lease>) {
        self.failures = 0;
        self.waits_since = None;
        if std::mem::take(&mut self.idle_count) > 0 {
            self.shared.woken.notify_one();
        }
        if !S::IS_ORDERED {
            begin_all(&self.shared, leases, &mut self.places);
        } else {
            for lease in leases {
                self.shared.counters.received.increment();
                let place = self.places.as_mut().and_then(|places| places.split(1));
                let handled = self.shared.spawn(handle(self.shared.clone(), lease, place));
                // A task that panicked or was aborted has ended too.
                let _ = handled.await;
            }
        }
        // A source that waits may have messages on their way for the places that are left. Otherwise another task can
        // make a batch of them.
        let keeps = S::Intake::WAITS || !self.shared.swiftness.is_expected();
        if !keeps || count_of(&self.places) == 0 {
            self.places = None;
        }
    }

    async fn failed(&mut self, error: &SourceError) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.places = None;
        if error.kind() != ErrorKind::Refused {
            // Its answer may have been lost, with messages that are leased now.
            self.shared.comes_back(self.shared.lease());
        }
        let pause = self.shared.request_delay(error, self.failures);
        tracing::warn!(
            target: "kew::worker",
            queue = &*self.shared.source.name().queue,
            %error,
            ?pause,
            "a request failed"
        );
        match self.waits_since.take() {
            // The service has said nothing of use since then: as slow as a request that timed out.
            Some(since) if error.kind() != ErrorKind::Refused && !error.is_busy() => {
                self.shared.observe_request(since, Some(error));
            }
            Some(_) => self.shared.counters.failed_requests.increment(),
            None => {}
        }
        self.shared.emit(|| Event::RequestFailed {
            error: error.to_string(),
            pause,
        });
        self.pause(pause).await
    }

    /// Takes places for a batch: at least one, and those that are free. `false` if the listener stops.
    async fn take_places(&mut self) -> bool {
        let batch_size = self.shared.settings.batch_size as usize;
        let batch_size = batch_size.min(self.shared.settings.handlers_max);
        let is_taken = match self.places.is_some() {
            true => {
                // What waits for messages is not kept from them while others may hold the missing places.
                let least = if S::Intake::WAITS { 1 } else { batch_size / 4 };
                self.take_more(least, batch_size).await;
                true
            }
            false => self.take_first(batch_size).await,
        };
        is_taken && self.shared.phase() == Phase::Running
    }

    /// The same of a task that has none.
    async fn take_first(&mut self, batch_size: usize) -> bool {
        let shared = self.shared.clone();
        // One task at a time: otherwise each gets a few of the places that come back, and receives few messages.
        let _turn = tokio::select! {
            biased;
            _ = self.phase.wait_for(|it| *it != Phase::Running) => return false,
            turn = shared.turn.lock() => turn,
        };
        let acquired = tokio::select! {
            biased;
            _ = self.phase.wait_for(|it| *it != Phase::Running) => return false,
            acquired = shared.places.clone().acquire_owned() => acquired,
        };
        // It is never closed.
        self.places = acquired.ok();
        // A request that asks for one message costs as much as one that asks for many.
        let least = match (S::Intake::WAITS, shared.swiftness.is_expected()) {
            // Places come back soon.
            (_, true) => batch_size,
            (false, false) => batch_size / 4,
            (true, false) => 1,
        };
        self.take_more(least, batch_size).await;
        self.places.is_some()
    }

    /// Adds places, up to a batch: those that are free, and for a short time also those that come back until there are
    /// so many.
    async fn take_more(&mut self, least: usize, batch_size: usize) {
        let shared = &self.shared;
        take_ready(shared, &mut self.places, batch_size);
        let missing = least.saturating_sub(count_of(&self.places));
        if missing > 0 {
            let missing = u32::try_from(missing).unwrap_or(u32::MAX);
            let more = shared.places.clone().acquire_many_owned(missing);
            if let Ok(Ok(more)) = timeout(GATHERING, more).await {
                add(&mut self.places, more);
                take_ready(shared, &mut self.places, batch_size);
            }
        }
    }

    /// Sleeps. `false` if the listener stops.
    async fn pause(&mut self, pause: Duration) -> bool {
        if pause.is_zero() {
            return self.shared.phase() == Phase::Running;
        }
        tokio::select! {
            biased;
            _ = self.phase.wait_for(|it| *it != Phase::Running) => false,
            () = sleep(pause) => true,
        }
    }

    /// Sleeps until work is announced, and not longer than this. `false` if the listener stops.
    async fn idle(&mut self, longest: Duration) -> bool {
        tokio::select! {
            biased;
            _ = self.phase.wait_for(|it| *it != Phase::Running) => false,
            () = self.shared.work.notified() => true,
            () = sleep(longest) => true,
        }
    }

    fn end(&mut self) {
        if !self.has_ended {
            self.has_ended = true;
            self.shared.tasks.end();
        }
        let active = self.shared.tasks.active();
        self.shared.emit(|| Event::TaskEnded { active });
        self.places = None;
    }
}

/// Takes the places that are free now, up to a batch.
fn take_ready<T, S: Source>(
    shared: &Shared<T, S>,
    places: &mut Option<OwnedSemaphorePermit>,
    batch_size: usize,
) {
    let missing = batch_size.saturating_sub(count_of(places));
    let ready = missing.min(shared.places.available_permits());
    let ready = u32::try_from(ready).unwrap_or(u32::MAX);
    // Others may have taken them meanwhile.
    if ready > 0
        && let Ok(more) = shared.places.clone().try_acquire_many_owned(ready)
    {
        add(places, more);
    }
}

fn count_of(places: &Option<OwnedSemaphorePermit>) -> usize {
    places.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
}

fn add(places: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match places {
        Some(places) => places.merge(more),
        None => *places = Some(more),
    }
}

/// So that the count is right whatever ends a task.
impl<T: Send + Sync + 'static, S: Source> Drop for Dequeue<T, S> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.tasks.end();
        }
        self.shared.receives.end();
    }
}
