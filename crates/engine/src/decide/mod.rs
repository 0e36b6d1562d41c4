//! Decisions: a table of contents. Each family of commands has a file.
//!
//! All refusals come before the first event, so that a refused command has changed nothing. The exception is a look
//! for a session when there is none: it shows that receivers use the queue.

mod account;
mod list;
mod queue;
mod receive;
mod send;
mod settle;

#[cfg(test)]
mod tests;

use kew_planted::{Bug, is_planted};

use crate::bus::BusEffect;
use crate::entity::Entity;
use crate::token::{TokenCipher, TokenKind, TokenPlace};
use crate::{
    BodyLocation, Command, Effect, EntityName, Event, Fact, Incarnation, Journal, LeaseGeneration,
    Outcome, Place, Refusal, State, Timestamp, Token,
};

/// Whether a planted bug keeps this fact out of the log.
fn is_lost(fact: &Fact) -> bool {
    let effect = if let Fact::Messages { effects } = fact {
        effects.first()
    } else {
        None
    };
    let is_deleted = matches!(effect, Some(Effect::Ended { .. }));
    let is_cleared = matches!(effect, Some(Effect::RangeEnded { .. }));
    (is_deleted && is_planted(Bug::DeleteNotLogged))
        || (is_cleared && is_planted(Bug::ClearNotLogged))
}

/// A journal that forgets events, for planted bugs.
struct BodiesAlone<'a>(&'a mut dyn Journal);

impl Journal for BodiesAlone<'_> {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.0.store_body(body)
    }

    fn record(&mut self, _event: &Event) {}
}

/// The answer to a command, and its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The answer. It may be shown only once the log is durable up to the last event within the scope: a
    /// crash could take back what it shows.
    pub result: Result<Outcome, Refusal>,
    /// The part of the state that the command read or changed.
    pub scope: Scope,
}

/// The part of the state that an answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One entity, and nothing else.
    Entity(Incarnation),
    /// A bus queue and its sub-queues.
    BusQueue(Incarnation),
    /// The list of entities, and their metadata; accounts, and the properties of services.
    Catalogue,
    /// All of the partition. An account's usage is the sum over its queues.
    Everything,
}

impl Refusal {
    /// The scope of refusing a command about this entity.
    fn scope(&self, entity: Incarnation) -> Scope {
        match self {
            Self::AccountQuotaExceeded { .. } => Scope::Everything,
            Self::AlreadyInitialized
            | Self::QueueNotFound { .. }
            | Self::QueueAlreadyExists { .. }
            | Self::MessageNotFound
            | Self::PopReceiptMismatch
            | Self::HiddenBeyondExpiry { .. }
            | Self::AccountAlreadyExists { .. }
            | Self::AccountNotFound { .. }
            | Self::AccountNotEmpty { .. }
            | Self::BodyTooLarge { .. }
            | Self::Bus(_) => Scope::Entity(entity),
        }
    }
}

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
    /// Effects that are applied and not recorded yet.
    effects: Vec<BusEffect>,
}

impl<'a> Turn<'a> {
    /// A turn at `now`, which must not lie before the last event.
    pub fn new(state: &'a mut State, now: Timestamp, journal: &'a mut dyn Journal) -> Self {
        assert!(
            state.last_event_at <= now,
            "time went back from {} to {now}",
            state.last_event_at
        );
        Self {
            state,
            now,
            journal,
            due_budget: DUE_BUDGET,
            effects: Vec::new(),
        }
    }

    /// The same turn with another budget for the due things that each command on a bus queue carries out
    /// first. Decisions treat the remaining due things as past; their effects come later.
    #[must_use]
    pub fn with_due_budget(self, due_budget: u32) -> Self {
        Self { due_budget, ..self }
    }

    pub(crate) fn due_budget(&self) -> u32 {
        self.due_budget
    }

    /// Decides a command.
    pub fn decide(&mut self, command: Command) -> Decision {
        let decision = self.decide_command(command);
        self.record_effects();
        decision
    }

    fn decide_command(&mut self, command: Command) -> Decision {
        if let Some(refusal) = command.describe().refusal {
            return Decision {
                result: Err(refusal),
                scope: Scope::Catalogue,
            };
        }
        match command {
            Command::Initialize { secret } => self.initialize(secret),
            Command::CreateQueue { queue, metadata } => self.create_queue(queue, metadata),
            Command::DeleteQueue { queue } => self.delete_queue(&queue),
            Command::ReadQueue { queue } => self.read_queue(&queue),
            Command::SetQueueMetadata { queue, metadata } => {
                self.set_queue_metadata(&queue, metadata)
            }
            Command::ListQueues {
                service,
                account,
                prefix,
                from,
                limit,
                metadata_size_bytes_max,
            } => self.list_queues(
                service,
                account,
                &prefix,
                from,
                limit,
                metadata_size_bytes_max,
            ),
            Command::Send {
                queue,
                body,
                encoding,
                time_to_live_seconds,
                visibility_timeout,
            } => self.send(
                &queue,
                &body,
                encoding,
                time_to_live_seconds,
                visibility_timeout,
            ),
            Command::Receive {
                queue,
                count,
                visibility_timeout,
            } => self.receive(&queue, count, visibility_timeout),
            Command::Peek { queue, count } => self.peek(&queue, count),
            Command::Update {
                queue,
                message,
                receipt,
                visibility_timeout,
                body,
            } => self.update(&queue, message, receipt, visibility_timeout, body),
            Command::Delete {
                queue,
                message,
                receipt,
            } => self.delete(&queue, message, receipt),
            Command::Clear { queue } => self.clear(&queue),
            Command::SetQueuePolicies { queue, policies } => {
                self.set_queue_policies(&queue, policies)
            }
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
            Command::Bus(command) => self.decide_bus(command),
        }
    }

