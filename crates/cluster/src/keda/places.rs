//! Places of connections: there are so many of them, and the connection that needs its place least gives it to the next.
//!
//! A client needs no credentials, and one that answers pings never seems dead. If those kept their places, a few dozen
//! of them would lock KEDA out. So a connection that has asked nothing about the group, or not for the longest time, is
//! closed when another one comes. KEDA asks at least each polling interval.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

/// All places.
#[derive(Clone, Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    taken: Taken,
}

/// The connections that have a place.
#[derive(Clone, Debug, Default)]
struct Taken(Arc<Mutex<Seats>>);

#[derive(Debug, Default)]
struct Seats {
    /// By the order in which the connections came.
    by_number: BTreeMap<u64, Seat>,
    /// No number is used twice. A connection that gives way keeps its number until it is dropped, and must not remove
    /// the seat of another one then.
    next: u64,
}

#[derive(Debug)]
struct Seat {
    worth: Worth,
    /// Tells the connection to end.
    leave: oneshot::Sender<()>,
}

/// How much a connection needs its place. The smallest gives way, and of equal ones the oldest.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
struct Worth {
    /// When it last asked about the group.
    asked: Option<Instant>,
    /// Whether it has begun as a client of HTTP/2 does.
    has_opened: bool,
}

/// The place of one connection. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    caller: Caller,
    leave: Leave,
    _permit: OwnedSemaphorePermit,
}

/// Whether a connection must end, because another one gets its place.
#[derive(Debug)]
enum Leave {
    /// It is told here.
    Waits(oneshot::Receiver<()>),
    Told,
    /// Nobody can tell it any more. That is no reason to end.
    Never,
}

/// Who asks: a connection, as requests know it.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    number: u64,
    taken: Taken,
}

impl Places {
    pub(super) fn new(count: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(count)),
            taken: Taken::default(),
        }
    }

    /// Takes a place. If all are taken, a connection ends first. Calls must follow each other.
    pub(super) async fn take(&self) -> io::Result<Place> {
        let free = self.free.clone();
        let permit = match free.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.taken.end_one();
                free.acquire_owned().await.map_err(io::Error::other)?
            }
        };
        let (leave, told) = oneshot::channel();
        Ok(Place {
            caller: self.taken.add(leave),
            leave: Leave::Waits(told),
            _permit: permit,
        })
    }
}

impl Taken {
    fn seats(&self) -> MutexGuard<'_, Seats> {
        // Each change is one step, so nothing is half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, leave: oneshot::Sender<()>) -> Caller {
        let mut seats = self.seats();
        let number = seats.next;
        seats.next += 1;
        let worth = Worth::default();
        seats.by_number.insert(number, Seat { worth, leave });
        let taken = self.clone();
        Caller { number, taken }
    }

    /// Tells the connection to end that needs its place least.
    fn end_one(&self) {
        let seats = &mut self.seats().by_number;
        let least = seats
            .iter()
            .min_by_key(|(number, seat)| (seat.worth, **number));
        let least = least.map(|(number, _)| *number);
        if let Some(seat) = least.and_then(|it| seats.remove(&it)) {
            // It may have ended by itself.
            let _ = seat.leave.send(());
        }
    }
}

impl Place {
    pub(super) fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// It has begun as a client of HTTP/2 does.
    pub(super) fn opened(&self) {
        self.caller.change(|it| it.has_opened = true);
    }

    /// Whether the connection must end. If not, the task of the context is woken when it must.
    pub(super) fn must_leave(&mut self, context: &mut Context<'_>) -> bool {
        if let Leave::Waits(told) = &mut self.leave
            && let Poll::Ready(told) = Pin::new(told).poll(context)
        {
            self.leave = told.map_or(Leave::Never, |()| Leave::Told);
        }
        matches!(self.leave, Leave::Told)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let seats = &mut self.caller.taken.seats().by_number;
        seats.remove(&self.caller.number);
    }
}

