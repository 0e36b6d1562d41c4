//! Administration of Service Bus: its authorization rules.

use std::time::{SystemTime, UNIX_EPOCH};

use kew_broker::Rejection;
use kew_bus_api::{AuthorizationRule, BusApi, Rights, RuleError, WhichKey};
use kew_engine::Refusal;
use kew_engine::bus::BusRefusal;
use serde::{Deserialize, Serialize};

use super::{Answer, Failure, KeyView, SecretText};
use crate::quota::Key;

/// What can be asked about rules, of the namespace or of a queue.
#[derive(Debug)]
pub(crate) enum RuleAct {
    List,
    Add(NewRule),
    Remove { name: String },
    Keys { name: String },
    Regenerate { name: String, key: Key },
}

/// A rule to add. Its keys are made.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRule {
    pub(crate) name: String,
    pub(crate) rights: Rights,
}

/// What everybody who may administer can see of a rule without asking for its keys.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RuleView {
    pub(crate) name: String,
    /// The queue whose rule it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) entity: Option<String>,
    pub(crate) rights: Rights,
    pub(crate) created_at_ms: u64,
    pub(crate) modified_at_ms: u64,
}

/// A rule, and the keys that were asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleAnswer {
    pub(crate) rule: RuleView,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) keys: Vec<KeyView>,
}

/// Where clients of Service Bus are told to go.
#[derive(Clone, Debug)]
pub(crate) struct BusEndpoint {
    /// Such as `sb://localhost:5672`.
    pub(crate) endpoint: String,
    /// Whether they may do without TLS.
    pub(crate) is_plain: bool,
}

impl BusEndpoint {
    fn connection_string(&self, rule: &str, key: &str, entity: Option<&str>) -> String {
        let flag = if self.is_plain {
            "UseDevelopmentEmulator=true;"
        } else {
            ""
        };
        let entity = entity.map_or(String::new(), |entity| format!("EntityPath={entity};"));
        format!(
            "Endpoint={};SharedAccessKeyName={rule};SharedAccessKey={key};{entity}{flag}",
            self.endpoint
        )
    }
}

impl RuleAct {
    /// What is done, and to which rule, for the audit.
    pub(super) fn describe(&self) -> (&'static str, String) {
        match self {
            Self::List => ("list bus rules", String::new()),
            Self::Add(new) => ("add bus rule", new.name.clone()),
            Self::Remove { name } => ("remove bus rule", name.clone()),
            Self::Keys { name } => ("show keys of bus rule", name.clone()),
            Self::Regenerate { name, key } => match key {
                Key::Primary => ("regenerate primary key of bus rule", name.clone()),
                Key::Secondary => ("regenerate secondary key of bus rule", name.clone()),
            },
        }
    }

    /// Whether there is to be a line of it in the audit: keys that are shown are, too.
    pub(super) fn is_audited(&self) -> bool {
        !matches!(self, Self::List)
    }

    pub(super) async fn carry_out(
        self,
        bus: &BusApi,
        endpoint: &BusEndpoint,
        entity: Option<&str>,
    ) -> Result<Answer, Failure> {
        let failed = |error: RuleError| failure_of(&error);
        let (rule, shown) = match self {
            Self::List => {
                let rules = bus.rules(entity).await.map_err(failed)?;
                let rules = rules.iter().map(|rule| view(rule, entity)).collect();
                return Ok(Answer::Rules { rules });
            }
            Self::Remove { name } => {
                bus.remove_rule(entity, &name).await.map_err(failed)?;
                return Ok(Answer::Removed { removed: name });
            }
            Self::Add(new) => {
                let rule = AuthorizationRule::generate(&new.name, new.rights, now_ms());
                let rule = rule.map_err(|error| failed(error.into()))?;
                bus.add_rule(entity, rule.clone()).await.map_err(failed)?;
                (rule, vec![Key::Primary, Key::Secondary])
            }
            Self::Keys { name } => {
                let rule = bus.rule(entity, &name).await.map_err(failed)?;
                (rule, vec![Key::Primary, Key::Secondary])
            }
            Self::Regenerate { name, key } => {
                let which = match key {
                    Key::Primary => WhichKey::Primary,
                    Key::Secondary => WhichKey::Secondary,
                };
                let changed = bus.regenerate_key(entity, &name, which).await;
                (changed.map_err(failed)?, vec![key])
            }
        };
        let keys = shown.into_iter().map(|key| {
            let value = match key {
                Key::Primary => &rule.primary_key,
                Key::Secondary => &rule.secondary_key,
            };
            let connection_string = endpoint.connection_string(&rule.name, value, entity);
            KeyView {
                key,
                value: SecretText(value.to_string()),
                connection_string: SecretText(connection_string),
            }
        });
        Ok(Answer::Rule(RuleAnswer {
            rule: view(&rule, entity),
            keys: keys.collect(),
        }))
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

fn view(rule: &AuthorizationRule, entity: Option<&str>) -> RuleView {
    RuleView {
        name: rule.name.to_string(),
        entity: entity.map(str::to_owned),
        rights: rule.rights,
        created_at_ms: rule.created_at_ms,
        modified_at_ms: rule.modified_at_ms,
    }
}

pub(super) fn failure_of(error: &RuleError) -> Failure {
    let word = match error {
        RuleError::Invalid(_) | RuleError::NoQueueName(_) => "invalid",
        RuleError::NotFound(_)
        | RuleError::Rejected(Rejection::Refused(Refusal::Bus(BusRefusal::QueueNotFound {
            ..
        }))) => "not-found",
        RuleError::AlreadyExists(_) => "exists",
        RuleError::Rejected(Rejection::Refused(_)) => "refused",
        RuleError::Rejected(Rejection::Busy) => "busy",
        RuleError::Rejected(Rejection::Full) => "full",
        RuleError::Rejected(Rejection::Stopped) => "stopped",
        RuleError::Rejected(Rejection::Unreadable) | RuleError::Unreadable(_) => "internal",
    };
    Failure::new(word, error.to_string())
}
