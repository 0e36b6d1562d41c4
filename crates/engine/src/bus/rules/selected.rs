//! What the rules of a topic make of a message.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use kew_filter::{Matches, Message, RuleId, changes_of_copy};

use super::{BusRule, Topic};
use crate::bus::format::{Format, Made};
use crate::bus::room::{CopyChanges, RULE_STEPS_MAX};
use crate::vocabulary::{Incarnation, SequenceNumber};

/// As many application properties are read with a message. Each further one takes [`PROPERTY_STEPS`].
const PROPERTIES_READ: u32 = 16;

/// How many steps it takes to read an application property and to look it up.
const PROPERTY_STEPS: u32 = 4;

/// How many steps it takes to read a message with a few properties.
const MESSAGE_STEPS: u64 = 8;

/// A message that rules look at.
pub(in crate::bus) struct Seen<'a> {
    pub(in crate::bus) message: &'a dyn Message,
    pub(in crate::bus) format: &'a dyn Format,
    /// Its number in the topic.
    pub(in crate::bus) number: SequenceNumber,
    /// What newid() returns: the nth id for a rule of a subscription.
    pub(in crate::bus) ids: &'a dyn Fn(Incarnation, RuleId, u32) -> [u8; 16],
}

/// What the rules of one subscription make of a message: a copy without changes, one for each rule with an action, and a
/// dead letter if a rule failed.
#[derive(Debug, Default)]
pub(in crate::bus) struct Found {
    /// Whether a rule without an action selects it.
    pub(in crate::bus) is_plain: bool,
    /// The rules whose actions are still to be carried out, in the order of their numbers.
    pub(in crate::bus) actions: VecDeque<RuleId>,
    /// The first rule that failed so far, and why.
    pub(in crate::bus) failure: Option<(RuleId, String)>,
}

impl Found {
    pub(in crate::bus) fn fail(&mut self, id: RuleId, why: impl ToString) {
        if self.failure.as_ref().is_none_or(|(first, _)| id < *first) {
            self.failure = Some((id, why.to_string()));
        }
    }
}

/// How far the rules of a topic were compared with a message.
///
/// It names rules by their numbers, and rules hold for ranges of the topic's numbers. So it stays right when rules
/// change: one that was added since does not hold for the message, and one that was removed stays as long as the message
/// needs it.
#[derive(Debug, Default)]
pub(crate) struct Matched {
    number: SequenceNumber,
    matches: Matches,
    has_begun: bool,
    /// What was found, once all filters are done.
    found: Option<BTreeMap<Incarnation, Found>>,
}

impl Matched {
    /// Nothing yet, of the message with this number of the topic.
    pub(in crate::bus) fn of(number: SequenceNumber) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// The number of the message.
    pub(in crate::bus) fn number(&self) -> SequenceNumber {
        self.number
    }

    /// What was found for a subscription.
    pub(in crate::bus) fn found(&mut self, subscription: Incarnation) -> Option<&mut Found> {
        self.found.as_mut()?.get_mut(&subscription)
    }

    /// The first subscription there for which something was found.
    pub(in crate::bus) fn first_found(&self, from: Bound<Incarnation>) -> Option<Incarnation> {
        let mut rest = self.found.as_ref()?.range((from, Bound::Unbounded));
        rest.next().map(|(subscription, _)| *subscription)
    }

    /// All that was found. It begins again for another message.
    fn take_found(&mut self) -> BTreeMap<Incarnation, Found> {
        self.has_begun = false;
        self.found.take().unwrap_or_default()
    }
}

/// The steps that an evaluation of rules takes, and may take.
#[derive(Debug)]
pub(in crate::bus) struct Evaluation {
    matched: Matched,
    steps_left: u32,
    steps: u64,
}

/// More steps than there are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bus) struct OutOfSteps;

impl Evaluation {
    /// Of the messages of one command.
    pub(in crate::bus) fn new() -> Self {
        Self::with_steps(RULE_STEPS_MAX)
    }

    pub(in crate::bus) fn with_steps(steps_left: u32) -> Self {
        Self {
            matched: Matched::default(),
            steps_left,
            steps: 0,
        }
    }

    /// How many steps it took so far.
    pub(in crate::bus) fn steps(&self) -> u64 {
        self.steps
    }

    /// Counts a message that is read.
    pub(in crate::bus) fn note_message(&mut self) {
        self.steps += MESSAGE_STEPS;
    }

    pub(in crate::bus) fn spend(&mut self, steps: u32) {
        self.steps += u64::from(steps);
        self.steps_left = self.steps_left.saturating_sub(steps);
    }

    /// Fails if nothing may be begun any more.
    pub(in crate::bus) fn check(&self) -> Result<(), OutOfSteps> {
        match self.steps_left {
            0 => Err(OutOfSteps),
            _ => Ok(()),
        }
    }
}

/// What the rules of a topic say about messages.
impl Topic {
    /// Whether rules have to look at a message.
    pub(in crate::bus) fn looks(&self) -> bool {
        self.compiled.looks()
    }

    /// Whether a rule that holds for this number selects all messages for the subscription, without an action, and how many
    /// rules were looked at for that. Its `$Default` is not.
    pub(in crate::bus) fn selects_all(
        &self,
        subscription: Incarnation,
        number: SequenceNumber,
    ) -> (bool, u64) {
        let mut looked_at = 0;
        let own = (subscription, 0)..=(subscription, RuleId::MAX);
        let mut own = self.compiled.plain.range(own);
        let is_one = own.any(|(_, id)| {
            looked_at += 1;
            self.holds(*id, number).is_some()
        });
        (is_one, looked_at)
    }

