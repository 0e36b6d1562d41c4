//! What a text and an evaluation may take.

use std::cell::Cell;

use kew_filter::limits::{
    DEPTH_MAX, MADE_TEXT_BYTES_MAX, PATTERN_CHARS_MAX, STATEMENTS_MAX, STEPS_MAX, TEXT_CHARS_MAX,
};
use kew_filter::{
    Action, CorrelationFilter, EvaluationError, Fault, Filter, Matches, Message, OwnedValue,
    Parameters, Problem, RuleSet, SqlFilter, SystemProperty, Value,
};

use crate::sample::{Sample, ids};

fn parse(text: &str) -> Result<SqlFilter, Problem> {
    SqlFilter::parse(text, &Parameters::default()).map_err(|error| error.problem)
}

fn counted(text: &str, message: &impl Message) -> (Result<bool, EvaluationError>, u32) {
    let ids: &dyn Fn(u32) -> [u8; 16] = &ids;
    parse(text).unwrap().matches_counting(message, &ids)
}

fn with_text(name: &str, text: String) -> Sample {
    Sample {
        user: vec![(name.to_owned(), OwnedValue::Text(text.into()))],
        ..Sample::default()
    }
}

#[test]
fn a_text_has_a_length() {
    let padded = |chars: usize| format!("1 = 1{}", " ".repeat(chars - 5));
    assert!(parse(&padded(TEXT_CHARS_MAX)).is_ok());
    let chars = TEXT_CHARS_MAX + 1;
    assert_eq!(
        parse(&padded(chars)).err(),
        Some(Problem::TooLong { chars })
    );
    // Characters, not bytes.
    assert!(parse(&format!("a = '{}'", "é".repeat(1000))).is_ok());
}

#[test]
fn nesting_has_a_depth() {
    let nested = |open: &str, close: &str, depth: usize| {
        let (open, close) = (open.repeat(depth), close.repeat(depth));
        [format!("{open}1 = 1{close}"), format!("{open}1{close} = 1")]
    };
    for (open, close) in [("(", ")"), ("NOT ", "")] {
        let [condition, _] = nested(open, close, DEPTH_MAX);
        assert!(parse(&condition).is_ok(), "{condition}");
        let [condition, _] = nested(open, close, DEPTH_MAX + 1);
        assert_eq!(parse(&condition).err(), Some(Problem::TooDeep));
    }
    for (open, close) in [("(", ")"), ("- ", ""), ("p(", ")")] {
        let inner = if open == "- " { "x" } else { "1" };
        let of = |depth: usize| {
            let [_, value] = nested(open, close, depth);
            value.replacen('1', inner, 1)
        };
        assert!(parse(&of(DEPTH_MAX)).is_ok(), "{}", of(DEPTH_MAX));
        assert_eq!(parse(&of(DEPTH_MAX + 1)).err(), Some(Problem::TooDeep));
    }
    // Chains are as long as the text allows.
    assert!(parse(&format!("1{} = 1", "+1".repeat(500))).is_ok());
    assert!(parse(&format!("a=1{}", " OR a=1".repeat(140))).is_ok());
}

#[test]
fn an_action_has_so_many_statements() {
    let of = |count: usize| Action::parse(&"SET a=1 ".repeat(count), &Parameters::default());
    assert!(of(STATEMENTS_MAX).is_ok());
    let error = of(STATEMENTS_MAX + 1).unwrap_err();
    assert_eq!(error.problem, Problem::TooManyStatements);
    assert_eq!(error.column, STATEMENTS_MAX * 8 + 1);
}

