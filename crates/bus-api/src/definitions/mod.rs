//! Rules of subscriptions in the forms that clients send and read: maps and described lists over AMQP, elements of ATOM
//! documents over HTTP. Both forms become a [`Definition`], and both are written from one.
//!
//! - `amqp`: maps in, described lists out;
//! - `atom`: elements, both ways; `value`: typed values in them.

pub(crate) mod amqp;
pub(crate) mod atom;
mod value;

use std::collections::BTreeSet;

use kew_engine::bus::NewRule;
use kew_filter::{
    CorrelationFilter, Definition, Equality, FilterDefinition, OwnedValue, SqlDefinition,
};
use thiserror::Error;

/// The rule that a subscription is created with, unless its creator names another.
pub(crate) const DEFAULT_RULE: &str = "$Default";

/// The level that the service shows if a rule's creator named none.
const COMPATIBILITY_LEVEL: u32 = 20;

/// How many characters of a value an error shows.
const SHOWN_LENGTH_MAX: usize = 64;

/// How many system properties a correlation filter can name.
const SYSTEM_COUNT: usize = CorrelationFilter::SYSTEM.len();

/// Why a description is no rule.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub(crate) struct BadRule(String);

impl BadRule {
    fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// A condition of a correlation filter that no such filter has: a misspelled name would select all messages.
fn unknown_condition(name: &str, known: &[&str]) -> BadRule {
    let shown: String = name.chars().take(SHOWN_LENGTH_MAX).collect();
    BadRule(format!(
        "the correlation filter has the unknown property {shown:?}: it can have {}, or properties for those of the \
         application",
        known.join(", ")
    ))
}

/// The conditions of a correlation filter. Earlier versions took one without any, which selects all messages.
///
/// Source: the schema of the service's emulator and Kew's command line want one at least; what the service does is not
/// documented.
fn conditions(equalities: Vec<Equality>) -> Result<FilterDefinition, BadRule> {
    match equalities.is_empty() {
        false => Ok(FilterDefinition::Correlation(equalities)),
        true => Err(BadRule::new(
            "the correlation filter has no property with a value, and would select all messages: use a true filter for that",
        )),
    }
}

/// A new rule with this name. It gives a parameter once, also if it replaces a stored rule that gives it twice: an import
/// leaves out what does not count. A filter with a wrong text is refused later, by the broker, and so is a name that is
/// too long.
///
/// Source: .NET's administration client refuses the same characters in names.
fn rule(
    name: &str,
    filter: FilterDefinition,
    action: Option<SqlDefinition>,
) -> Result<NewRule, BadRule> {
    let is_forbidden = |c: char| c.is_control() || "/\\@?#".contains(c);
    if let Some(forbidden) = name.chars().find(|c| is_forbidden(*c)) {
        return Err(BadRule(format!(
            "the name of a rule cannot have the character {forbidden:?}"
        )));
    }
    let definition = Definition::new(filter, action);
    Ok(NewRule {
        name: name.into(),
        definition: definition.map_err(|error| BadRule(error.to_string()))?,
    })
}

/// Named values of a filter or an action, in the given order. A name is there once.
#[derive(Default)]
struct Properties {
    all: Vec<(Box<str>, OwnedValue)>,
    names: BTreeSet<Box<str>>,
}

impl Properties {
    /// None so far. Refuses too many before they are read.
    fn with_room_for(count: usize, max: usize) -> Result<Self, BadRule> {
        match count <= max {
            true => Ok(Self::default()),
            false => Err(BadRule(format!(
                "a filter or an action has {count} properties or parameters, the maximum is {max}"
            ))),
        }
    }

    fn add(&mut self, name: &str, value: OwnedValue) -> Result<(), BadRule> {
        if !self.names.insert(name.into()) {
            return Err(BadRule(format!("the property {name:?} is there twice")));
        }
        self.all.push((name.into(), value));
        Ok(())
    }

    fn into_equalities(self) -> impl Iterator<Item = Equality> {
        let all = self.all.into_iter();
        all.map(|(name, value)| Equality::User { name, value })
    }
}

/// The level of a filter or an action, as it is shown.
fn level_of(sql: &SqlDefinition) -> u32 {
    sql.compatibility_level.unwrap_or(COMPATIBILITY_LEVEL)
}
