//! The rules of one topic, with what follows from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kew_filter::RuleId;

use super::compiled::Compiled;
use super::{
    BusRule, DEFAULT_RULE_KEY, Listed, Matched, RULE_IDS_MAX, RuleKind, TopicTally, key_of,
};
use crate::bus::{Effect, OwnEffect};
use crate::effect::NextCopy;
use crate::shared::{Chunk, SharedMap};
use crate::table::RunLength;
use crate::vocabulary::{BodyLocation, Hint, Hold, Incarnation, SequenceNumber};

/// Rules that follow each other.
pub(crate) type RuleChunk = Arc<Chunk<Arc<BusRule>>>;

/// How far the first ready message of a topic is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FanOut {
    /// The message.
    pub(crate) number: SequenceNumber,
    /// The first copy that is not made yet.
    pub(crate) next: NextCopy,
    /// Whether one of its copies counts its body, in the place where the topic has it.
    pub(crate) lent: bool,
}

impl FanOut {
    /// None of its copies is made.
    pub(crate) fn of(number: SequenceNumber) -> Self {
        Self {
            number,
            next: NextCopy::default(),
            lent: false,
        }
    }
}

/// What only a topic has: the rules of its subscriptions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    /// The number of its next rule. Numbers are never used twice.
    pub(super) next_rule: RuleId,
    pub(super) rules: SharedMap<Arc<BusRule>>,
    /// How far its first ready message is copied, if that has begun.
    fan_out: Option<FanOut>,
    /// How far the rules were compared with the first ready message.
    matched: Hint<Option<Matched>>,
    // These follow from the rules.
    /// The rules in force, by subscription and by name in lower case.
    pub(super) names: BTreeMap<(Incarnation, Box<str>), RuleId>,
    /// The retired ones, by the number that they end at.
    pub(super) retired: BTreeSet<(SequenceNumber, RuleId)>,
    /// The SQL rules in force.
    pub(super) sql: BTreeSet<RuleId>,
    /// An upper bound of the bytes of all rules in a snapshot.
    pub(super) size_bytes: u64,
    pub(super) compiled: Hint<Compiled>,
    /// What became of its messages, for metrics.
    pub(crate) tally: Hint<TopicTally>,
}

impl Topic {
    /// A topic without rules.
    pub(crate) fn new(length: RunLength) -> Self {
        Self {
            next_rule: 1,
            rules: SharedMap::new(length.as_u64()),
            fan_out: None,
            matched: Hint::default(),
            names: BTreeMap::new(),
            retired: BTreeSet::new(),
            sql: BTreeSet::new(),
            size_bytes: 0,
            compiled: Hint::default(),
            tally: Hint::default(),
        }
    }

    /// The same rules, with chunks for runs of that length.
    pub(crate) fn again(&self, length: RunLength) -> Self {
        let mut again = Self::new(length);
        for (_, rule) in self.rules.iter() {
            again.add(Arc::clone(rule));
        }
        again.set_next_rule(self.next_rule);
        again.fan_out = self.fan_out;
        again
    }

    /// Notes what an effect on the topic means for the copies of its messages.
    pub(in crate::bus) fn note(&mut self, effect: &Effect) {
        match effect {
            Effect::Own(OwnEffect::FannedOut { topic, next, lent }) => self.set_fan_out(FanOut {
                number: topic.number,
                next: *next,
                lent: *lent,
            }),
            Effect::Ended { at, .. } => {
                self.fan_out = self.fan_out.filter(|it| it.number != at.number);
            }
            Effect::Arrived { .. }
            | Effect::Leased { .. }
            | Effect::Own(
                OwnEffect::SessionReleasing { .. }
                | OwnEffect::SessionFreed { .. }
                | OwnEffect::Passed { .. },
            ) => {}
        }
    }

