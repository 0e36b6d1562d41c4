//! Decisions of one moment. Those about queues are the profiles': see `storage/decide` and `bus/decide`.
//!
//! All refusals come before the first event, so that a refused command has changed nothing. The exception is a look
//! for a session when there is none: it shows that receivers use the queue.

mod accounts;
mod ground;
mod journal;
pub(crate) mod missing;
mod moves;
mod quarantine;
mod tick;

use std::any::Any;

use kew_planted::{Seam, pass};

pub use self::journal::Journal;
pub use self::missing::Tries;
pub use self::tick::Ticked;
use crate::bus::{self, BusFact, COPIES_AT_ONCE_MAX, Format, HandOut, NoFormat};
use crate::catalogue::{self, Scope};
use crate::command::Command;
use crate::describe::Checked;
use crate::event::{Event, Fact};
use crate::outcome::{Outcome, Refusal};
use crate::state::State;
use crate::storage;
use crate::table::RunLength;
use crate::vocabulary::Timestamp;

/// The answer to a command, and its scope.
pub type Decision = catalogue::Decision<Outcome, Refusal>;

/// How many due things of a bus queue a command on it carries out first, by default.
pub const DUE_BUDGET: u32 = 64;

/// One turn: all decisions of one moment, with one journal.
///
/// An event is applied as soon as it is emitted, so that the rest of the turn sees it. Effects on bus queues
/// that follow each other within a command are recorded as one event.
pub struct Turn<'a> {
    state: &'a mut State,
    now: Timestamp,
    journal: &'a mut dyn Journal,
    due_budget: u32,
    /// How many copies of messages a command makes at once.
    copies_at_once: u64,
    /// Whether copies of messages that wait in topics have to wait longer.
    is_draining: bool,
    /// How decisions read messages.
    format: &'a dyn Format,
    /// Whether what is due before the command was carried out.
    is_due_done: bool,
    /// What the command hands out and removes.
    hand_out: HandOut,
    /// Effects that are applied and not recorded yet.
    effects: bus::Effects,
}

impl<'a> Turn<'a> {
    /// A turn at `now`, which must not lie before the last event.
    pub fn new(state: &'a mut State, now: Timestamp, journal: &'a mut dyn Journal) -> Self {
        assert!(
            state.last_event_at() <= now,
            "time went back from {} to {now}",
            state.last_event_at()
        );
        Self {
            state,
            now,
            journal,
            due_budget: DUE_BUDGET,
            copies_at_once: COPIES_AT_ONCE_MAX as u64,
            is_draining: false,
            format: &NoFormat,
            is_due_done: false,
            hand_out: HandOut::default(),
            effects: bus::Effects::default(),
        }
    }

    /// The same turn with another budget for the due things that each command on a bus queue carries out
    /// first. Decisions treat the remaining due things as past; their effects come later.
    #[must_use]
    pub fn with_due_budget(self, due_budget: u32) -> Self {
        Self { due_budget, ..self }
    }

    /// The same turn, but a command that sends to a topic makes at most so many copies at once, and not
    /// [`COPIES_AT_ONCE_MAX`]. Due work makes the others.
    #[must_use]
    pub fn with_copies_at_once(self, count: u64) -> Self {
        Self {
            copies_at_once: count.min(COPIES_AT_ONCE_MAX as u64),
            ..self
        }
    }

    /// The same turn while the disk is full: a tick leaves topics alone. Copies take room that nothing has kept free for
    /// them, and receivers of their subscriptions make room first.
    #[must_use]
    pub fn draining(self) -> Self {
        Self {
            is_draining: true,
            ..self
        }
    }

    /// The same turn, with a format in which decisions read messages. Without it, a message that rules have
    /// to look at is refused.
    #[must_use]
    pub fn with_format(self, format: &'a dyn Format) -> Self {
        Self { format, ..self }
    }

