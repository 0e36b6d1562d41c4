//! Rules of subscriptions: texts of filters and actions, written by those who manage topics, on messages that senders
//! write.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kew_filter::limits::{DEFINITION_BYTES_MAX, STEPS_MAX, TEXT_CHARS_MAX};
use kew_filter::{
    Action, Decimal, Definition, Equality, Filter, FilterDefinition, Matches, Message, NewIds,
    OwnedValue, Parameters, RuleId, RuleSet, SqlDefinition, SqlFilter, SyntaxError, SystemProperty,
    Value, same_name,
};
use kew_fuzz::gauge;
use kew_fuzz::mutate::{Input, changes};

use crate::{INPUT_SIZE_MAX, INPUTS, MEMORY_BASE_BYTES};

/// Words of the language. With others, few texts would be rules.
const WORDS: [&str; 56] = [
    "a",
    "b",
    "c",
    "[x y]",
    "\"q\"",
    "sys.",
    "Label",
    "MessageId",
    "user.",
    "SequenceNumber",
    "=",
    "<>",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "(",
    ")",
    ",",
    ";",
    "AND",
    "OR",
    "NOT",
    "LIKE",
    "ESCAPE",
    "IN",
    "IS",
    "NULL",
    "EXISTS",
    "TRUE",
    "FALSE",
    "newid()",
    "property(",
    "p(",
    "@p",
    "@q",
    "'a%'",
    "'_b'",
    "'!'",
    "'%x_y%z%'",
    "''",
    "1",
    "0",
    "2.5",
    "1e300",
    "9223372036854775807",
    "SET",
    "REMOVE",
    "é",
    "'it''s'",
];

/// The memory for a rule, of which a pattern with many different characters takes the most.
const RULE_MAX_BYTES: usize = 256 << 10;

struct Made {
    user: Vec<(String, OwnedValue)>,
    label: Option<String>,
}

impl Message for Made {
    fn user(&self, name: &str) -> Option<Value<'_>> {
        let exact = self.user.iter().find(|(it, _)| it == name);
        let found = exact.or_else(|| self.user.iter().find(|(it, _)| same_name(it, name)));
        found.map(|(_, value)| value.as_value())
    }

    fn system(&self, property: SystemProperty) -> Value<'_> {
        match property {
            SystemProperty::Label => self.label.as_deref().map_or(Value::Null, Value::Text),
            SystemProperty::SequenceNumber => Value::Long(7),
            _ => Value::Null,
        }
    }

    fn visit_user(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (name, value) in &self.user {
            visit(name, value.as_value());
        }
    }
}

/// Rules of which some bytes are changed.
const RULES: [&str; 10] = [
    "a = 'red' AND b > 10 AND sys.Label LIKE 'a%'",
    "(a + 1) * 2 - b / c % 3 <= -4.5 OR NOT a IS NULL",
    "a NOT IN ('x', @p, 3, NULL) AND EXISTS([x y])",
    "a LIKE '%_b%!_c%' ESCAPE '!' OR a LIKE b ESCAPE c",
    "p('a' + b) = property(c) OR newid() <> d",
    "a = 1 AND (b = 2 AND a IN (1, 2)) AND 1 / c = 1",
    "SET a = b + 1; REMOVE c; SET sys.Label = 'x' + a",
    "SET A = a * 2, SET a = A + A SET b = newid() REMOVE a",
    "SET d = 'x' + d; SET d = d + d; SET d = d + d; SET d = d + d",
    "SET sys.TimeToLive = a - b; SET e = sys.Label + sys.SequenceNumber",
];

/// A text of the language's words and of others, or a changed rule.
fn text(input: &mut Input<'_>) -> String {
    if input.byte().is_multiple_of(2) {
        let mut rule = RULES[usize::from(input.byte()) % RULES.len()]
            .as_bytes()
            .to_vec();
        if !input.byte().is_multiple_of(4) {
            changes(&mut rule, input);
        }
        return String::from_utf8_lossy(&rule).into_owned();
    }
    let mut text = String::new();
    for _ in 0..input.byte() % 40 {
        match usize::from(input.byte()) {
            word @ 0..224 => text.push_str(WORDS[word % WORDS.len()]),
            224..240 => text.push_str(&String::from_utf8_lossy(input.piece())),
            _ => {
                let piece = input.piece();
                text.push_str(&String::from_utf8_lossy(piece).repeat(usize::from(input.byte())));
            }
        }
        text.push_str(if input.byte().is_multiple_of(4) {
            ""
        } else {
            " "
        });
    }
    text
}

