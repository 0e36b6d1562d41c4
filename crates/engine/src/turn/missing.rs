//! Decisions while records of messages are not in memory.
//!
//! A decision has two phases. The first one carries out what is due and collects what the decision is going to read
//! ([`Turn::prepare`]). If some of that is not in memory, nothing was decided: the caller reads it and tries again. The
//! second one ([`Turn::decide`]) decides on records in memory alone. So what happens to be in memory never changes a
//! decision.

use std::collections::BTreeSet;

use super::Turn;
use crate::bus::{self, Behind, By, DueSpent, Unread};
use crate::command::Command;
use crate::moves::{Holder, Source};
use crate::queues::Receiving;
use crate::storage;
use crate::table::Missing;
use crate::vocabulary::Incarnation;

/// What a command has spent in its tries so far.
#[derive(Debug, Default)]
pub struct Tries {
    due_spent: DueSpent,
}

impl Tries {
    /// What the last try missed of an entity cannot be read. If it was due work's, later tries leave that work alone: it is
    /// not what the command asks for. Returns false if the command itself needs it, or has to come behind that work, which
    /// can be read later.
    pub fn leave_due_alone(&mut self, entity: Incarnation, unread: Unread) -> bool {
        self.due_spent.leave_alone(entity, unread)
    }

    /// Whether the last try missed due work that the command has to come behind, as far as it is not lost.
    pub fn comes_behind_due(&self) -> bool {
        self.due_spent.comes_behind_due()
    }

    /// The entities whose due work should come before the command, which goes on without it.
    pub fn left_due_alone(&self) -> &BTreeSet<Incarnation> {
        self.due_spent.left_alone()
    }
}

impl Turn<'_> {
    /// Says what is missing to decide a command; if nothing is, decide it next. What is due may have been carried out,
    /// also if something is missing: it follows from time, and not from the command.
    pub fn prepare(&mut self, command: &Command, tries: &mut Tries) -> Missing {
        let description = command.describe();
        let may_miss = self.state.may_miss(description.needs_bodies);
        if !may_miss || description.refusal.is_some() {
            return Missing::default();
        }
        let missing = self.collect(command, tries);
        self.is_due_done = missing.is_empty();
        if !missing.is_empty() {
            self.record_effects();
        }
        missing
    }

    /// What a command is going to miss that waits for others. Carries out nothing.
    pub fn look_ahead(&mut self, command: &Command) -> Missing {
        match of_bus(command) {
            Some(command) => bus::Turn::on(self).look_ahead(command),
            None => self.collect(command, &mut Tries::default()),
        }
    }

    /// From where the command receives messages, if it does, and if records of these may not be in memory.
    pub fn receiving(&mut self, command: &Command) -> Option<Receiving> {
        if !self.state.may_be_cold() {
            return None;
        }
        match command {
            Command::Storage(command) => storage::Turn::on(self).receiving(command),
            Command::Bus(command) => bus::Turn::on(self).receiving(command),
            Command::MoveBodies { .. }
            | Command::Quarantine { .. }
            | Command::Initialize { .. }
            | Command::SetServiceProperties { .. }
            | Command::ReadServiceProperties { .. }
            | Command::PutAccount { .. }
            | Command::RemoveAccount { .. }
            | Command::ListAccounts => None,
        }
    }

    /// Bodies that the commands behind this one are likely to need, which misses bodies: up to so many bytes.
    pub fn bodies_behind(&mut self, command: &Command, size_bytes_max: u64) -> Behind {
        of_bus(command).map_or_else(Behind::default, |command| {
            bus::Turn::on(self).bodies_behind(command, size_bytes_max)
        })
    }

    fn collect(&mut self, command: &Command, tries: &mut Tries) -> Missing {
        match command {
            Command::Storage(command) => storage::Turn::on(self).missing(command),
            Command::Bus(command) => {
                let may_be_cold = self.state.may_be_cold();
                bus::Turn::on(self).prepare(command, &mut tries.due_spent, may_be_cold)
            }
            Command::MoveBodies { bodies } => {
                let mut missing = Missing::default();
                for body in bodies {
                    if let Holder::Message(at) = &body.holder {
                        self.state.storage.ask(*at, &mut missing);
                        self.state.bus.ask(*at, &mut missing);
                    }
                    if let Source::SameAs(moved) = &body.source {
                        self.state.bus.ask(moved.holder, &mut missing);
                    }
                }
                missing
            }
            Command::Initialize { .. }
            | Command::Quarantine { .. }
            | Command::SetServiceProperties { .. }
            | Command::ReadServiceProperties { .. }
            | Command::PutAccount { .. }
            | Command::RemoveAccount { .. }
            | Command::ListAccounts => Missing::default(),
        }
    }

    /// What the next due things of an entity need, as many as the budget allows, and how much of the budget it took to
    /// find that out.
    pub(super) fn missing_for_due(&mut self, entity: Incarnation, budget: u32) -> (Missing, u32) {
        let may_be_cold = self.state.may_be_cold();
        match self.state.storage.get(&entity) {
            Some(_) if !may_be_cold => (Missing::default(), 0),
            None => {
                let mut turn = bus::Turn::on(self);
                let mut missing = match may_be_cold {
                    true => turn.missing_for_due(entity, budget, By::Tick),
                    false => Missing::default(),
                };
                let cost = match missing.is_empty() {
                    true => turn.ask_to_pass_on(entity, &mut missing),
                    false => 0,
                };
                (missing, cost)
            }
            Some(stored) => match stored.backlog.run_to_expire(self.now) {
                None => (Missing::default(), 0),
                Some(run) => (storage::Turn::on(self).missing_to_expire(entity, run), 0),
            },
        }
    }
}

/// The command as one of Service Bus, if it is one.
fn of_bus(command: &Command) -> Option<&bus::BusCommand> {
    match command {
        Command::Bus(command) => Some(command),
        Command::Storage(_)
        | Command::MoveBodies { .. }
        | Command::Quarantine { .. }
        | Command::Initialize { .. }
        | Command::SetServiceProperties { .. }
        | Command::ReadServiceProperties { .. }
        | Command::PutAccount { .. }
        | Command::RemoveAccount { .. }
        | Command::ListAccounts => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
