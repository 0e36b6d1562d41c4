//! Authorization rules of Service Bus as they are administered.

use std::time::{SystemTime, UNIX_EPOCH};

use kew_bus_api::{AuthorizationRule, BusRules, Rights, RuleScope};
use kew_principals::{Key, Secret};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::routes::{VerbName, encoded};
use super::verb::{Administrable, KeyView};
use super::{Answer, Failure};

/// A rule to add.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRule {
    pub(crate) name: String,
    pub(crate) rights: Rights,
    /// A key in Base64, used as primary and secondary key. Without it, Kew makes two keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<Secret>,
}

/// What is to be different.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleChange {
    pub(crate) rights: Rights,
}

/// What an answer shows of a rule.
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

/// The address in connection strings of Service Bus.
#[derive(Clone, Debug)]
pub(crate) struct BusEndpoint {
    /// Such as `sb://localhost:5672`.
    pub(crate) endpoint: String,
    /// Whether clients connect without TLS.
    pub(crate) is_plain: bool,
}

impl Administrable for BusRules {
    const AUDITED_AS: &'static str = "bus rule";
    const COMMAND: &'static str = "kew bus rule";
    const PATH: &'static str = "/v1/bus/rules";

    type New = NewRule;
    type Change = RuleChange;
    type View = RuleView;
    type Endpoint = BusEndpoint;

    fn brought_key(new: &NewRule) -> Option<&Secret> {
        new.key.as_ref()
    }

    fn name_of_new(new: &NewRule) -> &str {
        &new.name
    }

    fn made(new: NewRule, keys: &[Key; 2]) -> AuthorizationRule {
        AuthorizationRule::new(&new.name, new.rights, keys, now_ms())
    }

    fn apply(rule: &mut AuthorizationRule, change: RuleChange) {
        rule.rights = change.rights;
    }

    fn view(rule: &AuthorizationRule, scope: &RuleScope) -> RuleView {
        RuleView {
            name: rule.name.to_string(),
            entity: scope.queue().map(str::to_owned),
            rights: rule.rights,
            created_at_ms: rule.created_at_ms,
            modified_at_ms: rule.modified_at_ms,
        }
    }

    fn connection_string(
        endpoint: &BusEndpoint,
        rule: &str,
        key: &str,
        scope: &RuleScope,
    ) -> String {
        let BusEndpoint { endpoint, is_plain } = endpoint;
        let plain = if *is_plain {
            "UseDevelopmentEmulator=true;"
        } else {
            ""
        };
        let queue = scope.queue().map(|queue| format!("EntityPath={queue};"));
        let queue = queue.unwrap_or_default();
        format!(
            "Endpoint={endpoint};SharedAccessKeyName={rule};SharedAccessKey={key};{queue}{plain}"
        )
    }

    fn listed(rules: Vec<RuleView>) -> Answer {
        Answer::Rules { rules }
    }

    fn shown(rule: RuleView, keys: Vec<KeyView>) -> Answer {
        Answer::Rule { rule, keys }
    }

    fn scope_flag(scope: &RuleScope) -> String {
        let flag = scope.queue().map(|queue| format!(" --entity {queue}"));
        flag.unwrap_or_default()
    }

    fn removal_note((): ()) -> &'static str {
        ""
    }

    fn query(scope: &RuleScope, _: Option<()>) -> String {
        let query = scope
            .queue()
            .map(|queue| format!("?entity={}", encoded(queue)));
        query.unwrap_or_default()
    }

    fn read_query(query: Option<&str>, _: VerbName) -> Result<(RuleScope, ()), Failure> {
        let Some(query) = query.filter(|query| !query.is_empty()) else {
            return Ok((RuleScope::Namespace, ()));
        };
        let name = query.strip_prefix("entity=");
        let name = name.and_then(|name| percent_decode_str(name).decode_utf8().ok());
        let name = name.ok_or_else(|| Failure::new("invalid", "the query is not entity=NAME"))?;
        Ok((RuleScope::Queue(name.into()), ()))
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
