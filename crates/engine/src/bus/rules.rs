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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kew_filter::{Action, Definition, FilterDefinition, RuleId, RuleSet};

pub(in crate::bus) use self::apply::RulesChange;
pub(in crate::bus) use self::codec::{added, put_added};
pub(crate) use self::codec::{put_part, put_rules, restore_rules};
use super::RangedOption;
use super::outcome::BusRefusal;
use crate::shared::{Chunk, SharedMap};
use crate::table::RunLength;
use crate::vocabulary::{Hint, Incarnation, SequenceNumber, Timestamp};

/// The most rules of a topic with an SQL filter.
///
/// Source: Service Bus quotas, *Number of SQL filters per topic*.
pub const SQL_RULES_MAX: usize = 2_000;

/// The most other rules of a topic. The rules `$Default` that subscriptions are created with do not count.
///
/// Source: Service Bus quotas, *Number of correlation filters per topic*.
pub const OTHER_RULES_MAX: usize = 100_000;

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
    /// Its name, as it is spelled: 1 to 50 characters. No other rule of the subscription has it in another case.
    pub name: Box<str>,
    /// Its filter and its action.
    pub definition: Definition,
}

impl NewRule {
    /// Refuses a name that no rule can have.
    pub(super) fn check_name(&self) -> Result<(), BusRefusal> {
        RangedOption::RuleNameLength.check(self.name.chars().count() as u64)?;
        Ok(())
    }
}

/// A rule that an event adds. It holds from the event on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedRule {
    /// Its number, counted by its topic and never used twice.
    pub id: RuleId,
    /// Its name, as it is spelled.
    pub name: Box<str>,
    /// The bytes of its definition. A later version may have written them: then they cannot be read here.
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

/// A name as it is looked up.
pub(super) fn key_of(name: &str) -> Box<str> {
    name.to_lowercase().into()
}

/// What limits count a rule as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleKind {
    Sql,
    /// A true, false or correlation filter, or one that this version does not know.
    Other,
}

impl RuleKind {
    pub(crate) fn of(definition: &[u8]) -> Self {
        Definition::decode(definition).map_or(Self::Other, |it| Self::of_filter(it.filter()))
    }

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

/// Rules that follow each other.
pub(crate) type RuleChunk = Arc<Chunk<Arc<BusRule>>>;

/// What only a topic has: the rules of its subscriptions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    /// The number of its next rule. Numbers are never used twice.
    next_rule: RuleId,
    rules: SharedMap<Arc<BusRule>>,
    // These follow from the rules.
    /// The rules in force, by subscription and by name in lower case.
    names: BTreeMap<(Incarnation, Box<str>), RuleId>,
    /// The retired ones, by the number that they end at.
    retired: BTreeSet<(SequenceNumber, RuleId)>,
    /// How many SQL rules are in force.
    sql_count: usize,
    /// An upper bound of the bytes of all rules in a snapshot.
    size_bytes: u64,
    compiled: Hint<Compiled>,
}

/// Rules as an evaluation needs them.
#[derive(Debug, Default)]
struct Compiled {
    filters: RuleSet,
    actions: BTreeMap<RuleId, Action>,
    /// Those that this version cannot compile. They match nothing, and count as failing.
    broken: BTreeSet<RuleId>,
}

impl Compiled {
    fn insert(&mut self, rule: &BusRule) {
        let definition = Definition::decode(&rule.definition).ok();
        match definition.and_then(|it| it.compile().ok()) {
            Some((filter, action)) => {
                self.filters.insert(rule.id, filter);
                if let Some(action) = action {
                    self.actions.insert(rule.id, action);
                }
            }
            None => {
                self.broken.insert(rule.id);
            }
        }
    }

    fn remove(&mut self, id: RuleId) {
        self.filters.remove(id);
        self.actions.remove(&id);
        self.broken.remove(&id);
    }
}

impl Topic {
    /// A topic without rules.
    pub(crate) fn new(length: RunLength) -> Self {
        Self {
            next_rule: 1,
            rules: SharedMap::new(length.as_u64()),
            names: BTreeMap::new(),
            retired: BTreeSet::new(),
            sql_count: 0,
            size_bytes: 0,
            compiled: Hint::default(),
        }
    }

    /// The same rules, with chunks for runs of that length.
    pub(crate) fn again(&self, length: RunLength) -> Self {
        let mut again = Self::new(length);
        for (_, rule) in self.rules.iter() {
            again.add(Arc::clone(rule));
        }
        again.set_next_rule(self.next_rule);
        again
    }

    /// The number of its next rule.
    pub(crate) fn next_rule(&self) -> RuleId {
        self.next_rule
    }

    /// Makes sure that numbers below this one are not used again.
    pub(crate) fn set_next_rule(&mut self, next: RuleId) {
        self.next_rule = self.next_rule.max(next);
    }

    /// Gives out the next number.
    pub(super) fn take_next_rule(&mut self) -> RuleId {
        let id = self.next_rule;
        self.next_rule = id.saturating_add(1);
        id
    }

    /// Adds a rule. Returns false if one has its number, or one in force its name.
    pub(crate) fn add(&mut self, rule: Arc<BusRule>) -> bool {
        let key = (rule.subscription, key_of(&rule.name));
        let is_in_force = rule.until.is_none();
        if self.rules.get(rule.id).is_some() || is_in_force && self.names.contains_key(&key) {
            return false;
        }
        self.set_next_rule(rule.id.saturating_add(1));
        self.size_bytes += rule.snapshot_size_bytes_max();
        self.compiled.insert(&rule);
        match rule.until {
            None => {
                self.names.insert(key, rule.id);
                self.sql_count += usize::from(RuleKind::of(&rule.definition) == RuleKind::Sql);
            }
            Some(until) => {
                self.retired.insert((until, rule.id));
            }
        }
        self.rules.get_or_insert_with(rule.id, || rule);
        true
    }

