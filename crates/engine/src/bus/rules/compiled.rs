//! Rules as an evaluation needs them. They follow from the rules of a topic, and are no part of the state.

use std::collections::{BTreeMap, BTreeSet};

use kew_filter::{Action, Definition, Filter, RuleId, RuleSet};

use super::{BusRule, RuleKind};
use crate::bus::room::CopyChanges;
use crate::vocabulary::Incarnation;

#[derive(Debug, Default)]
pub(super) struct Compiled {
    /// The filters that an evaluation looks for.
    pub(super) filters: RuleSet,
    pub(super) actions: BTreeMap<RuleId, Action>,
    /// Those that this version cannot compile. They match nothing, and count as failing.
    pub(super) broken: BTreeSet<RuleId>,
    /// Those that select all messages and have no action: nobody has to look at a message for them.
    pub(super) plain: BTreeSet<(Incarnation, RuleId)>,
    /// How many select no message.
    idle: usize,
    /// How many may fail without an action.
    failing: usize,
}

impl Compiled {
    /// Compiles a rule. Returns what limits count it as.
    pub(super) fn insert(&mut self, rule: &BusRule) -> RuleKind {
        let definition = Definition::decode(&rule.definition).ok();
        match definition.as_ref().and_then(|it| it.compile().ok()) {
            Some((Filter::False, _)) => self.idle += 1,
            Some((Filter::True, None)) => {
                self.plain.insert((rule.subscription, rule.id));
            }
            Some((filter, action)) => {
                self.failing += usize::from(may_fail(&filter));
                self.filters.insert(rule.id, filter);
                if let Some(action) = action {
                    self.actions.insert(rule.id, action);
                }
            }
            None => {
                self.failing += 1;
                self.broken.insert(rule.id);
            }
        }
        definition.map_or(RuleKind::Other, |it| RuleKind::of_filter(it.filter()))
    }

    /// Forgets a rule that was compiled.
    pub(super) fn remove(&mut self, rule: &BusRule) {
        let id = rule.id;
        if let Some(filter) = self.filters.filter(id) {
            self.failing -= usize::from(may_fail(filter));
            self.filters.remove(id);
            self.actions.remove(&id);
        } else if self.broken.remove(&id) {
            self.failing -= 1;
        } else if !self.plain.remove(&(rule.subscription, id)) {
            self.idle -= 1;
        }
    }

    /// Whether a rule has to look at a message.
    pub(super) fn looks(&self) -> bool {
        !self.filters.is_empty() || !self.broken.is_empty()
    }

    /// What rules may add to copies.
    pub(super) fn changes_of_copies(&self) -> CopyChanges {
        match (self.actions.is_empty(), self.failing) {
            (false, _) => CopyChanges::Actions,
            (true, 0) => CopyChanges::Nothing,
            (true, _) => CopyChanges::Failures,
        }
    }
}

fn may_fail(filter: &Filter) -> bool {
    match filter {
        Filter::Sql(_) => true,
        Filter::True | Filter::False | Filter::Correlation(_) => false,
    }
}

#[cfg(test)]
impl Compiled {
    /// Asserts that it is what it is after all rules are compiled again.
    pub(super) fn check(&self, again: &Self, rules: usize) {
        let Self {
            filters,
            actions,
            broken,
            plain,
            idle,
            failing,
        } = self;
        assert_eq!(filters.len() + broken.len() + plain.len() + idle, rules);
        assert_eq!(filters.len(), again.filters.len());
        assert_eq!(broken, &again.broken);
        assert_eq!(actions, &again.actions);
        assert_eq!(plain, &again.plain);
        assert_eq!((idle, failing), (&again.idle, &again.failing));
    }
}
