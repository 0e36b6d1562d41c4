//! Where a rule can be filed: the equalities without which it selects no message.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::compare::Comparison;
use crate::message::SystemProperty;
use crate::number::Number;
use crate::rule::Filter;
use crate::syntax::tree::{Expression, Predicate, Property};
use crate::value::Value;

/// A property with the hash of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'f> {
    User {
        spelled: &'f str,
        value: u64,
    },
    System {
        property: SystemProperty,
        value: u64,
    },
}

/// The choices that there are for a filter: each is complete, and has several places if the property may have several
/// values. They depend on the filter only. `None` if it selects no message.
pub(super) fn choices_of(filter: &Filter) -> Option<Vec<Vec<Place<'_>>>> {
    match filter {
        Filter::False => None,
        Filter::True => Some(Vec::new()),
        Filter::Correlation(filter) => {
            let conditions = filter.conditions().iter();
            let places = conditions
                .filter_map(|(property, value)| place_of(property, value.as_value()))
                .map(|place| vec![place]);
            Some(places.collect())
        }
        Filter::Sql(filter) => {
            let mut choices = Vec::new();
            choices_in(filter.predicate(), &mut choices);
            Some(choices)
        }
    }
}

/// The equalities of a predicate's chain of `AND`, each with its alternatives. Returns whether what it has read cannot
/// fail, so that it may go on behind it.
fn choices_in<'f>(predicate: &'f Predicate, choices: &mut Vec<Vec<Place<'f>>>) -> bool {
    match predicate {
        Predicate::And(all) => all.iter().all(|part| choices_in(part, choices)),
        Predicate::Compare(left, Comparison::Equal, right) => {
            choices.extend(equality_of(left, right).map(|place| vec![place]));
            is_safe(left) && is_safe(right)
        }
        Predicate::In {
            of: of @ Expression::Property(_),
            list,
            is_negated: false,
        } => {
            let alternatives = list.iter().map(|listed| equality_of(of, listed));
            choices.extend(alternatives.collect::<Option<Vec<_>>>());
            list.iter().all(is_safe)
        }
        other => cannot_fail(other),
    }
}

fn equality_of<'f>(left: &'f Expression, right: &'f Expression) -> Option<Place<'f>> {
    match (left, right) {
        (Expression::Property(property), Expression::Constant(value))
        | (Expression::Constant(value), Expression::Property(property)) => {
            place_of(property, value.as_value())
        }
        (_, _) => None,
    }
}

fn is_safe(expression: &Expression) -> bool {
    match expression {
        Expression::Constant(_) | Expression::Property(_) | Expression::NewId => true,
        Expression::Named(..)
        | Expression::Negated(..)
        | Expression::WithPlus(..)
        | Expression::Chain(..) => false,
    }
}

fn cannot_fail(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::And(all) | Predicate::Or(all) => all.iter().all(cannot_fail),
        Predicate::Not(inner) => cannot_fail(inner),
        Predicate::Compare(left, _, right) => is_safe(left) && is_safe(right),
        Predicate::In { of, list, .. } => is_safe(of) && list.iter().all(is_safe),
        Predicate::IsNull { .. } | Predicate::Exists(_) => true,
        // A long text may take too many steps.
        Predicate::Like(_) => false,
    }
}

fn place_of<'f>(property: &'f Property, value: Value<'_>) -> Option<Place<'f>> {
    let value = hash_of(value)?;
    Some(match property {
        Property::User(name) => Place::User {
            spelled: name,
            value,
        },
        Property::System(property) => Place::System {
            property: *property,
            value,
        },
    })
}

/// Values that are equal have the same hash. `None` for those that are equal to nothing, and for null, which is also the
/// value of a system property that is not set.
pub(super) fn hash_of(value: Value<'_>) -> Option<u64> {
    // Its keys are fixed: the outcome never depends on them, because candidates are evaluated.
    let mut hasher = DefaultHasher::new();
    if let Some(number) = Number::of(value) {
        let double = number.to_double();
        // Zero is equal to zero with another sign.
        let double = if double == 0.0 { 0.0 } else { double };
        (0u8, double.to_bits()).hash(&mut hasher);
        return Some(hasher.finish());
    }
    match value {
        Value::Null | Value::Other => return None,
        Value::Text(text) | Value::Symbol(text) => (1u8, text).hash(&mut hasher),
        Value::Char(character) => {
            (1u8, &*character.encode_utf8(&mut [0; 4])).hash(&mut hasher);
        }
        Value::Boolean(it) => (2u8, it).hash(&mut hasher),
        Value::Timestamp(ms) => (3u8, ms).hash(&mut hasher),
        Value::Duration(ticks) => (4u8, ticks).hash(&mut hasher),
        Value::Uuid(id) => (5u8, id).hash(&mut hasher),
        Value::Binary(bytes) => (6u8, bytes).hash(&mut hasher),
        Value::Byte(_)
        | Value::Short(_)
        | Value::Int(_)
        | Value::Long(_)
        | Value::Ubyte(_)
        | Value::Ushort(_)
        | Value::Uint(_)
        | Value::Ulong(_)
        | Value::Float(_)
        | Value::Double(_)
        | Value::Decimal(_) => return None,
    }
    Some(hasher.finish())
}
