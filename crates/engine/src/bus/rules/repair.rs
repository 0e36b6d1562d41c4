//! Rules in the repair of a damaged log.
//!
//! A gap may hide a change of rules, and a page of rules may be lost. What any reading of the log has is kept. When in
//! doubt a subscription gets a message: if it may have lost its last rule, it gets all of them.

use std::collections::BTreeSet;

use kew_filter::RuleId;

use super::{DEFAULT_RULE, DefaultRule, RulesChange, Topic};
use crate::bus::BusFact;
use crate::bus::queues::Queues;
use crate::bus::role::Role;
use crate::catalogue::{Catalogue, Families};
use crate::queues::Queue;
use crate::vocabulary::{EntityName, Incarnation};

/// What a repair has made of the rules of a topic that has subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedRules {
    /// The topic.
    pub topic: Incarnation,
    /// Its name.
    pub name: EntityName,
    /// How many rules in force are gone, because their subscriptions are.
    pub dropped: u64,
    /// Subscriptions that get every message now, because their rules are lost or not known.
    pub opened: Vec<EntityName>,
}

/// What a repair knows of the rules that it completes.
#[derive(Clone, Copy, Debug)]
pub struct KnownOfRules<'a> {
    /// Whether something is missing: then a subscription without a rule may have lost it.
    pub has_gaps: bool,
    /// Subscriptions that a fact behind the last gap has left as they are.
    pub changed: &'a BTreeSet<Incarnation>,
    /// Subscriptions whose creation was not read.
    pub stand_ins: &'a BTreeSet<Incarnation>,
    /// Entities whose deletion was read.
    pub deleted: &'a BTreeSet<Incarnation>,
}

impl Topic {
    /// Adds the rules that another reading of the same history has found.
    pub(in crate::bus) fn absorb(&mut self, other: &Self) {
        self.set_next_rule(other.next_rule);
        for (_, theirs) in other.rules.iter() {
            let own = self.rule(theirs.id);
            match own.filter(|own| own.is_same(theirs)) {
                // A rule that was retired stays so.
                Some(_) => {
                    if let Some(until) = theirs.until {
                        self.retire(theirs.subscription, theirs.id, until);
                    }
                }
                None => self.add_found((**theirs).clone()),
            }
        }
    }

    /// The subscriptions that have rules.
    fn subscriptions(&self) -> BTreeSet<Incarnation> {
        let retired = self.retired.iter().filter_map(|(_, id)| self.rule(*id));
        let retired = retired.map(|rule| rule.subscription);
        retired
            .chain(self.names.keys().map(|(of, _)| *of))
            .collect()
    }
}

impl Queues {
    /// Makes an entity that stands in a topic, or a subscription of one. What its rules were is not known: so a
    /// subscription gets every message until a fact says otherwise.
    pub(crate) fn correct_role(
        &mut self,
        catalogue: &mut Catalogue,
        entity: Incarnation,
        role: Role,
    ) {
        if self.get(&entity).is_none_or(|it| it.role != Role::Queue) {
            return;
        }
        if let Some(mut found) = self.take(catalogue, entity) {
            found.role = role;
            found.topic = (role == Role::Topic).then(|| Topic::new(catalogue.run_length));
            found.rule = role.topic().map(|_| DefaultRule::OF_UNKNOWN);
            self.add(catalogue, entity, found);
        }
    }

    /// Retires the rules that a fact retires which another reading of the same history has read.
    pub(crate) fn retire_rules(&mut self, catalogue: &mut Catalogue, fact: &BusFact) {
        let BusFact::RulesChanged {
            topic,
            subscription,
            from,
            retired,
            ..
        } = fact
        else {
            return;
        };
        let change = RulesChange {
            topic: *topic,
            subscription: *subscription,
            from: *from,
            retired: retired.clone(),
            added: Vec::new(),
        };
        let default = self.end_rules(catalogue, &change);
        if let Some(entity) = self.get_mut(topic) {
            if let (Some(rules), Some(default)) = (&mut entity.topic, default) {
                rules.add_found(default);
            }
            entity.settle(catalogue, *topic);
        }
    }

    /// Makes the rules of all topics fit their subscriptions, now that everything was read.
    pub(crate) fn complete_rules(
        &mut self,
        catalogue: &mut Catalogue,
        known: KnownOfRules<'_>,
    ) -> Vec<CompletedRules> {
        let topics = self.iter().filter(|(_, it)| it.role == Role::Topic);
        let topics: Vec<_> = topics.map(|(topic, _)| *topic).collect();
        let completed = topics
            .into_iter()
            .filter_map(|topic| self.complete_rules_of(catalogue, topic, known));
        let completed = completed.collect();
        self.recount_families(catalogue);
        completed
    }

