//! How much of a partition's messages is in memory.

/// Sums over all runs. They are no part of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// The records in memory.
    pub records: u64,
    /// The runs of which records may not be.
    pub cold_runs: u64,
    /// Changes to records that are not in memory.
    pub patches: u64,
    /// The messages that were set aside, because their records are lost. They are in no memory.
    pub quarantined: u64,
    /// The messages that wait for a time that only their pages have.
    pub far: u64,
    /// The remembered ids in memory, in blocks that can leave it.
    pub ids: u64,
    /// The blocks of remembered ids that are not in memory.
    pub cold_blocks: u64,
}

/// What a record takes in memory, with its share of what lies around it.
const RECORD_SIZE_BYTES: u64 = 61;

/// Likewise a patch.
const PATCH_SIZE_BYTES: u64 = 80;

/// Likewise a remembered id, without the index.
const ID_SIZE_BYTES: u64 = 20;

impl Resident {
    /// So many records.
    pub fn of_records(records: u64) -> Self {
        Self {
            records,
            ..Self::default()
        }
    }

    /// What the records, the patches and the ids take in memory.
    pub fn size_bytes(&self) -> u64 {
        self.records * RECORD_SIZE_BYTES
            + self.patches * PATCH_SIZE_BYTES
            + self.ids * ID_SIZE_BYTES
    }

    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.records += other.records;
        self.cold_runs += other.cold_runs;
        self.patches += other.patches;
        self.quarantined += other.quarantined;
        self.far += other.far;
        self.ids += other.ids;
        self.cold_blocks += other.cold_blocks;
    }

    pub(super) fn take(&mut self, other: Self) {
        self.records -= other.records;
        self.cold_runs -= other.cold_runs;
        self.patches -= other.patches;
        self.quarantined -= other.quarantined;
        self.far -= other.far;
        self.ids -= other.ids;
        self.cold_blocks -= other.cold_blocks;
    }
}
