//! Many rules at once: which of them select a message, without evaluating each.
//!
//! A rule that needs an equality, such as `color = 'red'` in a chain of `AND`, cannot select a message without that value.
//! So it is found by the name and the value. Each rule is filed under one of its equalities: the one with the fewest
//! rules so far. What is found is only a candidate, and its whole filter is evaluated; so the index can never select a
//! message that the filter does not. Rules without such an equality are evaluated for each message.
//!
//! A rule that is not found would not have failed either: an equality counts only if what stands before it cannot fail,
//! and an evaluation ends at the first part of a chain that does not hold.
//!
//! An evaluation can be cut between two rules, and go on later: [`RuleSet::begin`] and [`RuleSet::go_on`].

mod buckets;
mod matches;
mod places;

use std::collections::{BTreeMap, BTreeSet};

pub use matches::Matches;

use self::buckets::Filing;
use self::places::{Place, choices_of, hash_of};
use crate::limits::RULE_STEPS;
use crate::message::{Message, NewIds, folded};
use crate::rule::Filter;

/// With more spellings of names than that, the message's properties are visited instead of asked for.
const SPELLINGS_ASKED_FOR_MAX: usize = 8;

/// The number of a rule, given by the caller.
pub type RuleId = u64;

/// What newid() returns in a rule of a set: the `nth` id of that rule's evaluation.
pub type RuleIds<'i> = &'i dyn Fn(RuleId, u32) -> [u8; 16];

/// The rules of many subscriptions.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: BTreeMap<RuleId, Filed>,
    filing: Filing,
    /// Rules that are evaluated for each message.
    others: BTreeSet<RuleId>,
}

#[derive(Clone, Debug)]
struct Filed {
    filter: Filter,
    /// Which of the filter's choices it is filed under, if it has any.
    choice: Option<u32>,
}

impl Filed {
    /// Where it is filed. Empty if nowhere, or among the others.
    fn places(&self) -> Vec<Place<'_>> {
        let choice = self.choice.and_then(|it| usize::try_from(it).ok());
        let choices = choices_of(&self.filter).unwrap_or_default();
        choice
            .and_then(|choice| choices.into_iter().nth(choice))
            .unwrap_or_default()
    }
}

impl RuleSet {
    /// Adds a rule. Replaces the one with the same number.
    pub fn insert(&mut self, id: RuleId, filter: Filter) {
        self.remove(id);
        let mut choice = None;
        if let Some(choices) = choices_of(&filter) {
            let crowd = |(_, places): &(u32, Vec<Place<'_>>)| {
                let counts = places.iter().map(|it| self.filing.count_at(*it));
                counts.sum::<usize>()
            };
            match (0..).zip(choices).min_by_key(crowd) {
                Some((best, places)) => {
                    choice = Some(best);
                    for place in places {
                        self.filing.add(place, id);
                    }
                }
                None => {
                    self.others.insert(id);
                }
            }
        }
        self.rules.insert(id, Filed { filter, choice });
    }

    /// Removes a rule, and returns whether it existed.
    pub fn remove(&mut self, id: RuleId) -> bool {
        let Some(filed) = self.rules.remove(&id) else {
            return false;
        };
        for place in filed.places() {
            self.filing.take(place, id);
        }
        self.others.remove(&id);
        true
    }

    /// The filter of a rule.
    pub fn filter(&self, id: RuleId) -> Option<&Filter> {
        self.rules.get(&id).map(|filed| &filed.filter)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Finds the rules that select a message: the same as evaluating all.
    pub fn find<M: Message + ?Sized>(&self, message: &M, ids: &dyn NewIds, into: &mut Matches) {
        self.begin(message, into);
        while !into.is_done() {
            self.go_on(message, &|_, nth| ids.id(nth), u32::MAX, into);
        }
    }

    /// Begins to find the rules that select a message: collects those that could, in the order of their numbers.
    pub fn begin<M: Message + ?Sized>(&self, message: &M, matches: &mut Matches) {
        matches.clear();
        let candidates = &mut matches.candidates;
        candidates.extend(&self.others);
        let others = candidates.len();
        for (property, buckets) in &self.filing.system {
            if let Some(value) = hash_of(message.system(*property)) {
                buckets.find(value, candidates);
            }
        }
        if self.filing.spellings <= SPELLINGS_ASKED_FOR_MAX {
            for named in self.filing.user.values() {
                for spelled in named.spellings.keys() {
                    if let Some(value) = message.user(spelled).and_then(hash_of) {
                        named.buckets.find(value, candidates);
                    }
                }
            }
        } else {
            message.visit_user(&mut |name, value| {
                // Most names are in lower case, and need no other text.
                let is_folded = name
                    .bytes()
                    .all(|it| it.is_ascii() && !it.is_ascii_uppercase());
                let named = match is_folded {
                    true => self.filing.user.get(name),
                    false => self.filing.user.get(&*folded(name)),
                };
                if let Some(named) = named
                    && let Some(value) = hash_of(value)
                {
                    named.buckets.find(value, candidates);
                }
            });
        }
        if candidates.len() > others {
            // They are a few runs in order, which a stable sort joins.
            candidates.sort();
            candidates.dedup();
        }
    }

    /// Goes on with the evaluation that [`begin`](Self::begin) began, on the same message, until all rules are done or
    /// this many steps are used. Returns how many it used.
    ///
    /// A rule takes [`RULE_STEPS`], and those of its filter ([`Filter::matches_counting`]). It is evaluated as a whole, so the
    /// last one may use more than there are left. The outcome does not depend on where the evaluation is cut.
    pub fn go_on<M: Message + ?Sized>(
        &self,
        message: &M,
        ids: RuleIds<'_>,
        steps_max: u32,
        matches: &mut Matches,
    ) -> u32 {
        let mut used = 0u32;
        while used < steps_max {
            let Some(&id) = matches.candidates.get(matches.done) else {
                break;
            };
            matches.done += 1;
            used = used.saturating_add(RULE_STEPS);
            let Some(filed) = self.rules.get(&id) else {
                continue;
            };
            let of_rule = |nth| ids(id, nth);
            let (outcome, steps) = filed.filter.matches_counting(message, &of_rule);
            used = used.saturating_add(steps);
            match outcome {
                Ok(true) => matches.matching.push(id),
                Ok(false) => {}
                Err(error) => matches.failed.push((id, error)),
            }
        }
        used
    }
}
