//! The files that may be open at once, and who of those that are served may have how many.

use std::sync::Arc;

use kew_listen::{Place, Share};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Files that the server itself may have open, besides connections that are served: above all its log.
const OWN_FILES_MAX: u64 = 512;

/// Connections of all listeners that are being told that there is no room, each with a file of those that
/// the server keeps for itself. One more is closed without a word.
const TURNED_AWAY_MAX: usize = 64;

/// The part of the places that each protocol has in any case: one of so many.
const GUARANTEED_PART: usize = 4;

/// Raises the limit of open files as far as the process may, and answers it: a connection that took
/// the last one would leave none to the log.
pub(crate) fn raise() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    current.unwrap_or(u64::MAX)
}

/// The places of a protocol's connections. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    share: Share,
    turned_away: Arc<Semaphore>,
}

impl Places {
    /// A place for a connection that is to be served.
    pub(crate) fn take(&self) -> Option<Place> {
        self.share.take()
    }

    /// A place for one that is to be told that there is none.
    pub(crate) fn take_to_turn_away(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turned_away).try_acquire_owned().ok()
    }
}

/// The places of each protocol.
#[derive(Debug)]
pub(crate) struct SharedPlaces {
    pub(crate) queue: Places,
    pub(crate) bus: Places,
}

/// Shares what files there are between the protocols, and lowers their limits of connections to what
/// each may have at most. Each is guaranteed a quarter, and may have all that the other is not guaranteed
/// and does not use. If Service Bus is not served, all of it is for Queue Storage.
pub(crate) fn share(
    open_files_max: u64,
    queue_max: &mut usize,
    bus_max: &mut usize,
    has_bus: bool,
) -> SharedPlaces {
    let room = open_files_max
        .saturating_sub(OWN_FILES_MAX)
        .max(OWN_FILES_MAX / 2);
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let guaranteed = room / GUARANTEED_PART;
    let of_bus = if has_bus { guaranteed } else { 0 };
    let [queue, bus] = Share::of(room, [guaranteed, of_bus]);
    let for_queue = queue.count_max();
    let for_bus = if has_bus { bus.count_max() } else { 0 };
    if for_queue < *queue_max || (has_bus && for_bus < *bus_max) {
        tracing::warn!(
            "the limit of {open_files_max} open files leaves room for {room} connections, of Queue \
             Storage for {for_queue} at most and of Service Bus for {for_bus}"
        );
    }
    *queue_max = for_queue.min(*queue_max);
    *bus_max = for_bus.min(*bus_max);
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    let places = |share| Places {
        share,
        turned_away: Arc::clone(&turned_away),
    };
    SharedPlaces {
        queue: places(queue),
        bus: places(bus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(open_files_max: u64, has_bus: bool, queue: usize, bus: usize) -> SharedPlaces {
        let (mut queue_max, mut bus_max) = (10_000, 10_000);
        let places = share(open_files_max, &mut queue_max, &mut bus_max, has_bus);
        assert_eq!((queue_max, bus_max), (queue, bus), "{open_files_max}");
        places
    }

    #[test]
    fn with_20000_files_each_protocol_may_have_10000_connections() {
        let places = check(20_000, true, 10_000, 10_000);
        let bus: Vec<_> = (0..10_000).map_while(|_| places.bus.take()).collect();
        assert_eq!(bus.len(), 10_000);
        let queue = std::iter::from_fn(|| places.queue.take());
        assert_eq!(queue.collect::<Vec<_>>().len(), 9_488);
    }

    #[test]
    fn with_few_files_each_has_its_part_and_the_log_keeps_its_own() {
        let places = check(1024, true, 384, 384);
        let bus: Vec<_> = std::iter::from_fn(|| places.bus.take()).collect();
        let queue: Vec<_> = std::iter::from_fn(|| places.queue.take()).collect();
        assert_eq!((bus.len(), queue.len()), (384, 128));
        check(64, true, 192, 192);
        check(1024, false, 512, 0);
        check(u64::MAX, true, 10_000, 10_000);
    }
}
