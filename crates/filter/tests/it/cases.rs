//! The files of cases: they say what they mean.

use kew_filter::{
    Action, Change, CorrelationFilter, Filter, Matches, Message, OwnedValue, Parameters, RULE_NAME,
    Rule, RuleSet, SqlFilter, Target, copies,
};

use crate::sample::{Sample, ids, shown, value_of};

const FILTERS: &str = include_str!("../cases/filters.txt");
const ACTIONS: &str = include_str!("../cases/actions.txt");
const COPIES: &str = include_str!("../cases/copies.txt");

/// The cases of filters that there are at least.
const FILTER_CASES_MIN: usize = 650;

struct Case<'t> {
    line: usize,
    text: &'t str,
    message: &'t str,
    outcome: &'t str,
    parameters: Parameters,
}

/// Reads the lines `text | message | outcome`. A group without a source is refused.
fn cases(file: &str) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    let mut parameters = Parameters::default();
    let mut has_source = false;
    for (at, line) in file.lines().enumerate() {
        if line.starts_with("==") {
            parameters = Parameters::default();
            has_source = false;
        } else if line.starts_with("source: ") {
            has_source = true;
        } else if let Some((name, value)) =
            line.strip_prefix('@').and_then(|it| it.split_once(" = "))
            && !line.contains('|')
        {
            parameters.set(name, value_of(value));
        } else if !line.is_empty() && !line.starts_with('#') {
            assert!(has_source, "line {}: its group has no source", at + 1);
            let mut parts = line.split('|');
            let mut next = || parts.next().unwrap_or_else(|| panic!("{line}")).trim();
            cases.push(Case {
                line: at + 1,
                text: next(),
                message: next(),
                outcome: next(),
                parameters: parameters.clone(),
            });
        }
    }
    cases
}

/// What a filter does with a message, in the words of the file.
fn outcome(text: &str, message: &Sample, parameters: &Parameters) -> String {
    let filter = match SqlFilter::parse(text, parameters) {
        Ok(filter) => filter,
        Err(error) => return format!("invalid {error}"),
    };
    let negated = SqlFilter::parse(&format!("NOT ({text})"), parameters).expect("a condition");
    let ids: &dyn Fn(u32) -> [u8; 16] = &ids;
    match (
        filter.matches(message, &ids),
        negated.matches(message, &ids),
    ) {
        (Err(error), Err(_)) => format!("error {error}"),
        (Ok(true), Ok(false)) => "true".to_owned(),
        (Ok(false), Ok(true)) => "false".to_owned(),
        (Ok(false), Ok(false)) => "unknown".to_owned(),
        (one, other) => panic!("{text}: {one:?}, and its negation: {other:?}"),
    }
}

/// Whether an outcome is the expected one: the same, or with the expected kind, column and words.
fn fits(found: &str, expected: &str) -> bool {
    let mut parts = expected.splitn(3, ' ');
    let (kind, column, words) = (parts.next(), parts.next(), parts.next());
    match (kind, column, words) {
        (Some(kind @ ("error" | "invalid")), Some(column), Some(words)) => {
            found.starts_with(&format!("{kind} column {column}: ")) && found.contains(words)
        }
        (_, _, _) => found == expected,
    }
}

