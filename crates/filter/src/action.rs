//! SQL actions: what a rule changes in its copy of a message.

use std::cell::Cell;

use crate::arithmetic::Computed;
use crate::duration::ticks_of;
use crate::error::{EvaluationError, Fault, SyntaxError, beginning_of};
use crate::evaluate::Run;
use crate::limits::STEPS_MAX;
use crate::message::{Message, NewIds, SystemProperty};
use crate::message::{Settable, same_name};
use crate::number::Number;
use crate::syntax::tree::{Property, Statement};
use crate::syntax::{Parameters, parse_action};
use crate::value::{OwnedValue, Value};

/// Statements that set and remove properties, one after the other.
///
/// Source: Service Bus, *Subscription Rule SQL Action Syntax*.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    text: Box<str>,
    statements: Vec<Statement>,
}

/// A property that an action changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An application property, by the name that the message gives it.
    User(Box<str>),
    /// A system property.
    System(SystemProperty),
}

/// A change of one property.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The property.
    pub target: Target,
    /// Its new value. `None` removes it.
    pub to: Option<OwnedValue>,
}

impl Action {
    /// Reads the text of an action, with the values of its parameters.
    pub fn parse(text: &str, parameters: &Parameters) -> Result<Self, SyntaxError> {
        Ok(Self {
            statements: parse_action(text, parameters)?,
            text: text.into(),
        })
    }

    /// The text, as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What the action changes in a message: each property once, in the order of the first statement that names it.
    ///
    /// A statement sees what earlier ones have changed. It changes nothing if its value is unknown.
    pub fn changes<M: Message + ?Sized>(
        &self,
        message: &M,
        ids: &dyn NewIds,
    ) -> Result<Vec<Change>, EvaluationError> {
        self.changes_counting(message, ids).0
    }

    /// The same, with the number of steps that it took: one for each statement and for eight names that it compared, and
    /// those of its expressions. They are [`STEPS_MAX`] at most if it succeeds.
    pub fn changes_counting<M: Message + ?Sized>(
        &self,
        message: &M,
        ids: &dyn NewIds,
    ) -> (Result<Vec<Change>, EvaluationError>, u32) {
        let names = Cell::new(0);
        let mut run = Run::new(message, ids);
        let mut changes = Vec::new();
        let mut steps = 0u32;
        for (statement, count) in self.statements.iter().zip(1u32..) {
            let seen = Changed {
                message,
                changes: &changes,
                names: &names,
            };
            let mut of_statement = run.on(&seen);
            let change = change_of(statement, &seen, &mut of_statement);
            run.after(&of_statement);
            let compared = names.get() / NAMES_PER_STEP;
            steps = run.steps().saturating_add(count).saturating_add(compared);
            match change {
                Ok(_) if steps > STEPS_MAX => {
                    return (Err(fault_of(statement)(Fault::TooManySteps)), steps);
                }
                Ok(Some(change)) => put(&mut changes, change),
                Ok(None) => {}
                Err(error) => return (Err(error), steps),
            }
        }
        (Ok(changes), steps)
    }
}

/// How many names of properties an action compares in one step.
const NAMES_PER_STEP: u32 = 8;

fn fault_of(statement: &Statement) -> impl Fn(Fault) -> EvaluationError {
    let column = statement.column.into();
    move |fault| EvaluationError { column, fault }
}

fn change_of<'v, M: Message + ?Sized>(
    statement: &'v Statement,
    seen: &'v Changed<'_, M>,
    run: &mut Run<'v, Changed<'_, M>>,
) -> Result<Option<Change>, EvaluationError> {
    let fault = fault_of(statement);
    let target = match &statement.property {
        Property::User(name) => Target::User(seen.spelled(name)),
        Property::System(system) => Target::System(*system),
    };
    let Some(expression) = &statement.to else {
        return Ok(Some(Change { target, to: None }));
    };
    let computed = run.value(expression)?;
    let value = match &computed {
        Computed::Unknown => return Ok(None),
        Computed::Value(value) => *value,
        Computed::Made(text) => Value::Text(text),
    };
    let to = match &target {
        Target::System(system) => set_system(*system, value).map_err(fault)?,
        Target::User(name) => Some(match seen.user(name) {
            Some(existing) => converted(value, existing).to_owned(),
            None => value.to_owned(),
        }),
    };
    Ok(Some(Change { target, to }))
}

/// A system property has one type. Null removes it, and a text or a uuid is converted.
///
/// Source: azure-service-bus, issue 180: *a string literal will be converted to a type based on the property being
/// modified*; issue 196: `SET sys.SessionId = newid()`.
fn set_system(property: SystemProperty, value: Value<'_>) -> Result<Option<OwnedValue>, Fault> {
    let refused = |allowed| Fault::CannotSet {
        name: property.name(),
        found: value.type_name(),
        allowed,
    };
    if value == Value::Null {
        return Ok(None);
    }
    match (property.settable(), value) {
        (Some(Settable::Text), Value::Char(character)) => {
            Ok(Some(OwnedValue::Text(character.to_string().into())))
        }
        (Some(Settable::Text), Value::Uuid(id)) => Ok(Some(OwnedValue::Text(text_of(id).into()))),
        (Some(Settable::Text), value) => match value.as_text() {
            Some(text) => Ok(Some(OwnedValue::Text(text.into()))),
            None => Err(refused("a text or NULL")),
        },
        (Some(Settable::Duration), Value::Duration(_))
        | (Some(Settable::Timestamp), Value::Timestamp(_)) => Ok(Some(value.to_owned())),
        (Some(Settable::Duration), Value::Text(text) | Value::Symbol(text)) => {
            let ticks = ticks_of(text).ok_or_else(|| Fault::NotADuration {
                text: beginning_of(text),
            })?;
            Ok(Some(OwnedValue::Plain(Value::Duration(ticks))))
        }
        (Some(Settable::Duration), _) => Err(refused("a duration, its text or NULL")),
        (Some(Settable::Timestamp), _) => Err(refused("a timestamp or NULL")),
        // The parser refuses those that cannot be set.
        (None, _) => Err(refused("nothing")),
    }
}

