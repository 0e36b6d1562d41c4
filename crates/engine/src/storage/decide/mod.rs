//! Decisions about storage queues: a table of contents. Each family of commands has a file.

mod list;
mod missing;
mod queue;
mod receive;
mod send;
mod settle;

use super::{Entity, Queues, StorageCommand, StorageFact, StorageOutcome, StorageRefusal};
use crate::catalogue::{self, Catalogue, QuotaExceeded, Scope};
use crate::storage::Effect;
use crate::vocabulary::token::{TokenCipher, TokenKind, TokenPlace};
use crate::vocabulary::{
    BodyLocation, EntityName, Incarnation, LeaseGeneration, Place, Timestamp, Token,
};

/// What decisions about storage queues stand on: the state, which their facts change at once, and the log.
pub(crate) trait Ground {
    fn catalogue(&self) -> &Catalogue;
    fn queues(&self) -> &Queues;
    fn now(&self) -> Timestamp;
    /// Makes a fact part of the state and of the log.
    fn emit(&mut self, fact: StorageFact);
    /// Stores a body ahead of the fact that will refer to it.
    fn store_body(&mut self, body: &[u8]) -> BodyLocation;
}

type Decision = catalogue::Decision<StorageOutcome, StorageRefusal>;

/// Decides commands about storage queues.
pub(crate) struct Turn<'a>(&'a mut dyn Ground);

impl<'a> Turn<'a> {
    pub(crate) fn on(ground: &'a mut dyn Ground) -> Self {
        Self(ground)
    }

    pub(crate) fn decide(&mut self, command: StorageCommand) -> Decision {
        match command {
            StorageCommand::CreateQueue { queue, metadata } => self.create_queue(queue, metadata),
            StorageCommand::DeleteQueue { queue } => self.delete_queue(&queue),
            StorageCommand::ReadQueue { queue } => self.read_queue(&queue),
            StorageCommand::SetQueueMetadata { queue, metadata } => {
                self.set_queue_metadata(&queue, metadata)
            }
            StorageCommand::ListQueues {
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
            StorageCommand::Send {
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
            StorageCommand::Receive {
                queue,
                count,
                visibility_timeout,
            } => self.receive(&queue, count, visibility_timeout),
            StorageCommand::Peek { queue, count } => self.peek(&queue, count),
            StorageCommand::Update {
                queue,
                message,
                receipt,
                visibility_timeout,
                body,
            } => self.update(&queue, message, receipt, visibility_timeout, body),
            StorageCommand::Delete {
                queue,
                message,
                receipt,
            } => self.delete(&queue, message, receipt),
            StorageCommand::Clear { queue } => self.clear(&queue),
            StorageCommand::SetQueuePolicies { queue, policies } => {
                self.set_queue_policies(&queue, policies)
            }
        }
    }

    fn catalogue(&self) -> &Catalogue {
        self.0.catalogue()
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn emit(&mut self, fact: StorageFact) {
        self.0.emit(fact);
    }

    fn emit_effect(&mut self, effect: Effect) {
        self.emit(StorageFact::Messages {
            effects: effect.into(),
        });
    }

    /// Runs a decision about the queue of that name, or refuses if there is none.
    fn with_entity(
        &mut self,
        name: &EntityName,
        decide: impl FnOnce(&mut Self, Incarnation) -> Result<StorageOutcome, StorageRefusal>,
    ) -> Decision {
        match self.catalogue().find(name) {
            Some(incarnation) => {
                let result = decide(self, incarnation);
                let scope = match &result {
                    Err(refusal) => refusal.scope(incarnation),
                    Ok(_) => Scope::Entity(incarnation),
                };
                Decision { result, scope }
            }
            None => Decision {
                result: Err(StorageRefusal::QueueNotFound {
                    queue: name.name.clone(),
                }),
                scope: Scope::Catalogue,
            },
        }
    }

    fn entity(&self, incarnation: Incarnation) -> &Entity {
        self.0
            .queues()
            .get(&incarnation)
            .expect("the catalogue names only entities that are there")
    }

    fn cipher(&self) -> &TokenCipher {
        self.catalogue().cipher()
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

impl StorageRefusal {
    /// The scope of refusing a command about this queue.
    fn scope(&self, entity: Incarnation) -> Scope {
        match self {
            Self::AccountQuotaExceeded { .. } => Scope::Everything,
            Self::QueueNotFound { .. }
            | Self::QueueAlreadyExists { .. }
            | Self::MessageNotFound
            | Self::PopReceiptMismatch
            | Self::HiddenBeyondExpiry { .. }
            | Self::BodyTooLarge { .. } => Scope::Entity(entity),
        }
    }
}

impl From<QuotaExceeded> for StorageRefusal {
    fn from(exceeded: QuotaExceeded) -> Self {
        let QuotaExceeded {
            account,
            limit,
            needed,
            allowed,
        } = exceeded;
        Self::AccountQuotaExceeded {
            account,
            limit,
            needed,
            allowed,
        }
    }
}
