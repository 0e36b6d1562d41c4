//! Accounts of Queue Storage as they are administered.

use std::net::SocketAddr;

use kew_engine::{AccountQuota, AccountRecord};
use kew_principals::{Key, Secret};
use kew_queue_api::StorageAccounts;
use serde::{Deserialize, Serialize};

use super::routes::VerbName;
use super::verb::{Administrable, KeyView};
use super::{Answer, Failure};
use crate::quota::Limit;

/// An account to add.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAccount {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) quota_queues: Option<u64>,
    #[serde(default)]
    pub(crate) quota_bytes: Option<u64>,
    /// A key in Base64, used as primary and secondary key. Without it, Kew makes two keys.
    #[serde(default)]
    pub(crate) key: Option<Secret>,
}

/// What is to be different. A field that is left out stays; `"none"` removes a quota.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccountChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quota_queues: Option<Limit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quota_bytes: Option<Limit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disabled: Option<bool>,
}

/// What an answer shows of an account.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountView {
    pub(crate) name: String,
    pub(crate) disabled: bool,
    pub(crate) quota_queues: Option<u64>,
    pub(crate) quota_bytes: Option<u64>,
}

/// The address in connection strings of Queue Storage.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint(pub(crate) SocketAddr);

impl Administrable for StorageAccounts {
    const AUDITED_AS: &'static str = "account";
    const COMMAND: &'static str = "kew account";
    const PATH: &'static str = "/v1/accounts";

    type New = NewAccount;
    type Change = AccountChange;
    type View = AccountView;
    type Endpoint = Endpoint;

    fn brought_key(new: &NewAccount) -> Option<&Secret> {
        new.key.as_ref()
    }

    fn name_of_new(new: &NewAccount) -> &str {
        &new.name
    }

    fn made(new: NewAccount, keys: &[Key; 2]) -> AccountRecord {
        let quota = AccountQuota {
            queues_max: new.quota_queues,
            size_bytes_max: new.quota_bytes,
        };
        Self::record(&new.name, quota, keys)
    }

    fn apply(account: &mut AccountRecord, change: AccountChange) {
        if let Some(limit) = change.quota_queues {
            account.quota.queues_max = limit.into();
        }
        if let Some(limit) = change.quota_bytes {
            account.quota.size_bytes_max = limit.into();
        }
        if let Some(is_disabled) = change.disabled {
            account.is_disabled = is_disabled;
        }
    }

    fn view(account: &AccountRecord, (): &()) -> AccountView {
        AccountView {
            name: account.name.to_string(),
            disabled: account.is_disabled,
            quota_queues: account.quota.queues_max,
            quota_bytes: account.quota.size_bytes_max,
        }
    }

    fn connection_string(endpoint: &Endpoint, account: &str, key: &str, (): &()) -> String {
        let Endpoint(address) = endpoint;
        format!(
            "DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};\
             QueueEndpoint=http://{address}/{account};"
        )
    }

    fn listed(accounts: Vec<AccountView>) -> Answer {
        Answer::Accounts { accounts }
    }

    fn shown(account: AccountView, keys: Vec<KeyView>) -> Answer {
        Answer::Account { account, keys }
    }

    fn scope_flag((): &()) -> String {
        String::new()
    }

    fn removal_note(with_queues: bool) -> &'static str {
        if with_queues { " with its queues" } else { "" }
    }

    fn query((): &(), with_queues: Option<bool>) -> String {
        let query = with_queues.map(|with_queues| format!("?with_queues={with_queues}"));
        query.unwrap_or_default()
    }

    fn read_query(query: Option<&str>, verb: VerbName) -> Result<((), bool), Failure> {
        match (verb, query) {
            (VerbName::Remove, Some("with_queues=true")) => Ok(((), true)),
            (VerbName::Remove, None | Some("" | "with_queues=false")) => Ok(((), false)),
            (VerbName::Remove, Some(_)) => Err(Failure::new(
                "invalid",
                "the query is not with_queues=true or with_queues=false",
            )),
            (
                VerbName::List
                | VerbName::Add
                | VerbName::Show
                | VerbName::Keys
                | VerbName::Rotate
                | VerbName::Set,
                _,
            ) => Ok(((), false)),
        }
    }
}
