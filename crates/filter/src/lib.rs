//! Rules of subscriptions: which messages they select, and what they change in their copies.
//!
//! A [`Filter`] is true, false, a [`CorrelationFilter`] or an [`SqlFilter`]; an [`Action`] changes properties. A text is
//! read once, and refused with the column where it is wrong. An evaluation reads a message through the trait [`Message`],
//! looks at each part of the text at most once, takes no more than [`limits::STEPS_MAX`] steps, and allocates only where
//! a rule joins texts or computes a pattern. A failure is a value, [`EvaluationError`], which can be the reason of a dead
//! letter. A [`RuleSet`] finds the rules of many subscriptions that select a message without evaluating each of them, at
//! once or in parts. A [`Definition`] is a rule as bytes to store.
//!
//! It knows no message on the wire, no topic, no subscription, no clock and no random source: `docs/filters.md` describes
//! the language for its users.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
mod action;
mod arithmetic;
mod compare;
mod correlation;
mod decimal;
mod definition;
mod duration;
mod error;
mod evaluate;
mod index;
#[cfg(test)]
mod layers;
mod like;
pub mod limits;
mod message;
mod number;
mod rule;
mod sql;
mod syntax;
mod value;

pub use action::{Action, Change, Target};
pub use correlation::CorrelationFilter;
pub use decimal::Decimal;
pub use definition::{
    CompileError, DecodeError, Definition, DefinitionError, Equality, FilterDefinition,
    SqlDefinition,
};
pub use error::{EvaluationError, Fault, Problem, SyntaxError};
pub use index::{Matches, RuleId, RuleIds, RuleSet};
pub use message::{
    Message, NewIds, SystemProperty, parameters_that_count, same_name, same_parameter,
};
pub use rule::{Copy, Failed, Filter, RULE_NAME, Rule, changes_of_copy, copies};
pub use sql::SqlFilter;
pub use syntax::Parameters;
pub use value::{OwnedValue, Value};
