//! Where a body is in the log.

/// The location of a body in the log: a logical place, known before the append.
///
/// Only the log maps it to a file. It stays the same when a record is copied to another segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyLocation {
    /// Log position of the record that holds the body.
    pub record: u64,
    /// Where the body begins in that record's payload.
    pub offset: u32,
    /// Its length in bytes.
    pub length: u32,
}

impl BodyLocation {
    /// Whether it is the place of a body: none begins where the framing of the first record does.
    pub(crate) fn is_of_a_body(self) -> bool {
        self != Self::default()
    }
}

/// What is known of the bytes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRead {
    /// They are what was written, and stay in memory until the decision is answered.
    Whole,
    /// They are not what was written.
    Damaged,
    /// They were not read yet.
    Missing,
}
