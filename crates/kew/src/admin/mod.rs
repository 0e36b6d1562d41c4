//! Administration: what can be asked, and how it is carried out.
//!
//! The server answers on a socket in its data directory ([`door`]). The command line asks there ([`client`]) or,
//! if no server runs, opens the data directory itself ([`reach`]). Both call [`carry_out`], which writes the audit
//! log. Accounts and rules have the same verbs ([`verb`]) and the same paths ([`routes`]).

pub(crate) mod account;
pub(crate) mod client;
pub(crate) mod door;
mod failure;
pub(crate) mod reach;
mod routes;
pub(crate) mod rule;
mod socket;
pub(crate) mod verb;

use kew_bus_api::{BusApi, BusConfig, BusRules};
use kew_principals::PrincipalError;
use kew_queue_api::{AccountStore, StorageAccounts};
use serde::{Deserialize, Serialize};
use tracing::field::debug;

use account::{AccountView, Endpoint};
pub(crate) use failure::Failure;
use rule::{BusEndpoint, RuleView};
use verb::{Asked, KeyView, Verb};

/// What can be asked.
#[derive(Debug)]
pub(crate) enum Act {
    Account(Asked<StorageAccounts>),
    Rule(Asked<BusRules>),
    /// Write the queues of Service Bus as a configuration file of the emulator.
    ExportBus,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Accounts {
        accounts: Vec<AccountView>,
    },
    Account {
        account: AccountView,
        /// The keys that were asked for or made.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keys: Vec<KeyView>,
    },
    Rules {
        rules: Vec<RuleView>,
    },
    Rule {
        rule: RuleView,
        /// The keys that were asked for or made.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keys: Vec<KeyView>,
    },
    Config {
        config: BusConfig,
    },
    Removed {
        removed: String,
    },
}

/// What is administered, and where its clients connect.
pub(crate) struct Administered {
    pub(crate) accounts: AccountStore,
    pub(crate) endpoint: Endpoint,
    pub(crate) bus: BusApi,
    pub(crate) bus_endpoint: BusEndpoint,
}

/// Carries out an act of an administrator. A change is durable, and in force, when this returns.
///
/// Run it in a task that nothing cancels: a change that is cut off may be durable and not in force.
pub(crate) async fn carry_out(
    administered: &Administered,
    act: Act,
    by: &str,
) -> Result<Answer, Failure> {
    let Subject {
        what,
        is_audited,
        account,
        rule,
        entity,
    } = Subject::of(&act);
    let result = decide(administered, act).await;
    // A name may be anything, so it is quoted.
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

async fn decide(administered: &Administered, act: Act) -> Result<Answer, Failure> {
    let Administered {
        accounts,
        endpoint,
        bus,
        bus_endpoint,
    } = administered;
    match act {
        Act::Account(asked) => asked.carry_out(accounts, endpoint).await,
        Act::Rule(asked) => asked.carry_out(bus.rules(), bus_endpoint).await,
        Act::ExportBus => match bus.export().await {
            Ok(config) => Ok(Answer::Config { config }),
            Err(rejection) => {
                let error = PrincipalError::of_read(rejection);
                Err(Failure::of(&error, "kew bus", ""))
            }
        },
    }
}

impl Act {
    /// Whether it makes something new.
    fn creates(&self) -> bool {
        match self {
            Self::Account(asked) => matches!(asked.verb, Verb::Add(_)),
            Self::Rule(asked) => matches!(asked.verb, Verb::Add(_)),
            Self::ExportBus => false,
        }
    }
}

/// What the audit log says of an act.
struct Subject {
    what: String,
    /// Whether success is recorded. A refusal is recorded in any case.
    is_audited: bool,
    account: Option<String>,
    rule: Option<String>,
    entity: Option<String>,
}

impl Subject {
    fn of(act: &Act) -> Self {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        match act {
            Act::Account(Asked { scope: (), verb }) => Self {
                what: verb.describe(),
                is_audited: verb.is_audited(),
                account: owned(verb.name()),
                rule: None,
                entity: None,
            },
            Act::Rule(Asked { scope, verb }) => Self {
                what: verb.describe(),
                is_audited: verb.is_audited(),
                account: None,
                rule: owned(verb.name()),
                entity: owned(scope.queue()),
            },
            Act::ExportBus => Self {
                what: "export bus queues".into(),
                is_audited: false,
                account: None,
                rule: None,
                entity: None,
            },
        }
    }
}