fn check(file: &str, min: usize, outcome: impl Fn(&Case<'_>) -> String) {
    let cases = cases(file);
    let mut wrong = Vec::new();
    for case in &cases {
        let found = outcome(case);
        if !fits(&found, case.outcome) {
            let (line, text, message) = (case.line, case.text, case.message);
            let expected = case.outcome;
            wrong.push(format!(
                "line {line}: {text} | {message}: {found}, not {expected}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases.len() >= min, "only {} cases", cases.len());
}

#[test]
fn filters_do_what_the_file_says() {
    check(FILTERS, FILTER_CASES_MIN, |case| {
        outcome(case.text, &Sample::read(case.message), &case.parameters)
    });
}

fn shown_changes(changes: &[Change]) -> String {
    let shown = changes.iter().map(|change| {
        let name = match &change.target {
            Target::User(name) => name.to_string(),
            Target::System(property) => format!("sys.{}", property.name()),
        };
        match &change.to {
            Some(value) => format!("{name}={}", shown(value.as_value())),
            None => format!("-{name}"),
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[test]
fn actions_do_what_the_file_says() {
    check(ACTIONS, 60, |case| {
        let action = match Action::parse(case.text, &case.parameters) {
            Ok(action) => action,
            Err(error) => return format!("invalid {error}"),
        };
        let ids: &dyn Fn(u32) -> [u8; 16] = &ids;
        let message = Sample::read(case.message);
        match action.changes(&message, &ids) {
            Ok(changes) => shown_changes(&changes),
            Err(error) => format!("error {error}"),
        }
    });
}

/// Reads `name: filter` or `name: filter => action`.
fn rule_of(text: &str, parameters: &Parameters) -> Rule {
    let (name, rest) = text.split_once(": ").unwrap_or_else(|| panic!("{text}"));
    let (filter, action) = match rest.split_once(" => ") {
        Some((filter, action)) => (filter, Some(action)),
        None => (rest, None),
    };
    let filter = match filter.trim() {
        "all" => Filter::True,
        "none" => Filter::False,
        filter => match filter.strip_prefix("with ") {
            Some(properties) => Filter::Correlation(correlation_of(properties)),
            None => Filter::Sql(SqlFilter::parse(filter, parameters).expect(filter)),
        },
    };
    Rule {
        name: name.trim().to_owned(),
        filter,
        action: action.map(|action| Action::parse(action, parameters).expect(action)),
    }
}

/// A correlation filter with the properties that a message of the files has.
fn correlation_of(properties: &str) -> CorrelationFilter {
    let Sample { user, system } = Sample::read(properties);
    let mut filter = CorrelationFilter::default();
    for (name, value) in user {
        filter = filter.user(&name, value);
    }
    for (property, value) in system {
        let OwnedValue::Text(text) = value else {
            panic!("{properties}: system properties are texts");
        };
        filter = filter.system(property, &text);
    }
    filter
}

/// What rules of one subscription make of a message, in the words of the file.
fn copies_of(rules: &[Rule], message: &Sample) -> String {
    let ids: &dyn Fn(u32) -> [u8; 16] = &ids;
    let mut set = RuleSet::default();
    for (id, rule) in (0..).zip(rules) {
        set.insert(id, rule.filter.clone());
    }
    let mut matches = Matches::default();
    set.find(message, &ids, &mut matches);
    let rule = |id: &u64| &rules[usize::try_from(*id).unwrap()];
    let (made, failed_actions) = copies(message, matches.matching().iter().map(rule), &ids);
    let copies = made.into_iter().map(|copy| {
        let Some((name, changes)) = copy.changes.split_last() else {
            return "plain".to_owned();
        };
        assert_eq!(name.target, Target::User(RULE_NAME.into()));
        let name = name.to.as_ref().and_then(|name| name.as_value().as_text());
        format!("{}: {}", name.unwrap(), shown_changes(changes))
            .trim()
            .to_owned()
    });
    let failed = |name: &str| {
        let of_filter = matches
            .failed()
            .iter()
            .find(|(id, _)| rule(id).name == name);
        let of_action = failed_actions.iter().find(|it| it.rule == name);
        let error = of_filter.map(|(_, error)| error);
        error.or(of_action.map(|it| &it.error)).cloned()
    };
    let failures = rules.iter().filter_map(|rule| {
        let error = failed(&rule.name)?;
        Some(format!("failed {}: {error}", rule.name))
    });
    let all: Vec<_> = copies.chain(failures).collect();
    match all.is_empty() {
        true => "nothing".to_owned(),
        false => all.join(" / "),
    }
}

#[test]
fn several_rules_make_the_copies_that_the_file_says() {
    check(COPIES, 40, |case| {
        let rules = case
            .text
            .split(";;")
            .map(|it| rule_of(it, &case.parameters));
        let rules: Vec<_> = rules.collect();
        copies_of(&rules, &Sample::read(case.message))
    });
}

#[test]
fn a_sample_is_read_as_it_is_written() {
    let sample = Sample::read("a='x, ''y''', sys.Label='l', n=decimal -1.5");
    assert_eq!(sample.user("A").map(shown), Some("'x, 'y''".to_owned()));
    assert_eq!(
        sample.user("n").map(shown),
        Some("decimal -15E-1".to_owned())
    );
    assert_eq!(sample.system.len(), 1);
}
