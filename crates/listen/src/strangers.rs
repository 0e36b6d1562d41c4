//! Connections that are not authenticated, and which of them gives way when there is no room.
//!
//! An honest client authenticates within milliseconds, so the oldest of many connections has
//! stalled. But one address could open so many that all other connections become the oldest. So the
//! network with the most connections gives way first: a client that opens many displaces its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use tokio::sync::Notify;

/// The bits of an IPv6 address that name a network. Users choose the other bits themselves.
const NETWORK_BITS: u32 = 64;

/// Where a connection comes from: an IPv4 address, or a network of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Network(IpAddr);

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => {
                let host_bits = Ipv6Addr::BITS - NETWORK_BITS;
                Ipv6Addr::from_bits(address.to_bits() >> host_bits << host_bits).into()
            }
        })
    }
}

/// Which network gives way first: the one with the most connections, then the one with the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    count: usize,
    oldest: Reverse<u64>,
}

/// Connections by their networks and numbers; a lower number is older.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    of_network: BTreeMap<Network, BTreeMap<u64, Arc<Notify>>>,
    /// Every network once. The last one gives way next.
    ranked: BTreeSet<(Rank, Network)>,
}

impl Strangers {
    pub(crate) fn add(&mut self, network: Network, number: u64, notice: Arc<Notify>) {
        self.change(network, |those| {
            those.insert(number, notice);
        });
    }

    /// Removes a connection. Returns whether it was present.
    pub(crate) fn remove(&mut self, network: Network, number: u64) -> bool {
        self.change(network, |those| those.remove(&number).is_some())
    }

    /// The rank of the connection that gives way next, if there is one.
    pub(crate) fn next_to_give_way(&self) -> Option<Rank> {
        self.ranked.last().map(|(rank, _)| *rank)
    }

    /// Removes the connection that gives way next, and notifies it.
    pub(crate) fn give_way(&mut self) -> bool {
        let Some(&(_, network)) = self.ranked.last() else {
            return false;
        };
        let oldest = self.change(network, BTreeMap::pop_first);
        if let Some((_, notice)) = &oldest {
            notice.notify_one();
        }
        oldest.is_some()
    }

    fn change<T>(
        &mut self,
        network: Network,
        change: impl FnOnce(&mut BTreeMap<u64, Arc<Notify>>) -> T,
    ) -> T {
        let those = self.of_network.entry(network).or_default();
        if let Some(rank) = rank(those) {
            self.ranked.remove(&(rank, network));
        }
        let result = change(those);
        match rank(those) {
            Some(rank) => {
                self.ranked.insert((rank, network));
            }
            None => {
                self.of_network.remove(&network);
            }
        }
        result
    }
}

fn rank(those: &BTreeMap<u64, Arc<Notify>>) -> Option<Rank> {
    let (oldest, _) = those.first_key_value()?;
    Some(Rank {
        count: those.len(),
        oldest: Reverse(*oldest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::of(text.parse().expect("an address"))
    }

    #[test]
    fn the_most_crowded_network_gives_way_and_of_it_the_oldest() {
        let mut strangers = Strangers::default();
        for (number, address) in [
            (0, "192.0.2.1"),
            (1, "192.0.2.2"),
            (2, "192.0.2.2"),
            (3, "192.0.2.3"),
            (4, "192.0.2.3"),
            (5, "192.0.2.3"),
        ] {
            strangers.add(network(address), number, Arc::default());
        }
        // Then those with two each, the older first. At last one by one, by age.
        let mut gone = Vec::new();
        while let Some(&(_, from)) = strangers.ranked.last() {
            let oldest = strangers.of_network[&from].first_key_value();
            gone.push(*oldest.expect("networks have connections").0);
            assert!(strangers.give_way());
        }
        assert_eq!(gone, [3, 1, 4, 0, 2, 5]);
        assert!(!strangers.give_way());
        assert!(strangers.of_network.is_empty());
    }

    #[test]
    fn a_removed_connection_is_not_notified() {
        let mut strangers = Strangers::default();
        let notice = Arc::new(Notify::new());
        strangers.add(network("192.0.2.1"), 7, notice.clone());
        assert!(!strangers.remove(network("192.0.2.2"), 7));
        assert!(strangers.remove(network("192.0.2.1"), 7));
        assert!(!strangers.remove(network("192.0.2.1"), 7));
        assert_eq!(strangers.next_to_give_way(), None);
        assert_eq!(Arc::strong_count(&notice), 1);
    }

    #[test]
    fn a_network_is_an_ipv4_address_or_half_an_ipv6_address() {
        let same = [
            ("2001:db8:1:2:3::4", "2001:db8:1:2:ffff:ffff:ffff:ffff"),
            ("192.0.2.1", "::ffff:192.0.2.1"),
            ("::1", "::1"),
        ];
        for (one, other) in same {
            assert_eq!(network(one), network(other));
        }
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
    }
}
