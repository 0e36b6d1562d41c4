//! Accounts of Queue Storage as they are administered.

use std::net::SocketAddr;

use kew_engine::{AccountQuota, AccountRecord};
use kew_principals::Key;
use kew_queue_api::StorageAccounts;
use serde::{Deserialize, Serialize};

use super::Answer;
use super::verb::{Administrable, KeyView};
use crate::quota::Limit;

/// Quotas, where `"none"` means no limit, and whether requests are refused.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccountSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quota_queues: Option<Limit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quota_bytes: Option<Limit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disabled: Option<bool>,
}

/// An account as an answer shows it.
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
    const COMMAND: &'static str = "account";
    const PATH: &'static str = "/v1/accounts";
    const PARAMETER: &'static str = "with_queues";

    type Settings = AccountSettings;
    type View = AccountView;
    type Endpoint = Endpoint;

    fn new(name: &str, keys: &[Key; 2]) -> AccountRecord {
        Self::record(name, AccountQuota::default(), keys)
    }

    fn set(account: &mut AccountRecord, settings: AccountSettings) {
        let quota = &mut account.quota;
        let AccountSettings {
            quota_queues,
            quota_bytes,
            disabled,
        } = settings;
        quota.queues_max = quota_queues.map_or(quota.queues_max, Into::into);
        quota.size_bytes_max = quota_bytes.map_or(quota.size_bytes_max, Into::into);
        account.is_disabled = disabled.unwrap_or(account.is_disabled);
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

    fn parameter((): &(), with_queues: Option<bool>) -> Option<String> {
        with_queues.map(|with_queues| with_queues.to_string())
    }

    fn removal_note(with_queues: bool) -> &'static str {
        if with_queues { " with its queues" } else { "" }
    }

    fn of_parameter(with_queues: Option<&str>) -> Option<((), bool)> {
        let with_queues = with_queues.unwrap_or("false").parse();
        with_queues.ok().map(|with_queues| ((), with_queues))
    }
}
