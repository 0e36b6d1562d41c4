//! Operators between values, with the types that C# gives their results.

use crate::error::Fault;
use crate::limits::MADE_TEXT_BYTES_MAX;
use crate::number::{Integer, Number};
use crate::value::Value;

/// An operator of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    pub(crate) fn sign(self) -> char {
        match self {
            Operator::Add => '+',
            Operator::Subtract => '-',
            Operator::Multiply => '*',
            Operator::Divide => '/',
            Operator::Remainder => '%',
        }
    }
}

/// What an expression computes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Computed<'v> {
    /// It depends on a property that does not exist.
    Unknown,
    Value(Value<'v>),
    /// A text that the expression made.
    Made(String),
}

impl Computed<'_> {
    #[inline]
    pub(crate) fn value(&self) -> Option<Value<'_>> {
        match self {
            Computed::Unknown => None,
            Computed::Value(value) => Some(*value),
            Computed::Made(text) => Some(Value::Text(text)),
        }
    }
}

const TICKS_PER_MS: i64 = 10_000;

/// The result of an operator. Two texts are joined; a text and a number, too, as in C#.
pub(crate) fn operate(
    left: Value<'_>,
    operator: Operator,
    right: Value<'_>,
) -> Result<Computed<'static>, Fault> {
    if let (Some(left), Some(right)) = (Number::of(left), Number::of(right)) {
        return of_numbers(left, operator, right).map(Computed::Value);
    }
    let is_text = |value: Value<'_>| value.as_text().is_some() || matches!(value, Value::Char(_));
    if operator == Operator::Add && (is_text(left) || is_text(right)) {
        return joined(left, right).map(Computed::Made);
    }
    let of_times = of_times(left, operator, right);
    of_times.map(Computed::Value)
}

fn of_times(
    left: Value<'_>,
    operator: Operator,
    right: Value<'_>,
) -> Result<Value<'static>, Fault> {
    use Operator::{Add, Subtract};
    let overflow = Fault::Overflow {
        operator: operator.sign(),
    };
    let made = match (left, operator, right) {
        // As in C#, no arithmetic with null has a value.
        (Value::Null, _, _) | (_, _, Value::Null) => return Ok(Value::Null),
        (Value::Timestamp(left), Subtract, Value::Timestamp(right)) => left
            .checked_sub(right)
            .and_then(|ms| ms.checked_mul(TICKS_PER_MS))
            .map(Value::Duration),
        (Value::Timestamp(at), Add, Value::Duration(ticks))
        | (Value::Duration(ticks), Add, Value::Timestamp(at)) => at
            .checked_add(ticks.div_euclid(TICKS_PER_MS))
            .map(Value::Timestamp),
        (Value::Timestamp(at), Subtract, Value::Duration(ticks)) => at
            .checked_sub(ticks.div_euclid(TICKS_PER_MS))
            .map(Value::Timestamp),
        (Value::Duration(left), Add, Value::Duration(right)) => {
            left.checked_add(right).map(Value::Duration)
        }
        (Value::Duration(left), Subtract, Value::Duration(right)) => {
            left.checked_sub(right).map(Value::Duration)
        }
        (left, operator, right) => {
            return Err(Fault::NoOperator {
                operator: operator.sign(),
                left: left.type_name(),
                right: right.type_name(),
            });
        }
    };
    made.ok_or(overflow)
}

fn of_numbers(left: Number, operator: Operator, right: Number) -> Result<Value<'static>, Fault> {
    match (left, right) {
        (Number::Integer(left, one), Number::Integer(right, other)) => {
            of_integers(left, operator, right, one.with(other))
        }
        // The type of a float with an integer is float, as in C#.
        (Number::Single(_), Number::Single(_) | Number::Integer(..))
        | (Number::Integer(..), Number::Single(_)) => {
            let made = of_doubles(left.to_double(), operator, right.to_double());
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the nearest float is the result"
            )]
            Ok(Value::Float(made as f32))
        }
        (Number::Double(_) | Number::Decimal(_), _)
        | (_, Number::Double(_) | Number::Decimal(_)) => {
            let made = of_doubles(left.to_double(), operator, right.to_double());
            Ok(Value::Double(made))
        }
    }
}

fn of_doubles(left: f64, operator: Operator, right: f64) -> f64 {
    match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Remainder => left % right,
    }
}

/// Integers are divided towards zero. C# would wrap a result that has no room in its type; here it is an error.
fn of_integers(
    left: i128,
    operator: Operator,
    right: i128,
    integer: Option<Integer>,
) -> Result<Value<'static>, Fault> {
    let made = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide | Operator::Remainder if right == 0 => {
            return Err(Fault::DivisionByZero);
        }
        Operator::Divide => left.checked_div(right),
        Operator::Remainder => left.checked_rem(right),
    };
    let value = made.and_then(|made| match integer {
        Some(integer) => integer.value_of(made),
        None => Integer::Long
            .value_of(made)
            .or_else(|| Integer::Ulong.value_of(made)),
    });
    value.ok_or(Fault::Overflow {
        operator: operator.sign(),
    })
}

/// The value with the other sign. Unsigned integers become signed ones, as in C#.
pub(crate) fn negated(value: Value<'_>) -> Result<Value<'static>, Fault> {
    let overflow = Fault::Overflow { operator: '-' };
    if let Some(number) = Number::of(value) {
        return match number {
            Number::Integer(it, Integer::Int) => Integer::Int.value_of(-it).ok_or(overflow),
            Number::Integer(it, Integer::Uint | Integer::Long | Integer::Ulong) => {
                Integer::Long.value_of(-it).ok_or(overflow)
            }
            Number::Single(it) => Ok(Value::Float(-it)),
            Number::Double(it) => Ok(Value::Double(-it)),
            Number::Decimal(it) => Ok(Value::Decimal(it.negated())),
        };
    }
    match value {
        Value::Null => Ok(Value::Null),
        Value::Duration(ticks) => ticks.checked_neg().map(Value::Duration).ok_or(overflow),
        other => Err(Fault::NoSign {
            operator: '-',
            of: other.type_name(),
        }),
    }
}

/// What `+` before a value gives: the value, if it has a sign.
pub(crate) fn with_plus(value: Value<'_>) -> Result<(), Fault> {
    match value {
        Value::Null | Value::Duration(_) => Ok(()),
        other if Number::of(other).is_some() => Ok(()),
        other => Err(Fault::NoSign {
            operator: '+',
            of: other.type_name(),
        }),
    }
}

fn joined(left: Value<'_>, right: Value<'_>) -> Result<String, Fault> {
    let mut made = String::new();
    for value in [left, right] {
        match value {
            Value::Text(text) | Value::Symbol(text) => {
                if made.len() + text.len() > MADE_TEXT_BYTES_MAX {
                    return Err(Fault::TextTooLong);
                }
                made.push_str(text);
            }
            Value::Char(character) => made.push(character),
            // As in C#, where the text of null is empty.
            Value::Null => {}
            Value::Boolean(it) => made.push_str(if it { "True" } else { "False" }),
            other => match Number::of(other) {
                Some(Number::Integer(it, _)) => made.push_str(&it.to_string()),
                Some(Number::Single(_) | Number::Double(_) | Number::Decimal(_)) | None => {
                    return Err(Fault::NoOperator {
                        operator: '+',
                        left: left.type_name(),
                        right: right.type_name(),
                    });
                }
            },
        }
    }
    match made.len() > MADE_TEXT_BYTES_MAX {
        true => Err(Fault::TextTooLong),
        false => Ok(made),
    }
}