#[test]
fn steps_are_counted_and_bounded() {
    let nothing = Sample::default();
    assert_eq!(counted("a = 1", &nothing).1, 1);
    assert_eq!(counted("NOT (a = 1 AND b = 2)", &nothing).1, 4);
    assert_eq!(counted("1 + 2 * 3 = 7", &nothing).1, 5);
    // Anchored patterns look at a text once, others take a step for a byte, and for a long piece several.
    let long = with_text("a", "x".repeat(1000));
    assert_eq!(counted("a LIKE 'x%x'", &long).1, 2);
    assert_eq!(counted("a LIKE '%y%'", &long).1, 1002);
    let wild = format!("a LIKE '%{}_y%'", "x".repeat(63));
    assert_eq!(counted(&wild, &long).1, 2002);
    // Every part of the longest text once.
    let parts = "1=0 OR ".repeat(145) + "1=1";
    assert_eq!(counted(&parts, &nothing).1, 147);
}

#[test]
fn an_evaluation_ends_at_the_bound() {
    let text = "x".repeat(60_000);
    let message = with_text("a", text);
    let wild = format!("'%{}_%y%'", "x".repeat(300));
    let often = format!("a LIKE {wild} OR a LIKE {wild} OR a LIKE {wild}");
    let (done, steps) = counted(&often, &message);
    assert_eq!((done, steps <= STEPS_MAX), (Ok(false), true), "{steps}");
    let computed = "a LIKE p OR a LIKE p OR a LIKE p OR a LIKE p OR a LIKE p";
    let mut message = message;
    let pattern = format!("%{}_%y%", "x".repeat(900));
    let pattern = OwnedValue::Text(pattern.into());
    message.user.push(("p".to_owned(), pattern));
    let (done, _) = counted(computed, &message);
    let error = done.unwrap_err();
    assert_eq!((error.fault, error.column), (Fault::TooManySteps, 15));
}

/// The pattern and the text for which a search that goes back takes the longest.
#[test]
fn a_hostile_pattern_is_matched_without_going_back() {
    let message = with_text("a", "a".repeat(30_000));
    let pattern = "%a".repeat(400);
    let (done, steps) = counted(&format!("a LIKE '{pattern}%b'"), &message);
    assert_eq!(done, Ok(false));
    assert!(steps <= 30_002, "{steps}");
}

#[test]
fn made_texts_and_patterns_have_a_length() {
    let half = MADE_TEXT_BYTES_MAX / 2;
    let message = with_text("a", "x".repeat(half));
    assert_eq!(counted("a + a <> ''", &message).0, Ok(true));
    let fault = |text: &str| counted(text, &message).0.map_err(|error| error.fault);
    assert_eq!(fault("a + a + 'y' = ''"), Err(Fault::TextTooLong));
    assert_eq!(fault("a + 1 + a = ''"), Err(Fault::TextTooLong));
    const { assert!(PATTERN_CHARS_MAX < MADE_TEXT_BYTES_MAX / 2) };
    assert_eq!(fault("'a' LIKE a"), Err(Fault::PatternTooLong));
}

/// What a message brings costs as much as it takes: a pattern, a text that is made, the name of a property.
#[test]
fn what_a_message_computes_takes_steps() {
    let of = |text: &str, value: &str| counted(text, &with_text("p", value.to_owned())).1;
    // One for the pattern's bytes, and one for the text's.
    let pattern = |size: usize| of("'a' LIKE p", &format!("%{}", "é".repeat(size)));
    assert_eq!(pattern(500) - pattern(0), 1000);
    let joined = |size: usize| of("p + '!' = ''", &"x".repeat(size));
    assert_eq!(joined(6400) - joined(1), 100);
    let named = |size: usize| of("p(p) = 1", &"x".repeat(size));
    assert_eq!(named(800) - named(0), 100);
    // An end of a pattern with `_` is compared character by character.
    let end = |count: usize| of(&format!("p LIKE 'x%{}'", "_".repeat(count)), "y");
    assert_eq!(end(800) - end(1), 50);
}

/// A message that counts how often it is asked.
struct Counting(Cell<u32>);

