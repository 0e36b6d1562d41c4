//! What a turn may write: with plenty of space, on a full disk, and with no space at all.

use kew_engine::{Class, Command, Description, State};
use kew_log::{BATCH_SIZE_BYTES_MAX, Log};

/// How many due events a turn may add on a full disk.
pub(super) const SETTLEMENT_TICK_BUDGET: u32 = 16;

/// How many due events of a bus queue a command on it carries out first on a full disk.
const SETTLEMENT_DUE_BUDGET: u32 = 2;

/// The most messages that one receive returns, or one purge removes, on a full disk.
const SETTLEMENT_COUNT_MAX: u32 = 1024;

/// The largest such command with its events, in bytes of a batch. A larger one is trimmed until it fits.
const SETTLEMENTS_SIZE_BYTES: u64 = 64 * 1024;

/// The space that the log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Plenty {
        /// How many due events of a bus queue a command on it carries out first.
        due_budget: u32,
    },
    /// The disk is full. Commands that free messages are admitted, so that the disk can be drained.
    SettlementOnly {
        /// The largest command that is admitted.
        size_bytes_max: u64,
        /// Whether a command may bring a change to a message's properties.
        takes_bodies: bool,
    },
    /// There is no room even for commands that free messages.
    None,
}

impl Space {
    /// Whether a command that writes is admitted. It needs this many bytes of a batch.
    pub(super) fn admits(self, command: &Description<'_>, needed: u64) -> bool {
        match self {
            Self::Plenty { .. } => true,
            Self::SettlementOnly {
                size_bytes_max,
                takes_bodies,
            } => {
                // A body takes more space than any settlement frees. The exception is a change to a
                // message's properties at the end of its lock; only few segments may hold such changes.
                let is_bodiless =
                    command.body_size_bytes == 0 || (takes_bodies && command.changes_properties);
                let is_small = is_bodiless && needed <= size_bytes_max;
                command.class == Class::Consume && is_small
            }
            Self::None => false,
        }
    }

    /// Whether bodies may move that need this many bytes of a batch.
    pub(super) fn takes_moves(self, needed: u64, log: &Log) -> bool {
        match self {
            Self::Plenty { .. } => true,
            Self::SettlementOnly { size_bytes_max, .. } => {
                needed <= size_bytes_max && log.takes_moved_bodies()
            }
            Self::None => false,
        }
    }

    /// Whether moves need more than a full disk takes at once, whatever goes meanwhile.
    pub(super) fn never_takes(self, needed: u64) -> bool {
        match self {
            Self::SettlementOnly { size_bytes_max, .. } => needed > size_bytes_max,
            Self::Plenty { .. } | Self::None => false,
        }
    }

    /// The room that every turn has for its first command. No turn has more, whatever the disk has: the largest batch
    /// is known before a decision, and is the same for every kind of log.
    pub(super) fn turn_bytes(self) -> u64 {
        match self {
            // The rest is for what is due.
            Self::Plenty { .. } => BATCH_SIZE_BYTES_MAX / 8 * 7,
            Self::SettlementOnly { size_bytes_max, .. } => size_bytes_max,
            Self::None => 0,
        }
    }

    /// Makes a request smaller if a smaller answer is enough.
    pub(super) fn trim(self, command: &mut Command, state: &State) {
        let Self::SettlementOnly { size_bytes_max, .. } = self else {
            return;
        };
        let size_bytes = size_bytes_max.min(SETTLEMENTS_SIZE_BYTES);
        let mut count = SETTLEMENT_COUNT_MAX;
        while count > 1 && self.needed_bytes(&command.describe(), state) > size_bytes {
            if !command.limit_count(count) {
                return;
            }
            count /= 2;
        }
    }

    /// The room that a command needs, with the due work before it.
    pub(super) fn needed_bytes(self, command: &Description<'_>, state: &State) -> u64 {
        command.room_size_bytes_max(state, self.due_budget())
    }

    /// How many due events of a bus queue a command on it carries out first.
    pub(super) fn due_budget(self) -> u32 {
        match self {
            Self::Plenty { due_budget } => due_budget,
            Self::SettlementOnly { .. } => SETTLEMENT_DUE_BUDGET,
            Self::None => 0,
        }
    }
}