    /// Decides a command. If records or bodies may not be in memory, [`Turn::prepare`] comes first.
    pub fn decide(&mut self, command: Command) -> Decision {
        let checked = command.describe().checked();
        self.decide_checked(command, checked)
    }

    /// The same for a caller that has described the command, as it is now.
    pub fn decide_checked(&mut self, command: Command, checked: Checked) -> Decision {
        debug_assert_eq!(
            checked,
            command.describe().checked(),
            "another command was described than {command:?}"
        );
        let decision = self.decide_command(command, checked);
        self.record_effects();
        self.is_due_done = false;
        self.hand_out.clear();
        decision
    }

    fn decide_command(&mut self, command: Command, checked: Checked) -> Decision {
        let Checked {
            needs_bodies,
            refusal,
        } = checked;
        if let Some(refusal) = refusal {
            return in_catalogue(Err(refusal));
        }
        if needs_bodies && !self.is_due_done {
            let missing = self.prepare(&command, &mut Tries::default());
            assert!(
                missing.is_empty(),
                "a command was not prepared, and misses {missing:?}"
            );
        }
        match command {
            Command::Initialize { secret, run_length } => self.initialize(secret, run_length),
            Command::SetServiceProperties {
                service,
                account,
                properties,
            } => self.set_service_properties(service, account, properties),
            Command::ReadServiceProperties { service, account } => {
                self.read_service_properties(service, account)
            }
            Command::PutAccount { account, is_new } => self.put_account(account, is_new),
            Command::RemoveAccount {
                account,
                with_queues,
            } => self.remove_account(account, with_queues),
            Command::ListAccounts => self.list_accounts(),
            Command::MoveBodies { bodies } => self.move_bodies(bodies),
            Command::Quarantine { group, page } => self.quarantine(group, page),
            Command::Storage(command) => storage::Turn::on(self).decide(command).map(),
            Command::Bus(command) => bus::Turn::on(self).decide(command).map(),
        }
    }

    fn initialize(&mut self, secret: [u8; 16], run_length: RunLength) -> Decision {
        in_catalogue(if self.state.is_initialized() {
            Err(Refusal::AlreadyInitialized)
        } else {
            self.emit(Fact::PartitionInitialized { secret, run_length });
            Ok(Outcome::Initialized)
        })
    }

    fn emit(&mut self, fact: Fact) {
        // A wrong description would be wrong in each replay too.
        assert!(
            self.state.is_described_by(&fact),
            "at {} the state is not as this says: {fact:?}",
            self.now
        );
        self.record_effects();
        let event = Event { at: self.now, fact };
        decided(event, |event| {
            self.journal.record(&event);
            self.state.apply(event);
        });
    }

    /// Applies an effect on a bus queue. It is recorded with those that follow.
    fn emit_bus_effect(&mut self, effect: bus::Effect) {
        debug_assert!(
            self.state.bus.is_exact(&effect),
            "the state is not as this says: {effect:?}"
        );
        *self.state.last_event_at = self.now;
        decided(effect, |effect| {
            let (bus, catalogue) = (&mut self.state.bus, &mut self.state.catalogue);
            bus.apply_effects(catalogue, self.now, std::slice::from_ref(&effect));
            self.effects.push(effect);
        });
    }

    /// Records the effects on bus queues that were emitted since the last event.
    fn record_effects(&mut self) {
        if self.effects.is_empty() {
            return;
        }
        let effects = std::mem::take(&mut self.effects);
        let event = Event {
            at: self.now,
            fact: Fact::Bus(BusFact::Messages { effects }),
        };
        self.journal.record(&event);
    }
}

/// Does something with what was decided, before it changes the state.
fn decided<T: Any>(value: T, work: impl FnMut(T)) {
    pass(Seam::Decided, value, work);
}

fn in_catalogue(result: Result<Outcome, Refusal>) -> Decision {
    Decision {
        result,
        scope: Scope::Catalogue,
    }
}
