//! Rules of subscriptions in a history that has a gap.

use std::collections::BTreeSet;

use kew_engine::bus::{BusFact, KnownOfRules};
use kew_engine::{Fact, Incarnation};

use super::LostRules;
use super::reading::Reading;

/// What one reading has read of the changes of rules.
#[derive(Debug, Default)]
pub(super) struct ReadRules {
    /// The changes that retire rules, behind the first gap. Another reading may have those rules.
    retired: Vec<BusFact>,
    /// The subscriptions that have lost a rule behind the last gap: if they have none left, none is missing.
    changed: BTreeSet<Incarnation>,
    has_gap: bool,
}

impl ReadRules {
    /// A part of the history is missing here.
    pub(super) fn pass_gap(&mut self) {
        self.has_gap = true;
        self.changed.clear();
    }

    pub(super) fn note(&mut self, fact: &Fact) {
        let Fact::Bus(fact) = fact else {
            return;
        };
        if let BusFact::RulesChanged {
            topic,
            subscription,
            from,
            retired,
            ..
        } = fact
            && self.has_gap
            && !retired.is_empty()
        {
            self.changed.insert(*subscription);
            self.retired.push(BusFact::RulesChanged {
                topic: *topic,
                subscription: *subscription,
                from: *from,
                retired: retired.clone(),
                added: Vec::new(),
            });
        }
    }
}

impl Reading {
    /// Retires in each of two readings what the other one has read as retired, and gives stand-ins that are in both the
    /// role that one of them has found.
    pub(super) fn agree_on_rules(&mut self, other: &mut Self) {
        for fact in &self.rules.retired {
            other.state.retire_rules(fact);
        }
        for fact in &other.rules.retired {
            self.state.retire_rules(fact);
        }
        for entity in self.stand_ins.keys() {
            if other.stand_ins.contains_key(entity) {
                self.state.adopt_role(*entity, &other.state);
            }
        }
        self.rules.retired.append(&mut other.rules.retired);
        self.rules.changed.append(&mut other.rules.changed);
    }

    /// Completes the rules of all topics. Returns what is lost of them, and what may be.
    pub(super) fn complete_rules(&mut self, has_gaps: bool) -> Vec<LostRules> {
        let found = self.found_topics.keys();
        let stand_ins: BTreeSet<_> = self.stand_ins.keys().chain(found).copied().collect();
        let completed = self.state.complete_rules(KnownOfRules {
            has_gaps,
            changed: &self.rules.changed,
            stand_ins: &stand_ins,
            deleted: &self.deleted,
        });
        let lost = completed.into_iter().map(|it| LostRules {
            may_be_old: has_gaps
                && (self.next_at_gap.contains_key(&it.topic) || stand_ins.contains(&it.topic)),
            topic: it.name,
            dropped: it.dropped,
            opened: it.opened,
        });
        lost.filter(|it| it.may_be_old || it.dropped > 0 || !it.opened.is_empty())
            .collect()
    }
}
