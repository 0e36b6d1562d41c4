//! The files that may be open at once, and who of those that are served may have how many.

use std::sync::Arc;

use kew_listen::{Share, ShareLimits};
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

/// Places for connections that are told that there is none. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct TurnedAwayPlaces(Arc<Semaphore>);

impl TurnedAwayPlaces {
    /// A place for one that is to be told.
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

/// Shares what files there are between the protocols, which have `queue_max` and `bus_max` connections at
/// most. Each is guaranteed a quarter, and may have all that the other is not guaranteed and does not use.
/// If Service Bus is not served, all of it is for Queue Storage.
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

    /// All that those who are known can have.
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
