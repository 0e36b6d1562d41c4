//! How facts change rules. Total: a fact that no longer fits changes nothing.

use std::sync::Arc;

use super::{AddedRule, BusRule, DEFAULT_RULE, DefaultRule, matches_all};
use crate::bus::queues::Queues;
use crate::catalogue::Catalogue;
use crate::queues::Queue;
use crate::vocabulary::{Incarnation, SequenceNumber, Timestamp};
use kew_filter::RuleId;

/// A change of the rules of one subscription.
pub(in crate::bus) struct RulesChange {
    pub(in crate::bus) topic: Incarnation,
    pub(in crate::bus) subscription: Incarnation,
    /// The number of the topic from which on it counts.
    pub(in crate::bus) from: SequenceNumber,
    pub(in crate::bus) retired: Vec<RuleId>,
    pub(in crate::bus) added: Vec<AddedRule>,
}

impl Queues {
    /// Gives a new subscription the next rule of its topic. In a damaged history the topic may be missing: then no
    /// message comes.
    pub(in crate::bus) fn give_default_rule(
        &mut self,
        subscription: Incarnation,
        topic: Incarnation,
    ) {
        let of_topic = self.get_mut(&topic).and_then(|entity| {
            let since = entity.backlog.next();
            let id = entity.topic.as_mut()?.take_next_rule();
            Some(DefaultRule { id, since })
        });
        if let Some(entity) = self.get_mut(&subscription) {
            entity.rule = of_topic;
        }
    }

    /// Changes the rules of a subscription. It is a use of both, the topic and the subscription.
    pub(in crate::bus) fn change_rules(
        &mut self,
        catalogue: &mut Catalogue,
        at: Timestamp,
        change: RulesChange,
    ) {
        let RulesChange {
            topic,
            subscription,
            from,
            retired,
            added,
        } = change;
        let mut default = None;
        let owner = self.get(&subscription);
        let is_there = owner.is_some_and(|it| it.role.topic() == Some(topic));
        if is_there && let Some(entity) = self.get_mut(&subscription) {
            entity.used_at = at;
            if let Some(rule) = entity.rule.filter(|rule| retired.contains(&rule.id)) {
                entity.rule = None;
                // It waits for messages like any other rule.
                default = Some(BusRule {
                    id: rule.id,
                    subscription,
                    name: DEFAULT_RULE.into(),
                    definition: matches_all(),
                    created_at: entity.created_at,
                    since: rule.since,
                    until: Some(from),
                });
            }
            entity.settle(catalogue, subscription);
        }
        let Some(entity) = self.get_mut(&topic) else {
            return;
        };
        let Some(rules) = &mut entity.topic else {
            return;
        };
        entity.used_at = at;
        for id in retired {
            rules.retire(id, from);
        }
        if let Some(default) = default {
            rules.add(Arc::new(default));
        }
        for AddedRule {
            id,
            name,
            definition,
        } in added
        {
            rules.set_next_rule(id.saturating_add(1));
            if is_there {
                rules.add(Arc::new(BusRule {
                    id,
                    subscription,
                    name,
                    definition,
                    created_at: at,
                    since: from,
                    until: None,
                }));
            }
        }
        entity.settle(catalogue, topic);
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
