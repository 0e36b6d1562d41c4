//! What a turn may write: with plenty of space, on a full disk, and with no space at all.

use kew_engine::bus::DUE_SIZE_BYTES_MAX;
use kew_engine::{Class, Command, Description, State};
use kew_log::{FullLimits, LogLimits};

use super::Partition;

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
        /// The room for the first command.
        size_bytes_max: u64,
    },
    /// The disk is full. Commands that free messages are admitted, so that the disk can be drained.
    SettlementOnly {
        /// The largest command that is admitted.
        size_bytes_max: u64,
        /// Whether a command may bring a change to a message's properties.
        takes_bodies: bool,
        /// Whether bodies may move.
        takes_moves: bool,
    },
    /// There is no room even for commands that free messages.
    None,
}

/// The room that a turn on a full disk has for its due events.
pub(super) fn due_bytes_on_full_disk() -> u64 {
    u64::from(SETTLEMENT_TICK_BUDGET) * DUE_SIZE_BYTES_MAX
}

impl Space {
    /// The space while the disk is not full.
    pub(super) fn plenty(limits: LogLimits, due_budget: u32) -> Self {
        Self::Plenty {
            due_budget,
            // The rest is for what is due.
            size_bytes_max: limits.batch_size_bytes_max / 8 * 7,
        }
    }

    /// The space on a full disk.
    pub(super) fn on_full_disk(full: FullLimits) -> Self {
        Self::SettlementOnly {
            size_bytes_max: (full.batch_size_bytes_max).saturating_sub(due_bytes_on_full_disk()),
            takes_bodies: full.takes_bodies,
            takes_moves: full.takes_moves,
        }
    }

    /// Whether a command that writes is admitted. It needs this many bytes of a batch.
    pub(super) fn admits(self, command: &Description<'_>, needed: u64) -> bool {
        match self {
            Self::Plenty { .. } => true,
            Self::SettlementOnly {
                size_bytes_max,
                takes_bodies,
                takes_moves: _,
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
    pub(super) fn takes_moves(self, needed: u64) -> bool {
        match self {
            Self::Plenty { .. } => true,
            Self::SettlementOnly {
                size_bytes_max,
                takes_bodies: _,
                takes_moves,
            } => needed <= size_bytes_max && takes_moves,
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
            Self::Plenty { size_bytes_max, .. } | Self::SettlementOnly { size_bytes_max, .. } => {
                size_bytes_max
            }
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
            Self::Plenty { due_budget, .. } => due_budget,
            Self::SettlementOnly { .. } => SETTLEMENT_DUE_BUDGET,
            Self::None => 0,
        }
    }
}

impl<T> Partition<T> {
    /// Whether the log has found the disk full.
    pub(super) fn is_full(&self) -> bool {
        self.log.limits().full.is_some()
    }
}