/// The value in the type of the existing one, if that type can express it.
///
/// Source: *SET performs implicit conversion if possible when the expression type and the existing property type are
/// different*.
fn converted<'v>(value: Value<'v>, existing: Value<'_>) -> Value<'v> {
    let Some(number) = Number::of(value) else {
        return match (value, existing) {
            (Value::Text(text), Value::Symbol(_)) if text.is_ascii() => Value::Symbol(text),
            (Value::Symbol(text), Value::Text(_)) => Value::Text(text),
            (Value::Text(text), Value::Duration(_)) => {
                ticks_of(text).map_or(value, Value::Duration)
            }
            (value, _) => value,
        };
    };
    let whole = whole_of(number);
    let made = match existing {
        Value::Byte(_) => whole.and_then(|it| it.try_into().ok()).map(Value::Byte),
        Value::Short(_) => whole.and_then(|it| it.try_into().ok()).map(Value::Short),
        Value::Int(_) => whole.and_then(|it| it.try_into().ok()).map(Value::Int),
        Value::Long(_) => whole.and_then(|it| it.try_into().ok()).map(Value::Long),
        Value::Ubyte(_) => whole.and_then(|it| it.try_into().ok()).map(Value::Ubyte),
        Value::Ushort(_) => whole.and_then(|it| it.try_into().ok()).map(Value::Ushort),
        Value::Uint(_) => whole.and_then(|it| it.try_into().ok()).map(Value::Uint),
        Value::Ulong(_) => whole.and_then(|it| it.try_into().ok()).map(Value::Ulong),
        Value::Float(_) => single_of(number.to_double()).map(Value::Float),
        Value::Double(_) => Some(Value::Double(number.to_double())),
        Value::Null
        | Value::Boolean(_)
        | Value::Decimal(_)
        | Value::Char(_)
        | Value::Timestamp(_)
        | Value::Duration(_)
        | Value::Uuid(_)
        | Value::Binary(_)
        | Value::Text(_)
        | Value::Symbol(_)
        | Value::Other => None,
    };
    made.unwrap_or(value)
}

/// The text of a uuid: five groups of digits.
fn text_of(id: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in id.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for half in [byte >> 4, byte & 0xF] {
            text.extend(char::from_digit(half.into(), 16));
        }
    }
    text
}

/// An integer that is exactly the number.
fn whole_of(number: Number) -> Option<i128> {
    match number {
        Number::Integer(it, _) => Some(it),
        Number::Single(_) | Number::Double(_) => {
            let double = number.to_double();
            let is_whole = double.fract() == 0.0 && double.abs() < 1e19;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "it is whole and far smaller than an i128"
            )]
            is_whole.then_some(double as i128)
        }
        Number::Decimal(_) => None,
    }
}

/// The nearest float, unless the number is too large for one.
fn single_of(double: f64) -> Option<f32> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the nearest float is wanted"
    )]
    let single = double as f32;
    (single.is_finite() || !double.is_finite()).then_some(single)
}

/// A later change of a property replaces an earlier one.
fn put(changes: &mut Vec<Change>, change: Change) {
    match changes.iter_mut().find(|it| it.target == change.target) {
        Some(earlier) => *earlier = change,
        None => changes.push(change),
    }
}

/// A message with changes.
struct Changed<'m, M: ?Sized> {
    message: &'m M,
    changes: &'m [Change],
    /// How many names were compared.
    names: &'m Cell<u32>,
}

impl<M: Message + ?Sized> Changed<'_, M> {
    /// The name as the message or an earlier change spells it.
    fn spelled(&self, name: &str) -> Box<str> {
        let mut found: Option<Box<str>> = None;
        let mut look = |spelled: &str| {
            self.names.set(self.names.get().saturating_add(1));
            if spelled == name || (found.is_none() && same_name(spelled, name)) {
                found = Some(spelled.into());
            }
        };
        self.message.visit_user(&mut |spelled, _| look(spelled));
        for change in self.changes {
            if let Target::User(spelled) = &change.target {
                look(spelled);
            }
        }
        found.unwrap_or_else(|| name.into())
    }
}

impl<M: Message + ?Sized> Message for Changed<'_, M> {
    fn user(&self, name: &str) -> Option<Value<'_>> {
        if self.changes.is_empty() {
            return self.message.user(name);
        }
        let name = self.spelled(name);
        let changed = self
            .changes
            .iter()
            .find(|it| matches!(&it.target, Target::User(target) if *target == name));
        match changed {
            Some(change) => change.to.as_ref().map(OwnedValue::as_value),
            None => self.message.user(&name),
        }
    }

    fn system(&self, property: SystemProperty) -> Value<'_> {
        let changed = self
            .changes
            .iter()
            .find(|it| it.target == Target::System(property));
        match changed {
            Some(change) => change.to.as_ref().map_or(Value::Null, OwnedValue::as_value),
            None => self.message.system(property),
        }
    }

    fn visit_user(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        self.message.visit_user(visit);
    }
}