    fn initialize(&mut self, secret: [u8; 16]) -> Decision {
        let result = if self.state.is_initialized() {
            Err(Refusal::AlreadyInitialized)
        } else {
            self.emit(Fact::PartitionInitialized { secret });
            Ok(Outcome::Initialized)
        };
        Decision {
            result,
            scope: Scope::Catalogue,
        }
    }

    pub(crate) fn emit(&mut self, fact: Fact) {
        let event = Event { at: self.now, fact };
        // A wrong description would be wrong in each replay too.
        assert!(
            self.state.is_described_by(&event) || is_planted(Bug::StaleWas),
            "the state is not as this says: {event:?}"
        );
        self.record_effects();
        if !is_lost(&event.fact) {
            self.journal.record(&event);
        }
        self.state.apply(event);
    }

    pub(crate) fn emit_effect(&mut self, effect: Effect) {
        self.emit(Fact::Messages {
            effects: effect.into(),
        });
    }

    pub(crate) fn emit_bus_effect(&mut self, effect: BusEffect) {
        debug_assert!(
            self.state.is_exact_bus(&effect),
            "the state is not as this says: {effect:?}"
        );
        self.state.last_event_at = self.now;
        self.state
            .apply_bus_effects(self.now, std::slice::from_ref(&effect));
        self.effects.push(effect);
    }

    /// Records the effects on bus queues that were emitted since the last event.
    pub(crate) fn record_effects(&mut self) {
        if self.effects.is_empty() {
            return;
        }
        let effects = std::mem::take(&mut self.effects);
        let event = Event {
            at: self.now,
            fact: Fact::BusMessages { effects },
        };
        self.journal.record(&event);
        if let Fact::BusMessages { mut effects } = event.fact {
            // The next ones take the same memory.
            effects.clear();
            self.effects = effects;
        }
    }

    /// Counts messages that have expired.
    pub(crate) fn count_expired(&mut self, count: u64) {
        self.state.expired.add(count);
    }

    /// Looks at a run that had a message to expire, so that it is due again when it has another.
    pub(crate) fn raise_expiry(&mut self, queue: Incarnation, run: u64) {
        if let Some(entity) = self.state.entities.get_mut(&queue) {
            entity.backlog.raise_expiry(run);
            self.state.settle(queue);
        }
    }

    /// Does some work that is not logged, except for the bodies. Only for planted bugs.
    pub(crate) fn unlogged(&mut self, work: impl FnOnce(&mut Turn<'_>)) {
        work(&mut Turn {
            state: self.state,
            now: self.now,
            journal: &mut BodiesAlone(self.journal),
            due_budget: self.due_budget,
            effects: Vec::new(),
        });
    }

    pub(crate) fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.journal.store_body(body)
    }

    /// Whether all these bodies are in memory and stay there until the answer.
    pub(crate) fn pin(&mut self, bodies: &[BodyLocation]) -> bool {
        bodies.iter().all(|body| self.journal.pin(*body))
    }

    pub(crate) fn state(&self) -> &State {
        self.state
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Runs a decision about the entity of that name, or refuses if there is none.
    fn with_entity(
        &mut self,
        name: &EntityName,
        decide: impl FnOnce(&mut Self, Incarnation) -> Result<Outcome, Refusal>,
    ) -> Decision {
        match self.state.catalogue.get(name) {
            Some(&incarnation) => {
                let result = decide(self, incarnation);
                let scope = match &result {
                    Err(refusal) => refusal.scope(incarnation),
                    Ok(_) => Scope::Entity(incarnation),
                };
                Decision { result, scope }
            }
            None => Decision {
                result: Err(Refusal::QueueNotFound {
                    queue: name.name.clone(),
                }),
                scope: Scope::Catalogue,
            },
        }
    }

    fn entity(&self, incarnation: Incarnation) -> &Entity {
        self.state
            .entities
            .get(&incarnation)
            .expect("the catalogue names only entities that are there")
    }

    pub(crate) fn cipher(&self) -> &TokenCipher {
        self.state
            .cipher
            .as_ref()
            .expect("the runner initializes a partition before it takes other commands")
    }

    fn message_id(&self, at: Place) -> Token {
        let place = TokenPlace {
            incarnation: at.entity,
            sequence_number: at.number,
            generation: LeaseGeneration::default(),
        };
        self.cipher().seal(TokenKind::MessageId, place)
    }

    fn receipt(&self, at: Place, generation: LeaseGeneration) -> Token {
        let place = TokenPlace {
            incarnation: at.entity,
            sequence_number: at.number,
            generation,
        };
        self.cipher().seal(TokenKind::PopReceipt, place)
    }
}
