//! Rules as an evaluation needs them. They follow from the rules of a topic, and are no part of the state.

use std::collections::{BTreeMap, BTreeSet};

use kew_filter::{Action, Definition, RuleId, RuleSet};

use super::{BusRule, RuleKind};

#[derive(Debug, Default)]
pub(super) struct Compiled {
    pub(super) filters: RuleSet,
    pub(super) actions: BTreeMap<RuleId, Action>,
    /// Those that this version cannot compile. They match nothing, and count as failing.
    pub(super) broken: BTreeSet<RuleId>,
}

impl Compiled {
    /// Compiles a rule. Returns what limits count it as.
    pub(super) fn insert(&mut self, rule: &BusRule) -> RuleKind {
        let definition = Definition::decode(&rule.definition).ok();
        match definition.as_ref().and_then(|it| it.compile().ok()) {
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
        definition.map_or(RuleKind::Other, |it| RuleKind::of_filter(it.filter()))
    }

    pub(super) fn remove(&mut self, id: RuleId) {
        self.filters.remove(id);
        self.actions.remove(&id);
        self.broken.remove(&id);
    }
}
