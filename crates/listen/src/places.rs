//! Places for connections, of which several protocols have shares.
//!
//! A connection takes an open file, and of those there are only so many. What one protocol does not need
//! another may have, but never so much that a protocol finds less than it is guaranteed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A protocol's share of the places. Clones are the same share.
#[derive(Clone, Debug)]
pub struct Share {
    room: Arc<Room>,
    index: usize,
}

#[derive(Debug)]
struct Room {
    count_max: usize,
    shares: Mutex<Vec<Taken>>,
}

#[derive(Debug)]
struct Taken {
    guaranteed: usize,
    count: usize,
}

impl Taken {
    /// What others cannot have.
    fn kept(&self) -> usize {
        self.count.max(self.guaranteed)
    }
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub struct Place(Share);

impl Share {
    /// Shares of `count_max` places, one for each number of places that is guaranteed.
    ///
    /// # Panics
    ///
    /// If more is guaranteed than there is.
    pub fn of<const N: usize>(count_max: usize, guaranteed: [usize; N]) -> [Self; N] {
        let all = guaranteed
            .iter()
            .fold(0, |all: usize, it| all.saturating_add(*it));
        assert!(
            all <= count_max,
            "{all} of {count_max} places are guaranteed"
        );
        let shares = guaranteed.map(|guaranteed| Taken {
            guaranteed,
            count: 0,
        });
        let room = Arc::new(Room {
            count_max,
            shares: Mutex::new(shares.into()),
        });
        std::array::from_fn(|index| Self {
            room: Arc::clone(&room),
            index,
        })
    }

    /// A place, if there is one that nobody else has or is guaranteed.
    pub fn take(&self) -> Option<Place> {
        let mut shares = self.room.lock();
        let others: usize = self.others(&shares).map(Taken::kept).sum();
        let own = shares.get_mut(self.index)?;
        if own.count >= self.room.count_max.saturating_sub(others) {
            return None;
        }
        own.count += 1;
        Some(Place(self.clone()))
    }

    /// How many places it has while nobody else has more than is guaranteed.
    pub fn count_max(&self) -> usize {
        let shares = self.room.lock();
        let others: usize = self.others(&shares).map(|share| share.guaranteed).sum();
        self.room.count_max.saturating_sub(others)
    }

    fn others<'a>(&self, shares: &'a [Taken]) -> impl Iterator<Item = &'a Taken> {
        let own = self.index;
        let all = shares.iter().enumerate();
        all.filter(move |(index, _)| *index != own)
            .map(|(_, share)| share)
    }
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Vec<Taken>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shares = self.0.room.lock();
        if let Some(own) = shares.get_mut(self.0.index) {
            own.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(share: &Share) -> Vec<Place> {
        std::iter::from_fn(|| share.take()).collect()
    }

    #[test]
    fn one_has_what_the_other_is_not_guaranteed() {
        let [one, other] = Share::of(10, [3, 2]);
        assert_eq!((one.count_max(), other.count_max()), (8, 7));
        let ones = take_all(&one);
        assert_eq!(ones.len(), 8);
        let others = take_all(&other);
        assert_eq!(others.len(), 2);
        drop((ones, others));
        let others = take_all(&other);
        assert_eq!(others.len(), 7);
        assert_eq!(take_all(&one).len(), 3);
    }

    #[test]
    fn places_come_back() {
        let [one, other] = Share::of(4, [1, 1]);
        let mut ones = take_all(&one);
        let _other = other.take().expect("one is guaranteed");
        assert!(other.take().is_none());
        // What the one gives back, the other may have.
        ones.pop();
        let more = other.take().expect("one came back");
        assert!(one.take().is_none());
        drop(more);
        assert!(one.clone().take().is_some());
    }

    #[test]
    fn never_more_than_there_are() {
        let [one, other, third] = Share::of(6, [2, 0, 1]);
        let mut held = Vec::new();
        for _ in 0..6 {
            held.extend([&one, &other, &third].map(Share::take));
        }
        assert_eq!(held.into_iter().flatten().count(), 6);
        let [alone] = Share::of(2, [0]);
        assert_eq!(take_all(&alone).len(), 2);
    }

    #[test]
    #[should_panic(expected = "4 of 3 places")]
    fn more_than_there_is_cannot_be_guaranteed() {
        let _ = Share::of(3, [2, 2]);
    }
}
