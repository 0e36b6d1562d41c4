//! A rule as it is stored: what its creator wrote, as bytes that every later version reads.
//!
//! A definition keeps what an SDK shows again: the spelling of names and the types of values, and also what has no effect
//! here, such as the compatibility level. It is checked when it is made, and compiled when it is used. Equal definitions
//! have equal bytes, although filters have floating-point numbers.

mod codec;

use thiserror::Error;

use crate::action::Action;
use crate::correlation::CorrelationFilter;
use crate::error::SyntaxError;
use crate::limits::{DEFINITION_BYTES_MAX, EQUALITIES_MAX, PARAMETERS_MAX};
use crate::message::{SystemProperty, same_parameter};
use crate::rule::Filter;
use crate::sql::SqlFilter;
use crate::syntax::Parameters;
use crate::value::{OwnedValue, Value};

pub use codec::DecodeError;

/// A filter and an action, as they were written.
#[derive(Clone, Debug)]
pub struct Definition {
    filter: FilterDefinition,
    action: Option<SqlDefinition>,
    bytes: Box<[u8]>,
}

/// A filter, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterDefinition {
    /// The true filter.
    True,
    /// The false filter.
    False,
    /// The equalities of a correlation filter.
    Correlation(Vec<Equality>),
    /// The text of an SQL filter.
    Sql(SqlDefinition),
}

/// A condition of a correlation filter.
#[derive(Clone, Debug, PartialEq)]
pub enum Equality {
    /// An application property has this value.
    User {
        /// Its name, as it is spelled.
        name: Box<str>,
        /// The value.
        value: OwnedValue,
    },
    /// A system property, one of [`CorrelationFilter::SYSTEM`], is this text.
    System {
        /// Which one.
        property: SystemProperty,
        /// The text.
        text: Box<str>,
    },
}

/// The text of a filter or an action, with its parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SqlDefinition {
    /// The text.
    pub text: Box<str>,
    /// The parameters with their values, in the given order. Of two with one name, which earlier versions took, the later one
    /// counts.
    pub parameters: Vec<(Box<str>, OwnedValue)>,
    /// The level that the creator named. It is shown again, and has no effect.
    pub compatibility_level: Option<u32>,
}

/// A rule that cannot be stored.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DefinitionError {
    /// Its bytes are too many.
    #[error("the rule takes {size_bytes} bytes, the maximum is {DEFINITION_BYTES_MAX}")]
    TooLarge {
        /// How many.
        size_bytes: usize,
    },
    /// A correlation filter with too many properties.
    #[error("the correlation filter has {count} properties, the maximum is {EQUALITIES_MAX}")]
    TooManyEqualities {
        /// How many.
        count: usize,
    },
    /// A text with too many parameters.
    #[error("the rule has {count} parameters, the maximum is {PARAMETERS_MAX}")]
    TooManyParameters {
        /// How many.
        count: usize,
    },
    /// Two values for one parameter.
    #[error("the parameter {name:?} is given twice: its name is the same in upper and lower case")]
    RepeatedParameter {
        /// The later one of the two.
        name: String,
    },
    /// A value of a type that compares with nothing.
    #[error("the value of {name:?} is a list, a map or another type that a rule cannot compare")]
    NotComparable {
        /// The property or the parameter.
        name: String,
    },
    /// A system property that correlation filters do not have.
    #[error("a correlation filter cannot name sys.{name}")]
    NotCorrelated {
        /// Its name.
        name: &'static str,
    },
}

/// A definition whose text is not a filter or an action.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CompileError {
    /// The filter's text is wrong.
    #[error("the filter is not valid: {0}")]
    Filter(SyntaxError),
    /// The action's text is wrong.
    #[error("the action is not valid: {0}")]
    Action(SyntaxError),
}

impl Definition {
    /// The definition of a new rule. Its texts are not read: see [`compile`](Self::compile).
    pub fn new(
        filter: FilterDefinition,
        action: Option<SqlDefinition>,
    ) -> Result<Self, DefinitionError> {
        let new = Self::stored(filter, action)?;
        if let FilterDefinition::Sql(sql) = &new.filter {
            check_names(sql)?;
        }
        new.action.as_ref().map_or(Ok(()), check_names)?;
        Ok(new)
    }

