//! Messages that were received together, while handlers are swift.
//!
//! A task for each message would cost more than the work of such a handler. So it is polled once where the messages
//! were received. One that waits goes on in a task of its own, and so does everything that is rare. What succeeded is
//! deleted together. While handlers are not swift, each message has its own task from the start: one that blocks its
//! thread keeps no other message waiting.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{Instrument as _, Span};

use super::handling::{Work, end_clean_up, handle, warn_unless_clean};
use super::keeper::needs_renewal;
use super::phase::Phase;
use super::settle::{Settlement, no_answer, settle_on, tries_until};
use super::shared::Shared;
use super::swiftness::SWIFT_MAX;
use crate::delivery::Boxed;
use crate::error::SourceError;
use crate::failure::Failure;
use crate::source::{Lease, Source};

/// A place for each message that has none of its own yet.
type Places = Option<OwnedSemaphorePermit>;

/// Begins the work of all messages, and starts tasks for what is left of it.
pub(super) fn begin_all<T: Send + Sync + 'static, S: Source>(
    shared: &Arc<Shared<T, S>>,
    leases: Vec<S::Lease>,
    places: &mut Places,
) {
    let mut done = Vec::with_capacity(leases.len());
    let attempt = |work: Arc<Work<T, S>>| async move { work.attempt().await };
    let mut slot = None;
    let mut now = Instant::now();
    let until = now + SWIFT_MAX;
    for lease in leases {
        shared.counters.received.increment();
        if now >= until || !shared.swiftness.is_expected() {
            let place = split(places, 1);
            shared.spawn(handle(shared.clone(), lease, place));
            continue;
        }
        // A policy that panics costs its message, which comes back, and no other.
        let begun = catch_unwind(AssertUnwindSafe(|| {
            begin(shared, lease, &mut now, attempt, &mut slot)
        }));
        match begun {
            Ok(Begun::Succeeded(one)) => done.push(one),
            Ok(Begun::Left(work, span, rest)) => {
                let place = split(places, 1);
                shared.spawn(go_on(work, rest, place).instrument(span));
            }
            Err(_) => drop(split(places, 1)),
        }
    }
    if !done.is_empty() {
        let places = shared.places_to_delete(split(places, done.len()));
        match S::Lease::COMPLETES_TOGETHER {
            true => shared.spawn(complete_together(shared.clone(), done, places)),
            false => shared.spawn(complete_apart(shared.clone(), done, places)),
        };
    }
}

fn split(places: &mut Places, count: usize) -> Places {
    places.as_mut().and_then(|places| places.split(count))
}

/// A message whose handlers all succeeded.
struct Succeeded<T: Send + Sync + 'static, S: Source> {
    work: Arc<Work<T, S>>,
    span: Span,
    handled_for: Duration,
}

impl<T: Send + Sync + 'static, S: Source> Succeeded<T, S> {
    /// The lease, if nobody else has the message any more.
    fn lease(&mut self) -> Option<&mut S::Lease> {
        let work = Arc::get_mut(&mut self.work)?;
        Arc::get_mut(&mut work.lease).map(Mutex::get_mut)
    }
}

enum Begun<T: Send + Sync + 'static, S: Source> {
    Succeeded(Succeeded<T, S>),
    Left(Arc<Work<T, S>>, Span, Rest),
}

