//! Places of connections: there are so many of them, and the connection that needs its place least gives it to the next.
//!
//! A client needs no credentials, and one that answers pings never seems dead. If those kept their places, a few dozen
//! of them would lock KEDA out. So a connection that has asked nothing about the group, or not for the longest time, is
//! closed when another one comes. KEDA asks at least each polling interval.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

/// All places.
#[derive(Clone, Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    taken: Taken,
}

/// The connections that have a place, by the order in which they came.
#[derive(Clone, Debug, Default)]
struct Taken(Arc<Mutex<BTreeMap<u64, Seat>>>);

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
    /// Resolves when the connection is to end.
    pub(super) leave: oneshot::Receiver<()>,
    _permit: OwnedSemaphorePermit,
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
            leave: told,
            _permit: permit,
        })
    }
}

impl Taken {
    fn seats(&self) -> MutexGuard<'_, BTreeMap<u64, Seat>> {
        // Each change is one step, so nothing is half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, leave: oneshot::Sender<()>) -> Caller {
        let mut seats = self.seats();
        let last = seats.last_key_value();
        let number = last.map_or(0, |(last, _)| last + 1);
        let worth = Worth::default();
        seats.insert(number, Seat { worth, leave });
        let taken = self.clone();
        Caller { number, taken }
    }

    /// Tells the connection to end that needs its place least.
    fn end_one(&self) {
        let mut seats = self.seats();
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
}

impl Drop for Place {
    fn drop(&mut self) {
        self.caller.taken.seats().remove(&self.caller.number);
    }
}

impl Caller {
    /// It has asked about the group.
    pub(super) fn asked(&self) {
        self.change(|it| it.asked = Some(Instant::now()));
    }

    fn change(&self, change: impl FnOnce(&mut Worth)) {
        if let Some(seat) = self.taken.seats().get_mut(&self.number) {
            change(&mut seat.worth);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
                        place.leave.try_recv().is_ok().then_some(*number)
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
}
