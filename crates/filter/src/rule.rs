//! Rules, and the copies of a message that the rules of one subscription make.

use crate::action::{Action, Change, Target};
use crate::correlation::CorrelationFilter;
use crate::error::EvaluationError;
use crate::message::{Message, NewIds};
use crate::sql::SqlFilter;
use crate::value::OwnedValue;

/// The application property that names the rule with an action that made a copy.
///
/// Source: Service Bus, *Topic filters and actions*.
pub const RULE_NAME: &str = "RuleName";

/// Which messages a rule selects.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// All messages.
    True,
    /// No message.
    False,
    /// Messages with equal properties.
    Correlation(CorrelationFilter),
    /// Messages for which a condition holds.
    Sql(SqlFilter),
}

impl Filter {
    /// Whether it selects the message.
    pub fn matches<M: Message + ?Sized>(
        &self,
        message: &M,
        ids: &dyn NewIds,
    ) -> Result<bool, EvaluationError> {
        self.matches_counting(message, ids).0
    }

    /// The same, with the number of steps that it took: none for true and false filters, one for each condition that a
    /// correlation filter looked at, and those of an SQL filter.
    pub fn matches_counting<M: Message + ?Sized>(
        &self,
        message: &M,
        ids: &dyn NewIds,
    ) -> (Result<bool, EvaluationError>, u32) {
        match self {
            Filter::True => (Ok(true), 0),
            Filter::False => (Ok(false), 0),
            Filter::Correlation(filter) => {
                let (matches, steps) = filter.matches_counting(message);
                (Ok(matches), steps)
            }
            Filter::Sql(filter) => filter.matches_counting(message, ids),
        }
    }
}

/// A rule of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name, unique in the subscription.
    pub name: String,
    /// Which messages it selects.
    pub filter: Filter,
    /// What it changes in them.
    pub action: Option<Action>,
}

/// A copy of a message for a subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    /// What differs from the message.
    pub changes: Vec<Change>,
}

/// A rule that failed for a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed<'r> {
    /// Its name.
    pub rule: &'r str,
    /// Why.
    pub error: EvaluationError,
}

/// The copies that the matching rules of one subscription make of a message.
///
/// All rules without an action make one copy together, which comes first. Each rule with an action makes a copy of its
/// own, which has the property `RuleName`, in the order of `matching`. A rule whose action fails makes none.
///
/// Source: Service Bus, *Topic filters and actions*.
pub fn copies<'r, M: Message + ?Sized>(
    message: &M,
    matching: impl IntoIterator<Item = &'r Rule>,
    ids: &dyn NewIds,
) -> (Vec<Copy>, Vec<Failed<'r>>) {
    let mut copies = Vec::new();
    let mut failed = Vec::new();
    let mut has_plain = false;
    for rule in matching {
        let Some(action) = &rule.action else {
            if !has_plain {
                has_plain = true;
                let changes = Vec::new();
                copies.insert(0, Copy { changes });
            }
            continue;
        };
        match changes_of_copy(&rule.name, action, message, ids).0 {
            Ok(changes) => copies.push(Copy { changes }),
            Err(error) => failed.push(Failed {
                rule: &rule.name,
                error,
            }),
        }
    }
    (copies, failed)
}

/// What a rule with an action changes in its copy of a message: what the action does, and [`RULE_NAME`]. The number is how
/// many steps that took ([`Action::changes_counting`]).
pub fn changes_of_copy<M: Message + ?Sized>(
    rule: &str,
    action: &Action,
    message: &M,
    ids: &dyn NewIds,
) -> (Result<Vec<Change>, EvaluationError>, u32) {
    let (changes, steps) = action.changes_counting(message, ids);
    let changes = changes.map(|mut changes| {
        let target = Target::User(RULE_NAME.into());
        changes.retain(|change| change.target != target);
        changes.push(Change {
            target,
            to: Some(OwnedValue::Text(rule.into())),
        });
        changes
    });
    (changes, steps)
}
