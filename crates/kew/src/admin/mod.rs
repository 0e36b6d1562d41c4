//! Administration: what can be asked, and how it is carried out.
//!
//! The server answers on a socket in its data directory ([`door`]); the command line asks there
//! ([`client`]), or, when no server runs, of the data directory itself ([`reach`]). Both come to [`carry_out`],
//! which leaves an audit line of every act that changes something.

pub(crate) mod bus;
pub(crate) mod client;
pub(crate) mod door;
pub(crate) mod reach;
mod socket;

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_bus_api::{BusApi, BusConfig, RuleError};
use kew_engine::{AccountQuota, AccountRecord, AccountSecret, Refusal};
use kew_queue_api::{AccountChange, AccountError, AccountStore, KeyName};
use serde::{Deserialize, Serialize};
use tracing::field::debug;

use crate::quota::{Key, Limit};
use bus::{BusEndpoint, RuleAct, RuleAnswer, RuleView};

/// What can be asked.
#[derive(Debug)]
pub(crate) enum Act {
    ListAccounts,
    AddAccount(NewAccount),
    RotateKey {
        name: String,
        key: Key,
    },
    ChangeAccount {
        name: String,
        change: Change,
    },
    RemoveAccount {
        name: String,
        with_queues: bool,
    },
    /// Write the queues of Service Bus as a configuration file of the emulator.
    ExportBus,
    /// About the rules of Service Bus, or of one of its queues.
    Rule {
        entity: Option<String>,
        what: RuleAct,
    },
}

/// An account to add.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAccount {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) quota_queues: Option<u64>,
    #[serde(default)]
    pub(crate) quota_bytes: Option<u64>,
    /// A key in Base64, for the primary and the secondary one. Without it, two are made.
    #[serde(default)]
    pub(crate) key: Option<SecretText>,
}

/// Which key to make anew.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotation {
    pub(crate) key: Key,
}

/// What is to be different. A field that is left out stays; a quota of `"none"` goes.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quota_queues: Option<Limit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quota_bytes: Option<Limit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disabled: Option<bool>,
}

/// Text that shows itself to nobody by accident.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SecretText(pub(crate) String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretText(..)")
    }
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Accounts { accounts: Vec<AccountView> },
    Account(AccountAnswer),
    Rules { rules: Vec<RuleView> },
    Rule(RuleAnswer),
    Config { config: BusConfig },
    Removed { removed: String },
}

/// An account, and the keys that were made for it now.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccountAnswer {
    pub(crate) account: AccountView,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) keys: Vec<KeyView>,
}

/// A key that is told once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeyView {
    pub(crate) key: Key,
    pub(crate) value: SecretText,
    pub(crate) connection_string: SecretText,
}

/// What everybody who may administer can see of an account: no key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountView {
    pub(crate) name: String,
    pub(crate) disabled: bool,
    pub(crate) quota_queues: Option<u64>,
    pub(crate) quota_bytes: Option<u64>,
}

/// Why something was not done.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// A word for programs.
    pub(crate) error: String,
    /// A sentence for people.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(error: &str, message: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            message: message.into(),
        }
    }

    fn of(error: &AccountError) -> Self {
        let word = match error {
            AccountError::Invalid(_) => "invalid",
            AccountError::WellKnown => "well-known",
            AccountError::Refused(Refusal::AccountNotFound { .. }) => "not-found",
            AccountError::Refused(Refusal::AccountAlreadyExists { .. }) => "exists",
            AccountError::Refused(Refusal::AccountNotEmpty { .. }) => "not-empty",
            AccountError::Refused(_) => "refused",
            AccountError::Busy => "busy",
            AccountError::Full => "full",
            AccountError::Stopped => "stopped",
            AccountError::Random(_) => "internal",
        };
        let mut message = error.to_string();
        if word == "not-empty" {
            message.push_str(", which --with-queues would delete");
        }
        Self::new(word, message)
    }
}

/// Where clients of new accounts are told to go.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint(pub(crate) SocketAddr);

impl Endpoint {
    fn connection_string(&self, account: &str, key: &str) -> String {
        format!(
            "DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};\
             QueueEndpoint=http://{}/{account};",
            self.0
        )
    }
}

/// What is administered, and where its clients are told to go.
pub(crate) struct Administered {
    pub(crate) accounts: AccountStore,
    pub(crate) endpoint: Endpoint,
    pub(crate) bus: BusApi,
    pub(crate) bus_endpoint: BusEndpoint,
}

/// Carries out an act, for somebody. What it changes is durable, and in force, when this returns.
///
/// Run it in a task that nobody cancels: a change that is cut off may be durable and not in force.
pub(crate) async fn carry_out(
    administered: &Administered,
    act: Act,
    by: &str,
) -> Result<Answer, Failure> {
    let subject = Subject::of(&act);
    let result = decide(administered, act).await;
    let Subject {
        what,
        is_audited,
        account,
        rule,
        entity,
    } = subject;
    // A name may be anything: it is shown quoted.
    let [account, rule, entity] = [account, rule, entity].map(|name| name.map(debug));
    match &result {
        Ok(_) if is_audited => {
            tracing::info!(target: "audit", account, rule, entity, by, "audit: {what}");
        }
        Ok(_) => {}
        Err(failure) => tracing::warn!(
            target: "audit", account, rule, entity, by, refused = failure.error, "audit: {what}"
        ),
    }
    result
}

