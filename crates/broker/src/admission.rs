//! Bounds how many commands may be under way.
//!
//! A full partition answers "server busy" and accepts no command, so that memory stays bounded and a client
//! that retries succeeds. Commands that free messages have a share of their own, so that producers cannot
//! starve consumers into losing their leases.

use bytes::Bytes;
use kew_engine::Command;
use kew_engine::bus::BusCommand;
use thiserror::Error;

/// The most that may be under way in one partition, from admission to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Commands.
    pub commands_max: usize,
    /// Bytes of their bodies.
    pub body_bytes_max: usize,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self {
            commands_max: 8192,
            body_bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// Which share of the limits a command may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Takes or frees messages: may use all of it.
    Consume,
    /// Everything else: may use three quarters.
    Other,
}

impl Class {
    /// The class of a command.
    pub fn of(command: &Command) -> Self {
        match command {
            Command::Receive { .. }
            | Command::Update { .. }
            | Command::Delete { .. }
            | Command::Clear { .. }
            | Command::DeleteQueue { .. }
            | Command::RemoveAccount { .. } => Self::Consume,
            Command::Initialize { .. }
            | Command::CreateQueue { .. }
            | Command::ReadQueue { .. }
            | Command::SetQueueMetadata { .. }
            | Command::ListQueues { .. }
            | Command::Send { .. }
            | Command::Peek { .. }
            | Command::SetQueuePolicies { .. }
            | Command::SetServiceProperties { .. }
            | Command::ReadServiceProperties { .. }
            | Command::PutAccount { .. }
            | Command::ListAccounts => Self::Other,
            Command::Bus(command) => Self::of_bus(command),
        }
    }

    fn of_bus(command: &BusCommand) -> Self {
        match command {
            BusCommand::DeleteQueue { .. }
            | BusCommand::Receive { .. }
            | BusCommand::Settle { .. }
            | BusCommand::RenewLocks { .. }
            | BusCommand::CancelScheduled { .. }
            | BusCommand::ReceiveDeferred { .. }
            | BusCommand::AcceptSession { .. }
            | BusCommand::RenewSession { .. }
            | BusCommand::ReleaseSession { .. }
            | BusCommand::DeleteBatch { .. }
            | BusCommand::Purge { .. }
            | BusCommand::ClearSessionStates { .. }
            | BusCommand::TakeMessage { .. }
            | BusCommand::DeleteMessage { .. }
            | BusCommand::BreakLock { .. } => Self::Consume,
            BusCommand::Transact { parts } => {
                match parts.iter().any(|part| part.work.sent_count() > 0) {
                    true => Self::Other,
                    false => Self::Consume,
                }
            }
            BusCommand::CreateQueue { .. }
            | BusCommand::UpdateQueue { .. }
            | BusCommand::ReadQueue { .. }
            | BusCommand::ListQueues { .. }
            | BusCommand::Send { .. }
            | BusCommand::Resubmit { .. }
            | BusCommand::Peek { .. }
            | BusCommand::ReadLocked { .. }
            | BusCommand::ReadSessionState { .. }
            | BusCommand::SetSessionState { .. }
            | BusCommand::ListSessions { .. } => Self::Other,
        }
    }
}

/// The bytes of body in a command.
pub fn body_size_bytes(command: &Command) -> usize {
    match command {
        Command::Send { body, .. } => body.len(),
        Command::Update { body, .. } => body.as_ref().map_or(0, |(_, body)| body.len()),
        Command::SetServiceProperties { properties, .. } => properties.len(),
        Command::Initialize { .. }
        | Command::CreateQueue { .. }
        | Command::DeleteQueue { .. }
        | Command::ReadQueue { .. }
        | Command::SetQueueMetadata { .. }
        | Command::ListQueues { .. }
        | Command::Receive { .. }
        | Command::Peek { .. }
        | Command::Delete { .. }
        | Command::Clear { .. }
        | Command::SetQueuePolicies { .. }
        | Command::ReadServiceProperties { .. }
        | Command::PutAccount { .. }
        | Command::RemoveAccount { .. }
        | Command::ListAccounts => 0,
        Command::Bus(command) => bus_body_size_bytes(command),
    }
}

