//! How facts change rules. Total: a fact that no longer fits changes nothing.

use std::sync::Arc;

use kew_filter::RuleId;

use super::{
    AddedRule, BusRule, DEFAULT_OF_CREATION, DEFAULT_RULE, DefaultRule, Topic, is_default, key_of,
    matches_all,
};
use crate::bus::queues::Queues;
use crate::catalogue::Catalogue;
use crate::queues::Queue;
use crate::vocabulary::{Incarnation, SequenceNumber, Timestamp};

/// A change of the rules of one subscription.
pub(in crate::bus) struct RulesChange {
    pub(in crate::bus) topic: Incarnation,
    pub(in crate::bus) subscription: Incarnation,
    /// The number of the topic from which on it counts.
    pub(in crate::bus) from: SequenceNumber,
    /// With [`DEFAULT_OF_CREATION`] for the rule `$Default` of the subscription's creation.
    pub(in crate::bus) retired: Vec<RuleId>,
    pub(in crate::bus) added: Vec<AddedRule>,
}

impl RulesChange {
    /// Whether the rule `$Default` of the subscription's creation ends. If another one has its name from now on, it
    /// does, too: in a damaged history its removal may be missing.
    fn retires_default(&self) -> bool {
        self.retired.contains(&DEFAULT_OF_CREATION)
            || self.added.iter().any(|rule| is_default(&rule.name))
    }
}

impl DefaultRule {
    /// Of a subscription of which it is not known when it was created: it matches all messages. A repair gives it another
    /// number if that is taken.
    pub(in crate::bus) const OF_UNKNOWN: Self = Self {
        id: 1,
        since: SequenceNumber::FIRST,
    };
}

impl Queues {
    /// Gives a new subscription the next rule of its topic. In a damaged history the topic may be missing, and be found
    /// later.
    pub(in crate::bus) fn give_default_rule(
        &mut self,
        catalogue: &mut Catalogue,
        subscription: Incarnation,
        topic: Incarnation,
    ) {
        let of_topic = self.get_mut(&topic).and_then(|entity| {
            let since = entity.backlog.next();
            let id = entity.topic.as_mut()?.take_next_rule();
            Some(DefaultRule { id, since })
        });
        if let Some(entity) = self.get_mut(&subscription) {
            entity.rule = Some(of_topic.unwrap_or(DefaultRule::OF_UNKNOWN));
            entity.settle(catalogue, subscription);
        }
    }

    /// Changes the rules of a subscription. It is a use of both, the topic and the subscription.
    pub(in crate::bus) fn change_rules(
        &mut self,
        catalogue: &mut Catalogue,
        at: Timestamp,
        change: RulesChange,
    ) {
        let (topic, subscription) = (change.topic, change.subscription);
        let is_there = self.is_subscription_of(subscription, topic);
        if is_there && let Some(entity) = self.get_mut(&subscription) {
            entity.used_at = at;
        }
        let default = self.end_rules(catalogue, &change);
        let Some(entity) = self.get_mut(&topic) else {
            return;
        };
        let Some(rules) = &mut entity.topic else {
            return;
        };
        entity.used_at = at;
        for AddedRule {
            id,
            name,
            definition,
        } in change.added
        {
            rules.set_next_rule(id.saturating_add(1));
            if is_there {
                rules.add_found(BusRule {
                    id,
                    subscription,
                    name,
                    definition,
                    created_at: at,
                    since: change.from,
                    until: None,
                });
            }
        }
        if let Some(default) = default {
            rules.add_found(default);
        }
        entity.settle(catalogue, topic);
    }

    /// Retires what a change retires. Returns the rule `$Default` of the subscription's creation if it was that and
    /// messages may wait for it.
    pub(super) fn end_rules(
        &mut self,
        catalogue: &mut Catalogue,
        change: &RulesChange,
    ) -> Option<BusRule> {
        let (topic, subscription, from) = (change.topic, change.subscription, change.from);
        if let Some(rules) = self.get_mut(&topic).and_then(|it| it.topic.as_mut()) {
            for id in &change.retired {
                rules.retire(subscription, *id, from);
            }
        }
        if !self.is_subscription_of(subscription, topic) {
            return None;
        }
        let entity = self.get_mut(&subscription)?;
        let ended = match change.retires_default() {
            true => entity.rule.take(),
            false => None,
        };
        let created_at = entity.created_at;
        entity.settle(catalogue, subscription);
        // It waits for messages like any other rule.
        let ended = ended.filter(|rule| rule.since < from);
        ended.map(|rule| BusRule {
            id: rule.id,
            subscription,
            name: DEFAULT_RULE.into(),
            definition: matches_all(),
            created_at,
            since: rule.since,
            until: Some(from),
        })
    }

    fn is_subscription_of(&self, subscription: Incarnation, topic: Incarnation) -> bool {
        let owner = self.get(&subscription);
        owner.is_some_and(|it| it.role.topic() == Some(topic))
    }

    /// Forgets the rules of a subscription that ends.
    pub(in crate::bus) fn forget_rules(
        &mut self,
        catalogue: &mut Catalogue,
        subscription: Incarnation,
    ) {
        let topic = self
            .get(&subscription)
            .and_then(|entity| entity.role.topic());
        // Most have no rule that lies there.
        let Some(topic) = topic.filter(|topic| {
            let topic = self.get(topic).and_then(|it| it.topic.as_ref());
            topic.is_some_and(|it| it.has_rules())
        }) else {
            return;
        };
        if let Some(entity) = self.get_mut(&topic) {
            if let Some(rules) = &mut entity.topic {
                rules.forget(subscription);
            }
            entity.settle(catalogue, topic);
        }
    }
}

impl Topic {
    /// Adds a rule. In a whole history no other one has its number, and none in force its name. In a damaged one the
    /// removal of a rule may be missing, and of two with a name the one with the greater number came later: it counts
    /// from its number of the topic on. If two have a number, one gets a new one: rather a retired one, because no
    /// fact names that again.
    pub(super) fn add_found(&mut self, mut rule: BusRule) {
        if let Some(other) = self.rule(rule.id).cloned() {
            if other.is_same(&rule) {
                return;
            }
            let next = self.take_next_rule();
            match other.until {
                Some(until) if rule.until.is_none() => {
                    self.retired.remove(&(until, other.id));
                    self.remove(other.id);
                    self.add(Arc::new(BusRule { id: next, ..other }));
                }
                Some(_) | None => rule.id = next,
            }
        }
        let key = (rule.subscription, key_of(&rule.name));
        let namesake = self.names.get(&key).filter(|_| rule.until.is_none());
        let namesake = namesake.and_then(|id| self.rule(*id));
        if let Some((id, since)) = namesake.map(|it| (it.id, it.since)) {
            if id < rule.id {
                self.retire(rule.subscription, id, rule.since);
            } else if rule.since < since {
                rule.until = Some(since);
            } else {
                return;
            }
        }
        self.add(Arc::new(rule));
    }
}

impl BusRule {
    /// Whether it is that rule, retired or not.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.subscription == other.subscription
            && self.since == other.since
            && self.name == other.name
            && self.definition == other.definition
    }
}
