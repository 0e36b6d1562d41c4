//! Rules of subscriptions: the index against evaluating all, and copies.

use kew_filter::limits::RULE_STEPS;
use kew_filter::{
    Action, Change, CorrelationFilter, EvaluationError, Filter, Matches, NewIds, OwnedValue,
    Parameters, Rule, RuleId, RuleSet, SqlFilter, SystemProperty, Target, Value, copies,
};
use proptest::prelude::*;

use crate::naive::{Made, conditions, filter_of, messages, sample_of};
use crate::sample::{Sample, ids};

fn sql(text: &str) -> Filter {
    Filter::Sql(SqlFilter::parse(text, &Parameters::default()).unwrap())
}

fn text(text: &str) -> OwnedValue {
    OwnedValue::Text(text.into())
}

fn found(rules: &RuleSet, message: &Sample) -> Matches {
    let mut matches = Matches::default();
    let ids: &dyn Fn(u32) -> [u8; 16] = &ids;
    rules.find(message, &ids, &mut matches);
    matches
}

/// The same in parts of so many steps, one after the other.
fn found_in_parts(rules: &RuleSet, message: &Sample, budgets: &[u32]) -> Matches {
    let mut matches = Matches::default();
    rules.begin(message, &mut matches);
    let mut budgets = budgets.iter().cycle();
    while !matches.is_done() {
        let before = matches.evaluated();
        let budget = *budgets.next().unwrap();
        let used = rules.go_on(message, &|_, nth| ids(nth), budget, &mut matches);
        assert!(
            used > 0 && matches.evaluated() > before,
            "it comes to an end"
        );
        assert!(used >= budget || matches.is_done());
    }
    matches
}

/// What evaluating each rule gives.
fn all(
    filters: &[(RuleId, Filter)],
    message: &Sample,
) -> (Vec<RuleId>, Vec<(RuleId, EvaluationError)>) {
    let ids: &dyn NewIds = &ids;
    let mut matching = Vec::new();
    let mut failed = Vec::new();
    for (id, filter) in filters {
        match filter.matches(message, ids) {
            Ok(true) => matching.push(*id),
            Ok(false) => {}
            Err(error) => failed.push((*id, error)),
        }
    }
    (matching, failed)
}