impl Message for Counting {
    fn user(&self, _: &str) -> Option<Value<'_>> {
        self.0.set(self.0.get() + 1);
        Some(Value::Long(0))
    }

    fn system(&self, _: SystemProperty) -> Value<'_> {
        Value::Null
    }

    fn visit_user(&self, _: &mut dyn FnMut(&str, Value<'_>)) {}
}

#[test]
fn each_property_of_a_text_is_asked_for_once() {
    let message = Counting(Cell::new(0));
    let text = "a = 1 OR b + c = 2 OR d IN (e, f) OR g IS NULL OR NOT EXISTS(h)";
    assert_eq!(counted(text, &message).0, Ok(true));
    assert_eq!(
        message.0.get(),
        5,
        "d is equal to e, which ends the evaluation"
    );
    let message = Counting(Cell::new(0));
    assert_eq!(counted("a = 1 AND b = 1 AND c = 1", &message).0, Ok(false));
    assert_eq!(message.0.get(), 1);
}

/// A statement asks for its property's name among all that the message has, and so does each property in an expression
/// once there are changes.
#[test]
fn steps_of_actions_are_counted_and_bounded() {
    let counted = |text: &str, message: &Sample| {
        let action = Action::parse(text, &Parameters::default()).unwrap();
        let ids: &dyn Fn(u32) -> [u8; 16] = &ids;
        action.changes_counting(message, &ids)
    };
    let nothing = Sample::default();
    let (changes, steps) = counted("SET a = 1; REMOVE b", &nothing);
    assert_eq!((changes.unwrap().len(), steps), (2, 2));
    // The statement, the sum, and each of the two operands behind the first.
    let (_, steps) = counted("SET sys.Label = 'a' + b + c", &nothing);
    assert_eq!(steps, 4);
    let many = Sample {
        user: (0..16_000)
            .map(|nth| (format!("p{nth}"), OwnedValue::Plain(Value::Int(nth))))
            .collect(),
        ..Sample::default()
    };
    let (changes, steps) = counted("SET a = 1", &many);
    assert_eq!((changes.unwrap().len(), steps), (1, 2_001));
    let (changes, steps) = counted(&format!("SET a = b{}", " + b".repeat(250)), &many);
    assert!(changes.is_ok() && steps < 10_000, "{steps}");
    let twice = format!("SET a = 1; SET c = a{}", " + a".repeat(240));
    let (changes, steps) = counted(&twice, &many);
    assert!(changes.is_ok() && steps > 480_000, "{steps}");
}

/// A listed value takes a step, and a comparison of long texts one for each 64 bytes.
#[test]
fn lists_and_long_texts_take_steps() {
    let listed = |count: usize| {
        let list = vec!["b"; count].join(", ");
        counted(&format!("a IN ({list})"), &Sample::default()).1
    };
    let a = |size: usize| Sample {
        user: vec![("a".into(), OwnedValue::Text("x".repeat(size).into()))],
        ..Sample::default()
    };
    // Nothing is compared with what is not there.
    assert_eq!(listed(100), listed(1));
    let listed = |count: usize| {
        let list = vec!["'y'"; count].join(", ");
        counted(&format!("a IN ({list})"), &a(1)).1
    };
    assert_eq!(listed(101) - listed(1), 100);
    let compared = |size: usize| {
        let message = Sample {
            user: vec![
                ("a".into(), OwnedValue::Text("x".repeat(size).into())),
                ("b".into(), OwnedValue::Text("x".repeat(size).into())),
            ],
            ..Sample::default()
        };
        counted("a = b", &message).1
    };
    assert_eq!(compared(6400) - compared(1), 100);
}

#[test]
fn long_texts_of_correlation_filters_take_steps() {
    let compared = |size: usize| {
        let text = "x".repeat(size);
        let filter = CorrelationFilter::default().user("a", OwnedValue::Text(text.as_str().into()));
        let mut rules = RuleSet::default();
        rules.insert(1, Filter::Correlation(filter));
        let (message, mut matches) = (with_text("a", text), Matches::default());
        rules.begin(&message, &mut matches);
        let steps = rules.go_on(&message, &|_, nth| ids(nth), u32::MAX, &mut matches);
        assert_eq!(matches.matching(), [1]);
        steps
    };
    assert_eq!(compared(6400) - compared(1), 100);
}
