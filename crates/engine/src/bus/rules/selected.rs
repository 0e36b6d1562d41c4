//! What the rules of a topic make of a message.

use std::collections::BTreeMap;

use kew_filter::{Matches, Message, RuleId, changes_of_copy};

use super::compiled::Compiled;
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

/// What the rules of one subscription make of a message.
#[derive(Debug, Default)]
pub(in crate::bus) struct Selected {
    /// Whether a rule without an action selects it.
    pub(in crate::bus) is_plain: bool,
    /// What the actions of the others make, in the order of the rules' numbers.
    pub(in crate::bus) made: Vec<Made>,
    /// The first rule that failed, and why.
    pub(in crate::bus) failure: Option<(RuleId, String)>,
}

impl Selected {
    fn fail(&mut self, id: RuleId, why: impl ToString) {
        if self.failure.as_ref().is_none_or(|(first, _)| id < *first) {
            self.failure = Some((id, why.to_string()));
        }
    }
}

/// An evaluation of the rules of a topic on the messages of one command.
#[derive(Debug)]
pub(in crate::bus) struct Evaluation {
    matches: Matches,
    steps_left: u32,
    steps: u64,
}

/// More steps than one command may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bus) struct OutOfSteps;

impl Evaluation {
    pub(in crate::bus) fn new() -> Self {
        Self {
            matches: Matches::default(),
            steps_left: RULE_STEPS_MAX,
            steps: 0,
        }
    }

    /// How many steps it took so far.
    pub(in crate::bus) fn steps(&self) -> u64 {
        self.steps
    }

    fn spend(&mut self, steps: u32) {
        self.steps += u64::from(steps);
        self.steps_left = self.steps_left.saturating_sub(steps);
    }

    /// Fails if nothing may be begun any more.
    fn check(&self) -> Result<(), OutOfSteps> {
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

    /// Whether a rule selects all messages for the subscription, without an action. Its `$Default` is not looked at.
    pub(in crate::bus) fn selects_all(
        &self,
        subscription: Incarnation,
        number: SequenceNumber,
    ) -> bool {
        let own = (subscription, 0)..=(subscription, RuleId::MAX);
        let mut own = self.compiled.plain.range(own);
        own.any(|(_, id)| self.holds(*id, number).is_some())
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

    /// Compares a message with the rules. Rules that select all messages are left out unless they have an action.
    ///
    /// A rule whose filter or action is begun is finished, whatever it takes. So each message can be compared alone.
    pub(in crate::bus) fn select(
        &self,
        seen: &Seen<'_>,
        evaluation: &mut Evaluation,
    ) -> Result<BTreeMap<Incarnation, Selected>, OutOfSteps> {
        let mut selected: BTreeMap<Incarnation, Selected> = BTreeMap::new();
        evaluation.steps += MESSAGE_STEPS;
        evaluation.check()?;
        for id in &self.compiled.broken {
            evaluation.check()?;
            evaluation.spend(kew_filter::limits::RULE_STEPS);
            if let Some(rule) = self.holds(*id, seen.number) {
                let selected = selected.entry(rule.subscription).or_default();
                selected.fail(*id, "the rule cannot be read by this version of the server");
            }
        }
        self.evaluate(seen, evaluation, &mut selected)?;
        Ok(selected)
    }

    fn evaluate(
        &self,
        seen: &Seen<'_>,
        evaluation: &mut Evaluation,
        selected: &mut BTreeMap<Incarnation, Selected>,
    ) -> Result<(), OutOfSteps> {
        let Compiled {
            filters, actions, ..
        } = &*self.compiled;
        let message = seen.message;
        let mut properties = 0u32;
        message.visit_user(&mut |_, _| properties = properties.saturating_add(1));
        let ids = |id: RuleId, nth: u32| {
            let of = self.rules.get(id).map(|rule| rule.subscription);
            (seen.ids)(of.unwrap_or_default(), id, nth)
        };
        filters.begin(message, &mut evaluation.matches);
        let steps = filters.go_on(
            message,
            &ids,
            evaluation.steps_left,
            &mut evaluation.matches,
        );
        evaluation.spend(steps);
        if !evaluation.matches.is_done() {
            return Err(OutOfSteps);
        }
        for (id, error) in evaluation.matches.failed() {
            if let Some(rule) = self.holds(*id, seen.number) {
                selected
                    .entry(rule.subscription)
                    .or_default()
                    .fail(*id, error);
            }
        }
        // The evaluation of actions needs the rest of it.
        let matches = std::mem::take(&mut evaluation.matches);
        for id in matches.matching() {
            let Some(rule) = self.holds(*id, seen.number) else {
                continue;
            };
            let selected = selected.entry(rule.subscription).or_default();
            let Some(action) = actions.get(id) else {
                selected.is_plain = true;
                continue;
            };
            evaluation.check()?;
            let ids = |nth| ids(*id, nth);
            let (changes, steps) = changes_of_copy(&rule.name, action, message, &ids);
            evaluation.spend(steps);
            match changes {
                Ok(changes) => match seen.format.made_by(&changes) {
                    Ok(made) => {
                        // So that many changes are refused before they fill the memory.
                        let bytes = u32::try_from(made.overlay.len()).unwrap_or(u32::MAX);
                        evaluation.spend(bytes / 64);
                        selected.made.push(made);
                    }
                    Err(unfit) => selected.fail(*id, unfit),
                },
                Err(error) => selected.fail(*id, error),
            }
        }
        evaluation.matches = matches;
        // They count for the messages after this one, or a message with very many could never be compared.
        let further = properties.saturating_sub(PROPERTIES_READ);
        evaluation.spend(further.saturating_mul(PROPERTY_STEPS));
        Ok(())
    }
}
