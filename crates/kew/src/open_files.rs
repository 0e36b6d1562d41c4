//! The limit of open files, and how many each protocol may use for connections.

use std::sync::Arc;

use kew_listen::{Share, ShareLimits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Files that the server itself may open, besides connections: above all its log.
const OWN_FILES_MAX: u64 = 512;

/// How many connections of all listeners may wait for the answer that there is no room. Each
/// takes one of the server's own files. One more is closed at once.
const TURNED_AWAY_MAX: usize = 64;

/// The part of the places that each protocol is guaranteed: a quarter.
const GUARANTEED_PART: usize = 4;

/// Raises the limit of open files as far as the process may, and returns it: a connection that took
/// the last file would leave none for the log.
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

/// Places for connections that get the answer that there is no room. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct TurnedAwayPlaces(Arc<Semaphore>);

impl TurnedAwayPlaces {
    /// A place for one such connection.
    pub(crate) fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

/// The places of each protocol.
#[derive(Debug)]
pub(crate) struct SharedPlaces {
    pub(crate) queue: Share,
    pub(crate) bus: Share,
    pub(crate) turned_away: TurnedAwayPlaces,
}

/// Divides the available files between the protocols, which have `queue_max` and `bus_max`
/// connections at most. Each is guaranteed a quarter, and may also use what the other neither is
/// guaranteed nor uses. If Service Bus is off, Queue Storage gets everything.
pub(crate) fn share(
    open_files_max: u64,
    queue_max: usize,
    bus_max: usize,
    has_bus: bool,
) -> SharedPlaces {
    let room = open_files_max
        .saturating_sub(OWN_FILES_MAX)
        .max(OWN_FILES_MAX / 2);
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let guaranteed = room / GUARANTEED_PART;
    let limits = |guaranteed, count_max| ShareLimits {
        guaranteed,
        count_max,
    };
    let of_bus = match has_bus {
        true => limits(guaranteed, bus_max),
        false => limits(0, 0),
    };
    let [queue, bus] = Share::of(room, [limits(guaranteed, queue_max), of_bus]);
    let (for_queue, for_bus) = (queue.count_max(), bus.count_max());
    if for_queue < queue_max || (has_bus && for_bus < bus_max) {
        tracing::warn!(
            "the limit of {open_files_max} open files leaves room for {room} connections, of Queue \
             Storage for {for_queue} at most and of Service Bus for {for_bus}"
        );
    }
    SharedPlaces {
        queue,
        bus,
        turned_away: TurnedAwayPlaces(Arc::new(Semaphore::new(TURNED_AWAY_MAX))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use kew_listen::Place;

    use super::*;

    fn check(open_files_max: u64, has_bus: bool, queue: usize, bus: usize) -> SharedPlaces {
        let places = share(open_files_max, 10_000, 10_000, has_bus);
        let most = (places.queue.count_max(), places.bus.count_max());
        assert_eq!(most, (queue, bus), "{open_files_max}");
        places
    }

    /// All places that authenticated connections can have.
    fn take_all(share: &Share) -> Vec<Place> {
        let take = || {
            let place = share.take(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
            place.prove();
            Some(place)
        };
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn with_20000_files_each_protocol_may_have_10000_connections() {
        let places = check(20_000, true, 10_000, 10_000);
        let bus = take_all(&places.bus);
        assert_eq!(bus.len(), 10_000);
        assert_eq!(take_all(&places.queue).len(), 9_488);
    }

    #[test]
    fn with_few_files_each_has_its_part_and_the_log_keeps_its_own() {
        let places = check(1024, true, 384, 384);
        let bus = take_all(&places.bus);
        let queue = take_all(&places.queue);
        assert_eq!((bus.len(), queue.len()), (384, 128));
        check(64, true, 192, 192);
        check(1024, false, 512, 0);
        check(u64::MAX, true, 10_000, 10_000);
    }
}
