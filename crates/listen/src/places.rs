//! Places for connections, of which several protocols have shares.
//!
//! Each connection takes an open file, and their number is limited. A protocol may use places that
//! another does not need, but each protocol always has the places that it is guaranteed.
//!
//! When no place is left, a connection that is not authenticated gives way to the new one: see
//! [`Place::prove`]. Authenticated connections keep their places. So silent connections lock no
//! client out, however many there are.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::strangers::{Network, Strangers};

/// How many connections may have given way and not ended yet. Each still has an open file. Above
/// this number no further connection is closed.
const LEAVING_MAX: usize = 64;

/// A protocol's share of the places. Clones are the same share.
#[derive(Clone, Debug)]
pub struct Share {
    room: Arc<Room>,
    index: usize,
}

/// The limits of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareLimits {
    /// Places that no other share can take.
    pub guaranteed: usize,
    /// The most places at once, whatever is free.
    pub count_max: usize,
}

#[derive(Debug)]
struct Room {
    count_max: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    shares: Vec<Taken>,
    /// Connections that gave way and have not ended. They are in no share's count.
    leaving_count: usize,
    /// The next connection's.
    number: u64,
}

#[derive(Debug)]
struct Taken {
    limits: ShareLimits,
    count: usize,
    strangers: Strangers,
}

impl Taken {
    /// Places that other shares cannot take.
    fn kept(&self) -> usize {
        self.count.max(self.limits.guaranteed)
    }
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    share: Share,
    network: Network,
    number: u64,
    is_proven: AtomicBool,
    notice: Arc<Notify>,
}

/// Notifies a connection that it has lost its place.
#[derive(Clone, Debug)]
pub struct Notice(Arc<Notify>);

impl Notice {
    /// Resolves when another connection has taken the place: close this one at once. Never resolves
    /// after [`Place::prove`].
    pub async fn given(&self) {
        self.0.notified().await;
    }
}

impl ShareLimits {
    /// No limit of its own: everything that other shares leave.
    pub fn guaranteed(guaranteed: usize) -> Self {
        Self {
            guaranteed,
            count_max: usize::MAX,
        }
    }
}

impl Share {
    /// Shares of `count_max` places, one for each of the limits.
    ///
    /// # Panics
    ///
    /// If the guarantees exceed `count_max`.
    pub fn of<const N: usize>(count_max: usize, limits: [ShareLimits; N]) -> [Self; N] {
        let all = limits
            .iter()
            .fold(0, |all: usize, it| all.saturating_add(it.guaranteed));
        assert!(
            all <= count_max,
            "{all} of {count_max} places are guaranteed"
        );
        let shares = limits.map(|limits| Taken {
            limits,
            count: 0,
            strangers: Strangers::default(),
        });
        let room = Arc::new(Room {
            count_max,
            state: Mutex::new(State {
                shares: shares.into(),
                leaving_count: 0,
                number: 0,
            }),
        });
        std::array::from_fn(|index| Self {
            room: Arc::clone(&room),
            index,
        })
    }

    /// A share with all of `count_max` places, and no other shares.
    pub fn alone(count_max: usize) -> Self {
        let [share] = Self::of(count_max, [ShareLimits::guaranteed(count_max)]);
        share
    }

    /// Takes a place for a connection from that address: a free one that no other share is
    /// guaranteed, or else the place of a connection that is not authenticated. That is the oldest
    /// one of the network with the most of them.
    pub fn take(&self, from: IpAddr) -> Option<Place> {
        let mut state = self.room.lock();
        let victim = match self.lack(&state) {
            Lack::Nothing => None,
            Lack::OfOwn => Some(self.index),
            Lack::OfAll => Some(self.most_crowded(&state)?),
        };
        if let Some(victim) = victim {
            if state.leaving_count >= LEAVING_MAX {
                return None;
            }
            let of = state.shares.get_mut(victim)?;
            if !of.strangers.give_way() {
                return None;
            }
            of.count -= 1;
            state.leaving_count += 1;
        }
        let number = state.number;
        state.number += 1;
        let (network, notice) = (Network::of(from), Arc::new(Notify::new()));
        let own = state.shares.get_mut(self.index)?;
        own.count += 1;
        own.strangers.add(network, number, Arc::clone(&notice));
        Some(Place {
            share: self.clone(),
            network,
            number,
            is_proven: AtomicBool::new(false),
            notice,
        })
    }