    /// The subscriptions that have such rules, whatever numbers they hold for: the oldest first, from one on.
    pub(in crate::bus) fn with_plain_rules_from(
        &self,
        from: Incarnation,
    ) -> impl Iterator<Item = Incarnation> + '_ {
        let mut behind = Bound::Included((from, 0));
        std::iter::from_fn(move || {
            let mut rest = self.compiled.plain.range((behind, Bound::Unbounded));
            let subscription = rest.next()?.0;
            behind = Bound::Excluded((subscription, RuleId::MAX));
            Some(subscription)
        })
    }

    /// What rules may add to copies.
    pub(in crate::bus) fn changes_of_copies(&self) -> CopyChanges {
        self.compiled.changes_of_copies()
    }

    /// A rule, if it holds for that message.
    fn holds(&self, id: RuleId, number: SequenceNumber) -> Option<&BusRule> {
        let rule = self.rules.get(id)?;
        let is_retired = rule.until.is_some_and(|until| until <= number);
        (rule.since <= number && !is_retired).then_some(rule)
    }

    /// Compares a message with the rules, all at once. Rules that select all messages are left out unless they have an
    /// action.
    ///
    /// A rule whose filter or action is begun is finished, whatever it takes. So each message can be compared alone.
    pub(in crate::bus) fn select(
        &self,
        seen: &Seen<'_>,
        evaluation: &mut Evaluation,
    ) -> Result<BTreeMap<Incarnation, Found>, OutOfSteps> {
        let mut matched = std::mem::take(&mut evaluation.matched);
        matched.number = seen.number;
        self.compare(seen, &mut matched, evaluation)?;
        let found = matched.take_found();
        evaluation.matched = matched;
        Ok(found)
    }

    /// Counts what it took to read a message. It counts for the messages after that, or a message with very many
    /// properties could never be compared.
    pub(in crate::bus) fn note_read(message: &dyn Message, evaluation: &mut Evaluation) {
        let mut properties = 0u32;
        message.visit_user(&mut |_, _| properties = properties.saturating_add(1));
        let further = properties.saturating_sub(PROPERTIES_READ);
        evaluation.spend(further.saturating_mul(PROPERTY_STEPS));
    }

    /// Compares a message with the filters of the rules, or goes on with that.
    pub(in crate::bus) fn compare(
        &self,
        seen: &Seen<'_>,
        matched: &mut Matched,
        evaluation: &mut Evaluation,
    ) -> Result<(), OutOfSteps> {
        if matched.found.is_some() {
            return Ok(());
        }
        evaluation.check()?;
        let filters = &self.compiled.filters;
        if !matched.has_begun {
            filters.begin(seen.message, &mut matched.matches);
            matched.has_begun = true;
        }
        let ids = |id: RuleId, nth: u32| self.new_id(seen, id, nth);
        let (steps_left, matches) = (evaluation.steps_left, &mut matched.matches);
        let steps = filters.go_on(seen.message, &ids, steps_left, matches);
        evaluation.spend(steps);
        if !matched.matches.is_done() {
            return Err(OutOfSteps);
        }
        matched.found = Some(self.found(seen.number, &matched.matches, evaluation));
        Ok(())
    }

    /// What was found, by subscription.
    fn found(
        &self,
        number: SequenceNumber,
        matches: &Matches,
        evaluation: &mut Evaluation,
    ) -> BTreeMap<Incarnation, Found> {
        let mut found: BTreeMap<Incarnation, Found> = BTreeMap::new();
        for id in &self.compiled.broken {
            evaluation.spend(kew_filter::limits::RULE_STEPS);
            if let Some(rule) = self.holds(*id, number) {
                let found = found.entry(rule.subscription).or_default();
                found.fail(*id, "the rule cannot be read by this version of the server");
            }
        }
        for (id, error) in matches.failed() {
            if let Some(rule) = self.holds(*id, number) {
                found.entry(rule.subscription).or_default().fail(*id, error);
            }
        }
        for id in matches.matching() {
            if let Some(rule) = self.holds(*id, number) {
                let found = found.entry(rule.subscription).or_default();
                match self.compiled.actions.contains_key(id) {
                    true => found.actions.push_back(*id),
                    false => found.is_plain = true,
                }
            }
        }
        found
    }

    /// Carries out the action of a rule that selects a message. The error is why that fails.
    pub(in crate::bus) fn act(
        &self,
        seen: &Seen<'_>,
        id: RuleId,
        evaluation: &mut Evaluation,
    ) -> Result<Made, String> {
        let (Some(rule), Some(action)) = (self.rules.get(id), self.compiled.actions.get(&id))
        else {
            return Err("the rule is gone".to_owned());
        };
        let ids = |nth| self.new_id(seen, id, nth);
        let (changes, steps) = changes_of_copy(&rule.name, action, seen.message, &ids);
        evaluation.spend(steps);
        let made = seen.format.made_by(&changes.map_err(|it| it.to_string())?);
        let made = made.map_err(|unfit| unfit.to_string())?;
        // So that many changes end a step before they fill the memory.
        let bytes = u32::try_from(made.overlay.len()).unwrap_or(u32::MAX);
        evaluation.spend(bytes / 64);
        Ok(made)
    }

    fn new_id(&self, seen: &Seen<'_>, id: RuleId, nth: u32) -> [u8; 16] {
        let of = self.rules.get(id).map(|rule| rule.subscription);
        (seen.ids)(of.unwrap_or_default(), id, nth)
    }
}
