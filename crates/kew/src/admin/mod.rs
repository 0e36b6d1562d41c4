//! Administration: the acts of administrators, and how they are carried out.
//!
//! The server answers on a socket in its data directory ([`door`]). The command line connects to it ([`client`])
//! or, if no server runs, opens the data directory itself ([`reach`]). Both call [`carry_out`], which writes the
//! audit log. Accounts and rules have the same verbs ([`verb`]) and the same paths ([`routes`]).

pub(crate) mod account;
pub(crate) mod backup;
pub(crate) mod client;
pub(crate) mod damage;
pub(crate) mod door;
mod failure;
pub(crate) mod reach;
mod routes;
pub(crate) mod rule;
mod socket;
pub(crate) mod verb;

use kew_broker::Broker;
use kew_bus_api::{BusApi, BusConfig, BusRules, ExportError};
use kew_principals::PrincipalError;
use kew_queue_api::{AccountStore, StorageAccounts};
use serde::{Deserialize, Serialize};
use tracing::field::debug;

use account::{AccountView, Endpoint};
use backup::Backups;
use damage::Damage;
pub(crate) use failure::Failure;
use rule::{BusEndpoint, RuleView};
use verb::{Asked, KeyView, Verb};

/// An act of an administrator.
#[derive(Debug)]
pub(crate) enum Act {
    Account(Asked<StorageAccounts>),
    Rule(Asked<BusRules>),
    /// Write the queues of Service Bus as a configuration file of the emulator.
    ExportBus,
    /// List what the scrub has found.
    ListDamage,
}

/// The answer to an act.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Accounts {
        accounts: Vec<AccountView>,
    },
    Account {
        account: AccountView,
        /// The requested or new keys.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keys: Vec<KeyView>,
    },
    Rules {
        rules: Vec<RuleView>,
    },
    Rule {
        rule: RuleView,
        /// The requested or new keys.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keys: Vec<KeyView>,
    },
    Config {
        config: BusConfig,
    },
    Removed {
        removed: String,
    },
    Damage {
        damage: Damage,
    },
}

/// The objects of administration, and where their clients connect.
pub(crate) struct Administered {
    pub(crate) accounts: AccountStore,
    pub(crate) endpoint: Endpoint,
    pub(crate) bus: BusApi,
    pub(crate) bus_endpoint: BusEndpoint,
    pub(crate) broker: Broker,
    /// `None` without a server: the command line then reads the directory itself.
    pub(crate) backups: Option<Backups>,
}

/// Carries out an act of an administrator. A change is durable and in force when this returns.
///
/// Run it in a task that nothing cancels: a cancelled change may be durable and not in force.
pub(crate) async fn carry_out(
    administered: &Administered,
    act: Act,
    by: &str,
) -> Result<Answer, Failure> {
    let Administered {
        accounts,
        endpoint,
        bus,
        bus_endpoint,
        broker,
        // A backup is no act with one answer: see its module.
        backups: _,
    } = administered;
    let (record, result) = match act {
        Act::Account(asked) => (asked.record(), asked.carry_out(accounts, endpoint).await),
        Act::Rule(asked) => {
            let rules = bus.rules();
            (asked.record(), asked.carry_out(rules, bus_endpoint).await)
        }
        Act::ExportBus => {
            let record = Record {
                what: "export bus queues".into(),
                ..Record::default()
            };
            (record, export(bus).await)
        }
        Act::ListDamage => {
            let record = Record {
                what: "list damage".into(),
                ..Record::default()
            };
            let damage = damage::list(broker).await;
            (record, damage.map(|damage| Answer::Damage { damage }))
        }
    };
    record.write(by, result.as_ref().err());
    result
}

async fn export(bus: &BusApi) -> Result<Answer, Failure> {
    let config = bus.export().await;
    let config = config.map_err(|error| match error {
        ExportError::Rejected(rejection) => {
            Failure::of(&PrincipalError::of_read(rejection), "bus", "")
        }
        error @ ExportError::NoPlace(_) => Failure::new("not-exportable", error.to_string()),
    })?;
    Ok(Answer::Config { config })
}

impl Act {
    /// Whether it creates something.
    fn creates(&self) -> bool {
        match self {
            Self::Account(asked) => matches!(asked.verb, Verb::Add(_)),
            Self::Rule(asked) => matches!(asked.verb, Verb::Add(_)),
            Self::ExportBus | Self::ListDamage => false,
        }
    }
}

/// A record in the audit log.
#[derive(Default)]
struct Record {
    what: String,
    /// Whether success is recorded. Refusals are always recorded.
    is_audited: bool,
    /// The principal.
    name: Option<String>,
    /// The queue whose rule it is.
    entity: Option<String>,
}

impl Record {
    fn write(self, by: &str, failure: Option<&Failure>) {
        let what = self.what;
        // A name may be anything, so it is quoted.
        let [name, entity] = [self.name, self.entity].map(|name| name.map(debug));
        match failure {
            None if self.is_audited => {
                tracing::info!(target: "audit", name, entity, by, "audit: {what}");
            }
            None => {}
            Some(failure) => {
                let refused = &failure.error;
                tracing::warn!(target: "audit", name, entity, by, refused, "audit: {what}");
            }
        }
    }
}
