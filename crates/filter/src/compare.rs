//! How two values compare, and the logic of three values.

use std::cmp::Ordering;

use crate::number::Number;
use crate::value::Value;

/// What a predicate is. Only `True` selects a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It depends on a property that does not exist, or compares values that do not compare.
    Unknown,
}

impl Truth {
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Truth::True } else { Truth::False }
    }

    pub(crate) fn not(self) -> Self {
        match self {
            Truth::True => Truth::False,
            Truth::False => Truth::True,
            Truth::Unknown => Truth::Unknown,
        }
    }

    pub(crate) fn not_if(self, is_negated: bool) -> Self {
        if is_negated { self.not() } else { self }
    }
}

/// An operator between two expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// How two values relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// By an order.
    Ordered(Ordering),
    /// Their type has an equality, and no order.
    Unordered(bool),
    /// They have an order in which no operator but `<>` holds: one is `null` or not a number, or, if `true`, both are `null`.
    Apart(bool),
    /// C# has no operator for their types.
    None,
}

/// The outcome of a comparison.
///
/// Source: *Operator binding semantics* (C#): numbers of different types compare by value, two `null` are equal, and an
/// order with `null` does not hold. Types that C# does not compare give unknown, so no operator selects the message.
#[inline]
pub(crate) fn compare(left: Value<'_>, operator: Comparison, right: Value<'_>) -> Truth {
    match relation(left, right) {
        Relation::Ordered(order) => Truth::of(match operator {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }),
        Relation::Unordered(is_equal) => match operator {
            Comparison::Equal => Truth::of(is_equal),
            Comparison::NotEqual => Truth::of(!is_equal),
            Comparison::Less
            | Comparison::LessOrEqual
            | Comparison::Greater
            | Comparison::GreaterOrEqual => Truth::Unknown,
        },
        Relation::Apart(is_equal) => Truth::of(match operator {
            Comparison::Equal => is_equal,
            Comparison::NotEqual => !is_equal,
            Comparison::Less
            | Comparison::LessOrEqual
            | Comparison::Greater
            | Comparison::GreaterOrEqual => false,
        }),
        Relation::None => Truth::Unknown,
    }
}

#[inline]
fn relation(left: Value<'_>, right: Value<'_>) -> Relation {
    match (left, right) {
        (Value::Text(left) | Value::Symbol(left), Value::Text(right) | Value::Symbol(right)) => {
            Relation::Ordered(left.cmp(right))
        }
        (Value::Long(left), Value::Long(right)) => Relation::Ordered(left.cmp(&right)),
        (Value::Null, Value::Null) => Relation::Apart(true),
        (Value::Null, _) | (_, Value::Null) => Relation::Apart(false),
        (Value::Boolean(left), Value::Boolean(right)) => Relation::Unordered(left == right),
        (Value::Uuid(left), Value::Uuid(right)) => Relation::Unordered(left == right),
        (Value::Binary(left), Value::Binary(right)) => Relation::Unordered(left == right),
        (Value::Timestamp(left), Value::Timestamp(right))
        | (Value::Duration(left), Value::Duration(right)) => Relation::Ordered(left.cmp(&right)),
        (Value::Char(left), Value::Char(right)) => Relation::Ordered(left.cmp(&right)),
        (Value::Char(left), Value::Text(right) | Value::Symbol(right)) => Relation::Ordered(
            left.encode_utf8(&mut [0; 4])
                .as_bytes()
                .cmp(right.as_bytes()),
        ),
        (Value::Text(left) | Value::Symbol(left), Value::Char(right)) => Relation::Ordered(
            left.as_bytes()
                .cmp(right.encode_utf8(&mut [0; 4]).as_bytes()),
        ),
        (left, right) => match (Number::of(left), Number::of(right)) {
            (Some(left), Some(right)) => relation_of_numbers(left, right),
            (Some(_) | None, None) | (None, Some(_)) => Relation::None,
        },
    }
}

/// Integers and decimals compare exactly, and with a float or double as doubles.
fn relation_of_numbers(left: Number, right: Number) -> Relation {
    use Number::{Decimal, Double, Integer, Single};
    let exact = match (left, right) {
        (Integer(left, _), Integer(right, _)) => Some(left.cmp(&right)),
        (Decimal(left), Decimal(right)) => Some(left.order(right)),
        (Integer(left, _), Decimal(right)) => {
            Some(crate::decimal::Decimal::of_integer(left).order(right))
        }
        (Decimal(left), Integer(right, _)) => {
            Some(left.order(crate::decimal::Decimal::of_integer(right)))
        }
        (Single(_) | Double(_), _) | (_, Single(_) | Double(_)) => {
            left.to_double().partial_cmp(&right.to_double())
        }
    };
    exact.map_or(Relation::Apart(false), Relation::Ordered)
}

/// What it takes to compare two values beside the step of the comparison: texts and bytes may be long.
#[inline]
pub(crate) fn steps_to_compare(left: Value<'_>, right: Value<'_>) -> u32 {
    match (left, right) {
        (Value::Text(left) | Value::Symbol(left), Value::Text(right) | Value::Symbol(right)) => {
            steps_of(left.len().min(right.len()))
        }
        (Value::Binary(left), Value::Binary(right)) => steps_of(left.len().min(right.len())),
        _ => 0,
    }
}

/// What it takes to look at so many bytes.
#[inline]
pub(crate) fn steps_of(bytes: usize) -> u32 {
    u32::try_from(bytes / 64).unwrap_or(u32::MAX)
}
