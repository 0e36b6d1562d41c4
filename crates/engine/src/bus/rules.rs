//! The rules of the subscriptions of a topic: which there are, and for which messages they hold.
//!
//! A rule belongs to a subscription and lies in its topic, because a message is compared with all rules of the topic at
//! once. It holds for the topic's messages with `since ≤ number < until`. So a change of rules does not concern messages
//! that the topic has accepted: a rule that ends is *retired*, and stays while such a message waits for its copies.
//!
//! The rule `$Default` that a subscription is created with matches all messages, and is only in the subscription
//! ([`DefaultRule`]): most subscriptions have no other.
//!
//! Rules are kept as bytes, and compiled once. What is compiled is no part of the state.

mod apply;
mod codec;
mod compiled;
mod repair;
mod selected;
mod tally;
mod topic;

use kew_filter::{Definition, FilterDefinition, RuleId};

pub(in crate::bus) use self::apply::RulesChange;
pub(in crate::bus) use self::codec::{added, put_added, retired, rule_id};
pub(crate) use self::codec::{
    put_part, put_rules, restore_rules, subscriptions_of_rules, use_rule_numbers,
};
pub(in crate::bus) use self::repair::default_of_both;
pub use self::repair::{CompletedRules, KnownOfRules};
pub(crate) use self::selected::Matched;
pub(in crate::bus) use self::selected::{Evaluation, Found, OutOfSteps, Seen};
pub use self::tally::TopicTally;
pub(crate) use self::topic::{FanOut, RuleChunk, Topic};
use super::RangedOption;
use super::outcome::BusRefusal;
use crate::vocabulary::{Incarnation, SequenceNumber, Timestamp};

/// The most rules of a topic with an SQL filter.
///
/// Source: Service Bus quotas, *Number of SQL filters per topic*.
pub const SQL_RULES_MAX: usize = 2_000;

/// The most other rules of a topic. The rules `$Default` that subscriptions are created with do not count.
///
/// Source: Service Bus quotas, *Number of correlation filters per topic*.
pub const OTHER_RULES_MAX: usize = 100_000;

/// The most bytes of all rules of a topic: of their names and definitions, and 64 for each. Retired ones count, too.
pub const RULES_SIZE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Numbers of rules are above 0 and below this one.
pub(crate) const RULE_IDS_MAX: RuleId = 1 << RULE_ID_BITS;

/// The place of the dead letter of a failure among the copies of a message in one subscription: behind those of all
/// rules.
pub(in crate::bus) const FAILURE: RuleId = RULE_IDS_MAX;

/// The bits of a rule's number.
const RULE_ID_BITS: u32 = 63;

/// How a change of rules names the rule `$Default` of the subscription's creation. No rule has this number.
///
/// The number of that rule is counted and not told, so behind a gap it may be another one than it was.
pub(crate) const DEFAULT_OF_CREATION: RuleId = 0;

/// The most rules of a topic that are retired and wait for its messages.
pub(crate) const RETIRED_RULES_MAX: usize = 4_096;

/// The name of the rule that a subscription is created with.
pub(crate) const DEFAULT_RULE: &str = "$Default";

/// The same as it is looked up.
const DEFAULT_RULE_KEY: &str = "$default";

/// The most bytes of a rule in a snapshot besides its name and its definition.
const RULE_SIZE_BYTES: u64 = 64;

/// A rule that a command brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRule {
    /// Its name, as it is spelled: 1 to 50 characters, and none that the service's SDKs refuse. No other rule of the
    /// subscription has it with other cases of ASCII letters.
    pub name: Box<str>,
    /// Its filter and its action.
    pub definition: Definition,
}

impl NewRule {
    /// Refuses a name that no rule can have.
    ///
    /// Source: the SDKs of the service, which check names before they send them. What else the service refuses is not
    /// known: they allow more than letters, digits, `.`, `-` and `_`.
    pub(super) fn check_name(&self) -> Result<(), BusRefusal> {
        RangedOption::RuleNameLength.check(self.name.chars().count() as u64)?;
        let is_refused = |it: &char| it.is_control() || r"/\?#@*".contains(*it);
        let why = match self.name.chars().find(is_refused) {
            Some(found) => format!(
                "the rule name {:?} contains {found:?}: it can have no control characters and none of / \\ ? # @ *",
                self.name
            ),
            None if self.name.trim().is_empty() => {
                format!("the rule name {:?} is white space", self.name)
            }
            None => return Ok(()),
        };
        Err(BusRefusal::InvalidRule { why: why.into() })
    }