fn filters() -> impl Strategy<Value = Filter> {
    let names = prop::sample::select(
        &[
            "a",
            "B",
            "c",
            "name with space",
            "d1",
            "d2",
            "d3",
            "d4",
            "d5",
            "d6",
        ][..],
    );
    let values = prop_oneof![
        (-3i64..4).prop_map(|it| OwnedValue::Plain(Value::Long(it))),
        (-3i32..4).prop_map(|it| OwnedValue::Plain(Value::Double(f64::from(it) / 2.0))),
        "[ab]{0,2}".prop_map(|it| OwnedValue::Text(it.into())),
        Just(OwnedValue::Plain(Value::Null)),
        Just(OwnedValue::Plain(Value::Boolean(true))),
        Just(OwnedValue::Plain(Value::Char('b'))),
    ];
    let correlation = prop::collection::vec((names, values), 0..3).prop_map(|all| {
        let start = CorrelationFilter::default();
        let add =
            |filter: CorrelationFilter, (name, value): (&str, OwnedValue)| filter.user(name, value);
        Filter::Correlation(all.into_iter().fold(start, add))
    });
    let sql = conditions().prop_filter_map("its constants are refused", |condition| {
        filter_of(&condition).map(Filter::Sql)
    });
    prop_oneof![
        1 => Just(Filter::True),
        1 => Just(Filter::False),
        8 => correlation,
        8 => sql,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_what_evaluating_all_finds(
        filters in prop::collection::vec(filters(), 0..40),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        many in prop::collection::vec(messages(), 4),
        has_twins in any::<bool>(),
        budgets in prop::collection::vec(1u32..40, 1..4),
    ) {
        let mut filters: Vec<(RuleId, Filter)> = (0..).zip(filters).collect();
        let mut rules = RuleSet::default();
        for (id, filter) in filters.iter().rev() {
            rules.insert(*id, filter.clone());
        }
        for index in removed {
            if !filters.is_empty() {
                let (id, _) = filters.remove(index.index(filters.len()));
                prop_assert!(rules.remove(id));
                prop_assert!(!rules.remove(id));
            }
        }
        prop_assert_eq!(rules.len(), filters.len());
        for message in many {
            let mut sample = sample_of(&message);
            if has_twins {
                // A second property whose name differs in upper and lower case only.
                let twin = sample_of(&[("B", Made::Integer(1, 64)), ("A", Made::Null)]);
                sample.user.extend(twin.user);
            }
            let matches = found(&rules, &sample);
            let (matching, failed) = all(&filters, &sample);
            prop_assert_eq!(matches.matching(), &matching[..]);
            prop_assert_eq!(matches.failed(), &failed[..]);
            let in_parts = found_in_parts(&rules, &sample, &budgets);
            prop_assert_eq!(in_parts.matching(), matching);
            prop_assert_eq!(in_parts.failed(), failed);
            prop_assert_eq!(in_parts.evaluated(), matches.evaluated());
        }
        for (id, _) in &filters {
            rules.remove(*id);
        }
        prop_assert!(rules.is_empty());
        prop_assert_eq!(found(&rules, &Sample::default()).evaluated(), 0);
    }
}

#[test]
fn rules_with_other_values_are_not_evaluated() {
    let mut rules = RuleSet::default();
    for customer in 0..2_000 {
        // All share the first condition: the rarer one is the one that finds them.
        let filter = CorrelationFilter::default()
            .system(SystemProperty::Label, "order")
            .user("customer", OwnedValue::Plain(Value::Long(customer)));
        rules.insert(customer.try_into().unwrap(), Filter::Correlation(filter));
    }
    rules.insert(5_000, sql("customer = 7 AND size > 10"));
    rules.insert(5_001, sql("size > 10 AND Customer IN (7, 8)"));
    rules.insert(5_002, sql("size > 10"));
    let message = Sample::read("customer=int 7, size=int 11, sys.Label='order'");
    let matches = found(&rules, &message);
    assert_eq!(matches.matching(), [7, 5_000, 5_001, 5_002]);
    assert_eq!(
        matches.evaluated(),
        4 + 1,
        "the first one has the common label only"
    );
    let matches = found(&rules, &Sample::read("customer=int 9999, size=int 11"));
    assert_eq!((matches.matching(), matches.evaluated()), (&[5_002][..], 1));
}

#[test]
fn what_may_fail_before_an_equality_is_evaluated_first() {
    let mut rules = RuleSet::default();
    rules.insert(1, sql("1 / n = 1 AND color = 'red'"));
    rules.insert(2, sql("color = 'red' AND 1 / n = 1"));
    let matches = found(&rules, &Sample::read("n=int 0, color='blue'"));
    let failed: Vec<_> = matches.failed().iter().map(|(id, _)| *id).collect();
    assert_eq!((failed, matches.evaluated()), (vec![1], 1));
}

#[test]
fn a_rule_that_is_replaced_is_found_by_its_new_filter_only() {
    let mut rules = RuleSet::default();
    rules.insert(1, sql("a = 1"));
    rules.insert(1, sql("b = 1"));
    assert_eq!(found(&rules, &Sample::read("a=int 1")).evaluated(), 0);
    assert_eq!(found(&rules, &Sample::read("b=int 1")).matching(), [1]);
    assert_eq!(rules.filter(1), Some(&sql("b = 1")));
}

/// Steps that each rule takes: those of a rule, and those of its filter.
#[test]
fn an_evaluation_stops_at_its_budget_and_goes_on() {
    let mut rules = RuleSet::default();
    rules.insert(1, Filter::True);
    rules.insert(2, sql("a = 1 OR b = 2"));
    rules.insert(
        3,
        Filter::Correlation(CorrelationFilter::default().user("a", text("x"))),
    );
    rules.insert(4, sql("1 / a = 1"));
    rules.insert(5, sql("newid() = NULL OR b = 2"));
    let message = Sample::read("a='x', b=int 2");
    let steps = [0, 3, 1, 3, 4].map(|of_filter| RULE_STEPS + of_filter);
    let mut matches = Matches::default();
    assert!(matches.is_done());
    rules.begin(&message, &mut matches);
    let ids = |rule: RuleId, nth: u32| {
        assert_eq!((rule, nth), (5, 0));
        [0; 16]
    };
    assert_eq!(rules.go_on(&message, &ids, 0, &mut matches), 0);
    for (at, steps) in steps.into_iter().enumerate() {
        assert_eq!((matches.evaluated(), matches.is_done()), (at, false));
        assert_eq!(
            rules.go_on(&message, &ids, 1, &mut matches),
            steps,
            "rule {at}"
        );
    }
    assert!(matches.is_done());
    assert_eq!(matches.matching(), [1, 2, 3, 5]);
    assert_eq!(matches.failed()[0].0, 4);
    assert_eq!(rules.go_on(&message, &ids, 100, &mut matches), 0);
    // The same with more steps at once: it stops behind the rule that uses the last one.
    rules.begin(&message, &mut matches);
    assert_eq!(rules.go_on(&message, &ids, 20, &mut matches), 8 + 11 + 9);
    assert_eq!(rules.go_on(&message, &ids, 100, &mut matches), 11 + 12);
    assert_eq!(matches.matching(), [1, 2, 3, 5]);
}

#[test]
fn rules_may_change_between_two_parts() {
    let mut rules = RuleSet::default();
    for id in 1..=4 {
        rules.insert(id, Filter::True);
    }
    let message = Sample::default();
    let ids = |_: RuleId, _: u32| [0; 16];
    let mut matches = Matches::default();
    rules.begin(&message, &mut matches);
    rules.go_on(&message, &ids, 2, &mut matches);
    rules.remove(1);
    rules.remove(3);
    rules.insert(9, Filter::True);
    rules.go_on(&message, &ids, 100, &mut matches);
    assert_eq!(
        (matches.matching(), matches.is_done()),
        (&[1, 2, 4][..], true)
    );
}

/// Many rules that spell a name in their own way, and many with one value: neither makes an insert, a removal or a look
/// slow.
#[test]
fn spellings_of_a_name_share_their_values() {
    let mut rules = RuleSet::default();
    let spelled = |id: u64| -> String {
        let bit = |(at, letter): (usize, char)| match (id >> at) & 1 {
            1 => letter.to_ascii_uppercase(),
            _ => letter,
        };
        "abcdefghij".char_indices().map(bit).collect()
    };
    for id in 0..1_000 {
        let filter = CorrelationFilter::default().user(&spelled(id), text("x"));
        rules.insert(id, Filter::Correlation(filter));
    }
    let matches = found(&rules, &Sample::read("ABCdefghij='x'"));
    assert_eq!(matches.matching().len(), 1_000);
    assert_eq!(
        found(&rules, &Sample::read("ABCdefghij='y'")).evaluated(),
        0
    );
    // A message with two of them: each rule sees its own, or else the first.
    let twins = Sample::read("ABCdefghij='y', abcdefghij='x'");
    assert_eq!(found(&rules, &twins).matching(), [0]);
    for id in 2..1_000 {
        assert!(rules.remove(id));
    }
    assert_eq!(found(&rules, &twins).matching(), [0]);
    let first = Sample::read("ABCdefghij='x', Abcdefghij='y'");
    assert_eq!(found(&rules, &first).matching(), [0]);
    assert_eq!(
        found(&rules, &first).evaluated(),
        2,
        "one has the other's value"
    );
}

#[test]
fn correlation_filters_compare_each_field() {
    let message = Sample::read(
        "sys.CorrelationId='c', sys.MessageId='m', sys.To='t', sys.ReplyTo='r', sys.Label='l', \
         sys.SessionId='s', sys.ReplyToSessionId='rs', sys.ContentType='ct'",
    );
    let all = CorrelationFilter::SYSTEM
        .into_iter()
        .zip(["c", "m", "t", "r", "l", "s", "rs", "ct"]);
    let mut together = CorrelationFilter::default();
    for (property, value) in all {
        let one = CorrelationFilter::default().system(property, value);
        assert!(one.matches(&message), "{property:?}");
        assert!(!one.matches(&Sample::default()), "{property:?}");
        let other = CorrelationFilter::default().system(property, &value.to_uppercase());
        assert!(!other.matches(&message), "{property:?}");
        together = together.system(property, value);
    }
    assert!(together.matches(&message));
    assert!(!together.user("absent", text("x")).matches(&message));
}

#[test]
fn correlation_filters_compare_properties_by_value() {
    let message = Sample::read("Color='Red', n=int 5, on=true, nothing=null");
    let is = |name: &str, value: OwnedValue| {
        CorrelationFilter::default()
            .user(name, value)
            .matches(&message)
    };
    assert!(is("color", text("Red")));
    assert!(!is("color", text("red")));
    assert!(is("n", OwnedValue::Plain(Value::Long(5))));
    assert!(is("n", OwnedValue::Plain(Value::Double(5.0))));
    assert!(!is("n", text("5")));
    assert!(is("on", OwnedValue::Plain(Value::Boolean(true))));
    assert!(is("nothing", OwnedValue::Plain(Value::Null)));
    assert!(!is("absent", OwnedValue::Plain(Value::Null)));
    assert!(CorrelationFilter::default().matches(&message));
}

fn rule(name: &str, action: Option<&str>) -> Rule {
    let parsed = action.map(|text| Action::parse(text, &Parameters::default()).unwrap());
    Rule {
        name: name.to_owned(),
        filter: Filter::True,
        action: parsed,
    }
}

fn set(name: &str, value: OwnedValue) -> Change {
    Change {
        target: Target::User(name.into()),
        to: Some(value),
    }
}

/// The example of the service's documentation: five rules, two of them with actions, make three copies.
#[test]
fn rules_without_actions_make_one_copy_and_others_one_each() {
    let rules = [
        rule("with a", Some("SET a = 1")),
        rule("plain 1", None),
        rule("with b", Some("REMOVE b; SET sys.Label = 'x'")),
        rule("plain 2", None),
        rule("plain 3", None),
    ];
    let ids: &dyn Fn(u32) -> [u8; 16] = &ids;
    let (made, failed) = copies(&Sample::default(), &rules, &ids);
    assert!(failed.is_empty());
    let changes: Vec<_> = made.into_iter().map(|copy| copy.changes).collect();
    let removed = Change {
        target: Target::User("b".into()),
        to: None,
    };
    let labelled = Change {
        target: Target::System(SystemProperty::Label),
        to: Some(text("x")),
    };
    let one = OwnedValue::Plain(Value::Long(1));
    let expected = [
        vec![],
        vec![set("a", one), set("RuleName", text("with a"))],
        vec![removed, labelled, set("RuleName", text("with b"))],
    ];
    assert_eq!(changes, expected);
}

#[test]
fn copies_are_independent_and_failures_name_their_rule() {
    let rules = [
        rule("fails", Some("SET a = 1 / n")),
        rule("one", Some("SET RuleName = 'mine'; SET n = n + 1")),
        rule("two", Some("SET n = n + 1")),
    ];
    let ids: &dyn Fn(u32) -> [u8; 16] = &ids;
    let (made, failed) = copies(&Sample::read("n=int 0"), &rules, &ids);
    let n = || set("n", OwnedValue::Plain(Value::Int(1)));
    let changes: Vec<_> = made.into_iter().map(|copy| copy.changes).collect();
    let named = |name: &str| vec![n(), set("RuleName", text(name))];
    assert_eq!(changes, [named("one"), named("two")]);
    assert_eq!(failed.len(), 1);
    let failed = (failed[0].rule, failed[0].error.to_string());
    assert_eq!(failed, ("fails", "column 11: division by zero".to_owned()));
    let none: [Rule; 0] = [];
    assert_eq!(copies(&Sample::default(), &none, &ids).0, []);
}