    /// How many connections have a place.
    pub fn count(&self) -> usize {
        let state = self.room.lock();
        state.shares.get(self.index).map_or(0, |own| own.count)
    }

    /// How many places this share has while the others have no more than they are guaranteed.
    pub fn count_max(&self) -> usize {
        let state = self.room.lock();
        let others: usize = self
            .others(&state)
            .map(|(_, share)| share.limits.guaranteed)
            .sum();
        let room = self.room.count_max.saturating_sub(others);
        let own = state.shares.get(self.index);
        own.map_or(room, |own| room.min(own.limits.count_max))
    }

    fn lack(&self, state: &State) -> Lack {
        let others: usize = self.others(state).map(|(_, share)| share.kept()).sum();
        let Some(own) = state.shares.get(self.index) else {
            return Lack::OfOwn;
        };
        if own.count >= own.limits.count_max {
            Lack::OfOwn
        } else if own.count >= self.room.count_max.saturating_sub(others) {
            Lack::OfAll
        } else {
            Lack::Nothing
        }
    }

    /// The share that has to give up a place: this one, or one that has more than it is guaranteed.
    fn most_crowded(&self, state: &State) -> Option<usize> {
        let own = state.shares.iter().enumerate().nth(self.index);
        let others = self.others(state);
        let rich = others.filter(|(_, share)| share.count > share.limits.guaranteed);
        own.into_iter()
            .chain(rich)
            .filter_map(|(index, share)| Some((share.strangers.next_to_give_way()?, index)))
            .max()
            .map(|(_, index)| index)
    }

    fn others<'a>(&self, state: &'a State) -> impl Iterator<Item = (usize, &'a Taken)> {
        let own = self.index;
        let all = state.shares.iter().enumerate();
        all.filter(move |(index, _)| *index != own)
    }
}