    /// What it counts for in the size of its topic's rules.
    pub(super) fn size_bytes(&self) -> u64 {
        RULE_SIZE_BYTES + (self.name.len() + self.definition.bytes().len()) as u64
    }
}

/// A rule that an event adds. It holds from the event on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedRule {
    /// Its number, counted by its topic and never used twice.
    pub id: RuleId,
    /// Its name, as it is spelled.
    pub name: Box<str>,
    /// The bytes of its definition.
    pub definition: Box<[u8]>,
}

/// A rule as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusRuleView {
    /// Its name, as it is spelled.
    pub name: Box<str>,
    /// The bytes of its definition: see [`Definition::decode`].
    pub definition: Box<[u8]>,
    /// When it was added.
    pub created_at: Timestamp,
}

impl BusRuleView {
    /// The rule `$Default` of a subscription that was created then.
    pub(super) fn default_of(created_at: Timestamp) -> Self {
        Self {
            name: DEFAULT_RULE.into(),
            definition: matches_all(),
            created_at,
        }
    }

    /// What it counts for in an answer.
    pub(super) fn size_bytes(&self) -> u64 {
        RULE_SIZE_BYTES + (self.name.len() + self.definition.len()) as u64
    }
}

/// The definition of a rule that matches all messages.
fn matches_all() -> Box<[u8]> {
    let definition = Definition::new(FilterDefinition::True, None);
    let definition = definition.expect("a true filter has no text that could be too long");
    definition.bytes().into()
}

/// The rule `$Default` that a subscription was created with. It matches all messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DefaultRule {
    /// Its number among the rules of the topic.
    pub(crate) id: RuleId,
    /// It matches the messages with this number of the topic and later ones.
    pub(crate) since: SequenceNumber,
}

/// A rule of a subscription, as its topic keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BusRule {
    pub(crate) id: RuleId,
    pub(crate) subscription: Incarnation,
    /// As it is spelled.
    pub(crate) name: Box<str>,
    /// The bytes of its definition.
    pub(crate) definition: Box<[u8]>,
    pub(crate) created_at: Timestamp,
    /// The first number of the topic that it holds for.
    pub(crate) since: SequenceNumber,
    /// The first number that it does not hold for any more, if it is retired.
    pub(crate) until: Option<SequenceNumber>,
}

impl BusRule {
    pub(super) fn view(&self) -> BusRuleView {
        BusRuleView {
            name: self.name.clone(),
            definition: self.definition.clone(),
            created_at: self.created_at,
        }
    }

    /// An upper bound of its bytes in a snapshot.
    pub(crate) fn snapshot_size_bytes_max(&self) -> u64 {
        RULE_SIZE_BYTES + (self.name.len() + self.definition.len()) as u64
    }
}

/// A name as it is looked up. Other letters than those of ASCII keep their case: what is one name must be the same in
/// every version.
pub(super) fn key_of(name: &str) -> Box<str> {
    name.to_ascii_lowercase().into()
}

/// A rule of a subscription in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// The rule `$Default` of its creation.
    Default,
    /// Another one, by its number.
    Rule(RuleId),
}

/// What limits count a rule as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleKind {
    Sql,
    /// A true, false or correlation filter.
    Other,
}

impl RuleKind {
    pub(crate) fn of_filter(filter: &FilterDefinition) -> Self {
        match filter {
            FilterDefinition::Sql(_) => Self::Sql,
            FilterDefinition::True | FilterDefinition::False | FilterDefinition::Correlation(_) => {
                Self::Other
            }
        }
    }

    /// How many a topic may have.
    pub(crate) fn max(self) -> usize {
        match self {
            Self::Sql => SQL_RULES_MAX,
            Self::Other => OTHER_RULES_MAX,
        }
    }
}

/// Whether a name is that of the rule that a subscription is created with.
pub(super) fn is_default(name: &str) -> bool {
    *key_of(name) == *DEFAULT_RULE_KEY
}
