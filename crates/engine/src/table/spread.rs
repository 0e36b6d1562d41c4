//! How many bytes of the log are still needed, and where they lie.
//!
//! Each run, and the states of the sessions of an entity, have a *spread*: the bytes of their bodies by *unit* of log
//! positions. The partition has the sums, so a run or an entity that ends as a whole is subtracted as a whole. The
//! engine knows no segment: a unit follows from the position alone.
//!
//! Invariant: a sum is that of all spreads, and a spread that of its messages' bodies. What an effect says of the old
//! message decides what is subtracted, so a body that was never counted is never subtracted.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use super::resident::Resident;
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::{BodyLocation, Hint};

/// What a body counts for besides its length: about the framing in the log, and the event beside it.
pub const LIVE_OVERHEAD_BYTES: u64 = 48;

/// The unit of log positions in which needed bytes are counted: a power of two. It is not part of the state. A smaller
/// one takes more memory: 8 bytes for each unit that a run's bodies lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountUnit {
    shift: u32,
}

impl CountUnit {
    /// 1 MiB.
    pub const DEFAULT: Self = Self { shift: 20 };

    /// The largest unit that is not above so many bytes, from 4 KiB to 64 MiB.
    pub fn at_most(size_bytes: u64) -> Self {
        Self {
            shift: size_bytes.clamp(1 << 12, 1 << 26).ilog2(),
        }
    }

    /// Its size.
    pub fn size_bytes(self) -> u64 {
        1 << self.shift
    }

    /// The smallest range of whole units around a range of positions.
    pub(crate) fn around(self, positions: &Range<u64>) -> Range<u64> {
        let size_bytes = self.size_bytes();
        let end = positions.end.checked_next_multiple_of(size_bytes);
        positions.start / size_bytes * size_bytes..end.unwrap_or(u64::MAX)
    }

    fn first_position(self, unit: u32) -> u64 {
        u64::from(unit) << self.shift
    }

    /// Positions beyond any real log share the last unit.
    fn of(self, position: u64) -> u32 {
        u32::try_from(position >> self.shift).unwrap_or(u32::MAX)
    }
}

/// What a body counts for. Of those that share one, each counts something: so it stays as long as any of them has it,
/// and nobody looks for the others.
fn counted_bytes(body: BodyLocation) -> u64 {
    u64::from(body.length) - body.borrowed_bytes() + LIVE_OVERHEAD_BYTES
}

/// The bytes of some bodies by unit, in rising order. Nearly always there are one or two units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spread(Vec<(u32, u64)>);

impl Spread {
    fn add(&mut self, unit: u32, size_bytes: u64) {
        match self.0.last_mut() {
            // Nearly always a body lies behind those before it.
            Some((last, bytes)) if *last == unit => *bytes += size_bytes,
            Some((last, _)) if *last > unit => {
                match self.0.binary_search_by_key(&unit, |(unit, _)| *unit) {
                    Ok(found) => {
                        if let Some((_, bytes)) = self.0.get_mut(found) {
                            *bytes += size_bytes;
                        }
                    }
                    Err(before) => self.0.insert(before, (unit, size_bytes)),
                }
            }
            Some(_) | None => self.push(unit, size_bytes),
        }
    }

    fn push(&mut self, unit: u32, size_bytes: u64) {
        if self.0.is_empty() {
            self.0.reserve_exact(1);
        }
        self.0.push((unit, size_bytes));
    }

    /// Subtracts as much as is there. Returns how much that was.
    fn take(&mut self, unit: u32, size_bytes: u64) -> u64 {
        let Ok(found) = self.0.binary_search_by_key(&unit, |(unit, _)| *unit) else {
            return 0;
        };
        let Some((_, bytes)) = self.0.get_mut(found) else {
            return 0;
        };
        let taken = size_bytes.min(*bytes);
        *bytes -= taken;
        if *bytes == 0 {
            self.0.remove(found);
        }
        taken
    }

