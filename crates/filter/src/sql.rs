//! SQL filters.

use crate::error::{EvaluationError, SyntaxError};
use crate::evaluate::Run;
use crate::message::{Message, NewIds};
use crate::syntax::tree::Predicate;
use crate::syntax::{Parameters, parse_filter};

/// A condition on the properties of a message, written in a subset of SQL.
///
/// Source: Service Bus, *Subscription Rule SQL Filter Syntax*.
#[derive(Clone, Debug, PartialEq)]
pub struct SqlFilter {
    text: Box<str>,
    predicate: Predicate,
}

impl SqlFilter {
    /// Reads the text of a filter, with the values of its parameters. Refuses what the grammar does not allow, and a text
    /// beyond the [limits](crate::limits).
    pub fn parse(text: &str, parameters: &Parameters) -> Result<Self, SyntaxError> {
        Ok(Self {
            predicate: parse_filter(text, parameters)?,
            text: text.into(),
        })
    }

    /// The text, as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the filter selects the message. It does not if the condition is unknown.
    pub fn matches<M: Message + ?Sized>(
        &self,
        message: &M,
        ids: &dyn NewIds,
    ) -> Result<bool, EvaluationError> {
        Run::new(message, ids).selects(&self.predicate)
    }

    /// The same, with the number of steps that it took: [`STEPS_MAX`](crate::limits::STEPS_MAX) at most if it succeeds.
    pub fn matches_counting<M: Message + ?Sized>(
        &self,
        message: &M,
        ids: &dyn NewIds,
    ) -> (Result<bool, EvaluationError>, u32) {
        let mut run = Run::new(message, ids);
        let selects = run.selects(&self.predicate);
        (selects, run.steps())
    }

    pub(crate) fn predicate(&self) -> &Predicate {
        &self.predicate
    }
}