fn bus_body_size_bytes(command: &BusCommand) -> usize {
    match command {
        BusCommand::Send { messages, .. } => {
            messages.iter().map(|message| message.body.len()).sum()
        }
        BusCommand::Settle { settlements, .. } => {
            let sizes = settlements.iter().map(|(_, it)| it.overlay_size_bytes());
            in_memory(sizes.sum())
        }
        BusCommand::Transact { parts } => {
            let sizes = parts.iter().map(|part| part.work.body_size_bytes());
            in_memory(sizes.sum())
        }
        BusCommand::Resubmit { resubmit, .. } => {
            let messages = resubmit.messages.iter();
            messages.map(|message| message.body.len()).sum()
        }
        BusCommand::SetSessionState { state, .. } => state.as_ref().map_or(0, Bytes::len),
        BusCommand::CreateQueue { .. }
        | BusCommand::UpdateQueue { .. }
        | BusCommand::DeleteQueue { .. }
        | BusCommand::ReadQueue { .. }
        | BusCommand::ListQueues { .. }
        | BusCommand::Receive { .. }
        | BusCommand::RenewLocks { .. }
        | BusCommand::Peek { .. }
        | BusCommand::ReadLocked { .. }
        | BusCommand::CancelScheduled { .. }
        | BusCommand::ReceiveDeferred { .. }
        | BusCommand::AcceptSession { .. }
        | BusCommand::RenewSession { .. }
        | BusCommand::ReleaseSession { .. }
        | BusCommand::ReadSessionState { .. }
        | BusCommand::ListSessions { .. }
        | BusCommand::Purge { .. }
        | BusCommand::ClearSessionStates { .. }
        | BusCommand::TakeMessage { .. }
        | BusCommand::DeleteMessage { .. }
        | BusCommand::BreakLock { .. }
        | BusCommand::DeleteBatch { .. } => 0,
    }
}

fn in_memory(size_bytes: u64) -> usize {
    usize::try_from(size_bytes).unwrap_or(usize::MAX)
}

/// The partition has as many commands under way as it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the partition is busy: too many requests are under way")]
pub struct Busy;

/// What one admitted command counts for. It is released when the command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    body_bytes: usize,
}

/// Counts the commands that are under way.
#[derive(Debug, Default)]
pub struct Admission {
    limits: AdmissionLimits,
    commands: usize,
    body_bytes: usize,
}

impl Admission {
    /// No command is under way yet.
    pub fn new(limits: AdmissionLimits) -> Self {
        Self {
            limits,
            commands: 0,
            body_bytes: 0,
        }
    }

    /// Admits a command, or returns that there is no room.
    pub fn admit(&mut self, command: &Command) -> Result<Admitted, Busy> {
        let share = |limit: usize| match Class::of(command) {
            Class::Consume => limit,
            Class::Other => limit / 4 * 3,
        };
        let body_bytes = body_size_bytes(command);
        let commands = self.commands + 1;
        let bytes = self.body_bytes + body_bytes;
        if commands > share(self.limits.commands_max) || bytes > share(self.limits.body_bytes_max) {
            return Err(Busy);
        }
        (self.commands, self.body_bytes) = (commands, bytes);
        Ok(Admitted { body_bytes })
    }

    /// Releases what an answered command counted for.
    pub fn release(&mut self, admitted: Admitted) {
        self.commands -= 1;
        self.body_bytes -= admitted.body_bytes;
    }

    /// How many commands are under way.
    pub fn commands(&self) -> usize {
        self.commands
    }
}

#[cfg(test)]
mod tests {
    use kew_engine::{BodyEncoding, EntityName, VisibilityTimeout};

    use super::*;

    fn queue() -> EntityName {
        EntityName::storage_queue("acct", "jobs")
    }

    fn send(size: usize) -> Command {
        Command::Send {
            queue: queue(),
            body: vec![0; size].into(),
            encoding: BodyEncoding::Text,
            time_to_live_seconds: None,
            visibility_timeout: VisibilityTimeout::ZERO,
        }
    }

    #[test]
    fn producers_leave_consumers_their_share() {
        let limits = AdmissionLimits {
            commands_max: 8,
            body_bytes_max: 1000,
        };
        let mut admission = Admission::new(limits);
        let admitted: Vec<_> = (0..6).map(|_| admission.admit(&send(1)).unwrap()).collect();
        assert_eq!(admission.admit(&send(1)), Err(Busy));
        let clear = Command::Clear { queue: queue() };
        admission.admit(&clear).unwrap();
        admission.admit(&clear).unwrap();
        assert_eq!(admission.admit(&clear), Err(Busy));
        for one in admitted {
            admission.release(one);
        }
        assert!(admission.admit(&send(749)).is_ok());
        assert_eq!(admission.admit(&send(2)), Err(Busy));
    }
}
