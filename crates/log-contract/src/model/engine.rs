//! What the machines behind the link have agreed on.
//!
//! Each request is applied as a whole, at one moment, and can be applied again: what has changed something once changes
//! nothing the second time. There are no threads and no faults here.

use kew_log::{BootTime, Epoch, LogPosition};

use crate::memory::{FIRST_POSITION, Placed};

/// One opening of the log by a member. A member that starts again is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) member: usize,
    pub(super) number: u64,
}

/// A place between two records, as the record before it gives it: where it ends, and its content checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: LogPosition,
    pub(super) content: u32,
}

/// The agreed log.
#[derive(Debug, Default)]
pub(super) struct Engine {
    pub(super) now: BootTime,
    /// The newest epoch, and the opening that has begun it.
    epoch: Epoch,
    owner: Option<Opening>,
    /// In order. The end of each is the beginning of the next one.
    records: Vec<Placed>,
    granted: Granted,
}

/// Which member is promised that no other one commits anything, and until when.
///
/// A lease belongs to a member, so that one that starts again does not wait for its own. That is safe because a member
/// is one process at a time, which the link asserts.
#[derive(Clone, Copy, Debug, Default)]
struct Granted {
    member: usize,
    until: BootTime,
}

/// Why an owner's request changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Another opening has begun this epoch.
    Fenced(Epoch),
    /// The lease of another member lasts for so long, in microseconds. It is no moment: machines have clocks of their
    /// own.
    Leased(u64),
    /// The log does not end at that place, and does not have these records there.
    Elsewhere,
}

/// What a read finds.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) epoch: Epoch,
    /// Whether the log has the place.
    pub(super) has_place: bool,
    /// What lies behind it.
    pub(super) records: Vec<Placed>,
}

impl Engine {
    /// Begins an epoch, if it is above all others. Returns where the log ends: former owners add nothing from now on.
    pub(super) fn begin(&mut self, opening: Opening, epoch: Epoch) -> Result<Place, Epoch> {
        let is_done = self.is_owner(opening, epoch);
        if epoch <= self.epoch && !is_done {
            return Err(self.epoch);
        }
        self.epoch = epoch;
        self.owner = Some(opening);
        Ok(self.end())
    }

    /// Promises the owner that no other member commits anything for so long from now on.
    pub(super) fn renew(
        &mut self,
        opening: Opening,
        epoch: Epoch,
        lease_ms: u64,
    ) -> Result<(), Refused> {
        self.check_owner(opening, epoch)?;
        self.check_lease(opening)?;
        self.granted = Granted {
            member: opening.member,
            until: self.now.plus_ms(lease_ms),
        };
        Ok(())
    }

    /// Adds records of the owner, if the log ends at the place that they continue, or has them there.
    ///
    /// # Panics
    ///
    /// If the records do not continue that place and each other: no request of a correct owner is like that.
    pub(super) fn append(
        &mut self,
        opening: Opening,
        epoch: Epoch,
        after: Place,
        records: &[Placed],
    ) -> Result<(), Refused> {
        check_chain(after, records);
        self.check_owner(opening, epoch)?;
        let is_there = |found: &[Placed]| in_common(found, records) == records.len();
        if self.find(after).is_some_and(is_there) {
            return Ok(());
        }
        if self.end() != after {
            return Err(Refused::Elsewhere);
        }
        self.check_lease(opening)?;
        self.records.extend_from_slice(records);
        Ok(())
    }

    /// What lies behind a place.
    pub(super) fn read(&self, after: Place) -> Found {
        let found = self.find(after);
        Found {
            epoch: self.epoch,
            has_place: found.is_some(),
            records: found.unwrap_or_default().to_vec(),
        }
    }

    /// Of records that a copy has, up to a place: from where on they are not those of the log.
    pub(super) fn first_difference(&self, copy: &[(LogPosition, u32)], end: Place) -> LogPosition {
        let differs = |(at, content): &&(LogPosition, u32)| {
            let found = self.records.binary_search_by_key(at, |(record, _)| *record);
            found.map_or(true, |index| {
                self.records[index].1.sealed.content != *content
            })
        };
        let first = copy.iter().find(differs);
        first.map_or(end.at, |(at, _)| *at)
    }

    /// Where the log ends.
    pub(super) fn end(&self) -> Place {
        place_behind(&self.records)
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What lies behind a place, if the log has it.
    fn find(&self, after: Place) -> Option<&[Placed]> {
        let index = self.records.partition_point(|(at, _)| *at < after.at);
        let (before, behind) = self.records.split_at(index);
        (place_behind(before) == after).then_some(behind)
    }

    fn is_owner(&self, opening: Opening, epoch: Epoch) -> bool {
        epoch == self.epoch && self.owner == Some(opening)
    }

    fn check_owner(&self, opening: Opening, epoch: Epoch) -> Result<(), Refused> {
        match self.is_owner(opening, epoch) {
            true => Ok(()),
            false => Err(Refused::Fenced(self.epoch)),
        }
    }

    fn check_lease(&self, opening: Opening) -> Result<(), Refused> {
        let Granted { member, until } = self.granted;
        match member == opening.member || until.has_passed(self.now) {
            true => Ok(()),
            false => Err(Refused::Leased(until.as_us() - self.now.as_us())),
        }
    }
}

/// Each record names the end and the content of the one before.
fn check_chain(after: Place, records: &[Placed]) {
    let mut here = after;
    for record in records {
        let named = place_before(record);
        assert!(named == here, "a record for {named:?} is sent for {here:?}");
        here = place_behind(std::slice::from_ref(record));
    }
}

impl Found {
    /// Where the log ends, if it has the place.
    pub(super) fn end(&self, after: Place) -> Place {
        match self.records.is_empty() {
            true => after,
            false => place_behind(&self.records),
        }
    }
}

/// Where a record goes, as it says itself.
pub(super) fn place_before((at, stored): &Placed) -> Place {
    Place {
        at: *at,
        content: stored.previous,
    }
}

/// Where the next record goes behind some.
pub(super) fn place_behind(records: &[Placed]) -> Place {
    let last = records.last().map(|(_, last)| &last.sealed);
    last.map_or(Place::FIRST, |last| Place {
        at: last.end,
        content: last.content,
    })
}

impl Place {
    /// Before the first record.
    pub(super) const FIRST: Self = Self {
        at: FIRST_POSITION,
        content: 0,
    };
}

/// How many of these records lie at the beginning of what was found.
pub(super) fn in_common(found: &[Placed], records: &[Placed]) -> usize {
    let key = |(at, stored): &Placed| (*at, stored.epoch, stored.sealed.content);
    let pairs = found.iter().zip(records);
    pairs
        .take_while(|(one, other)| key(one) == key(other))
        .count()
}
