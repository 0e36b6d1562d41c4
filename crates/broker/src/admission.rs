//! Bounds how many commands may be under way.
//!
//! A full partition answers "server busy" and accepts no command, so that memory stays bounded and a client
//! that retries succeeds. Commands that free messages have a share of their own, so that producers cannot
//! starve consumers into losing their leases.

use kew_engine::{Class, Description};
use thiserror::Error;

use crate::Excess;

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
    pub fn admit(&mut self, description: &Description<'_>) -> Result<Admitted, Busy> {
        let share = |limit: usize| match description.class {
            Class::Consume => limit,
            Class::Produce | Class::Manage | Class::Read | Class::Maintain => limit / 4 * 3,
        };
        let body_bytes = in_memory(description.body_size_bytes);
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

    /// How much is under way beyond half of the limits. Those who send to a topic that is behind with its copies wait for
    /// it only up to that, so that others have room.
    pub fn excess(&self) -> Excess {
        Excess {
            commands: self.commands.saturating_sub(self.limits.commands_max / 2),
            body_bytes: (self.body_bytes).saturating_sub(self.limits.body_bytes_max / 2),
        }
    }

    /// How many commands are under way.
    pub fn commands(&self) -> usize {
        self.commands
    }
}

#[cfg(test)]
mod tests {
    use kew_engine::storage::StorageCommand;
    use kew_engine::{BodyEncoding, Command, EntityName, VisibilityTimeout};

    use super::*;

    fn queue() -> EntityName {
        EntityName::storage_queue("acct", "jobs")
    }

    fn send(size: usize) -> Command {
        Command::Storage(StorageCommand::Send {
            queue: queue(),
            body: vec![0; size].into(),
            encoding: BodyEncoding::Text,
            time_to_live_seconds: None,
            visibility_timeout: VisibilityTimeout::ZERO,
        })
    }

    #[test]
    fn producers_leave_consumers_their_share() {
        let limits = AdmissionLimits {
            commands_max: 8,
            body_bytes_max: 1000,
        };
        let mut admission = Admission::new(limits);
        let admitted: Vec<_> = (0..6)
            .map(|_| admission.admit(&send(1).describe()).unwrap())
            .collect();
        assert_eq!(admission.admit(&send(1).describe()), Err(Busy));
        let clear = Command::Storage(StorageCommand::Clear { queue: queue() });
        admission.admit(&clear.describe()).unwrap();
        admission.admit(&clear.describe()).unwrap();
        assert_eq!(admission.admit(&clear.describe()), Err(Busy));
        for one in admitted {
            admission.release(one);
        }
        assert!(admission.admit(&send(749).describe()).is_ok());
        assert_eq!(admission.admit(&send(2).describe()), Err(Busy));
    }
}
