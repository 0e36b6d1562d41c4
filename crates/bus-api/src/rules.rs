//! The authorization rules in the log, and the one place that changes them.
//!
//! What is served follows what is durable: once a change is answered, every token is judged by it, and
//! every connection judges those again that were put before.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use kew_broker::{Answer, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView, BusRefusal};
use kew_engine::{Command, EntityName, Outcome, Refusal, Service};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{Mutex, watch};

use crate::address::{entity_named, is_queue_name};
use crate::api::{BusApi, NAMESPACE, Shared};
use crate::description::Description;
use crate::rights::{AuthorizationRule, InvalidRule, WhichKey};
use crate::submit::Submitted;

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

/// The rules of the namespace that are served now, and when any rule was changed.
#[derive(Debug)]
pub(crate) struct Rules {
    served: RwLock<Arc<[AuthorizationRule]>>,
    /// How often a rule was changed, of the namespace or of a queue.
    changes: watch::Sender<u64>,
    /// One change at a time, of rules and of whatever else is in a queue's description.
    pub(crate) changing: Mutex<()>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            served: RwLock::new(Arc::new([])),
            changes: watch::Sender::new(0),
            changing: Mutex::default(),
        }
    }
}

impl Rules {
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
}

impl Shared {
    /// Reads the rules of the namespace in the log, and serves them from now on.
    pub(crate) async fn load_rules(&self) -> Result<(), RuleError> {
        let read = Command::ReadServiceProperties {
            service: Service::ServiceBus,
            account: NAMESPACE.into(),
        };
        let answer = self.broker.submit(read).await;
        let rules = match answer.map_err(RuleError::Rejected)?.outcome {
            Outcome::ServiceProperties(Some(bytes)) => {
                let kept: Kept = serde_json::from_slice(&bytes).map_err(RuleError::Unreadable)?;
                kept.rules
            }
            _ => Vec::new(),
        };
        self.rules.replace(rules);
        Ok(())
    }

    /// The rules of a queue of that name.
    pub(crate) async fn rules_of_queue(
        &self,
        queue: &str,
    ) -> Result<Vec<AuthorizationRule>, RuleError> {
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

    async fn change_of_namespace(&self, change: Change<'_>) -> Result<(), RuleError> {
        let mut rules = self.rules.served().to_vec();
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
        self.rules.replace(kept.rules);
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
        self.rules.note_change();
        Ok(())
    }
}

type Change<'a> = &'a mut (dyn FnMut(&mut Vec<AuthorizationRule>) -> Result<(), RuleError> + Send);

fn queue_named(name: &str) -> Result<EntityName, RuleError> {
    let lower = name.to_lowercase();
    let entity = entity_named(&lower).filter(|_| is_queue_name(&lower));
    entity.ok_or_else(|| RuleError::NoQueueName(name.to_owned()))
}

/// Rules of the namespace, or those of the queue that is named. A change must run to its end: whoever
/// may be interrupted runs it in a task of its own.
impl BusApi {
    /// The rules, in the order in which they were added.
    pub async fn rules(&self, queue: Option<&str>) -> Result<Vec<AuthorizationRule>, RuleError> {
        match queue {
            Some(queue) => self.shared.rules_of_queue(queue).await,
            None => Ok(self.shared.rules.served().to_vec()),
        }
    }

    /// The rule of that name.
    pub async fn rule(
        &self,
        queue: Option<&str>,
        name: &str,
    ) -> Result<AuthorizationRule, RuleError> {
        let rules = self.rules(queue).await?;
        let found = rules.into_iter().find(|rule| rule.is_named(name));
        found.ok_or_else(|| RuleError::NotFound(name.to_owned()))
    }

    /// Adds a rule.
    ///
    /// Refuses with [`RuleError::AlreadyExists`] if there is one of that name, and with
    /// [`InvalidRule::TooMany`] if there are [`AuthorizationRule::COUNT_MAX`].
    pub async fn add_rule(
        &self,
        queue: Option<&str>,
        rule: AuthorizationRule,
    ) -> Result<(), RuleError> {
        self.change(queue, &mut |rules| {
            if rules.iter().any(|other| other.is_named(&rule.name)) {
                return Err(RuleError::AlreadyExists(rule.name.to_string()));
            }
            rules.push(rule.clone());
            Ok(())
        })
        .await
    }

    /// Removes a rule. Its keys have stopped working when this returns.
    pub async fn remove_rule(&self, queue: Option<&str>, name: &str) -> Result<(), RuleError> {
        self.change(queue, &mut |rules| {
            let before = rules.len();
            rules.retain(|rule| !rule.is_named(name));
            if rules.len() == before {
                return Err(RuleError::NotFound(name.to_owned()));
            }
            Ok(())
        })
        .await
    }

    /// Makes one of a rule's keys anew. The old one has stopped working when this returns.
    pub async fn regenerate_key(
        &self,
        queue: Option<&str>,
        name: &str,
        which: WhichKey,
    ) -> Result<AuthorizationRule, RuleError> {
        let now_ms = self.shared.now_ms();
        let mut changed = None;
        self.change(queue, &mut |rules| {
            let mut rules = rules.iter_mut();
            let found = rules.find(|rule| rule.is_named(name));
            let rule = found.ok_or_else(|| RuleError::NotFound(name.to_owned()))?;
            rule.regenerate(which, now_ms)?;
            changed = Some(rule.clone());
            Ok(())
        })
        .await?;
        changed.ok_or_else(|| RuleError::NotFound(name.to_owned()))
    }

    async fn change(&self, queue: Option<&str>, change: Change<'_>) -> Result<(), RuleError> {
        let _changing = self.shared.rules.changing.lock().await;
        match queue {
            Some(queue) => self.shared.change_of_queue(queue, change).await,
            None => self.shared.change_of_namespace(change).await,
        }
    }
}
