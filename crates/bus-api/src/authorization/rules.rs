//! The authorization rules in the log, as one of the two kinds of principals.
//!
//! Once a change is answered, every new token is judged by it, and every connection judges its earlier tokens
//! again.

use std::sync::Arc;

use bytes::Bytes;
use kew_broker::{Answer, Broker, Epoch, Ownership};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView, EntityKind};
use kew_engine::{Command, EntityName, Outcome, Service};
use kew_principals::{Key, Kind, PrincipalError, Principals, Served, Step, WhichKey};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::description::Description;
use super::rights::AuthorizationRule;
use crate::ground::address::{entity_named, is_queue_name};
use crate::ground::clock::Clock;
use crate::ground::constants::NAMESPACE;
use crate::ground::submit::Submitted;

/// The rules of the log, and the way to change them.
pub type RuleStore = Principals<BusRules>;

/// The scope of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleScope {
    /// They apply to all queues.
    Namespace,
    /// They apply to the queue or topic with this name, in any case, to its sub-queues, and to its subscriptions.
    Queue(Box<str>),
}

impl RuleScope {
    /// The rules of a queue, or without a queue those of the namespace.
    pub fn of(queue: Option<&str>) -> Self {
        queue.map_or(Self::Namespace, |queue| Self::Queue(queue.into()))
    }

    /// The name of the queue.
    pub fn queue(&self) -> Option<&str> {
        match self {
            Self::Namespace => None,
            Self::Queue(queue) => Some(queue),
        }
    }
}

/// A name that is not valid for a queue.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a valid queue name")]
struct NoQueueName(Box<str>);

/// A subscription, which has no rules of its own: those of its topic apply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is a subscription, and has no authorization rules of its own: use a rule of its topic or of the namespace"
)]
struct OfSubscription(Box<str>);

/// The rules of the namespace as they are stored.
#[derive(Default, Serialize, Deserialize)]
struct Stored {
    version: u32,
    rules: Vec<AuthorizationRule>,
}

const VERSION: u32 = 1;

/// Authorization rules of Service Bus. Those of the namespace are stored as properties of the service and
/// served from memory; those of a queue are stored in the description of the queue and read from there. A change reads
/// both from the log.
#[derive(Debug)]
pub struct BusRules {
    broker: Broker,
    clock: Clock,
}

impl BusRules {
    /// Reads the rules of the namespace and serves them from now on, anew in each later epoch of the log.
    pub(crate) async fn open(broker: Broker, clock: Clock) -> Result<RuleStore, PrincipalError> {
        Principals::open(Self { broker, clock }, Served::default()).await
    }

    async fn view_of(
        &self,
        epoch: Epoch,
        queue: EntityName,
    ) -> Result<BusQueueView, PrincipalError> {
        let read = BusCommand::ReadQueue { queue };
        let read = Submitted::within(&self.broker, Some(epoch), read);
        match read.answer().await.map_err(PrincipalError::of_read)? {
            Answer {
                outcome: Outcome::Bus(BusOutcome::Queue(view)),
                ..
            } => Ok(*view),
            _ => Err(PrincipalError::internal(
                "the broker did not describe the queue",
            )),
        }
    }

    async fn save_of_queue(
        &self,
        epoch: Epoch,
        queue: EntityName,
        rules: Vec<AuthorizationRule>,
    ) -> Result<(), PrincipalError> {
        let BusQueueView {
            kind, mut options, ..
        } = self.view_of(epoch, queue.clone()).await?;
        if kind == EntityKind::Subscription {
            return Err(PrincipalError::invalid(OfSubscription(queue.name)));
        }
        let description = Description {
            rules,
            ..Description::decode(&options.description)
        };
        options.description = description.encode();
        let update = BusCommand::UpdateQueue { queue, options };
        let update = Submitted::within(&self.broker, Some(epoch), update);
        let answer = update.answer().await;
        answer.map(|_| ()).map_err(PrincipalError::of_change)
    }

    async fn save_of_namespace(
        &self,
        epoch: Epoch,
        rules: Vec<AuthorizationRule>,
    ) -> Result<Vec<AuthorizationRule>, PrincipalError> {
        let stored = Stored {
            version: VERSION,
            rules,
        };
        let bytes = serde_json::to_vec(&stored).map_err(PrincipalError::internal)?;
        let set = Command::SetServiceProperties {
            service: Service::ServiceBus,
            account: NAMESPACE.into(),
            properties: Bytes::from(bytes),
        };
        let answer = self.broker.submit_within(Some(epoch), set).await;
        answer.map_err(PrincipalError::of_change)?;
        Ok(stored.rules)
    }
}

impl Kind for BusRules {
    type Principal = AuthorizationRule;
    type Scope = RuleScope;
    /// The rules of the namespace.
    type Snapshot = Vec<AuthorizationRule>;
    type Removal = ();

    const NOUN: &'static str = "rule";

    fn name(rule: &AuthorizationRule) -> &str {
        &rule.name
    }

    fn is_named(rule: &AuthorizationRule, name: &str) -> bool {
        rule.is_named(name)
    }

    fn key(rule: &AuthorizationRule, which: WhichKey) -> Box<str> {
        which.of([&rule.primary_key, &rule.secondary_key]).clone()
    }

    fn set_key(rule: &mut AuthorizationRule, which: WhichKey, key: &Key) {
        *which.of([&mut rule.primary_key, &mut rule.secondary_key]) = key.to_base64();
    }

    fn note_modified(&self, rule: &mut AuthorizationRule) {
        rule.modified_at_ms = self.clock.now_ms();
    }

    fn ownership(&self) -> &Arc<Ownership> {
        self.broker.ownership()
    }

    async fn snapshot(&self, epoch: Epoch) -> Result<Vec<AuthorizationRule>, PrincipalError> {
        let read = Command::ReadServiceProperties {
            service: Service::ServiceBus,
            account: NAMESPACE.into(),
        };
        let answer = self.broker.submit_within(Some(epoch), read).await;
        match answer.map_err(PrincipalError::of_read)?.outcome {
            Outcome::ServiceProperties(Some(bytes)) => {
                let stored: Stored =
                    serde_json::from_slice(&bytes).map_err(PrincipalError::internal)?;
                Ok(stored.rules)
            }
            _ => Ok(Vec::new()),
        }
    }

    async fn read(
        &self,
        epoch: Epoch,
        scope: &RuleScope,
    ) -> Result<Vec<AuthorizationRule>, PrincipalError> {
        let Some(queue) = scope.queue() else {
            return self.snapshot(epoch).await;
        };
        let view = self.view_of(epoch, queue_named(queue)?).await?;
        Ok(Description::decode(&view.options.description).rules)
    }

    async fn save(
        &self,
        epoch: Epoch,
        _: &Vec<AuthorizationRule>,
        scope: &RuleScope,
        all: Vec<AuthorizationRule>,
        _: Step<'_, Self>,
    ) -> Result<Option<Vec<AuthorizationRule>>, PrincipalError> {
        AuthorizationRule::check_all(&all).map_err(PrincipalError::invalid)?;
        match scope.queue() {
            Some(queue) => {
                let queue = queue_named(queue)?;
                self.save_of_queue(epoch, queue, all).await?;
                Ok(None)
            }
            None => self.save_of_namespace(epoch, all).await.map(Some),
        }
    }
}

fn queue_named(name: &str) -> Result<EntityName, PrincipalError> {
    let lower = name.to_lowercase();
    let entity = entity_named(&lower).filter(|_| is_queue_name(&lower));
    entity.ok_or_else(|| PrincipalError::invalid(NoQueueName(name.into())))
}