fn value(input: &mut Input<'_>) -> OwnedValue {
    let bits = input.number();
    let [low, ..] = bits.to_le_bytes();
    let text = String::from_utf8_lossy(input.piece()).into_owned();
    let number = i64::from_le_bytes(bits.to_le_bytes());
    OwnedValue::Plain(match input.byte() % 24 {
        0 => Value::Null,
        1 => Value::Boolean(low % 2 == 0),
        2 => Value::Byte(i8::from_le_bytes([low])),
        3 => Value::Short(low.into()),
        4 => Value::Int(i32::MAX - i32::from(low)),
        5 => Value::Ubyte(low),
        6 => Value::Ushort(low.into()),
        7 => Value::Uint(low.into()),
        8 => Value::Ulong(bits),
        9 => Value::Float(f32::from(low) / 2.0),
        10 => Value::Double(f64::from_bits(bits)),
        11 => Decimal::from_decimal64(bits.to_be_bytes()).map_or(Value::Other, Value::Decimal),
        12 => {
            Value::Decimal(Decimal::new(low % 2 == 0, bits.into(), low.into()).expect("20 digits"))
        }
        13 => Value::Char(char::from(low)),
        14 => Value::Timestamp(number),
        15 => Value::Duration(number),
        16 => Value::Uuid([low; 16]),
        17 => return OwnedValue::Binary(text.into_bytes().into()),
        18 => return OwnedValue::Symbol(text.into()),
        19 => Value::Other,
        20 => Value::Long(number),
        21 => Value::Long(i64::from(low % 4)),
        22 => return OwnedValue::Text(text.repeat(usize::from(low)).into()),
        _ => return OwnedValue::Text(text.into()),
    })
}

fn message(input: &mut Input<'_>) -> Made {
    let names = ["a", "A", "b", "c", "x y", "q", "d", "e", "f", "RuleName"];
    let user = (0..input.byte() % 12).map(|_| {
        let name = names[usize::from(input.byte()) % names.len()];
        (name.to_owned(), value(input))
    });
    let user = user.collect();
    let label = input
        .byte()
        .is_multiple_of(2)
        .then(|| String::from_utf8_lossy(input.piece()).into_owned());
    Made { user, label }
}

/// The place of an error is one of the text, or behind its end.
fn check_place(text: &str, error: &SyntaxError) {
    let chars = text.chars().count().min(TEXT_CHARS_MAX);
    assert!((1..=chars + 1).contains(&error.column), "{error}: {text}");
}

/// Texts of filters and actions on messages: nothing panics, steps and memory are bounded, and the index finds what
/// evaluating all finds, at once and in parts.
#[test]
fn rules() {
    bolero::check!()
        .with_iterations(INPUTS)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let input = &mut Input::new(bytes);
            let mut parameters = Parameters::default();
            parameters.set("p", value(input));
            let message = message(input);
            let ids = |nth: u32| [nth.to_le_bytes()[0]; 16];
            let ids: &dyn NewIds = &ids;
            let mut filters: Vec<(RuleId, Filter)> = Vec::new();
            for id in 0..3 {
                let text = text(input);
                let parsed = gauge::within(RULE_MAX_BYTES, || SqlFilter::parse(&text, &parameters));
                match parsed {
                    Ok(filter) => {
                        let (_, steps) = filter.matches_counting(&message, ids);
                        assert!(steps <= STEPS_MAX || filter.matches(&message, ids).is_err());
                        filters.push((id, Filter::Sql(filter)));
                    }
                    Err(error) => check_place(&text, &error),
                }
            }
            let budgets = [(); 3].map(|()| 1 + u32::from(input.byte()));
            check_index(&filters, &message, ids, budgets);
            let text = text(input);
            match gauge::within(RULE_MAX_BYTES, || Action::parse(&text, &parameters)) {
                Ok(action) => drop(action.changes(&message, ids)),
                Err(error) => check_place(&text, &error),
            }
        });
}

