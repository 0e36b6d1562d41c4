//! The authorization rules in the log, as one of the two kinds of principals.
//!
//! Once a change is answered, every token is judged by it, and every connection judges the tokens that it
//! has taken before again.

use bytes::Bytes;
use kew_broker::{Answer, Broker};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueOptions, BusQueueView};
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

/// Whose rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleScope {
    /// They allow something in all queues.
    Namespace,
    /// They allow something in the queue of this name, in any case, and in its dead-letter queue.
    Queue(Box<str>),
}

impl RuleScope {
    /// The rules of a queue, or without one those of the namespace.
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

/// A name that no queue can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not the name of a queue")]
struct NoQueueName(Box<str>);

/// The rules of the namespace as they are stored.
#[derive(Default, Serialize, Deserialize)]
struct Stored {
    version: u32,
    rules: Vec<AuthorizationRule>,
}

const VERSION: u32 = 1;

/// Authorization rules of Service Bus. Those of the namespace are stored as properties of the service and
/// served from memory; those of a queue are stored in the description of the queue and read from there.
#[derive(Debug)]
pub struct BusRules {
    broker: Broker,
    clock: Clock,
    served: Served<Vec<AuthorizationRule>>,
}

/// A queue whose rules were read.
#[derive(Debug)]
pub struct RulesOfQueue {
    queue: EntityName,
    options: BusQueueOptions,
    description: Description,
}

impl BusRules {
    /// Reads the rules of the namespace and serves them from now on.
    pub(crate) async fn open(broker: Broker, clock: Clock) -> Result<RuleStore, PrincipalError> {
        let read = Command::ReadServiceProperties {
            service: Service::ServiceBus,
            account: NAMESPACE.into(),
        };
        let answer = broker.submit(read).await;
        let rules = match answer.map_err(PrincipalError::of_read)?.outcome {
            Outcome::ServiceProperties(Some(bytes)) => {
                let stored: Stored =
                    serde_json::from_slice(&bytes).map_err(PrincipalError::internal)?;
                stored.rules
            }
            _ => Vec::new(),
        };
        let served = Served::new(rules);
        let kind = Self {
            broker,
            clock,
            served: served.clone(),
        };
        Ok(Principals::new(kind, served))
    }

    async fn view(&self, queue: EntityName) -> Result<BusQueueView, PrincipalError> {
        let name = queue.name.clone();
        let read = Submitted::new(&self.broker, BusCommand::ReadQueue { queue });
        match read.answer().await.map_err(PrincipalError::of_read)? {
            Answer {
                outcome: Outcome::Bus(BusOutcome::Queue(view)),
                ..
            } => Ok(view),
            _ => Err(PrincipalError::NotFound {
                what: "queue",
                name,
            }),
        }
    }

    async fn save_of_namespace(&self, rules: &[AuthorizationRule]) -> Result<(), PrincipalError> {
        let stored = Stored {
            version: VERSION,
            rules: rules.to_vec(),
        };
        let bytes = serde_json::to_vec(&stored).map_err(PrincipalError::internal)?;
        let set = Command::SetServiceProperties {
            service: Service::ServiceBus,
            account: NAMESPACE.into(),
            properties: Bytes::from(bytes),
        };
        let answer = self.broker.submit(set).await;
        answer.map(|_| ()).map_err(PrincipalError::of_change)
    }
}

impl Kind for BusRules {
    type Principal = AuthorizationRule;
    type Scope = RuleScope;
    /// The rules of the namespace.
    type Snapshot = Vec<AuthorizationRule>;
    /// `None` for rules of the namespace.
    type Rest = Option<Box<RulesOfQueue>>;
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

    fn check_name(_: &str) -> Result<(), PrincipalError> {
        // A rule with the name of the well-known one is a rule of its own.
        Ok(())
    }

    async fn read(
        &self,
        scope: &RuleScope,
    ) -> Result<(Vec<AuthorizationRule>, Self::Rest), PrincipalError> {
        let Some(queue) = scope.queue() else {
            return Ok((self.served.snapshot().to_vec(), None));
        };
        let queue = queue_named(queue)?;
        let options = self.view(queue.clone()).await?.options;
        let mut description = Description::decode(&options.description);
        let rules = std::mem::take(&mut description.rules);
        let rest = RulesOfQueue {
            queue,
            options,
            description,
        };
        Ok((rules, Some(Box::new(rest))))
    }

    fn next(
        &self,
        scope: &RuleScope,
        all: &[AuthorizationRule],
        _: &Step<'_, Self>,
    ) -> Result<Option<Vec<AuthorizationRule>>, PrincipalError> {
        AuthorizationRule::check_all(all).map_err(PrincipalError::invalid)?;
        Ok(match scope {
            RuleScope::Namespace => Some(all.to_vec()),
            RuleScope::Queue(_) => None,
        })
    }

    async fn save(
        &self,
        rest: Self::Rest,
        all: &[AuthorizationRule],
        _: &Step<'_, Self>,
    ) -> Result<(), PrincipalError> {
        let Some(rest) = rest else {
            return self.save_of_namespace(all).await;
        };
        let RulesOfQueue {
            queue,
            mut options,
            mut description,
        } = *rest;
        description.rules = all.to_vec();
        options.description = description.encode();
        let update = BusCommand::UpdateQueue { queue, options };
        let answer = Submitted::new(&self.broker, update).answer().await;
        answer.map(|_| ()).map_err(PrincipalError::of_change)
    }
}

fn queue_named(name: &str) -> Result<EntityName, PrincipalError> {
    let lower = name.to_lowercase();
    let entity = entity_named(&lower).filter(|_| is_queue_name(&lower));
    entity.ok_or_else(|| PrincipalError::invalid(NoQueueName(name.into())))
}
