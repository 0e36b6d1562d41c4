//! Marks: which page has the content of a piece of the state.
//!
//! A snapshot gives a piece its mark when the page is durable, through a reference and from another thread. A change
//! takes the mark away. So a piece with a mark is as it was when the page was written. A mark is no part of the state.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::own;
use crate::vocabulary::PageNumber;

/// The page that has a content, if there is one.
#[derive(Debug)]
pub(crate) struct Mark {
    page: AtomicU64,
}

/// No page has this number.
const NONE: u64 = u64::MAX;

impl Default for Mark {
    fn default() -> Self {
        Self {
            page: AtomicU64::new(NONE),
        }
    }
}

/// A copy of the content is as it is.
impl Clone for Mark {
    fn clone(&self) -> Self {
        Self {
            page: AtomicU64::new(self.page.load(Ordering::Relaxed)),
        }
    }
}

impl Mark {
    pub(crate) fn get(&self) -> Option<PageNumber> {
        let number = self.page.load(Ordering::Relaxed);
        (number != NONE).then_some(PageNumber::new(number))
    }

    /// Notes that a page has the content.
    pub(crate) fn set(&self, page: PageNumber) {
        self.page.store(page.as_u64(), Ordering::Relaxed);
    }

    /// Takes it away, because the content changes.
    pub(crate) fn take(&mut self) -> Option<PageNumber> {
        let page = self.get();
        *self.page.get_mut() = NONE;
        page
    }
}

/// A piece with its mark.
///
/// Invariant: a change takes the mark away, because it comes through [`Marked::change`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Marked<T> {
    mark: Mark,
    value: T,
}

/// The mark is no part of the state.
impl<T: PartialEq> PartialEq for Marked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Marked<T> {}

impl<T> Deref for Marked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Marked<T> {
    /// The value, to change how it lies in memory and not what it says: the mark stays.
    pub(crate) fn physical(&mut self) -> &mut T {
        &mut self.value
    }

    pub(crate) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// The piece, to change it.
    pub(crate) fn change(&mut self) -> &mut T {
        self.mark.take();
        &mut self.value
    }
}

/// The piece, to change it: a copy of its own if a snapshot still has it. Adds `steps` to `copied` then.
pub(crate) fn own_marked<'a, T: Clone>(
    shared: &'a mut Arc<Marked<T>>,
    copied: &mut u64,
    steps: impl FnOnce(&T) -> u64,
) -> &'a mut T {
    own(shared, copied, |it| steps(it)).change()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_takes_the_mark_away_and_a_snapshot_keeps_it() {
        let page = PageNumber::new(7);
        let mut piece = Arc::new(Marked::<Vec<u8>>::default());
        piece.mark().set(page);
        let snapshot = Arc::clone(&piece);
        own_marked(&mut piece, &mut 0, |it| it.len() as u64).push(1);
        assert_eq!(
            (piece.mark().get(), snapshot.mark().get()),
            (None, Some(page))
        );
        // A page of the snapshot's content is none of the new one's.
        snapshot.mark().set(PageNumber::new(8));
        assert_eq!(piece.mark().get(), None);
        assert_ne!(piece, snapshot);
    }

    #[test]
    fn a_mark_is_no_part_of_the_state() {
        let (one, other) = (Marked::<u8>::default(), Marked::<u8>::default());
        one.mark().set(PageNumber::new(0));
        assert_eq!(one, other);
        assert_eq!(one.clone().mark().get(), Some(PageNumber::new(0)));
    }
}