    /// Retires a rule in force: it does not hold for this number and later ones.
    pub(super) fn retire(&mut self, id: RuleId, until: SequenceNumber) {
        let found = self.rules.get(id).filter(|rule| rule.until.is_none());
        if found.is_none() {
            return;
        }
        if let Some(rule) = self.rules.get_mut(id) {
            let rule = Arc::make_mut(rule);
            rule.until = Some(until);
            self.names.remove(&(rule.subscription, key_of(&rule.name)));
            self.sql_count -= usize::from(RuleKind::of(&rule.definition) == RuleKind::Sql);
            self.retired.insert((until, id));
        }
    }

    /// Drops the retired rules that no message needs. `first` is the first message of the topic that waits for copies.
    pub(super) fn drop_retired(&mut self, first: Option<SequenceNumber>) {
        while let Some((until, id)) = self.retired.first().copied()
            && first.is_none_or(|first| until <= first)
        {
            self.retired.pop_first();
            self.remove(id);
        }
    }

    /// Forgets the rules of a subscription that is gone.
    pub(super) fn forget(&mut self, subscription: Incarnation) {
        let in_force: Vec<_> = self.range(subscription).collect();
        for (key, id) in in_force {
            self.sql_count -= usize::from(self.kind_of(id) == Some(RuleKind::Sql));
            self.names.remove(&(subscription, key));
            self.remove(id);
        }
        let retired = self.retired.iter().copied();
        let retired: Vec<_> = retired
            .filter(|(_, id)| {
                let rule = self.rules.get(*id);
                rule.is_some_and(|rule| rule.subscription == subscription)
            })
            .collect();
        for (until, id) in retired {
            self.retired.remove(&(until, id));
            self.remove(id);
        }
    }

    fn remove(&mut self, id: RuleId) {
        if let Some(rule) = self.rules.remove(id) {
            self.size_bytes -= rule.snapshot_size_bytes_max();
            self.compiled.remove(id);
        }
    }

    fn range(&self, subscription: Incarnation) -> impl Iterator<Item = (Box<str>, RuleId)> + '_ {
        let all = self.names.range((subscription, Box::default())..);
        let own = all.take_while(move |((of, _), _)| *of == subscription);
        own.map(|((_, key), id)| (key.clone(), *id))
    }

    /// The rules in force of a subscription, in the order of their names in lower case. The flag says whether the name
    /// comes before that of the rule `$Default`.
    pub(super) fn rules_of(
        &self,
        subscription: Incarnation,
    ) -> impl Iterator<Item = (bool, &BusRule)> {
        let all = self.names.range((subscription, Box::default())..);
        let own = all.take_while(move |((of, _), _)| *of == subscription);
        own.filter_map(|((_, key), id)| {
            let rule = self.rules.get(*id)?;
            Some((**key < *DEFAULT_RULE_KEY, &**rule))
        })
    }

    /// The rule in force of that name, in any case.
    pub(super) fn find(&self, subscription: Incarnation, name: &str) -> Option<&BusRule> {
        let id = self.names.get(&(subscription, key_of(name)))?;
        self.rules.get(*id).map(|rule| &**rule)
    }

    /// What limits count a rule as.
    pub(super) fn kind_of(&self, id: RuleId) -> Option<RuleKind> {
        self.rules
            .get(id)
            .map(|rule| RuleKind::of(&rule.definition))
    }

    /// How many rules of a kind are in force.
    pub(super) fn count_of(&self, kind: RuleKind) -> usize {
        match kind {
            RuleKind::Sql => self.sql_count,
            RuleKind::Other => self.names.len() - self.sql_count,
        }
    }

    /// How many rules are retired and wait.
    pub(super) fn retired_count(&self) -> usize {
        self.retired.len()
    }

    /// Whether a message has to be compared with rules.
    pub(super) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// How many rules a snapshot has.
    pub(crate) fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// An upper bound of what they take in a snapshot.
    pub(crate) fn snapshot_size_bytes_max(&self) -> u64 {
        self.size_bytes
    }

    /// The rules, for a snapshot.
    pub(crate) fn share(&self) -> Vec<RuleChunk> {
        self.rules.share()
    }

    /// How many rules were copied since the last call because a snapshot had them.
    pub(super) fn take_copied(&mut self) -> u64 {
        self.rules.take_copied()
    }
}

/// Whether a name is that of the rule that a subscription is created with.
pub(super) fn is_default(name: &str) -> bool {
    *key_of(name) == *DEFAULT_RULE_KEY
}

#[cfg(test)]
impl Topic {
    /// The rules that hold for a number, with those that are retired.
    pub(crate) fn holding(&self, number: SequenceNumber) -> impl Iterator<Item = &BusRule> {
        let rules = self.rules.iter().map(|(_, rule)| &**rule);
        rules.filter(move |rule| {
            rule.since <= number && rule.until.is_none_or(|until| number < until)
        })
    }

    /// Asserts that every index says what the rules say.
    pub(crate) fn check(&self, length: RunLength) {
        let again = self.again(length);
        assert_eq!(self, &again);
        let Compiled {
            filters,
            actions,
            broken,
        } = &*self.compiled;
        assert_eq!(filters.len() + broken.len(), self.rules.len());
        assert_eq!(broken, &again.compiled.broken);
        assert_eq!(actions, &again.compiled.actions);
        for (id, _) in self.rules.iter() {
            assert_eq!(filters.filter(id), again.compiled.filters.filter(id));
        }
    }
}
