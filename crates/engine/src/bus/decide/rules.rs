//! Rules of subscriptions: add, replace, remove, read, list.

use kew_filter::RuleId;

use super::super::rules::{
    AddedRule, BusRuleView, DEFAULT_OF_CREATION, Listed, NewRule, RETIRED_RULES_MAX,
    RULES_SIZE_BYTES_MAX, RuleKind, Topic, is_default,
};
use super::super::{BusFact, BusOutcome, BusRefusal, EntityStatus};
use super::{Answer, By, Decision, Turn};
use crate::vocabulary::{EntityName, Incarnation};

/// The most bytes of rules in one answer, unless the first one alone has more.
const LISTED_SIZE_BYTES_MAX: u64 = 1024 * 1024;

/// A topic, and a subscription of it.
#[derive(Clone, Copy)]
struct Of {
    topic: Incarnation,
    subscription: Incarnation,
}

impl Turn<'_> {
    /// Source: Service Bus, *Create Rule*.
    pub(super) fn add_rule(&mut self, names: [&EntityName; 2], rule: NewRule) -> Decision {
        self.with_rules(names, |turn, of| {
            if turn.rule_id(of, &rule.name).is_some() {
                return Err(BusRefusal::RuleAlreadyExists { rule: rule.name });
            }
            turn.check_rule(of, &rule, None)?;
            let rule = turn.numbered(of, rule)?;
            let view = turn.view_of_new(&rule);
            turn.change_rules(of, None, Some(rule));
            Ok(BusOutcome::RuleAdded(view))
        })
    }

    /// Source: Service Bus, *Update Rule*.
    pub(super) fn set_rule(&mut self, names: [&EntityName; 2], rule: NewRule) -> Decision {
        self.with_rules(names, |turn, of| {
            let Some(old) = turn.rule_id(of, &rule.name) else {
                return Err(BusRefusal::RuleNotFound { rule: rule.name });
            };
            turn.check_can_retire(of)?;
            turn.check_rule(of, &rule, Some(old))?;
            let rule = turn.numbered(of, rule)?;
            let view = turn.view_of_new(&rule);
            turn.change_rules(of, Some(old), Some(rule));
            Ok(BusOutcome::RuleReplaced(view))
        })
    }

    /// Source: Service Bus, *Delete Rule*.
    pub(super) fn remove_rule(&mut self, names: [&EntityName; 2], name: &str) -> Decision {
        self.with_rules(names, |turn, of| {
            let Some(old) = turn.rule_id(of, name) else {
                return Err(BusRefusal::RuleNotFound { rule: name.into() });
            };
            turn.check_can_retire(of)?;
            turn.change_rules(of, Some(old), None);
            Ok(BusOutcome::RuleRemoved)
        })
    }

    /// Source: Service Bus, *Get Rule*.
    pub(super) fn read_rule(&self, subscription: Incarnation, name: &str) -> Answer {
        let of = self.rules_at(subscription)?;
        let found = match self.default_rule(of).filter(|_| is_default(name)) {
            Some(view) => Some(view),
            None => {
                let rule = self.rules(of).and_then(|it| it.find(subscription, name));
                rule.map(|rule| rule.view())
            }
        };
        let found = found.ok_or_else(|| BusRefusal::RuleNotFound { rule: name.into() });
        found.map(BusOutcome::Rule)
    }

    /// Source: Service Bus, *List Rules*.
    pub(super) fn list_rules(&self, subscription: Incarnation, skip: u32, limit: u32) -> Answer {
        let of = self.rules_at(subscription)?;
        let default = self.default_rule(of);
        let Some(rules) = self.rules(of) else {
            let all = default.into_iter();
            let page = all.skip(skip as usize).take(limit as usize);
            return Ok(BusOutcome::Rules(page.collect()));
        };
        // What is passed over is not looked up.
        let all = rules.rules_of(subscription, default.is_some());
        let page = all.skip(skip as usize).take(limit as usize);
        let views = page.filter_map(|listed| match listed {
            Listed::Default => default.clone(),
            Listed::Rule(id) => rules.rule(id).map(|rule| rule.view()),
        });
        let mut size_bytes = 0;
        let mut page = Vec::new();
        for view in views {
            size_bytes += view.size_bytes();
            if !page.is_empty() && size_bytes > LISTED_SIZE_BYTES_MAX {
                break;
            }
            page.push(view);
        }
        Ok(BusOutcome::Rules(page))
    }

    /// Refuses a rule that no new subscription of this topic can have.
    pub(super) fn check_first_rule(
        &self,
        topic: Incarnation,
        rule: &NewRule,
    ) -> Result<(), BusRefusal> {
        // The subscription is not there yet: what is wrong is told of its topic.
        let of = Of {
            topic,
            subscription: topic,
        };
        self.check_can_retire(of)?;
        self.check_rule(of, rule, None)
    }

    /// Gives a new subscription a rule that was checked, in the place of `$Default`.
    pub(super) fn replace_default_rule(
        &mut self,
        topic: Incarnation,
        subscription: Incarnation,
        rule: NewRule,
    ) -> Result<(), BusRefusal> {
        let of = Of {
            topic,
            subscription,
        };
        // Its number comes after that of `$Default`.
        let rule = self.numbered(of, rule)?;
        self.change_rules(of, Some(DEFAULT_OF_CREATION), Some(rule));
        Ok(())
    }

    /// Carries out what is due in a topic and in a subscription of it, before what that selects changes.
    pub(super) fn do_due_in_both(&mut self, names: [&EntityName; 2]) {
        if self.0.is_due_done() {
            return;
        }
        let budget = self.due_budget_for(names.len());
        for name in names {
            if let Some(entity) = self.catalogue().find(name) {
                self.do_due(entity, budget, By::Command);
            }
        }
    }

    /// Runs a decision that changes rules of a subscription, unless they cannot change now.
    fn with_rules(
        &mut self,
        [topic, subscription]: [&EntityName; 2],
        decide: impl FnOnce(&mut Self, Of) -> Answer,
    ) -> Decision {
        self.do_due_in_both([topic, subscription]);
        let named = self.catalogue().find(topic);
        self.with_found(subscription, |turn, found| {
            let of = turn.rules_at(found)?;
            if named != Some(of.topic) || turn.rules(of).is_none() {
                return Err(turn.no_subscription(found));
            }
            turn.check_rules_can_change(of)?;
            decide(turn, of)
        })
    }

    /// The subscription that has rules, with its topic.
    fn rules_at(&self, subscription: Incarnation) -> Result<Of, BusRefusal> {
        match self.bus(subscription).role.topic() {
            Some(topic) => Ok(Of {
                topic,
                subscription,
            }),
            None => Err(self.no_subscription(subscription)),
        }
    }

    fn no_subscription(&self, entity: Incarnation) -> BusRefusal {
        BusRefusal::QueueNotFound {
            queue: self.bus(entity).name.name.clone(),
        }
    }

    /// The rules of a topic. In a damaged history the topic may be missing.
    fn rules(&self, of: Of) -> Option<&Topic> {
        self.queues().get(&of.topic)?.topic.as_ref()
    }

    /// The rule `$Default` that the subscription was created with, if it still has it.
    fn default_rule(&self, of: Of) -> Option<BusRuleView> {
        let entity = self.bus(of.subscription);
        entity.rule?;
        Some(BusRuleView::default_of(entity.created_at))
    }

    /// The rule in force of that name, in any case, as a change names it.
    fn rule_id(&self, of: Of, name: &str) -> Option<RuleId> {
        let default = self.bus(of.subscription).rule.filter(|_| is_default(name));
        let default = default.map(|_| DEFAULT_OF_CREATION);
        default.or_else(|| Some(self.rules(of)?.find(of.subscription, name)?.id))
    }

    /// Source: Service Bus, *EntityStatus* of Microsoft.ServiceBus.Messaging: no rule of a disabled subscription, or of one to
    /// a disabled topic, is added or removed.
    fn check_rules_can_change(&self, of: Of) -> Result<(), BusRefusal> {
        let (topic, subscription) = (self.bus(of.topic), self.bus(of.subscription));
        let disabled = if topic.options.status == EntityStatus::Disabled {
            topic
        } else if !subscription.options.status.allows_receive() {
            subscription
        } else {
            return Ok(());
        };
        Err(BusRefusal::Disabled {
            queue: disabled.name.name.clone(),
        })
    }

    /// Refuses a rule that cannot be compiled, and one too many. It takes the place of `old`.
    fn check_rule(&self, of: Of, rule: &NewRule, old: Option<RuleId>) -> Result<(), BusRefusal> {
        rule.definition.compile().map_err(|why| {
            let why = why.to_string().into();
            BusRefusal::InvalidRule { why }
        })?;
        let rules = self
            .rules(of)
            .ok_or_else(|| self.no_subscription(of.subscription))?;
        self.check_rules_size(of, rules, rule, old)?;
        let kind = RuleKind::of_filter(rule.definition.filter());
        let old = old.and_then(|old| rules.kind_of(old));
        let others = rules.count_of(kind) - usize::from(old == Some(kind));
        if others >= kind.max() {
            return Err(BusRefusal::TooManyRules {
                queue: self.bus(of.topic).name.name.clone(),
                limit: kind.max() as u64,
            });
        }
        Ok(())
    }

    /// Refuses a rule if all rules would be too large. One that a message waits for stays, and counts.
    fn check_rules_size(
        &self,
        of: Of,
        rules: &Topic,
        rule: &NewRule,
        old: Option<RuleId>,
    ) -> Result<(), BusRefusal> {
        let backlog = self.bus_backlog(of.topic);
        let waits = backlog.table().first_ready().is_some();
        let old = old.and_then(|old| rules.rule(old));
        let old = old.filter(|old| !waits || old.since >= backlog.next());
        let freed_bytes = old.map_or(0, |old| old.snapshot_size_bytes_max());
        let others_bytes = rules.snapshot_size_bytes_max() - freed_bytes;
        if others_bytes + rule.size_bytes() > RULES_SIZE_BYTES_MAX {
            return Err(BusRefusal::RulesTooLarge {
                queue: self.bus(of.topic).name.name.clone(),
                limit_bytes: RULES_SIZE_BYTES_MAX,
            });
        }
        Ok(())
    }

    /// Refuses another retired rule if too many wait.
    fn check_can_retire(&self, of: Of) -> Result<(), BusRefusal> {
        let waiting = self.rules(of).map_or(0, Topic::retired_count);
        if waiting >= RETIRED_RULES_MAX {
            return Err(BusRefusal::RulesBusy {
                queue: self.bus(of.topic).name.name.clone(),
            });
        }
        Ok(())
    }

    /// A new rule with its number.
    fn numbered(&self, of: Of, rule: NewRule) -> Result<AddedRule, BusRefusal> {
        let rules = self.rules(of);
        let rules = rules.ok_or_else(|| self.no_subscription(of.subscription))?;
        Ok(AddedRule {
            id: rules.next_rule(),
            name: rule.name,
            definition: rule.definition.bytes().into(),
        })
    }

    fn view_of_new(&self, rule: &AddedRule) -> BusRuleView {
        BusRuleView {
            name: rule.name.clone(),
            definition: rule.definition.clone(),
            created_at: self.now(),
        }
    }

    fn change_rules(&mut self, of: Of, retired: Option<RuleId>, added: Option<AddedRule>) {
        self.emit_bus(BusFact::RulesChanged {
            topic: of.topic,
            subscription: of.subscription,
            from: self.bus_backlog(of.topic).next(),
            retired: retired.into_iter().collect(),
            added: added.into_iter().collect(),
        });
    }
}