    /// Notes that messages are lost. One that some subscriptions have got does not go on to the others.
    pub(in crate::bus) fn note_set_aside(
        &mut self,
        mut numbers: impl Iterator<Item = SequenceNumber>,
    ) {
        if let Some(fan_out) = &self.fan_out
            && numbers.any(|number| number == fan_out.number)
        {
            self.fan_out = None;
        }
    }

    /// Notes that the body of one of its messages is in another place. Unless it is borrowed there, none of the copies that
    /// were made counts it there.
    pub(in crate::bus) fn note_move(&mut self, number: SequenceNumber, to: BodyLocation) {
        if let Some(fan_out) = &mut self.fan_out
            && fan_out.number == number
        {
            fan_out.lent &= to.hold() == Hold::Borrows;
        }
    }

    /// How far its first ready message is copied, if that has begun.
    pub(in crate::bus) fn fan_out(&self) -> Option<FanOut> {
        self.fan_out
    }

    pub(in crate::bus) fn set_fan_out(&mut self, fan_out: FanOut) {
        self.fan_out = Some(fan_out);
    }

    /// How far the rules were compared with a message. Nobody else has it then.
    pub(crate) fn take_matched(&mut self) -> Option<Matched> {
        self.matched.take()
    }

    /// Whether that is kept.
    #[cfg(test)]
    pub(crate) fn has_matched(&self) -> bool {
        self.matched.is_some()
    }

    /// Keeps that for the next step.
    pub(crate) fn keep_matched(&mut self, matched: Matched) {
        *self.matched = Some(matched);
    }

    /// The number of its next rule.
    pub(crate) fn next_rule(&self) -> RuleId {
        self.next_rule
    }

    /// Makes sure that numbers below this one are not used again.
    pub(crate) fn set_next_rule(&mut self, next: RuleId) {
        self.next_rule = self.next_rule.max(next);
    }

    /// Makes sure that so many numbers are not used: a gap may have hidden that they were given out.
    pub(crate) fn skip_rule_numbers(&mut self, count: u64) {
        let next = self.next_rule.saturating_add(count);
        self.set_next_rule(next.min(RULE_IDS_MAX / 2));
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
        let kind = self.compiled.insert(&rule);
        match rule.until {
            None => {
                self.names.insert(key, rule.id);
                if kind == RuleKind::Sql {
                    self.sql.insert(rule.id);
                }
            }
            Some(until) => {
                self.retired.insert((until, rule.id));
            }
        }
        self.rules.get_or_insert_with(rule.id, || rule);
        true
    }

    /// Retires a rule in force of a subscription: it does not hold for this number and later ones.
    pub(super) fn retire(&mut self, subscription: Incarnation, id: RuleId, until: SequenceNumber) {
        let found = self.rules.get(id).filter(|rule| {
            // In a damaged history it may be a rule of another one.
            rule.until.is_none() && rule.subscription == subscription
        });
        let Some(rule) = found else {
            return;
        };
        let holds_for_any = rule.since < until;
        self.names.remove(&(subscription, key_of(&rule.name)));
        self.sql.remove(&id);
        if !holds_for_any {
            self.remove(id);
        } else if let Some(rule) = self.rules.get_mut(id) {
            Arc::make_mut(rule).until = Some(until);
            self.retired.insert((until, id));
        }
    }

    /// Drops the retired rules that no message needs. `first` is the first message of the topic that waits for copies.
    /// Returns how many.
    pub(in crate::bus) fn drop_retired(&mut self, first: Option<SequenceNumber>) -> u64 {
        let mut count = 0;
        while let Some((until, id)) = self.retired.first().copied()
            && first.is_none_or(|first| until <= first)
        {
            self.retired.pop_first();
            self.remove(id);
            count += 1;
        }
        count
    }