/// What is left to do for a message.
enum Rest {
    Everything,
    /// Its handlers wait for something, since this time.
    Attempt(Boxed<'static, Result<(), Failure>>, Instant),
    Failure(Failure),
}

/// Where attempts run, one after the other: to make room for each costs more than a swift one. One that waits takes
/// the room with it.
type Slot<F> = Option<Pin<Box<OptionFuture<F>>>>;

/// Begins the work of a message: all of it, if nothing has to be waited for. Moves the time on, which costs to read.
fn begin<T: Send + Sync + 'static, S: Source, F>(
    shared: &Arc<Shared<T, S>>,
    lease: S::Lease,
    now: &mut Instant,
    attempt: impl Fn(Arc<Work<T, S>>) -> F,
    slot: &mut Slot<F>,
) -> Begun<T, S>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let began = *now;
    let ends_at = lease.ends_at();
    let mut work = Arc::new(Work::new(shared.clone(), lease));
    let span = work.span();
    let is_plain = shared.phase() == Phase::Running
        && !needs_renewal(began, ends_at, work.hint())
        && work.finished().is_none()
        && !work.is_exhausted();
    if !is_plain {
        return Begun::Left(work, span, Rest::Everything);
    }
    let mut running = slot.take().unwrap_or_else(|| Box::pin(None.into()));
    running.set(Some(attempt(work.clone())).into());
    // Nobody is woken: one that waits is polled again in its task.
    let mut context = Context::from_waker(Waker::noop());
    let polled = span.in_scope(|| {
        let poll = || running.as_mut().poll(&mut context);
        catch_unwind(AssertUnwindSafe(poll))
    });
    *now = Instant::now();
    let result = match polled {
        Ok(Poll::Pending) => {
            shared.swiftness.waits();
            let rest = Box::pin(running.map(of_attempt));
            return Begun::Left(work, span, Rest::Attempt(rest, began));
        }
        Ok(Poll::Ready(result)) => {
            *slot = Some(running);
            of_attempt(result)
        }
        Err(panic) => Err(Failure::of_panic(&*panic)),
    };
    let handled_for = now.duration_since(began);
    work.handled(handled_for);
    match result {
        Ok(()) => {
            // Unless a handler has passed it on.
            if let Some(work) = Arc::get_mut(&mut work) {
                work.forget_all();
            }
            Begun::Succeeded(Succeeded {
                work,
                span,
                handled_for,
            })
        }
        Err(failure) => Begun::Left(work, span, Rest::Failure(failure)),
    }
}

/// The result of an attempt, which was set before it was polled.
fn of_attempt(result: Option<Result<(), Failure>>) -> Result<(), Failure> {
    result.expect("an attempt was set")
}

async fn go_on<T: Send + Sync + 'static, S: Source>(
    work: Arc<Work<T, S>>,
    rest: Rest,
    place: Places,
) {
    match rest {
        Rest::Everything => work.run(place).await,
        Rest::Attempt(attempt, began) => work.run_attempt(began, attempt, place).await,
        Rest::Failure(failure) => work.failed(&failure, place).await,
    }
}

/// Deletes messages with a request for each. What fails is tried again for each.
async fn complete_apart<T: Send + Sync + 'static, S: Source>(
    shared: Arc<Shared<T, S>>,
    mut done: Vec<Succeeded<T, S>>,
    mut places: Places,
) {
    complete_those_in_use(&shared, &mut done, &mut places);
    let began = Instant::now();
    let Some(until) = first_end(began, &mut done) else {
        return;
    };
    let mut done: Vec<_> = done.into_iter().map(Some).collect();
    let mut completing: FuturesUnordered<_> = done
        .iter_mut()
        .enumerate()
        .map(|(index, slot)| {
            let completed = async move {
                let one = slot.as_mut()?;
                let span = one.span.clone();
                let outcome = one.lease()?.complete().instrument(span).await;
                Some((slot.take()?, outcome))
            };
            let completed = AssertUnwindSafe(completed).catch_unwind();
            completed.map(move |completed| (index, completed))
        })
        .collect();
    let mut panicked = BTreeSet::new();
    // One timer for all of them.
    let mut is_late = pin!(sleep_until(until));
    loop {
        let next = tokio::select! {
            biased;
            next = completing.next() => next,
            () = &mut is_late => None,
        };
        let Some((index, completed)) = next else {
            break;
        };
        let place = split(&mut places, 1);
        match completed {
            Ok(Some((one, outcome))) => end(one, outcome, (began, began.elapsed()), place),
            // A client that panics costs its message, which comes back, and no other.
            Ok(None) | Err(_) => {
                panicked.insert(index);
            }
        }
    }
    drop(completing);
    let left = done.into_iter().enumerate();
    for (_, one) in left.filter(|(index, _)| !panicked.contains(index)) {
        let Some(one) = one else {
            continue;
        };
        let place = split(&mut places, 1);
        end(one, Err(no_answer()), (began, began.elapsed()), place);
    }
}

