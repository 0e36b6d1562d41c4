//! How many messages came into a queue and were completed, for metrics.

/// Counts since the partition was opened. They are kept in a hint, because they are no part of the state: a replay
/// counts nothing, and no snapshot has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Messages that came.
    pub arrived: u64,
    /// Messages that left, but for those that nobody handled: expired ones, and those that did not come yet.
    pub completed: u64,
    /// Messages that were dropped because their ids were known. Queue Storage drops none.
    pub duplicates: u64,
}