/// What the audit says of an act.
struct Subject {
    what: &'static str,
    /// Whether it is told that it was done; that it was refused is told in any case.
    is_audited: bool,
    account: Option<String>,
    rule: Option<String>,
    entity: Option<String>,
}

impl Subject {
    fn of(act: &Act) -> Self {
        let (what, account) = match act {
            Act::ListAccounts => ("list accounts", String::new()),
            Act::ExportBus => ("export bus queues", String::new()),
            Act::AddAccount(new) => ("add account", new.name.clone()),
            Act::RotateKey { name, key } => match key {
                Key::Primary => ("rotate primary key", name.clone()),
                Key::Secondary => ("rotate secondary key", name.clone()),
            },
            Act::ChangeAccount { name, .. } => ("change account", name.clone()),
            Act::RemoveAccount {
                name,
                with_queues: false,
            } => ("remove account", name.clone()),
            Act::RemoveAccount { name, .. } => ("remove account with its queues", name.clone()),
            Act::Rule { entity, what: act } => {
                let (what, rule) = act.describe();
                return Self {
                    what,
                    is_audited: act.is_audited(),
                    account: None,
                    rule: Some(rule),
                    entity: entity.clone(),
                };
            }
        };
        Self {
            what,
            is_audited: !matches!(act, Act::ListAccounts | Act::ExportBus),
            account: Some(account),
            rule: None,
            entity: None,
        }
    }
}

async fn decide(administered: &Administered, act: Act) -> Result<Answer, Failure> {
    let (store, endpoint) = (&administered.accounts, &administered.endpoint);
    let failed = |error: AccountError| Failure::of(&error);
    let (record, shown) = match act {
        Act::Rule { entity, what } => {
            let (bus, endpoint) = (&administered.bus, &administered.bus_endpoint);
            return what.carry_out(bus, endpoint, entity.as_deref()).await;
        }
        Act::ExportBus => {
            let config = administered.bus.export().await;
            let config = config.map_err(|error| bus::failure_of(&RuleError::Rejected(error)))?;
            return Ok(Answer::Config { config });
        }
        Act::ListAccounts => {
            let accounts = store.list().await.map_err(failed)?;
            let accounts = accounts.iter().map(view).collect();
            return Ok(Answer::Accounts { accounts });
        }
        Act::RemoveAccount { name, with_queues } => {
            store.remove(&name, with_queues).await.map_err(failed)?;
            return Ok(Answer::Removed { removed: name });
        }
        Act::AddAccount(new) => {
            let quota = AccountQuota {
                queues_max: new.quota_queues,
                size_bytes_max: new.quota_bytes,
            };
            let key = new.key.map(|key| read_key(&key)).transpose()?;
            let keys = key.map(|key| [key.clone(), key]);
            let added = store.add(&new.name, quota, keys).await.map_err(failed)?;
            (added, vec![Key::Primary, Key::Secondary])
        }
        Act::RotateKey { name, key } => {
            let which = match key {
                Key::Primary => KeyName::Primary,
                Key::Secondary => KeyName::Secondary,
            };
            (store.rotate(&name, which).await.map_err(failed)?, vec![key])
        }
        Act::ChangeAccount { name, change } => {
            let change = AccountChange {
                queues_max: change.quota_queues.map(Into::into),
                size_bytes_max: change.quota_bytes.map(Into::into),
                is_disabled: change.disabled,
            };
            (store.change(&name, change).await.map_err(failed)?, vec![])
        }
    };
    let keys = shown.iter().map(|key| key_view(&record, *key, endpoint));
    Ok(Answer::Account(AccountAnswer {
        account: view(&record),
        keys: keys.collect(),
    }))
}

/// A key that somebody brings. It is not repeated.
fn read_key(text: &SecretText) -> Result<AccountSecret, Failure> {
    let invalid = || {
        Failure::new(
            "invalid",
            "the key is not Base64 of 16 to 64 bytes; without one, a key is made",
        )
    };
    let bytes = STANDARD.decode(text.0.trim()).map_err(|_| invalid())?;
    if bytes.len() < KEY_SIZE_BYTES_MIN {
        return Err(invalid());
    }
    AccountSecret::new(&bytes).map_err(|_| invalid())
}

/// A shorter key could be found by trying.
const KEY_SIZE_BYTES_MIN: usize = 16;

fn view(record: &AccountRecord) -> AccountView {
    AccountView {
        name: record.name.to_string(),
        disabled: record.is_disabled,
        quota_queues: record.quota.queues_max,
        quota_bytes: record.quota.size_bytes_max,
    }
}

fn key_view(record: &AccountRecord, key: Key, endpoint: &Endpoint) -> KeyView {
    let [primary, secondary] = &record.keys;
    let secret = match key {
        Key::Primary => primary,
        Key::Secondary => secondary,
    };
    let value = STANDARD.encode(secret.as_bytes());
    KeyView {
        key,
        connection_string: SecretText(endpoint.connection_string(&record.name, &value)),
        value: SecretText(value),
    }
}
