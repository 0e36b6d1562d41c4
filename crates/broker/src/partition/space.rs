//! What a turn may write: with plenty of space, on a full disk, and with no space at all.

use kew_engine::bus::BusCommand;
use kew_engine::{Command, DUE_BUDGET, State};

use super::PartitionOptions;
use crate::{Class, body_size_bytes};

/// How many due events a turn may add on a full disk.
pub(super) const SETTLEMENT_TICK_BUDGET: u32 = 16;

/// How many due events of a bus queue a command on it carries out first on a full disk.
const SETTLEMENT_DUE_BUDGET: u32 = 2;

/// The most messages that one receive returns, or one purge removes, on a full disk.
const SETTLEMENT_COUNT_MAX: u32 = 1024;

/// The largest such command with its events, in bytes of a batch. A larger one is trimmed until it fits.
const SETTLEMENTS_SIZE_BYTES: u64 = 64 * 1024;

/// The largest command of a storage queue that is admitted on a full disk, in bytes of a batch.
const SETTLEMENT_SIZE_BYTES_MAX: u64 = 4096;

/// The space that the log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Plenty,
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
    /// Whether a command that writes is admitted.
    pub(super) fn admits(self, command: &Command, needed: u64) -> bool {
        match self {
            Self::Plenty => true,
            Self::SettlementOnly {
                size_bytes_max,
                takes_bodies,
            } => {
                // A body takes more space than any settlement frees. The exception is a change to a
                // message's properties at the end of its lock; only few segments may hold such changes.
                let is_bodiless = body_size_bytes(command) == 0
                    || (takes_bodies && matches!(command, Command::Bus(_)));
                let is_small = is_bodiless && needed <= size_bytes_max;
                Class::of(command) == Class::Consume && is_small
            }
            Self::None => false,
        }
    }

    /// The room that every turn has for its first command.
    pub(super) fn turn_bytes(self) -> u64 {
        match self {
            Self::Plenty => u64::MAX,
            Self::SettlementOnly { size_bytes_max, .. } => size_bytes_max,
            Self::None => 0,
        }
    }

    /// Makes a request smaller if a smaller answer is enough.
    pub(super) fn trim(self, command: &mut Command) {
        if let (Self::SettlementOnly { size_bytes_max, .. }, Command::Bus(command)) =
            (self, command)
        {
            let size_bytes = size_bytes_max.min(SETTLEMENTS_SIZE_BYTES);
            let mut count = SETTLEMENT_COUNT_MAX;
            while count > 1 && command.size_bytes_max(self.due_budget()) > size_bytes {
                command.limit_count(count);
                count /= 2;
            }
        }
    }

    /// How many due events of a bus queue a command on it carries out first.
    pub(super) fn due_budget(self) -> u32 {
        match self {
            Self::Plenty => DUE_BUDGET,
            Self::SettlementOnly { .. } => SETTLEMENT_DUE_BUDGET,
            Self::None => 0,
        }
    }

    /// The room that a command needs, with the due events of its queue.
    pub(super) fn needed_bytes(self, command: &Command, options: &PartitionOptions) -> u64 {
        if let Command::Bus(command) = command {
            return command.size_bytes_max(self.due_budget());
        }
        match self {
            Self::Plenty => options.command_size_bytes_max,
            Self::SettlementOnly { .. } => SETTLEMENT_SIZE_BYTES_MAX,
            // A command that takes no room can always be decided.
            Self::None => 0,
        }
    }
}

/// Whether a command only reads, or would change nothing in this state.
pub(super) fn writes_nothing(state: &State, command: &Command) -> bool {
    match command {
        Command::Peek { .. }
        | Command::ReadQueue { .. }
        | Command::ListQueues { .. }
        | Command::ReadServiceProperties { .. }
        | Command::ListAccounts => true,
        // Workers create their queue at start, to be sure that it exists.
        Command::CreateQueue { queue, .. } => state.has_entity(queue),
        Command::Bus(command) => writes_nothing_to_bus(state, command),
        Command::Initialize { .. }
        | Command::DeleteQueue { .. }
        | Command::SetQueueMetadata { .. }
        | Command::Send { .. }
        | Command::Receive { .. }
        | Command::Update { .. }
        | Command::Delete { .. }
        | Command::Clear { .. }
        | Command::SetQueuePolicies { .. }
        | Command::SetServiceProperties { .. }
        | Command::PutAccount { .. }
        | Command::RemoveAccount { .. } => false,
    }
}

fn writes_nothing_to_bus(state: &State, command: &BusCommand) -> bool {
    match command {
        BusCommand::ReadQueue { .. }
        | BusCommand::ListQueues { .. }
        | BusCommand::Peek { .. }
        | BusCommand::ReadLocked { .. }
        | BusCommand::ReadSessionState { .. }
        | BusCommand::ListSessions { .. } => true,
        BusCommand::Purge { purge, .. } => purge.is_dry_run,
        BusCommand::ClearSessionStates { is_dry_run, .. } => *is_dry_run,
        BusCommand::CreateQueue { queue, .. } => state.has_entity(queue),
        BusCommand::UpdateQueue { .. }
        | BusCommand::DeleteQueue { .. }
        | BusCommand::Send { .. }
        | BusCommand::Receive { .. }
        | BusCommand::Settle { .. }
        | BusCommand::RenewLocks { .. }
        | BusCommand::CancelScheduled { .. }
        | BusCommand::ReceiveDeferred { .. }
        | BusCommand::AcceptSession { .. }
        | BusCommand::RenewSession { .. }
        | BusCommand::ReleaseSession { .. }
        | BusCommand::SetSessionState { .. }
        | BusCommand::TakeMessage { .. }
        | BusCommand::DeleteMessage { .. }
        | BusCommand::BreakLock { .. }
        | BusCommand::Resubmit { .. }
        | BusCommand::Transact { .. }
        | BusCommand::DeleteBatch { .. } => false,
    }
}