    /// Whether some of the bodies lie in a range of whole units.
    pub(crate) fn is_in(&self, unit: CountUnit, positions: &Range<u64>) -> bool {
        let mut units = self.0.iter().map(|(it, _)| unit.first_position(*it));
        units.any(|first| positions.contains(&first))
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        let mut before = 0;
        for (unit, size_bytes) in &self.0 {
            put_varint(out, u64::from(unit - before));
            put_varint(out, *size_bytes);
            before = *unit;
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (mut spread, mut before) = (Self::default(), 0_u32);
        for index in 0..r.varint()? {
            let (step, size_bytes) = (r.varint_u32()?, r.varint()?);
            let unit = before.checked_add(step);
            let unit = unit.filter(|_| index == 0 || step > 0);
            let unit = unit.ok_or_else(|| r.error("units of positions that do not rise"))?;
            spread.push(unit, size_bytes);
            before = unit;
        }
        Ok(spread)
    }

    /// The bytes of all of them. `None` if that is beyond 64 bits.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        let mut sizes = self.0.iter();
        sizes.try_fold(0_u64, |sum, (_, size_bytes)| sum.checked_add(*size_bytes))
    }

    #[cfg(test)]
    pub(crate) fn units(&self) -> &[(u32, u64)] {
        &self.0
    }
}

/// The sums of all spreads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Live {
    unit: CountUnit,
    by_unit: BTreeMap<u32, u64>,
    size_bytes: u64,
    /// How much of the messages is in memory: whatever counts a message's bodies knows that too.
    pub(super) resident: Hint<Resident>,
    /// How many runs have begun with a message that arrived, in this process.
    pub(super) begun_runs: Hint<u64>,
}

impl Live {
    pub(crate) fn new(unit: CountUnit) -> Self {
        Self {
            unit,
            by_unit: BTreeMap::new(),
            size_bytes: 0,
            resident: Hint::default(),
            begun_runs: Hint::default(),
        }
    }

    /// How much of the messages is in memory.
    pub(crate) fn resident(&self) -> Resident {
        *self.resident
    }

    /// Counts what has come into memory, or left it.
    pub(crate) fn recount(&mut self, before: Resident, after: Resident) {
        self.resident.take(before);
        self.resident.add(after);
    }

    /// How many runs have begun since this process did.
    pub(crate) fn begun_runs(&self) -> u64 {
        *self.begun_runs
    }

    /// The same unit, for an entity that is not part of the partition yet.
    pub(crate) fn apart(&self) -> Self {
        Self::new(self.unit)
    }

    pub(crate) fn unit(&self) -> CountUnit {
        self.unit
    }

    /// Counts a body that is needed from now on.
    pub(crate) fn add(&mut self, spread: &mut Spread, body: BodyLocation) {
        let unit = self.unit.of(body.record);
        let size_bytes = counted_bytes(body);
        spread.add(unit, size_bytes);
        self.raise(unit, size_bytes);
    }

    /// Counts a body in a spread that is not counted yet.
    pub(crate) fn add_apart(&self, spread: &mut Spread, body: BodyLocation) {
        spread.add(self.unit.of(body.record), counted_bytes(body));
    }

    /// Counts a body no longer.
    pub(crate) fn take(&mut self, spread: &mut Spread, body: BodyLocation) {
        let unit = self.unit.of(body.record);
        let taken = spread.take(unit, counted_bytes(body));
        self.lower(unit, taken);
    }

    /// Counts all bodies of a spread.
    pub(crate) fn add_all(&mut self, spread: &Spread) {
        for (unit, size_bytes) in &spread.0 {
            self.raise(*unit, *size_bytes);
        }
    }

    /// Counts the bodies of a spread no longer.
    pub(crate) fn take_all(&mut self, spread: &Spread) {
        for (unit, size_bytes) in &spread.0 {
            self.lower(*unit, *size_bytes);
        }
    }

    fn raise(&mut self, unit: u32, size_bytes: u64) {
        *self.by_unit.entry(unit).or_default() += size_bytes;
        self.size_bytes += size_bytes;
    }

    fn lower(&mut self, unit: u32, size_bytes: u64) {
        self.size_bytes -= size_bytes;
        if let Some(bytes) = self.by_unit.get_mut(&unit) {
            *bytes -= size_bytes;
            if *bytes == 0 {
                self.by_unit.remove(&unit);
            }
        }
    }

    /// The bytes of all bodies.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The bytes of the bodies in the units that a range of positions touches.
    pub(crate) fn size_bytes_in(&self, positions: Range<u64>) -> u64 {
        self.counted_in(positions).sum()
    }

    /// Whether there are any, without a walk over all units of a long range.
    pub(crate) fn has_any_in(&self, positions: Range<u64>) -> bool {
        self.counted_in(positions).next().is_some()
    }

