//! Claims: what says up to where a log was durable, and in which epoch it was said.
//!
//! A log can be cut: a later owner goes on before a position that an earlier one has claimed, because the earlier one
//! wrote what was never agreed. From there on the earlier owner's records are void, and so are its claims. So a claim
//! counts at most up to the beginning of each later epoch. What says where an epoch began may also name a later
//! position of it: then a claim counts for more than it should, and the start is refused.
//!
//! In a log that was never cut, no claim reaches beyond the beginning of a later epoch: a recovery refuses to begin one
//! before a claim. So each claim counts in full.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::format::SegmentHeader;
use crate::proof::FoundProof;
use crate::{Epoch, LogPosition};

/// The claims of a directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    /// Up to where each epoch says that the log was durable.
    claimed: BTreeMap<Epoch, LogPosition>,
    /// The highest claim of which nothing says the epoch. It counts in full.
    of_unknown_epoch: LogPosition,
    /// Where epochs began, or a later position of theirs.
    beginnings: BTreeMap<Epoch, LogPosition>,
}

impl Claims {
    /// `snapshots` are positions, each with the epoch in which the snapshot was begun, if its header is whole.
    pub(crate) fn of<'a>(
        headers: impl IntoIterator<Item = &'a SegmentHeader>,
        snapshots: impl IntoIterator<Item = (LogPosition, Option<Epoch>)>,
        proof: &FoundProof,
    ) -> Self {
        let mut claims = Self::default();
        for header in headers {
            claims.claim(header.epoch, header.durable);
            // A recovery made it, and begins where it says that the log ended. One that a repair has rewritten does not
            // say that any more.
            if header.first.is_some_and(|first| first <= header.durable) {
                claims.begin(header.epoch, header.durable);
            }
        }
        for (position, epoch) in snapshots {
            match epoch {
                Some(epoch) => {
                    claims.claim(epoch, position);
                    claims.begin(epoch, position);
                }
                None => claims.of_unknown_epoch = claims.of_unknown_epoch.max(position),
            }
        }
        for mark in &proof.marks {
            claims.claim(mark.owner.epoch, mark.durable);
            claims.begin(mark.owner.epoch, mark.owner.began);
        }
        claims
    }

    fn claim(&mut self, epoch: Epoch, durable: LogPosition) {
        let claimed = self.claimed.entry(epoch).or_default();
        *claimed = durable.max(*claimed);
    }

    fn begin(&mut self, epoch: Epoch, at: LogPosition) {
        let began = self.beginnings.entry(epoch).or_insert(at);
        *began = at.min(*began);
    }

    /// How far an epoch's claim counts.
    pub(crate) fn counted(&self, epoch: Epoch, durable: LogPosition) -> LogPosition {
        let later = (Bound::Excluded(epoch), Bound::Unbounded);
        let later = self.beginnings.range(later).map(|(_, began)| *began);
        later.fold(durable, LogPosition::min)
    }

    /// Everything before this position was durable, and still counts.
    pub(crate) fn proven(&self) -> LogPosition {
        let claimed = self.claimed.iter();
        let counted = claimed.map(|(epoch, durable)| self.counted(*epoch, *durable));
        counted.fold(self.of_unknown_epoch, LogPosition::max)
    }

    /// The highest position that anything claims, whether it counts or not.
    pub(crate) fn highest(&self) -> LogPosition {
        let claimed = self.claimed.values().copied();
        claimed.fold(self.of_unknown_epoch, LogPosition::max)
    }

    /// The highest epoch that has claimed anything, 0 if there is none.
    pub(crate) fn epoch_max(&self) -> Epoch {
        let highest = self.claimed.last_key_value();
        highest.map(|(epoch, _)| *epoch).unwrap_or_default()
    }

    /// How many epochs have a claim that does not count in full.
    fn void(&self) -> u64 {
        let claimed = self.claimed.iter();
        let void = claimed.filter(|(epoch, durable)| self.counted(**epoch, **durable) < **durable);
        void.count() as u64
    }
}

/// What is known to have been durable while the records of a log are followed.
#[derive(Debug)]
pub(crate) struct Proven {
    claims: Claims,
    durable: LogPosition,
    /// The highest epoch of the records so far.
    epoch: Epoch,
    /// What did not count because a later epoch began before it, without the claims of the directory.
    void: u64,
}

impl Proven {
    /// Before the first record that follows a snapshot of this epoch.
    pub(crate) fn new(claims: Claims, epoch: Epoch) -> Self {
        let durable = claims.proven();
        Self {
            claims,
            durable,
            epoch,
            void: 0,
        }
    }

    pub(crate) fn durable(&self) -> LogPosition {
        self.durable
    }

    /// How many claims and records did not count, because a later owner went on before them. 0 if the log was never
    /// cut.
    pub(crate) fn void(&self) -> u64 {
        self.void + self.claims.void()
    }

    /// Whether a record of this epoch counts at a position behind all records so far. One of an earlier epoch than the
    /// record before it is void.
    pub(crate) fn enter(&mut self, epoch: Epoch, at: LogPosition) -> bool {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.claims.begin(epoch, at);
            // What records before this one have proven lies before it.
            self.durable = self.claims.proven().max(self.durable.min(at));
        }
        let is_void = self.is_void(epoch);
        self.void += u64::from(is_void);
        !is_void
    }

    /// Whether records of this epoch do not count any more.
    pub(crate) fn is_void(&self, epoch: Epoch) -> bool {
        epoch < self.epoch
    }

    /// A claim in a record, or in the place of a segment.
    pub(crate) fn prove(&mut self, epoch: Epoch, durable: LogPosition) {
        if durable > self.durable {
            let counted = self.claims.counted(epoch, durable);
            self.void += u64::from(counted < durable);
            self.durable = self.durable.max(counted);
        }
    }

    /// A claim that lies before a record that counts.
    pub(crate) fn prove_passed(&mut self, durable: LogPosition) {
        self.durable = self.durable.max(durable);
    }
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