fn check_index(filters: &[(RuleId, Filter)], message: &Made, ids: &dyn NewIds, budgets: [u32; 3]) {
    let mut rules = RuleSet::default();
    for (id, filter) in filters {
        rules.insert(*id, filter.clone());
    }
    let mut matches = Matches::default();
    rules.find(message, ids, &mut matches);
    let mut matching = Vec::new();
    let mut failed = Vec::new();
    for (id, filter) in filters {
        match filter.matches(message, ids) {
            Ok(true) => matching.push(*id),
            Ok(false) => {}
            Err(error) => failed.push((*id, error)),
        }
    }
    assert_eq!(matches.matching(), matching);
    assert_eq!(matches.failed(), failed);
    let mut in_parts = Matches::default();
    rules.begin(message, &mut in_parts);
    for budget in budgets.into_iter().cycle() {
        if in_parts.is_done() {
            break;
        }
        rules.go_on(message, &|_, nth| ids.id(nth), budget, &mut in_parts);
    }
    assert_eq!(in_parts.matching(), matching);
    assert_eq!(in_parts.failed(), failed);
}

/// A definition as a client could give it.
fn definition(input: &mut Input<'_>) -> Option<Definition> {
    let filter = match input.byte() % 4 {
        0 => FilterDefinition::True,
        1 => FilterDefinition::Correlation(
            (0..input.byte() % 5)
                .map(|_| Equality::User {
                    name: String::from_utf8_lossy(input.piece()).into(),
                    value: value(input),
                })
                .collect(),
        ),
        _ => FilterDefinition::Sql(sql(input)),
    };
    let action = input.byte().is_multiple_of(2).then(|| sql(input));
    Definition::new(filter, action).ok()
}

fn sql(input: &mut Input<'_>) -> SqlDefinition {
    SqlDefinition {
        text: text(input).into(),
        parameters: vec![("@p".into(), value(input))],
        compatibility_level: input.byte().is_multiple_of(2).then_some(20),
    }
}

/// Stored definitions, also changed ones: they are refused, or these bytes are their one form. Nothing panics, and memory
/// is bounded by what is read.
#[test]
fn definitions() {
    static CHANGED: AtomicU64 = AtomicU64::new(0);
    bolero::check!()
        .with_iterations(INPUTS)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let input = &mut Input::new(bytes);
            let Some(definition) = definition(input) else {
                return;
            };
            let mut bytes = definition.bytes().to_vec();
            assert!(bytes.len() <= DEFINITION_BYTES_MAX);
            let is_changed = !input.byte().is_multiple_of(4);
            if is_changed {
                changes(&mut bytes, input);
            }
            let memory = MEMORY_BASE_BYTES + 64 * bytes.len();
            let decoded = gauge::within(memory, || Definition::decode(&bytes));
            let Ok(decoded) = decoded else {
                assert!(is_changed, "{definition:?}");
                return;
            };
            assert_eq!(decoded.bytes(), bytes);
            if is_changed {
                CHANGED.fetch_add(1, Relaxed);
            } else {
                let shown = |it: &Definition| format!("{:?} {:?}", it.filter(), it.action());
                assert_eq!(shown(&decoded), shown(&definition));
            }
            let _ = gauge::within(memory + 2 * RULE_MAX_BYTES, || decoded.compile());
        });
    assert!(CHANGED.load(Relaxed) > 0, "no changed definition was read");
}

/// What ordinary rules take: no memory for an evaluation, and none for a look into the index after the first one.
#[test]
fn an_evaluation_allocates_nothing() {
    let text = |text: &str| OwnedValue::Text(text.into());
    let message = Made {
        user: vec![
            ("color".to_owned(), text("red")),
            ("size".to_owned(), OwnedValue::Plain(Value::Int(20))),
            ("price".to_owned(), OwnedValue::Plain(Value::Double(1.5))),
        ],
        label: Some("abc".to_owned()),
    };
    let ids = |_: u32| [0; 16];
    let ids: &dyn NewIds = &ids;
    let mut rules = RuleSet::default();
    let texts = [
        "color = 'red' AND size > 10 AND sys.Label LIKE 'a%'",
        "color IN ('red', 'blue') AND (size + 1) * 2 = 42 OR price IS NULL",
        "sys.Label LIKE '%b_' AND NOT EXISTS(owner) AND p('color') = 'red'",
        "-price > 0 OR newid() = NULL OR sys.Label LIKE 'a!%' ESCAPE '!' OR size = 20.0",
    ];
    for (id, text) in (0..).zip(texts) {
        let filter = SqlFilter::parse(text, &Parameters::default()).expect("a filter");
        assert_eq!(
            gauge::within(0, || filter.matches(&message, ids)),
            Ok(true),
            "{text}"
        );
        rules.insert(id, Filter::Sql(filter));
    }
    let mut matches = Matches::default();
    rules.find(&message, ids, &mut matches);
    gauge::within(0, || rules.find(&message, ids, &mut matches));
    assert_eq!(matches.matching().len(), texts.len());
}