    /// Counts anew what subscriptions count for in their topics, and notes anew which have their `$Default`: entities of a
    /// family came in any order, and some changed their roles.
    fn recount_families(&mut self, catalogue: &mut Catalogue) {
        catalogue.families = Families::default();
        let roles = self.iter().map(|(entity, it)| (*entity, it.role));
        for (entity, role) in roles {
            if let Role::Subscription { of } = role {
                catalogue.families.join(entity, of);
            }
        }
        for (entity, it) in self.iter_mut() {
            it.forget_family();
            it.settle(catalogue, entity);
        }
    }

    fn complete_rules_of(
        &mut self,
        catalogue: &mut Catalogue,
        topic: Incarnation,
        known: KnownOfRules<'_>,
    ) -> Option<CompletedRules> {
        let subscriptions: BTreeSet<_> = catalogue.subscriptions_of(topic).collect();
        let entity = self.get_mut(&topic)?;
        let name = entity.name.clone();
        let mut rules = entity.topic.take()?;
        let mut dropped = 0;
        for gone in rules.subscriptions() {
            if !subscriptions.contains(&gone) {
                let count = rules.forget(gone);
                let is_told = !known.deleted.contains(&gone);
                dropped += if is_told { count } else { 0 };
            }
        }
        let mut opened = Vec::new();
        let mut used = BTreeSet::new();
        for subscription in &subscriptions {
            let Some(entity) = self.get_mut(subscription) else {
                continue;
            };
            let (rule, is_opened) = rules.completed_default(*subscription, entity.rule, known);
            entity.rule = rule.map(|rule| rules.with_own_number(rule, &mut used));
            if is_opened {
                opened.push(entity.name.clone());
            }
            entity.settle(catalogue, *subscription);
        }
        let entity = self.get_mut(&topic)?;
        entity.topic = Some(rules);
        entity.settle(catalogue, topic);
        let is_of_interest = !subscriptions.is_empty() || dropped > 0;
        is_of_interest.then_some(CompletedRules {
            topic,
            name,
            dropped,
            opened,
        })
    }

    /// What is wrong with rules and subscriptions of a whole snapshot, if anything is.
    pub(crate) fn check_rules(&self, catalogue: &Catalogue) -> Result<(), &'static str> {
        for (topic, entity) in self.iter() {
            let Some(rules) = &entity.topic else {
                continue;
            };
            let subscriptions: BTreeSet<_> = catalogue.subscriptions_of(*topic).collect();
            if !rules.subscriptions().is_subset(&subscriptions) {
                return Err("rule of a subscription that its topic does not have");
            }
            for subscription in &subscriptions {
                let Some(default) = self.get(subscription).and_then(|it| it.rule) else {
                    continue;
                };
                if default.id >= rules.next_rule || rules.rule(default.id).is_some() {
                    return Err("rule $Default whose number is out of range or taken");
                }
                if rules.find(*subscription, DEFAULT_RULE).is_some() {
                    return Err("two rules $Default of a subscription");
                }
            }
        }
        Ok(())
    }
}

impl Topic {
    /// The rule `$Default` of the creation of a subscription, and whether the subscription gets every message because
    /// more is not known.
    fn completed_default(
        &self,
        subscription: Incarnation,
        own: Option<DefaultRule>,
        known: KnownOfRules<'_>,
    ) -> (Option<DefaultRule>, bool) {
        let has_rules = self.rules_of(subscription, false).next().is_some();
        let has_namesake = self.find(subscription, DEFAULT_RULE).is_some();
        match own {
            Some(_) if has_namesake => (None, false),
            Some(own) => (Some(own), known.stand_ins.contains(&subscription)),
            None if known.has_gaps && !has_rules && !known.changed.contains(&subscription) => {
                (Some(DefaultRule::OF_UNKNOWN), true)
            }
            None => (None, false),
        }
    }

    /// The same with a number that no other rule has.
    fn with_own_number(&mut self, rule: DefaultRule, used: &mut BTreeSet<RuleId>) -> DefaultRule {
        let is_taken = self.rule(rule.id).is_some() || used.contains(&rule.id);
        let id = match is_taken {
            true => self.take_next_rule(),
            false => rule.id,
        };
        self.set_next_rule(id.saturating_add(1));
        used.insert(id);
        DefaultRule { id, ..rule }
    }
}

/// The rule `$Default` of a subscription that two readings of a history have. Each knows that it was retired if it has
/// none.
pub(in crate::bus) fn default_of_both(
    own: Option<DefaultRule>,
    theirs: Option<DefaultRule>,
) -> Option<DefaultRule> {
    let both = own.zip(theirs);
    // One that its topic has counted says more.
    both.map(|(own, theirs)| match own == DefaultRule::OF_UNKNOWN {
        true => theirs,
        false => own,
    })
}