    /// Forgets the rules of a subscription that is gone. Returns how many of them were in force.
    pub(super) fn forget(&mut self, subscription: Incarnation) -> u64 {
        let in_force = self.names_from(subscription, "");
        let in_force: Vec<_> = in_force.map(|(key, id)| (Box::from(key), id)).collect();
        let count = in_force.len() as u64;
        for (key, id) in in_force {
            self.names.remove(&(subscription, key));
            self.sql.remove(&id);
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
        count
    }

    pub(super) fn remove(&mut self, id: RuleId) {
        if let Some(rule) = self.rules.remove(id) {
            self.size_bytes -= rule.snapshot_size_bytes_max();
            self.compiled.remove(&rule);
        }
    }

    /// The names of rules in force of a subscription, from a name in lower case on.
    fn names_from(
        &self,
        subscription: Incarnation,
        from: &str,
    ) -> impl Iterator<Item = (&str, RuleId)> {
        let all = self.names.range((subscription, Box::from(from))..);
        let own = all.take_while(move |((of, _), _)| *of == subscription);
        own.map(|((_, key), id)| (&**key, *id))
    }

    /// The rules in force of a subscription, in the order of their names in lower case, with the rule `$Default` of its
    /// creation if it `has_default`. No rule is looked up.
    pub(in crate::bus) fn rules_of(
        &self,
        subscription: Incarnation,
        has_default: bool,
    ) -> impl Iterator<Item = Listed> {
        let before = self.names_from(subscription, "");
        let before = before.take_while(|(key, _)| *key < DEFAULT_RULE_KEY);
        let behind = self.names_from(subscription, DEFAULT_RULE_KEY);
        let default = has_default.then_some(Listed::Default);
        let before = before.map(|(_, id)| Listed::Rule(id));
        before
            .chain(default)
            .chain(behind.map(|(_, id)| Listed::Rule(id)))
    }

    /// The rule of that number.
    pub(in crate::bus) fn rule(&self, id: RuleId) -> Option<&BusRule> {
        self.rules.get(id).map(|rule| &**rule)
    }

    /// The rule in force of that name, in any case.
    pub(in crate::bus) fn find(&self, subscription: Incarnation, name: &str) -> Option<&BusRule> {
        let id = self.names.get(&(subscription, key_of(name)))?;
        self.rule(*id)
    }

    /// What limits count a rule in force as.
    pub(in crate::bus) fn kind_of(&self, id: RuleId) -> Option<RuleKind> {
        let rule = self.rule(id).filter(|rule| rule.until.is_none());
        rule.map(|_| match self.sql.contains(&id) {
            true => RuleKind::Sql,
            false => RuleKind::Other,
        })
    }

    /// How many rules of a kind are in force.
    pub(in crate::bus) fn count_of(&self, kind: RuleKind) -> usize {
        match kind {
            RuleKind::Sql => self.sql.len(),
            RuleKind::Other => self.names.len() - self.sql.len(),
        }
    }

    /// How many rules are in force, without those `$Default` that subscriptions are created with.
    pub(crate) fn in_force_count(&self) -> usize {
        self.names.len()
    }

    /// How many rules are retired and wait.
    pub(in crate::bus) fn retired_count(&self) -> usize {
        self.retired.len()
    }

    /// Whether there are rules besides those `$Default` that subscriptions are created with.
    pub(in crate::bus) fn has_rules(&self) -> bool {
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
    pub(in crate::bus) fn take_copied(&mut self) -> u64 {
        self.rules.take_copied()
    }
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

    /// The rules that cannot be compiled.
    pub(crate) fn broken(&self) -> impl Iterator<Item = RuleId> {
        self.compiled.broken.iter().copied()
    }

    /// Asserts that every index says what the rules say.
    pub(crate) fn check(&self, length: RunLength) {
        let again = self.again(length);
        assert_eq!(self, &again);
        self.compiled.check(&again.compiled, self.rules.len());
        let filters = [&self.compiled.filters, &again.compiled.filters];
        for (id, _) in self.rules.iter() {
            assert_eq!(filters[0].filter(id), filters[1].filter(id));
        }
    }
}
