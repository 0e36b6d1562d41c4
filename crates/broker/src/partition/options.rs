//! How a partition is run.

use std::sync::Arc;

use kew_engine::bus::{COPIES_AT_ONCE_MAX, Format, NoFormat};
use kew_engine::{DUE_BUDGET, RunLength};
use kew_log::LogOptions;

/// How a partition is run.
#[derive(Clone, Debug)]
pub struct PartitionOptions {
    /// The log's own options.
    pub log: LogOptions,
    /// A snapshot is due after four times the bytes that the last one has written, and after at least this many bytes of
    /// log, or at most four times as many.
    pub snapshot_after_bytes: u64,
    /// Or after as many effects as a tenth of the messages, sessions and ids, with 64 for each entity, and after at least
    /// this many, or at most fifty times as many: small ones are many in few bytes, and a start applies each. But then
    /// after a quarter of the bytes that the last one has written, and nine times as long as that took.
    pub snapshot_after_effects: u64,
    /// How many due events one turn may add before it decides commands.
    pub tick_budget: u32,
    /// How many due events of a bus queue a command on it carries out first.
    pub due_budget: u32,
    /// How many copies of messages a command that sends to a topic makes at once. Ticks make the others.
    pub copies_at_once: u64,
    /// How many copies a topic may owe for messages that wait in it before those who send to it wait, too. Ticks make a
    /// thousand copies.
    pub copies_owed_max: u64,
    /// How many sequence numbers share a run in a partition that is new. An old one keeps its own length.
    pub run_length: RunLength,
    /// How much of a snapshot is gathered at once, in steps of 20 ns.
    pub gather_steps: u64,
    /// Whether a start reads the log on a thread of its own, beside the one that calls. The result is the same.
    pub replays_beside: bool,
    /// How much memory records of messages may take, as far as pages have them.
    pub resident_limit: ResidentLimit,
    /// Records may take so many bytes before commands wait for a snapshot, however low the limit is. A batch or two bring as
    /// much. And memory makes no snapshot due before a sixteenth of this has changed.
    pub memory_slack_bytes: u64,
    /// A message that waits for a time is in an order by that time. If it is due later than this from now, it leaves that
    /// order with its record, and its run is read when the first of such messages is due.
    pub far_ms: u64,
    /// How many bytes a second are read to find damage; 0 for none. The driver keeps the rate.
    pub scrub_bytes_per_second: u64,
    /// How long after the beginning of a pass of the scrub the next one begins, unless the pass takes longer. The
    /// first one begins with the partition.
    pub scrub_interval_ms: u64,
    /// How decisions read the messages that rules of subscriptions look at. A front end gives its own.
    pub format: Arc<dyn Format>,
}

/// How much memory records of messages may take, as far as pages have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidentLimit {
    /// As much as all of them take.
    None,
    /// So many bytes.
    Bytes(u64),
    /// [`ResidentLimit::BYTES_MIN`], or two bytes for each message if that is more: then what clients use of a large backlog
    /// has a place, beside the half byte that each message takes which has left memory.
    ByBacklog,
}

impl ResidentLimit {
    /// The limit by the backlog, up to 16 million messages.
    pub const BYTES_MIN: u64 = 32 << 20;

    const BYTES_PER_MESSAGE: u64 = 2;

    /// So many bytes, or all.
    pub fn of(bytes: Option<u64>) -> Self {
        bytes.map_or(Self::None, Self::Bytes)
    }

    /// In bytes, with so many messages.
    pub(crate) fn bytes(self, messages: u64) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::ByBacklog => {
                let bytes = messages.saturating_mul(Self::BYTES_PER_MESSAGE);
                Some(bytes.max(Self::BYTES_MIN))
            }
        }
    }
}

impl Default for PartitionOptions {
    fn default() -> Self {
        Self {
            log: LogOptions::default(),
            snapshot_after_bytes: 64 * 1024 * 1024,
            snapshot_after_effects: 40_000,
            tick_budget: 256,
            due_budget: DUE_BUDGET,
            copies_at_once: COPIES_AT_ONCE_MAX as u64,
            copies_owed_max: 1 << 16,
            run_length: RunLength::DEFAULT,
            gather_steps: 25_000,
            replays_beside: true,
            resident_limit: ResidentLimit::ByBacklog,
            memory_slack_bytes: 1 << 20,
            far_ms: 60 * 60 * 1000,
            scrub_bytes_per_second: 8 << 20,
            scrub_interval_ms: 24 * 3600 * 1000,
            format: Arc::new(NoFormat),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_for_records_grows_with_a_large_backlog() {
        let by_backlog = |messages| ResidentLimit::ByBacklog.bytes(messages);
        assert_eq!(by_backlog(0), Some(32 << 20));
        assert_eq!(by_backlog(16 << 20), Some(32 << 20));
        assert_eq!(by_backlog(100_000_000), Some(200_000_000));
        assert_eq!(by_backlog(u64::MAX), Some(u64::MAX));
        assert_eq!(ResidentLimit::of(Some(7)).bytes(100), Some(7));
        assert_eq!(ResidentLimit::of(None).bytes(100), None);
    }
}
