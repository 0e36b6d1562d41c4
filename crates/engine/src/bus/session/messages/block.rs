//! Some numbers of a session's messages, with their marks.

use super::Mark;

/// The bits of an entry that hold its mark.
const MARK_BITS: u32 = 2;

/// A block with numbers keeps room for so many.
const ROOM_MIN: usize = 4;

/// Numbers are less than this apart in a block.
const SPAN: u64 = 1 << (u32::BITS - MARK_BITS);

/// Numbers in rising order.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// No number is below it.
    base: u64,
    ready_count: u16,
    locked_count: u16,
    /// How far each number is above the base, and its mark in the lowest bits.
    entries: Vec<u32>,
}

fn mark_of(entry: u32) -> Mark {
    match entry % (1 << MARK_BITS) {
        1 => Mark::Ready,
        2 => Mark::Locked,
        _ => Mark::Other,
    }
}

fn bits(mark: Mark) -> u32 {
    match mark {
        Mark::Other => 0,
        Mark::Ready => 1,
        Mark::Locked => 2,
    }
}

impl Block {
    /// How far a number is above the base, if it can be in this block.
    fn distance(&self, number: u64) -> Option<u32> {
        let distance = number.checked_sub(self.base).filter(|it| *it < SPAN)?;
        u32::try_from(distance).ok()
    }

    fn number(&self, entry: u32) -> u64 {
        self.base + u64::from(entry >> MARK_BITS)
    }

    fn find(&self, distance: u32) -> Result<usize, usize> {
        match self.entries.last() {
            Some(last) if last >> MARK_BITS < distance => Err(self.entries.len()),
            Some(_) | None => (self.entries).binary_search_by_key(&distance, |it| it >> MARK_BITS),
        }
    }

    fn count(&mut self, mark: Mark) -> Option<&mut u16> {
        match mark {
            Mark::Other => None,
            Mark::Ready => Some(&mut self.ready_count),
            Mark::Locked => Some(&mut self.locked_count),
        }
    }

    fn note(&mut self, came: Option<Mark>, left: Option<Mark>) {
        if let Some(count) = came.and_then(|mark| self.count(mark)) {
            *count += 1;
        }
        if let Some(count) = left.and_then(|mark| self.count(mark)) {
            *count -= 1;
        }
    }

    /// Adds a number, or changes the mark of one that is there. Returns false if it does not fit.
    pub(super) fn put(&mut self, number: u64, mark: Mark, length_max: usize) -> bool {
        if self.entries.is_empty() {
            self.base = number;
        }
        let Some(distance) = self.distance(number) else {
            return false;
        };
        let entry = (distance << MARK_BITS) | bits(mark);
        match self.find(distance) {
            Ok(place) => {
                let there = self.entries.get_mut(place);
                let before = there.map(|there| mark_of(std::mem::replace(there, entry)));
                self.note(Some(mark), before);
                true
            }
            Err(place) if self.entries.len() < length_max => {
                self.entries.insert(place, entry);
                self.note(Some(mark), None);
                true
            }
            Err(_) => false,
        }
    }

    /// Makes room for a number below the base, and adds it. Returns false if it does not fit.
    pub(super) fn put_below(&mut self, number: u64, mark: Mark, length_max: usize) -> bool {
        let Some((lower, last)) = self.base.checked_sub(number).zip(self.last()) else {
            return self.put(number, mark, length_max);
        };
        if self.entries.len() >= length_max || last - number >= SPAN {
            return false;
        }
        // The last number is that far above at least, so all of this fits.
        let more = u32::try_from(lower).unwrap_or_default() << MARK_BITS;
        self.entries.iter_mut().for_each(|entry| *entry += more);
        self.base = number;
        self.put(number, mark, length_max)
    }

    /// Removes a number, if it is there.
    pub(super) fn remove(&mut self, number: u64) {
        let found = self.distance(number).map(|distance| self.find(distance));
        let Some(Ok(place)) = found else {
            return;
        };
        let entry = self.entries.remove(place);
        self.note(None, Some(mark_of(entry)));
        let count = self.entries.len();
        if count <= self.entries.capacity() / 4 {
            // Half of the room stays, and that of four: the next changes move no memory.
            let room = if count == 0 {
                0
            } else {
                ROOM_MIN.max(2 * count)
            };
            self.entries.shrink_to(room);
        }
    }

    /// The lower and the upper half.
    pub(super) fn split(self) -> (Self, Self) {
        let middle = self.entries.len() / 2;
        let (mut lower, mut upper) = (Self::default(), Self::default());
        for (place, (number, mark)) in self.marked().enumerate() {
            let half = if place < middle {
                &mut lower
            } else {
                &mut upper
            };
            half.put(number, mark, usize::MAX);
        }
        (lower, upper)
    }

    /// Adds the numbers of another block, which are higher. Returns those that are too far above.
    pub(super) fn append(&mut self, other: Self) -> Option<Self> {
        let mut rest = Self::default();
        for (number, mark) in other.marked() {
            if !self.put(number, mark, usize::MAX) {
                rest.put(number, mark, usize::MAX);
            }
        }
        (!rest.is_empty()).then_some(rest)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.entries.first().map(|entry| self.number(*entry))
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.entries.last().map(|entry| self.number(*entry))
    }

    pub(super) fn ready_count(&self) -> usize {
        self.ready_count.into()
    }

    pub(super) fn locked_count(&self) -> usize {
        self.locked_count.into()
    }

    /// The numbers with a mark. Looks at none if there are none.
    pub(super) fn with(&self, mark: Mark) -> impl Iterator<Item = u64> + use<'_> {
        let count = match mark {
            Mark::Other => self.entries.len(),
            Mark::Ready => self.ready_count(),
            Mark::Locked => self.locked_count(),
        };
        let found = self.entries.iter().filter(move |it| mark_of(**it) == mark);
        found.take(count).map(|entry| self.number(*entry))
    }

    /// The numbers from one on.
    pub(super) fn numbers_from(&self, first: u64) -> impl Iterator<Item = u64> + use<'_> {
        self.entries_from(first).map(|entry| self.number(*entry))
    }

    /// All numbers, with their marks.
    pub(super) fn marked(&self) -> impl Iterator<Item = (u64, Mark)> + use<'_> {
        let entries = self.entries.iter();
        entries.map(|entry| (self.number(*entry), mark_of(*entry)))
    }

    fn entries_from(&self, first: u64) -> impl Iterator<Item = &u32> {
        let from = self.entries.partition_point(|it| self.number(*it) < first);
        self.entries.get(from..).unwrap_or_default().iter()
    }

    /// Asserts that the counts are those of the marks.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let count = |mark| self.marked().filter(|(_, it)| *it == mark).count();
        assert_eq!(self.ready_count(), count(Mark::Ready));
        assert_eq!(self.locked_count(), count(Mark::Locked));
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.entries.capacity()
    }
}