impl Caller {
    /// It has asked about the group.
    pub(super) fn asked(&self) {
        self.change(|it| it.asked = Some(Instant::now()));
    }

    fn change(&self, change: impl FnOnce(&mut Worth)) {
        if let Some(seat) = self.taken.seats().by_number.get_mut(&self.number) {
            change(&mut seat.worth);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;

    fn must_leave(place: &mut Place) -> bool {
        place.must_leave(&mut Context::from_waker(Waker::noop()))
    }

    /// Asks for a place once. `None` if none is free yet.
    fn try_take(taking: Pin<&mut impl Future<Output = io::Result<Place>>>) -> Option<Place> {
        match taking.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => Some(place.expect("a place is free")),
            Poll::Pending => None,
        }
    }

    /// Ends connections as they are told to, and returns which one has to.
    async fn next(places: &Places, open: &mut BTreeMap<u32, Place>, number: u32) -> Option<u32> {
        let taking = places.take();
        let mut ended = None;
        let place = {
            let mut taking = std::pin::pin!(taking);
            tokio::select! {
                biased;
                place = &mut taking => place,
                () = std::future::ready(()) => {
                    let told = open.iter_mut().find_map(|(number, place)| {
                        must_leave(place).then_some(*number)
                    });
                    ended = told;
                    open.remove(&told.expect("one is told to end"));
                    taking.await
                }
            }
        };
        open.insert(number, place.expect("a place is free"));
        ended
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_needs_its_place_least_gives_way() {
        let places = Places::new(4);
        let mut open = BTreeMap::new();
        for number in 0..4 {
            assert_eq!(next(&places, &mut open, number).await, None);
        }
        for number in [3, 1] {
            open[&number].opened();
            open[&number].caller().asked();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        open[&0].opened();
        // First those that have said nothing, then those that have asked nothing.
        assert_eq!(next(&places, &mut open, 4).await, Some(2));
        open[&4].opened();
        assert_eq!(next(&places, &mut open, 5).await, Some(0));
        open[&5].caller().asked();
        assert_eq!(next(&places, &mut open, 6).await, Some(4));
        open[&6].caller().asked();
        // Then the one that has not asked for the longest time.
        assert_eq!(next(&places, &mut open, 7).await, Some(3));
        open[&7].caller().asked();
        tokio::time::advance(Duration::from_secs(1)).await;
        open[&1].caller().asked();
        assert_eq!(next(&places, &mut open, 8).await, Some(5));
        // One that ends by itself leaves a place.
        open.remove(&8);
        assert_eq!(next(&places, &mut open, 9).await, None);
        assert_eq!(open.keys().copied().collect::<Vec<_>>(), [1, 6, 7, 9]);
    }

    /// The connection that gave way ends after the next one has come.
    #[tokio::test(start_paused = true)]
    async fn one_that_gives_way_late_leaves_the_place_of_the_next_one_alone() {
        let places = Places::new(3);
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(places.take().await.expect("a place is free"));
        }
        let [a, b, mut c] = <[Place; 3]>::try_from(open).expect("there are three");
        a.caller().asked();
        b.caller().asked();
        let mut taking = std::pin::pin!(places.take());
        assert!(try_take(taking.as_mut()).is_none());
        assert!(must_leave(&mut c));
        // Another one ends by itself before that.
        drop(a);
        let mut next = taking.await.expect("a place is free");
        drop(c);
        assert!(!must_leave(&mut next));
        // It has a seat: it gives way when it is its turn.
        let _last = places.take().await.expect("a place is free");
        assert!(try_take(std::pin::pin!(places.take())).is_none());
        assert!(must_leave(&mut next));
        // It stays so.
        assert!(must_leave(&mut next));
    }

    #[test]
    fn one_that_nobody_can_tell_goes_on() {
        let places = Places::new(1);
        let mut place = try_take(std::pin::pin!(places.take())).expect("a place is free");
        drop(places.taken.seats().by_number.pop_first());
        assert!(!must_leave(&mut place));
        assert!(!must_leave(&mut place));
    }
}
