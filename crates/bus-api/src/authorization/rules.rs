//! The authorization rules in the log, and the one place that changes them.
//!
//! What is served follows what is durable: once a change is answered, every token is judged by it, and
//! every connection judges those again that were put before.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use kew_broker::{Answer, Broker, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView, BusRefusal};
use kew_engine::{Command, EntityName, Outcome, Refusal, Service};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{Mutex, watch};

use super::description::Description;
use super::rights::{AuthorizationRule, InvalidRule};
use crate::ground::address::{entity_named, is_queue_name};
use crate::ground::constants::NAMESPACE;
use crate::ground::submit::Submitted;

/// Why rules were not read or changed.
#[derive(Debug, Error)]
pub enum RuleError {
    /// No rule can be like that.
    #[error(transparent)]
    Invalid(#[from] InvalidRule),
    /// There is no such rule.
    #[error("there is no rule {0:?}")]
    NotFound(String),
    /// There is such a rule.
    #[error("there is a rule {0:?} already")]
    AlreadyExists(String),
    /// No queue can be called so.
    #[error("{0:?} is not the name of a queue")]
    NoQueueName(String),
    /// The broker did not do it: most often because there is no such queue.
    #[error("{0}")]
    Rejected(Rejection),
    /// What the log has cannot be read, which is a bug.
    #[error("the rules of the namespace cannot be read")]
    Unreadable(#[source] serde_json::Error),
}

/// The rules of the namespace as they are kept.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    version: u32,
    rules: Vec<AuthorizationRule>,
}

const VERSION: u32 = 1;

/// The rules of the namespace that are served now, when any rule was changed, and the way to change them.
#[derive(Debug)]
pub(crate) struct Rules {
    broker: Broker,
    served: RwLock<Arc<[AuthorizationRule]>>,
    /// How often a rule was changed, of the namespace or of a queue.
    changes: watch::Sender<u64>,
    /// One change at a time, of rules and of whatever else is in a queue's description.
    pub(crate) changing: Mutex<()>,
}

impl Rules {
    /// With the rules of the namespace that the log has.
    pub(crate) async fn open(broker: Broker) -> Result<Self, RuleError> {
        let read = Command::ReadServiceProperties {
            service: Service::ServiceBus,
            account: NAMESPACE.into(),
        };
        let answer = broker.submit(read).await;
        let rules = match answer.map_err(RuleError::Rejected)?.outcome {
            Outcome::ServiceProperties(Some(bytes)) => {
                let kept: Kept = serde_json::from_slice(&bytes).map_err(RuleError::Unreadable)?;
                kept.rules
            }
            _ => Vec::new(),
        };
        Ok(Self {
            broker,
            served: RwLock::new(rules.into()),
            changes: watch::Sender::new(0),
            changing: Mutex::default(),
        })
    }

    pub(crate) fn served(&self) -> Arc<[AuthorizationRule]> {
        // They are swapped as a whole: they are right even if somebody panicked.
        Arc::clone(&self.served.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells of every change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Has every connection judge its tokens again.
    pub(crate) fn note_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn replace(&self, rules: Vec<AuthorizationRule>) {
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = rules.into();
        self.note_change();
    }

    /// The rules of a queue of that name.
    pub(crate) async fn of_queue(&self, queue: &str) -> Result<Vec<AuthorizationRule>, RuleError> {
        let view = self.view(queue_named(queue)?).await?;
        Ok(Description::decode(&view.options.description).rules)
    }

    async fn view(&self, queue: EntityName) -> Result<BusQueueView, RuleError> {
        let name = queue.name.clone();
        let read = Submitted::new(&self.broker, BusCommand::ReadQueue { queue });
        match read.answer().await.map_err(RuleError::Rejected)? {
            Answer {
                outcome: Outcome::Bus(BusOutcome::Queue(view)),
                ..
            } => Ok(view),
            _ => Err(RuleError::Rejected(Rejection::Refused(Refusal::Bus(
                BusRefusal::QueueNotFound { queue: name },
            )))),
        }
    }

    /// Changes the rules of the namespace, or of the queue that is named. It must run to its end.
    pub(crate) async fn change(
        &self,
        queue: Option<&str>,
        change: Change<'_>,
    ) -> Result<(), RuleError> {
        let _changing = self.changing.lock().await;
        match queue {
            Some(queue) => self.change_of_queue(queue, change).await,
            None => self.change_of_namespace(change).await,
        }
    }

    async fn change_of_namespace(&self, change: Change<'_>) -> Result<(), RuleError> {
        let mut rules = self.served().to_vec();
        change(&mut rules)?;
        AuthorizationRule::check_all(&rules)?;
        let kept = Kept {
            version: VERSION,
            rules,
        };
        let bytes = serde_json::to_vec(&kept).map_err(RuleError::Unreadable)?;
        let set = Command::SetServiceProperties {
            service: Service::ServiceBus,
            account: NAMESPACE.into(),
            properties: Bytes::from(bytes),
        };
        let answer = self.broker.submit(set).await;
        answer.map_err(RuleError::Rejected)?;
        self.replace(kept.rules);
        Ok(())
    }

    async fn change_of_queue(&self, queue: &str, change: Change<'_>) -> Result<(), RuleError> {
        let queue = queue_named(queue)?;
        let mut options = self.view(queue.clone()).await?.options;
        let mut description = Description::decode(&options.description);
        change(&mut description.rules)?;
        AuthorizationRule::check_all(&description.rules)?;
        options.description = description.encode();
        let update = BusCommand::UpdateQueue { queue, options };
        let answer = Submitted::new(&self.broker, update).answer().await;
        answer.map_err(RuleError::Rejected)?;
        self.note_change();
        Ok(())
    }
}

/// What is done with a list of rules.
pub(crate) type Change<'a> =
    &'a mut (dyn FnMut(&mut Vec<AuthorizationRule>) -> Result<(), RuleError> + Send);

fn queue_named(name: &str) -> Result<EntityName, RuleError> {
    let lower = name.to_lowercase();
    let entity = entity_named(&lower).filter(|_| is_queue_name(&lower));
    entity.ok_or_else(|| RuleError::NoQueueName(name.to_owned()))
}