    /// The units that a range of positions touches, which is not empty.
    pub(crate) fn units_of(&self, positions: &Range<u64>) -> RangeInclusive<u32> {
        let last = positions.end.saturating_sub(1);
        self.unit.of(positions.start)..=self.unit.of(last)
    }

    /// The bytes of each unit that has some.
    fn counted_in(&self, positions: Range<u64>) -> impl Iterator<Item = u64> {
        let units = self.units_of(&positions);
        let counted = (!positions.is_empty()).then(|| self.by_unit.range(units));
        counted.into_iter().flatten().map(|(_, bytes)| *bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::Hold;

    fn body(record: u64, length: u32) -> BodyLocation {
        BodyLocation::new(record, 0, length)
    }

    #[test]
    fn a_unit_is_a_power_of_two_between_bounds() {
        let sizes = [0, 4096, 16 * 1024, 96 * 1024, 1 << 20, 1 << 40];
        let units = sizes.map(|size| CountUnit::at_most(size).size_bytes());
        let expected = [4096, 4096, 16 * 1024, 64 * 1024, 1 << 20, 1 << 26];
        assert_eq!(units, expected);
        let unit = CountUnit::at_most(4096);
        assert_eq!(unit.around(&(4097..8192)), 4096..8192);
        assert_eq!(unit.around(&(4095..8193)), 0..12_288);
        assert_eq!(unit.around(&(0..u64::MAX)).end, u64::MAX);
    }

    #[test]
    fn bodies_are_counted_in_the_unit_of_their_record() {
        let mut live = Live::new(CountUnit::at_most(4096));
        let (mut one, mut other) = (Spread::default(), Spread::default());
        live.add(&mut one, body(8192, 100));
        live.add(&mut one, body(100, 10));
        live.add(&mut one, body(9000, 2));
        live.add(&mut one, body(5000, 1));
        live.add(&mut other, body(4096, 0));
        live.add(&mut other, body(u64::MAX, 0));
        assert_eq!(one.units(), [(0, 58), (1, 49), (2, 198)]);
        assert_eq!(live.size_bytes_in(4096..8192), 49 + 48);
        assert_eq!(live.size_bytes_in(8191..8193), 49 + 48 + 198);
        assert_eq!(live.size_bytes_in(8192..8192), 0);
        assert_eq!(live.size_bytes_in(u64::MAX - 1..u64::MAX), 48);
        assert!(live.has_any_in(4096..4097) && !live.has_any_in(12_288..20_000));
        assert!(!live.has_any_in(4096..4096));
        assert!(one.is_in(live.unit(), &(4096..8192)));
        assert!(!other.is_in(live.unit(), &(8192..16_384)));
        live.take(&mut one, body(8192, 100));
        live.take(&mut one, body(5000, 1));
        live.take_all(&other);
        assert_eq!(one.units(), [(0, 58), (2, 50)]);
        assert_eq!(live.size_bytes(), 58 + 50);
        live.take_all(&one);
        assert_eq!(live, Live::new(live.unit()));
        live.add_all(&one);
        assert_eq!(live.size_bytes(), 58 + 50);
    }

    #[test]
    fn a_body_that_is_shared_counts_its_length_once() {
        let mut live = Live::new(CountUnit::at_most(4096));
        let (mut one, mut other) = (Spread::default(), Spread::default());
        let [lent, borrowed] = [Hold::Lends, Hold::Borrows].map(|hold| body(100, 1000).with(hold));
        live.add(&mut one, lent);
        live.add(&mut other, borrowed);
        live.add(&mut other, borrowed);
        assert_eq!(live.size_bytes(), 1000 + 3 * 48);
        live.take(&mut one, lent);
        live.take(&mut other, borrowed);
        // The last holder keeps the body.
        assert_eq!(live.size_bytes_in(0..4096), 48);
        live.take(&mut other, borrowed);
        assert!(!live.has_any_in(0..4096));
    }

    #[test]
    fn what_was_never_counted_is_not_subtracted() {
        let mut live = Live::new(CountUnit::DEFAULT);
        let (mut one, mut other) = (Spread::default(), Spread::default());
        live.add(&mut one, body(0, 10));
        live.add(&mut other, body(0, 10));
        live.take(&mut one, body(1 << 30, 10));
        live.take(&mut one, body(0, 1000));
        assert_eq!(live.size_bytes(), 58);
        assert_eq!(one.units(), []);
    }
}
