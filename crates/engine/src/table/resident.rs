//! How much of a partition's messages is in memory.

/// Sums over all runs. They are no part of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// The records in memory.
    pub records: u64,
    /// The runs of which records may not be.
    pub cold_runs: u64,
    /// The messages that were set aside, because their records are lost. They are in no memory.
    pub quarantined: u64,
}

/// What a record takes in memory, with its share of what lies around it.
const RECORD_SIZE_BYTES: u64 = 61;

impl Resident {
    /// What the records take in memory.
    pub fn size_bytes(&self) -> u64 {
        self.records * RECORD_SIZE_BYTES
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.records += other.records;
        self.cold_runs += other.cold_runs;
        self.quarantined += other.quarantined;
    }

    pub(super) fn take(&mut self, other: Self) {
        self.records -= other.records;
        self.cold_runs -= other.cold_runs;
        self.quarantined -= other.quarantined;
    }
}