/// Why a share has no free place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Nothing,
    /// It has as many places as its limit allows.
    OfOwn,
    /// Other shares have, or are guaranteed, all remaining places.
    OfAll,
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The connection is authenticated. It keeps its place from now on.
    pub fn prove(&self) {
        if self.is_proven.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.share.room.lock();
        if let Some(own) = state.shares.get_mut(self.share.index)
            && own.strangers.remove(self.network, self.number)
        {
            self.is_proven.store(true, Ordering::Relaxed);
        }
    }

    /// The notice that the place is lost.
    pub fn notice(&self) -> Notice {
        Notice(Arc::clone(&self.notice))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let is_proven = *self.is_proven.get_mut();
        let mut state = self.share.room.lock();
        let Some(own) = state.shares.get_mut(self.share.index) else {
            return;
        };
        if is_proven || own.strangers.remove(self.network, self.number) {
            own.count -= 1;
        } else {
            state.leaving_count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn two(count_max: usize, guaranteed: [usize; 2]) -> [Share; 2] {
        Share::of(count_max, guaranteed.map(ShareLimits::guaranteed))
    }

    /// A place that is kept.
    fn take(share: &Share) -> Option<Place> {
        let place = share.take(LOCAL)?;
        place.prove();
        Some(place)
    }

    fn take_all(share: &Share) -> Vec<Place> {
        std::iter::from_fn(|| take(share)).collect()
    }

    async fn is_lost(place: &Place) -> bool {
        let notice = place.notice();
        tokio::select! {
            biased;
            () = notice.given() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[test]
    fn one_share_has_everything_the_other_is_not_guaranteed() {
        let [one, other] = two(10, [3, 2]);
        assert_eq!((one.count_max(), other.count_max()), (8, 7));
        let ones = take_all(&one);
        assert_eq!((ones.len(), one.count()), (8, 8));
        let others = take_all(&other);
        assert_eq!(others.len(), 2);
        drop((ones, others));
        let others = take_all(&other);
        assert_eq!(others.len(), 7);
        assert_eq!(take_all(&one).len(), 3);
    }

    #[test]
    fn places_are_freed() {
        let [one, other] = two(4, [1, 1]);
        let mut ones = take_all(&one);
        let _other = take(&other).expect("one is guaranteed");
        assert!(take(&other).is_none());
        // The other share may have a place that this one freed.
        ones.pop();
        let more = take(&other).expect("one came back");
        assert!(take(&one).is_none());
        drop(more);
        assert!(take(&one.clone()).is_some());
    }

    #[test]
    fn never_more_than_there_are() {
        let limits = [2, 0, 1].map(ShareLimits::guaranteed);
        let [one, other, third] = Share::of(6, limits);
        let mut held = Vec::new();
        for _ in 0..6 {
            held.extend([&one, &other, &third].map(take));
        }
        assert_eq!(held.into_iter().flatten().count(), 6);
        assert_eq!(take_all(&Share::alone(2)).len(), 2);
    }

    #[test]
    fn a_share_has_no_more_than_it_may_have() {
        let limits = |guaranteed, count_max| ShareLimits {
            guaranteed,
            count_max,
        };
        let [one, other] = Share::of(10, [limits(2, 3), limits(2, 20)]);
        assert_eq!((one.count_max(), other.count_max()), (3, 8));
        assert_eq!(take_all(&one).len(), 3);
        // Then its own unauthenticated connections give way, and no others.
        let _others: Vec<_> = (0..5).map(|_| other.take(LOCAL)).collect();
        let _ones: Vec<_> = (0..9).map(|_| one.take(LOCAL)).collect();
        assert_eq!((one.count(), other.count()), (3, 5));
    }

    #[test]
    #[should_panic(expected = "4 of 3 places")]
    fn more_than_there_is_cannot_be_guaranteed() {
        let _ = two(3, [2, 2]);
    }

    #[tokio::test]
    async fn the_oldest_stranger_gives_way_and_no_authenticated_client() {
        let share = Share::alone(3);
        let known = take(&share).expect("a place");
        let first = share.take(LOCAL).expect("a place");
        let second = share.take(LOCAL).expect("a place");
        assert!(!is_lost(&first).await);
        let third = share.take(LOCAL).expect("that of the first");
        assert!(is_lost(&first).await);
        assert!(!is_lost(&second).await && !is_lost(&third).await && !is_lost(&known).await);
        // It is too late to authenticate. And a lost place is not freed twice.
        first.prove();
        drop(first);
        assert_eq!(share.count(), 3);
        second.prove();
        third.prove();
        assert!(share.take(LOCAL).is_none());
        drop(second);
        assert!(share.take(LOCAL).is_some());
    }

    #[tokio::test]
    async fn a_network_with_many_places_gives_way_first() {
        let share = Share::alone(4);
        let away = |last| IpAddr::from([192, 0, 2, last]);
        let first = share.take(away(1)).expect("a place");
        let crowd: Vec<_> = (0..3).filter_map(|_| share.take(away(2))).collect();
        let more = share.take(away(2)).expect("one of its own");
        assert!(is_lost(&crowd[0]).await);
        assert!(!is_lost(&first).await);
        let other = share.take(away(3)).expect("one of the crowd's");
        assert!(is_lost(&crowd[1]).await);
        assert!(!is_lost(&first).await && !is_lost(&more).await && !is_lost(&other).await);
    }

    #[tokio::test]
    async fn strangers_of_a_share_that_has_more_than_is_guaranteed_give_way_to_the_other() {
        let [one, other] = two(4, [1, 1]);
        let ones: Vec<_> = (0..3).filter_map(|_| one.take(LOCAL)).collect();
        let guaranteed = take(&other).expect("it is guaranteed");
        let another = take(&other).expect("the one has more than it is guaranteed");
        assert!(is_lost(&ones[0]).await);
        let third = take(&other).expect("it still has");
        assert!(take(&other).is_none(), "now it has not");
        assert_eq!((one.count(), other.count()), (1, 3));
        drop((guaranteed, another, third));
    }

    #[tokio::test]
    async fn only_so_many_are_leaving_at_once() {
        let share = Share::alone(LEAVING_MAX + 1);
        let all: Vec<_> = (0..=LEAVING_MAX)
            .filter_map(|_| share.take(LOCAL))
            .collect();
        let more: Vec<_> = std::iter::from_fn(|| share.take(LOCAL)).collect();
        assert_eq!(more.len(), LEAVING_MAX);
        let (leaving, left) = all.split_at(LEAVING_MAX);
        assert!(is_lost(&leaving[0]).await && !is_lost(&left[0]).await);
        drop(all);
        assert!(share.take(LOCAL).is_some());
    }
}
