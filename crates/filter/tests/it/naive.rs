//! The language a second time: conditions that are made as trees, written as texts, and evaluated slowly and obviously.
//!
//! It shares nothing with the product. Integers are computed with 128 bits, patterns are tried at every place, and every
//! operator makes a new value.

use kew_filter::{EvaluationError, Fault, OwnedValue, Parameters, Problem, SqlFilter, Value};
use proptest::prelude::*;

use crate::sample::{Sample, ids};

/// A condition.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    Compare(Term, &'static str, Term),
    IsNull(&'static str, bool),
    Exists(&'static str),
    In(Term, Vec<Term>, bool),
    Like(Term, Term, Option<char>, bool),
}

#[derive(Clone, Debug)]
pub(crate) enum Term {
    Constant(Made),
    Property(&'static str),
    Named(Box<Term>),
    Minus(Box<Term>),
    Binary(Box<Term>, char, Box<Term>),
}

/// A value, or that there is none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Made {
    Unknown,
    Null,
    Boolean(bool),
    /// With 32 bits or with 64.
    Integer(i128, u32),
    Double(f64),
    Text(String),
}

const NAMES: [&str; 5] = ["a", "b", "c", "Absent", "name with space"];

// How a tree is written.

fn level(condition: &Condition) -> u8 {
    match condition {
        Condition::Or(..) => 0,
        Condition::And(..) => 1,
        Condition::Not(_) => 2,
        _ => 3,
    }
}

/// With parentheses where the precedence needs them.
pub(crate) fn text_of(condition: &Condition) -> String {
    let inner = |inner: &Condition, needs: u8| match level(inner) < needs {
        true => format!("({})", text_of(inner)),
        false => text_of(inner),
    };
    let not = |is_negated: &bool| if *is_negated { "NOT " } else { "" };
    match condition {
        Condition::And(left, right) => format!("{} AND {}", inner(left, 1), inner(right, 2)),
        Condition::Or(left, right) => format!("{} OR {}", inner(left, 0), inner(right, 1)),
        Condition::Not(negated) => format!("NOT {}", inner(negated, 2)),
        Condition::Compare(left, operator, right) => {
            format!("{} {operator} {}", term(left, 0), term(right, 0))
        }
        Condition::IsNull(name, is_negated) => format!("[{name}] IS {}NULL", not(is_negated)),
        Condition::Exists(name) => format!("exists([{name}])"),
        Condition::In(of, list, is_negated) => {
            let list: Vec<_> = list.iter().map(|it| term(it, 0)).collect();
            format!(
                "{} {}IN ({})",
                term(of, 0),
                not(is_negated),
                list.join(", ")
            )
        }
        Condition::Like(left, pattern, escape, is_negated) => {
            let escape = escape.map_or(String::new(), |it| format!(" escape '{it}'"));
            let (left, pattern) = (term(left, 0), term(pattern, 0));
            format!("{left} {}LIKE {pattern}{escape}", not(is_negated))
        }
    }
}

fn term(it: &Term, needs: u8) -> String {
    let (text, level) = match it {
        Term::Constant(made) => (constant(made), 2),
        Term::Property(name) => (format!("user.\"{name}\""), 2),
        Term::Named(name) => (format!("property({})", term(name, 0)), 2),
        Term::Minus(inner) => (format!("-({})", term(inner, 0)), 2),
        Term::Binary(left, sign @ ('+' | '-'), right) => {
            (format!("{} {sign} {}", term(left, 0), term(right, 1)), 0)
        }
        Term::Binary(left, sign, right) => {
            (format!("{} {sign} {}", term(left, 1), term(right, 2)), 1)
        }
    };
    match level < needs {
        true => format!("({text})"),
        false => text,
    }
}

fn constant(made: &Made) -> String {
    match made {
        Made::Null => "NULL".to_owned(),
        Made::Boolean(it) => it.to_string(),
        Made::Integer(it, _) => it.to_string(),
        Made::Double(it) => format!("{it:?}"),
        Made::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Made::Unknown => panic!("no text is unknown"),
    }
}

// What a tree means.

type Slow<T> = Result<T, &'static str>;

fn property(sample: &[(&str, Made)], name: &str) -> Made {
    let found = sample.iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
    found.map_or(Made::Unknown, |(_, made)| made.clone())
}

/// Whether a message is selected: each part of a chain of AND must be.
fn selects(condition: &Condition, sample: &[(&str, Made)]) -> Slow<bool> {
    match condition {
        Condition::And(left, right) => Ok(selects(left, sample)? && selects(right, sample)?),
        other => Ok(truth(other, sample)? == Some(true)),
    }
}

fn truth(condition: &Condition, sample: &[(&str, Made)]) -> Slow<Option<bool>> {
    Ok(match condition {
        Condition::And(left, right) => match truth(left, sample)? {
            Some(false) => Some(false),
            left => match (left, truth(right, sample)?) {
                (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
        },
        Condition::Or(left, right) => match truth(left, sample)? {
            Some(true) => Some(true),
            left => match (left, truth(right, sample)?) {
                (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
        },
        Condition::Not(inner) => truth(inner, sample)?.map(|it| !it),
        Condition::Compare(left, operator, right) => {
            let left = value(left, sample)?;
            compared(&left, operator, &value(right, sample)?)
        }
        Condition::IsNull(name, is_negated) => {
            let found = property(sample, name);
            Some(matches!(found, Made::Unknown | Made::Null) != *is_negated)
        }
        Condition::Exists(name) => Some(property(sample, name) != Made::Unknown),
        Condition::In(of, list, is_negated) => {
            let of = value(of, sample)?;
            if of == Made::Unknown {
                return Ok(None);
            }
            for listed in list {
                if compared(&of, "=", &value(listed, sample)?) == Some(true) {
                    return Ok(Some(!is_negated));
                }
            }
            Some(*is_negated)
        }
        Condition::Like(left, pattern, escape, is_negated) => {
            let left = value(left, sample)?;
            let pattern = value(pattern, sample)?;
            let pattern = match (&left, pattern) {
                (Made::Unknown, _) | (_, Made::Unknown) => return Ok(None),
                (_, Made::Text(pattern)) => pattern,
                _ => return Err("pattern"),
            };
            let pattern = atoms(&pattern, *escape)?;
            match left {
                Made::Text(text) => {
                    let chars: Vec<char> = text.chars().collect();
                    Some(like(&pattern, &chars) != *is_negated)
                }
                Made::Null => Some(*is_negated),
                _ => None,
            }
        }
    })
}

/// What a pattern consists of.
enum Atom {
    Any,
    One,
    This(char),
}

fn atoms(pattern: &str, escape: Option<char>) -> Slow<Vec<Atom>> {
    let mut atoms = Vec::new();
    let mut chars = pattern.chars();
    while let Some(next) = chars.next() {
        atoms.push(match next {
            _ if Some(next) == escape => Atom::This(chars.next().ok_or("pattern")?),
            '%' => Atom::Any,
            '_' => Atom::One,
            other => Atom::This(other),
        });
    }
    Ok(atoms)
}

fn like(pattern: &[Atom], text: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((Atom::Any, rest)) => (0..=text.len()).any(|from| like(rest, &text[from..])),
        Some((Atom::One, rest)) => !text.is_empty() && like(rest, &text[1..]),
        Some((Atom::This(wanted), rest)) => text.first() == Some(wanted) && like(rest, &text[1..]),
    }
}

fn double(made: &Made) -> Option<f64> {
    match made {
        Made::Integer(it, _) => Some(*it as f64),
        Made::Double(it) => Some(*it),
        _ => None,
    }
}

fn compared(left: &Made, operator: &str, right: &Made) -> Option<bool> {
    let order = match (left, right) {
        (Made::Unknown, _) | (_, Made::Unknown) => return None,
        (Made::Null, _) | (_, Made::Null) => {
            return Some(match operator {
                "=" => left == right,
                "<>" | "!=" => left != right,
                _ => false,
            });
        }
        (Made::Boolean(left), Made::Boolean(right)) => {
            return match operator {
                "=" => Some(left == right),
                "<>" | "!=" => Some(left != right),
                _ => None,
            };
        }
        (Made::Text(left), Made::Text(right)) => left.cmp(right),
        (Made::Integer(left, _), Made::Integer(right, _)) => left.cmp(right),
        (left, right) => {
            let (left, right) = (double(left)?, double(right)?);
            return Some(match operator {
                "=" => left == right,
                "<>" | "!=" => left != right,
                "<" => left < right,
                "<=" => left <= right,
                ">" => left > right,
                _ => left >= right,
            });
        }
    };
    Some(match operator {
        "=" => order.is_eq(),
        "<>" | "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}

fn value(it: &Term, sample: &[(&str, Made)]) -> Slow<Made> {
    Ok(match it {
        Term::Constant(made) => made.clone(),
        Term::Property(name) => property(sample, name),
        Term::Named(name) => match value(name, sample)? {
            Made::Unknown => Made::Unknown,
            Made::Text(name) => property(sample, &name),
            _ => return Err("name"),
        },
        Term::Minus(inner) => match value(inner, sample)? {
            Made::Integer(it, bits) => fitting(-it, bits)?,
            Made::Double(it) => Made::Double(-it),
            it @ (Made::Unknown | Made::Null) => it,
            Made::Boolean(_) | Made::Text(_) => return Err("operator"),
        },
        Term::Binary(left, sign, right) => {
            let left = value(left, sample)?;
            computed(left, *sign, value(right, sample)?)?
        }
    })
}

fn fitting(it: i128, bits: u32) -> Slow<Made> {
    let limit = 1i128 << (bits - 1);
    match (-limit..limit).contains(&it) {
        true => Ok(Made::Integer(it, bits)),
        false => Err("overflow"),
    }
}

fn computed(left: Made, sign: char, right: Made) -> Slow<Made> {
    if left == Made::Unknown || right == Made::Unknown {
        return Ok(Made::Unknown);
    }
    if let (Made::Integer(left, one), Made::Integer(right, other)) = (&left, &right) {
        let bits = *one.max(other);
        return match sign {
            '+' => fitting(left + right, bits),
            '-' => fitting(left - right, bits),
            '*' => fitting(left * right, bits),
            _ if *right == 0 => Err("zero"),
            '/' => fitting(left / right, bits),
            _ => fitting(left % right, bits),
        };
    }
    if let (Some(left), Some(right)) = (double(&left), double(&right)) {
        return Ok(Made::Double(match sign {
            '+' => left + right,
            '-' => left - right,
            '*' => left * right,
            '/' => left / right,
            _ => left % right,
        }));
    }
    let is_text = |made: &Made| matches!(made, Made::Text(_));
    if sign == '+' && (is_text(&left) || is_text(&right)) {
        let text = |made: Made| match made {
            Made::Text(text) => Ok(text),
            Made::Null => Ok(String::new()),
            Made::Boolean(it) => Ok(if it { "True" } else { "False" }.to_owned()),
            Made::Integer(it, _) => Ok(it.to_string()),
            Made::Unknown | Made::Double(_) => Err("operator"),
        };
        return Ok(Made::Text(text(left)? + &text(right)?));
    }
    match left == Made::Null || right == Made::Null {
        true => Ok(Made::Null),
        false => Err("operator"),
    }
}

// How trees and messages are made.

fn constants() -> impl Strategy<Value = Made> {
    prop_oneof![
        Just(Made::Null),
        any::<bool>().prop_map(Made::Boolean),
        (-3i128..4).prop_map(|it| Made::Integer(it, 64)),
        Just(Made::Integer(i64::MAX.into(), 64)),
        (-4i32..5).prop_map(|halves| Made::Double(f64::from(halves) / 2.0)),
        "[ab_%!']{0,3}".prop_map(Made::Text),
    ]
}

fn values() -> impl Strategy<Value = Made> {
    prop_oneof![
        5 => constants(),
        1 => (-3i128..4).prop_map(|it| Made::Integer(it, 32)),
        1 => Just(Made::Integer(i32::MAX.into(), 32)),
        1 => Just(Made::Text("b".to_owned())),
    ]
}

fn terms() -> impl Strategy<Value = Term> {
    let leaf = prop_oneof![
        constants().prop_map(Term::Constant),
        prop::sample::select(&NAMES[..]).prop_map(Term::Property),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let signs = prop::sample::select(&['+', '-', '*', '/', '%'][..]);
        prop_oneof![
            4 => (inner.clone(), signs, inner.clone())
                .prop_map(|(left, sign, right)| Term::Binary(left.into(), sign, right.into())),
            1 => inner.clone().prop_map(|it| Term::Minus(it.into())),
            1 => inner.prop_map(|it| Term::Named(it.into())),
        ]
    })
}

pub(crate) fn conditions() -> impl Strategy<Value = Condition> {
    let names = || prop::sample::select(&NAMES[..]);
    let operators = prop::sample::select(&["=", "<>", "!=", "<", "<=", ">", ">="][..]);
    let equality = (names(), constants()).prop_map(|(name, made)| {
        Condition::Compare(Term::Property(name), "=", Term::Constant(made))
    });
    let escapes = prop::option::of(prop::sample::select(&['!', '_'][..]));
    let leaf = prop_oneof![
        2 => equality,
        3 => (terms(), operators, terms())
            .prop_map(|(left, operator, right)| Condition::Compare(left, operator, right)),
        1 => (names(), any::<bool>()).prop_map(|(name, not)| Condition::IsNull(name, not)),
        1 => names().prop_map(Condition::Exists),
        1 => (terms(), prop::collection::vec(terms(), 1..4), any::<bool>())
            .prop_map(|(of, list, not)| Condition::In(of, list, not)),
        1 => (terms(), terms(), escapes, any::<bool>())
            .prop_map(|(text, pattern, escape, not)| Condition::Like(text, pattern, escape, not)),
    ];
    leaf.prop_recursive(4, 12, 2, |inner| {
        let two = || (inner.clone(), inner.clone());
        prop_oneof![
            2 => two().prop_map(|(left, right)| Condition::And(left.into(), right.into())),
            1 => two().prop_map(|(left, right)| Condition::Or(left.into(), right.into())),
            1 => inner.clone().prop_map(|it| Condition::Not(it.into())),
        ]
    })
}

pub(crate) fn messages() -> impl Strategy<Value = Vec<(&'static str, Made)>> {
    let properties = ["a", "b", "C", "name with space"]
        .map(|name| prop::option::weighted(0.8, values().prop_map(move |made| (name, made))));
    properties.prop_map(|all| all.into_iter().flatten().collect())
}

pub(crate) fn sample_of(message: &[(&str, Made)]) -> Sample {
    let user = message.iter().map(|(name, made)| {
        let value = match made {
            Made::Text(text) => OwnedValue::Text(text.as_str().into()),
            Made::Null => OwnedValue::Plain(Value::Null),
            Made::Boolean(it) => OwnedValue::Plain(Value::Boolean(*it)),
            Made::Integer(it, 32) => OwnedValue::Plain(Value::Int((*it).try_into().unwrap())),
            Made::Integer(it, _) => OwnedValue::Plain(Value::Long((*it).try_into().unwrap())),
            Made::Double(it) => OwnedValue::Plain(Value::Double(*it)),
            Made::Unknown => panic!("no message has an unknown value"),
        };
        ((*name).to_owned(), value)
    });
    Sample {
        user: user.collect(),
        ..Sample::default()
    }
}

fn kind_of(error: &EvaluationError) -> &'static str {
    match error.fault {
        Fault::DivisionByZero => "zero",
        Fault::Overflow { .. } => "overflow",
        Fault::NoOperator { .. } | Fault::NoSign { .. } => "operator",
        Fault::PatternNotText { .. } | Fault::NothingEscaped => "pattern",
        Fault::NameNotText { .. } => "name",
        ref other => panic!("{other}"),
    }
}

/// The filter of a condition, unless its constants are refused.
pub(crate) fn filter_of(condition: &Condition) -> Option<SqlFilter> {
    match SqlFilter::parse(&text_of(condition), &Parameters::default()) {
        Ok(filter) => Some(filter),
        Err(error) => match error.problem {
            Problem::Constant(_) | Problem::TooLong { .. } => None,
            _ => panic!("{}: {error}", text_of(condition)),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_filter_selects_what_its_tree_selects(
        condition in conditions(),
        many in prop::collection::vec(messages(), 3),
    ) {
        let Some(filter) = filter_of(&condition) else {
            return Ok(());
        };
        for message in many {
            let ids: &dyn Fn(u32) -> [u8; 16] = &ids;
            let found = filter.matches(&sample_of(&message), &ids);
            let found = found.map_err(|error| kind_of(&error));
            let expected = selects(&condition, &message);
            prop_assert_eq!(found, expected, "{} on {:?}", filter.text(), message);
        }
    }
}
