//! Authorization rules of Service Bus as they are administered.

use std::time::{SystemTime, UNIX_EPOCH};

use kew_bus_api::{AuthorizationRule, BusRules, Rights, RuleScope};
use kew_principals::Key;
use serde::{Deserialize, Serialize};

use super::Answer;
use super::verb::{Administrable, KeyView};

/// All rights of a rule.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleSettings {
    pub(crate) rights: Rights,
}

/// A rule as an answer shows it.
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
    const COMMAND: &'static str = "bus authorization-rule";
    const PATH: &'static str = "/v1/bus/rules";
    const PARAMETER: &'static str = "entity";

    type Settings = RuleSettings;
    type View = RuleView;
    type Endpoint = BusEndpoint;

    fn new(name: &str, keys: &[Key; 2]) -> AuthorizationRule {
        AuthorizationRule::new(name, Rights::default(), keys, now_ms())
    }

    fn set(rule: &mut AuthorizationRule, settings: RuleSettings) {
        rule.rights = settings.rights;
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

    fn connection_string(at: &BusEndpoint, rule: &str, key: &str, scope: &RuleScope) -> String {
        let endpoint = &at.endpoint;
        let queue = scope.queue().map(|queue| format!("EntityPath={queue};"));
        let queue = queue.unwrap_or_default();
        let plain = if at.is_plain {
            "UseDevelopmentEmulator=true;"
        } else {
            ""
        };
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

    fn parameter(scope: &RuleScope, _: Option<()>) -> Option<String> {
        scope.queue().map(str::to_owned)
    }

    fn removal_note((): ()) -> &'static str {
        ""
    }

    fn of_parameter(queue: Option<&str>) -> Option<(RuleScope, ())> {
        Some((RuleScope::of(queue), ()))
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
