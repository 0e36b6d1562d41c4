//! The message annotations that rules see and actions change.

/// The sender's partition key.
pub(crate) const PARTITION_KEY: &str = "x-opt-partition-key";

/// The partition key for an entity that the message is sent through.
pub(crate) const VIA_PARTITION_KEY: &str = "x-opt-via-partition-key";

/// When the message becomes active.
pub const SCHEDULED_ENQUEUE_TIME: &str = "x-opt-scheduled-enqueue-time";
