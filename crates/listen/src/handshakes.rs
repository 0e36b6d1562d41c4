//! Counts the handshakes in progress, and chooses which one to close when there are too many.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::strangers::{Network, Strangers};

/// The handshakes under way.
#[derive(Debug)]
pub(crate) struct Handshakes {
    count_max: usize,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    begun_count: u64,
    count: usize,
    turns: Strangers,
}

/// A place among the handshakes in progress. Dropping it frees it.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    of: &'a Handshakes,
    network: Network,
    number: u64,
    taken: Arc<Notify>,
}

impl Handshakes {
    pub(crate) fn new(count_max: usize) -> Self {
        Self {
            count_max: count_max.max(1),
            under_way: Mutex::default(),
        }
    }

    /// Takes a place. If none is free, takes the place of the oldest handshake of the network with
    /// the most of them.
    pub(crate) fn begin(&self, from: IpAddr) -> Turn<'_> {
        let (network, taken) = (Network::of(from), Arc::new(Notify::new()));
        let mut under_way = self.lock();
        if under_way.count >= self.count_max && under_way.turns.give_way() {
            under_way.count -= 1;
        }
        let number = under_way.begun_count;
        under_way.begun_count += 1;
        under_way.count += 1;
        under_way.turns.add(network, number, Arc::clone(&taken));
        drop(under_way);
        Turn {
            of: self,
            network,
            number,
            taken,
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Resolves when a newer handshake has taken the place.
    pub(crate) async fn is_over(&self) {
        self.taken.notified().await;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut under_way = self.of.lock();
        if under_way.turns.remove(self.network, self.number) {
            under_way.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    async fn is_over(turn: &Turn<'_>) -> bool {
        tokio::select! {
            biased;
            () = turn.is_over() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn the_oldest_gives_way_and_no_other() {
        let handshakes = Handshakes::new(2);
        let first = handshakes.begin(ONE);
        let second = handshakes.begin(ONE);
        assert!(!is_over(&first).await);
        let third = handshakes.begin(ONE);
        assert!(is_over(&first).await);
        assert!(!is_over(&second).await && !is_over(&third).await);
        drop(second);
        let _fourth = handshakes.begin(ONE);
        assert!(!is_over(&third).await, "a free place is taken first");
        drop((first, third));
        assert_eq!(handshakes.lock().count, 1);
    }

    #[tokio::test]
    async fn a_network_that_stalls_many_gives_way_first() {
        let handshakes = Handshakes::new(3);
        let slow = handshakes.begin(OTHER);
        let crowd = [handshakes.begin(ONE), handshakes.begin(ONE)];
        let more = handshakes.begin(ONE);
        assert!(is_over(&crowd[0]).await);
        assert!(!is_over(&slow).await && !is_over(&crowd[1]).await && !is_over(&more).await);
    }
}