    /// The definition of a rule that is stored already. Earlier versions took rules that [`new`](Self::new) refuses: they gave
    /// a parameter twice.
    pub fn stored(
        filter: FilterDefinition,
        action: Option<SqlDefinition>,
    ) -> Result<Self, DefinitionError> {
        match &filter {
            FilterDefinition::True | FilterDefinition::False => {}
            FilterDefinition::Correlation(all) => check_equalities(all)?,
            FilterDefinition::Sql(sql) => check_parameters(sql)?,
        }
        action.as_ref().map_or(Ok(()), check_parameters)?;
        let bytes = codec::encode(&filter, action.as_ref());
        if bytes.len() > DEFINITION_BYTES_MAX {
            let size_bytes = bytes.len();
            return Err(DefinitionError::TooLarge { size_bytes });
        }
        Ok(Self {
            filter,
            action,
            bytes: bytes.into(),
        })
    }

    /// The definition with these [`bytes`](Self::bytes), of this version or an earlier one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > DEFINITION_BYTES_MAX {
            return Err(DecodeError::TooLarge(bytes.len()));
        }
        let (filter, action) = codec::decode(bytes)?;
        Self::stored(filter, action).map_err(DecodeError::Refused)
    }

    /// Its stored form.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The filter.
    pub fn filter(&self) -> &FilterDefinition {
        &self.filter
    }

    /// The action.
    pub fn action(&self) -> Option<&SqlDefinition> {
        self.action.as_ref()
    }

    /// Reads the texts.
    pub fn compile(&self) -> Result<(Filter, Option<Action>), CompileError> {
        let filter = match &self.filter {
            FilterDefinition::True => Filter::True,
            FilterDefinition::False => Filter::False,
            FilterDefinition::Correlation(all) => {
                let start = CorrelationFilter::default();
                let filter = all.iter().fold(start, |filter, equality| match equality {
                    Equality::User { name, value } => filter.user(name, value.clone()),
                    Equality::System { property, text } => filter.system(*property, text),
                });
                Filter::Correlation(filter)
            }
            FilterDefinition::Sql(sql) => {
                let filter = SqlFilter::parse(&sql.text, &parameters_of(sql));
                Filter::Sql(filter.map_err(CompileError::Filter)?)
            }
        };
        let action = self.action.as_ref().map(|sql| {
            let action = Action::parse(&sql.text, &parameters_of(sql));
            action.map_err(CompileError::Action)
        });
        Ok((filter, action.transpose()?))
    }
}

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Definition {}

fn parameters_of(sql: &SqlDefinition) -> Parameters {
    let mut parameters = Parameters::default();
    for (name, value) in &sql.parameters {
        parameters.set(name, value.clone());
    }
    parameters
}

fn check_equalities(all: &[Equality]) -> Result<(), DefinitionError> {
    if all.len() > EQUALITIES_MAX {
        let count = all.len();
        return Err(DefinitionError::TooManyEqualities { count });
    }
    for equality in all {
        match equality {
            Equality::User { name, value } => check_value(name, value)?,
            Equality::System { property, .. } => {
                if !CorrelationFilter::SYSTEM.contains(property) {
                    let name = property.name();
                    return Err(DefinitionError::NotCorrelated { name });
                }
            }
        }
    }
    Ok(())
}

fn check_parameters(sql: &SqlDefinition) -> Result<(), DefinitionError> {
    if sql.parameters.len() > PARAMETERS_MAX {
        let count = sql.parameters.len();
        return Err(DefinitionError::TooManyParameters { count });
    }
    let mut all = sql.parameters.iter();
    all.try_for_each(|(name, value)| check_value(name, value))
}

/// Only for a new definition: earlier versions took two of one name.
fn check_names(sql: &SqlDefinition) -> Result<(), DefinitionError> {
    let mut rest = sql.parameters.as_slice();
    while let [(name, _), later @ ..] = rest {
        if let Some((again, _)) = later.iter().find(|(it, _)| same_parameter(it, name)) {
            let name = (**again).into();
            return Err(DefinitionError::RepeatedParameter { name });
        }
        rest = later;
    }
    Ok(())
}

fn check_value(name: &str, value: &OwnedValue) -> Result<(), DefinitionError> {
    match value.as_value() {
        Value::Other => Err(DefinitionError::NotComparable { name: name.into() }),
        _ => Ok(()),
    }
}
