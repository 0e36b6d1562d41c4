//! Containers whose contents a snapshot shares.
//!
//! A snapshot is the state at one position of the log, and is encoded on another thread while turns go on. So
//! large parts of the state lie in chunks behind `Arc`. To share a container is to take a reference to each of
//! its chunks. A change to a chunk that a snapshot still has copies that chunk first.
//!
//! Sharing never changes a value. Whether something was copied is counted, because copying takes time, and is no
//! part of the state.
//!
//! An ordered set is here too. No snapshot has one: it follows from what a snapshot has.

mod block_length;
mod entities;
mod map;
mod mark;
mod ordered;
mod waste;

use std::sync::Arc;

pub(crate) use self::block_length::BlockLength;
pub(crate) use self::entities::{Entities, HEADS_BITS, HeadMarks, Share};
pub(crate) use self::map::{Chunk, Numbered, SharedMap};
pub(crate) use self::mark::{Mark, Marked, own_marked};
pub(crate) use self::ordered::Ordered;
pub use self::waste::Waste;

/// The value, to change it: a copy of its own if a snapshot still has the value. Adds `steps` to `copied` then.
pub(crate) fn own<'a, T: Clone>(
    shared: &'a mut Arc<T>,
    copied: &mut u64,
    steps: impl FnOnce(&T) -> u64,
) -> &'a mut T {
    if Arc::strong_count(shared) > 1 {
        *copied += steps(shared);
    }
    Arc::make_mut(shared)
}

/// Ranges of consecutive things which together have `at_least` each, as far as they suffice.
pub(crate) fn groups(
    counts: impl Iterator<Item = u64>,
    at_least: u64,
) -> Vec<std::ops::Range<usize>> {
    let mut groups = Vec::new();
    let (mut first, mut end, mut sum) = (0, 0, 0);
    for count in counts {
        end += 1;
        sum += count;
        if sum >= at_least {
            groups.push(first..end);
            (first, sum) = (end, 0);
        }
    }
    if sum > 0 {
        groups.push(first..end);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_consecutive_and_large_enough() {
        let of = |counts: &[u64]| {
            let groups = groups(counts.iter().copied(), 10).into_iter();
            groups
                .map(|group| (group.start, group.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[0, 0]), []);
        assert_eq!(of(&[3]), [(0, 1)]);
        assert_eq!(
            of(&[9, 1, 20, 0, 5, 5, 1]),
            [(0, 2), (2, 3), (3, 6), (6, 7)]
        );
    }

    #[test]
    fn only_a_shared_value_is_copied_and_counted() {
        let (mut value, mut copied) = (Arc::new(vec![1, 2, 3]), 0);
        own(&mut value, &mut copied, |it| it.len() as u64).push(4);
        assert_eq!(copied, 0);
        let snapshot = value.clone();
        own(&mut value, &mut copied, |it| it.len() as u64).push(5);
        assert_eq!((&*snapshot, copied), (&vec![1, 2, 3, 4], 4));
        own(&mut value, &mut copied, |it| it.len() as u64).push(6);
        assert_eq!((&*value, copied), (&vec![1, 2, 3, 4, 5, 6], 4));
    }
}