/// Handlers have passed such deliveries on, and they may be in use: each is completed in a task of its own.
fn complete_those_in_use<T: Send + Sync + 'static, S: Source>(
    shared: &Arc<Shared<T, S>>,
    done: &mut Vec<Succeeded<T, S>>,
    places: &mut Places,
) {
    for one in done.extract_if(.., |it| it.lease().is_none()) {
        let place = split(places, 1);
        let completed = async move {
            let _place = place;
            one.work.succeeded(one.handled_for).await;
        };
        shared.spawn(completed.instrument(one.span));
    }
}

/// Until when the first try to complete them may take, by the lease that ends first. `None` if there are none.
fn first_end<T: Send + Sync + 'static, S: Source>(
    now: Instant,
    done: &mut [Succeeded<T, S>],
) -> Option<Instant> {
    let leases = done.iter_mut().filter_map(Succeeded::lease);
    leases.map(|lease| tries_until(now, &*lease)).min()
}

/// Deletes messages with one call. What fails is tried again for each.
async fn complete_together<T: Send + Sync + 'static, S: Source>(
    shared: Arc<Shared<T, S>>,
    mut done: Vec<Succeeded<T, S>>,
    mut places: Places,
) {
    complete_those_in_use(&shared, &mut done, &mut places);
    let began = Instant::now();
    let Some(until) = first_end(began, &mut done) else {
        return;
    };
    let leases: Vec<_> = done.iter_mut().filter_map(Succeeded::lease).collect();
    let outcomes = timeout_at(until, S::Lease::complete_all(leases)).await;
    let took = began.elapsed();
    let mut outcomes = outcomes.unwrap_or_default().into_iter();
    for one in done {
        let outcome = outcomes.next().unwrap_or_else(|| Err(no_answer()));
        let place = split(&mut places, 1);
        end(one, outcome, (began, took), place);
    }
}

/// What follows the first try to delete a message, which began then and took so long. A task does what has to be
/// waited for.
fn end<T: Send + Sync + 'static, S: Source>(
    one: Succeeded<T, S>,
    outcome: Result<(), SourceError>,
    tried: (Instant, Duration),
    place: Places,
) {
    let shared = one.work.shared.clone();
    // A policy that panics costs what follows the delete of this message, and of no other.
    let rest = catch_unwind(AssertUnwindSafe(|| rest_of(one, outcome, tried)));
    if let Ok(Some((rest, span))) = rest {
        let rest = async move {
            let _place = place;
            rest.await;
        };
        shared.spawn(rest.instrument(span));
    }
}

fn rest_of<T: Send + Sync + 'static, S: Source>(
    one: Succeeded<T, S>,
    outcome: Result<(), SourceError>,
    (began, took): (Instant, Duration),
) -> Option<(Boxed<'static, ()>, Span)> {
    let Succeeded {
        work,
        span,
        handled_for,
    } = one;
    work.shared.observe_answer(took, outcome.as_ref().err());
    let Err(error) = outcome else {
        return clean_up(work, handled_for, &span).map(|rest| (rest, span));
    };
    let rest = async move {
        let settlement = Settlement::Complete;
        let mut lease = work.lease.lock().await;
        let until = tries_until(began, &*lease);
        let settled = settle_on(&work.shared, &mut *lease, settlement, until, error).await;
        drop(lease);
        work.ended(settled, handled_for).await;
    };
    Some((Box::pin(rest), span))
}

/// After the delete of a message. Returns what has to be waited for.
fn clean_up<T: Send + Sync + 'static, S: Source>(
    work: Arc<Work<T, S>>,
    handled_for: Duration,
    span: &Span,
) -> Option<Boxed<'static, ()>> {
    let Some(mut cleaning) = work.begin_clean_up() else {
        work.tell_completed(handled_for);
        return None;
    };
    let mut context = Context::from_waker(Waker::noop());
    match span.in_scope(|| cleaning.poll_unpin(&mut context)) {
        Poll::Ready(cleaned) => {
            warn_unless_clean(cleaned.is_ok());
            work.tell_completed(handled_for);
            None
        }
        Poll::Pending => Some(Box::pin(async move {
            end_clean_up(cleaning).await;
            work.tell_completed(handled_for);
        })),
    }
}
