//! The rules of subscriptions as the service has them, and as lines of an export.

use kew_client::{CorrelationFilter, Filter, FilterValue, RuleSettings, Sql};
use kew_filter::{parameters_that_count, same_parameter};
use serde_json::{Map, Value as Json};

use super::mark::UNFINISHED;
use crate::operate::rule_values::{json_of, of_json};
use crate::portable::{DefinedRule, RuleConditions, RuleFilter, RuleSql};

/// What services write as the version of SQL. A line does not.
const COMPATIBILITY_LEVEL: u32 = 20;

/// The filter and the action of a line.
pub(super) type Content = (RuleFilter, Option<RuleSql>);

/// The filter and the action of a rule; or why no line can have them.
pub(super) fn content_of(rule: &RuleSettings) -> Result<Content, String> {
    let unknown: Vec<&str> = rule.unknown.names().collect();
    if !unknown.is_empty() {
        return Err(format!("it has an unknown part: {}", unknown.join(", ")));
    }
    let filter = match &rule.filter {
        Filter::True => RuleFilter::True,
        Filter::False => RuleFilter::False,
        Filter::Sql(sql) => RuleFilter::Sql(line_of_sql(sql)),
        // Earlier versions of Kew took such a filter, which selects all messages.
        Filter::Correlation(it) if **it == CorrelationFilter::default() => RuleFilter::True,
        Filter::Correlation(it) => RuleFilter::Correlation(Box::new(conditions_of(it))),
        Filter::Other { kind, .. } => return Err(format!("its filter is of the kind {kind:?}")),
        _ => return Err("its filter is of an unknown kind".into()),
    };
    Ok((filter, rule.action.as_ref().map(line_of_sql)))
}

fn line_of_sql(sql: &Sql) -> RuleSql {
    RuleSql {
        text: sql.text.clone(),
        parameters: members(parameters_that_count(&sql.parameters)),
        compatibility_level: sql
            .compatibility_level
            .filter(|&it| it != COMPATIBILITY_LEVEL),
    }
}

fn conditions_of(it: &CorrelationFilter) -> RuleConditions {
    RuleConditions {
        correlation_id: it.correlation_id.clone(),
        message_id: it.message_id.clone(),
        to: it.to.clone(),
        reply_to: it.reply_to.clone(),
        subject: it.subject.clone(),
        session_id: it.session_id.clone(),
        reply_to_session_id: it.reply_to_session_id.clone(),
        content_type: it.content_type.clone(),
        properties: members(it.properties.iter()),
    }
}

fn members<'a>(values: impl Iterator<Item = &'a (String, FilterValue)>) -> Map<String, Json> {
    values
        .map(|(name, value)| (name.clone(), json_of(value)))
        .collect()
}

/// What a line makes of a rule; or what is wrong with it.
pub(super) fn settings_of_rule(line: &DefinedRule) -> Result<RuleSettings, String> {
    if line.rule.eq_ignore_ascii_case(UNFINISHED) {
        return Err(format!(
            "rule is {UNFINISHED:?}, and must be another name: an import uses it meanwhile"
        ));
    }
    let filter = match &line.filter {
        RuleFilter::True => Filter::True,
        RuleFilter::False => Filter::False,
        RuleFilter::Sql(sql) => Filter::Sql(read_sql("filter", sql)?),
        // An earlier version has exported it.
        RuleFilter::Correlation(it) if **it == RuleConditions::default() => Filter::True,
        RuleFilter::Correlation(it) => Filter::Correlation(Box::new(CorrelationFilter {
            correlation_id: it.correlation_id.clone(),
            message_id: it.message_id.clone(),
            to: it.to.clone(),
            reply_to: it.reply_to.clone(),
            subject: it.subject.clone(),
            session_id: it.session_id.clone(),
            reply_to_session_id: it.reply_to_session_id.clone(),
            content_type: it.content_type.clone(),
            properties: values("property", &it.properties)?,
        })),
    };
    let action = line.action.as_ref();
    Ok(RuleSettings {
        filter,
        action: action.map(|it| read_sql("action", it)).transpose()?,
        ..RuleSettings::default()
    })
}

/// A parameter that a line gives twice: an earlier version has exported it, and lines do not say which one came later.
pub(super) fn repeated_parameter(line: &DefinedRule) -> Option<&str> {
    let filter = match &line.filter {
        RuleFilter::Sql(sql) => Some(sql),
        RuleFilter::True | RuleFilter::False | RuleFilter::Correlation(_) => None,
    };
    filter.into_iter().chain(&line.action).find_map(|sql| {
        let names: Vec<&str> = sql.parameters.keys().map(String::as_str).collect();
        let later = |place: usize| names.iter().skip(place + 1);
        let is_repeated =
            |(place, name): &(usize, &&str)| later(*place).any(|later| same_parameter(later, name));
        names
            .iter()
            .enumerate()
            .find(is_repeated)
            .map(|(_, it)| *it)
    })
}

fn read_sql(what: &str, sql: &RuleSql) -> Result<Sql, String> {
    let parameters = values(&format!("{what}: parameter"), &sql.parameters)?;
    Ok(Sql {
        text: sql.text.clone(),
        // New rules give a parameter once.
        parameters: parameters_that_count(&parameters).cloned().collect(),
        compatibility_level: sql.compatibility_level,
    })
}

fn values(what: &str, members: &Map<String, Json>) -> Result<Vec<(String, FilterValue)>, String> {
    let read = |(name, json): (&String, &Json)| match of_json(json) {
        Ok(value) => Ok((name.clone(), value)),
        Err(error) => Err(format!("{what} {name}: {error}")),
    };
    members.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(filter: RuleFilter, action: Option<RuleSql>) -> DefinedRule {
        DefinedRule::new(("t", "s"), "r", (filter, action))
    }

    fn sql(parameters: Json) -> RuleSql {
        RuleSql {
            text: "a > @b".into(),
            parameters: serde_json::from_value(parameters).unwrap(),
            compatibility_level: None,
        }
    }

    #[test]
    fn rules_come_back() {
        let typed = json!({"@b": {"uint": 7}, "@c": {"timespan_ticks": 9}, "@d": "x", "@e": null});
        let level = RuleSql {
            compatibility_level: Some(10),
            ..sql(json!({}))
        };
        let conditions = RuleConditions {
            subject: Some("s".into()),
            content_type: Some("c".into()),
            properties: serde_json::from_value(typed.clone()).unwrap(),
            ..RuleConditions::default()
        };
        for content in [
            (RuleFilter::True, None),
            (RuleFilter::False, Some(sql(typed.clone()))),
            (RuleFilter::Sql(sql(typed)), Some(level)),
            (RuleFilter::Correlation(Box::new(conditions)), None),
        ] {
            let line = rule(content.0.clone(), content.1.clone());
            let settings = settings_of_rule(&line).unwrap();
            assert_eq!(content_of(&settings), Ok(content));
        }
        let none = RuleFilter::Correlation(Box::default());
        let settings = settings_of_rule(&rule(none, None)).unwrap();
        assert!(matches!(settings.filter, Filter::True));
        let none = RuleSettings {
            filter: Filter::Correlation(Box::default()),
            ..RuleSettings::default()
        };
        assert_eq!(content_of(&none), Ok((RuleFilter::True, None)));
        let current = RuleSettings {
            filter: Filter::Sql(Sql {
                compatibility_level: Some(COMPATIBILITY_LEVEL),
                ..Sql::new("a > @b")
            }),
            ..RuleSettings::default()
        };
        let expected = (RuleFilter::Sql(sql(json!({}))), None);
        assert_eq!(content_of(&current), Ok(expected));
    }

    /// Earlier versions stored such rules, and exported both values: which one came later is not in such a line.
    #[test]
    fn a_parameter_that_is_given_twice_comes_back_once() {
        let stored = RuleSettings {
            filter: Filter::Sql(Sql {
                parameters: [("a", 1), ("@b", 2), ("@A", 3)]
                    .map(|(name, value)| (name.to_owned(), FilterValue::Long(value)))
                    .into(),
                ..Sql::new("a > @b")
            }),
            ..RuleSettings::default()
        };
        let once = sql(json!({"@b": {"long": 2}, "@A": {"long": 3}}));
        let exported = content_of(&stored).unwrap();
        assert_eq!(exported, (RuleFilter::Sql(once), None));
        let line = rule(exported.0, None);
        assert_eq!(repeated_parameter(&line), None);
        assert!(settings_of_rule(&line).is_ok());

        let twice = sql(json!({"@b": {"long": 2}, "@A": {"long": 3}, "a": {"long": 1}}));
        let old = [
            rule(RuleFilter::Sql(twice.clone()), None),
            rule(RuleFilter::True, Some(twice)),
        ];
        for line in old {
            assert_eq!(repeated_parameter(&line), Some("@A"));
            let settings = settings_of_rule(&line).unwrap();
            let sql = match settings.filter {
                Filter::Sql(sql) => sql,
                _ => settings.action.unwrap(),
            };
            let names: Vec<&str> = sql.parameters.iter().map(|it| &*it.0).collect();
            assert_eq!(names, ["@b", "a"]);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |line: &DefinedRule| settings_of_rule(line).unwrap_err();
        let wrong = RuleFilter::Sql(sql(json!({"@b": 7})));
        let found = error(&rule(wrong, None));
        assert!(
            found.contains("filter: parameter @b: the number 7 has no type"),
            "{found}"
        );
        let found = error(&rule(
            RuleFilter::True,
            Some(sql(json!({"@b": {"list": []}}))),
        ));
        assert!(
            found.contains("action: parameter @b: a rule cannot have"),
            "{found}"
        );
        let conditions = RuleConditions {
            properties: [("n".to_owned(), json!({"color": 1}))]
                .into_iter()
                .collect(),
            ..RuleConditions::default()
        };
        let found = error(&rule(RuleFilter::Correlation(Box::new(conditions)), None));
        assert!(
            found.contains("property n: \"color\" is not a type"),
            "{found}"
        );
        let name = DefinedRule::new(
            ("t", "s"),
            "Kew-Import-Unfinished",
            (RuleFilter::True, None),
        );
        assert!(error(&name).contains("must be another name"));
        let other = RuleSettings {
            filter: Filter::Other {
                kind: "NewFilter".into(),
                element: kew_client::UnknownElements::default(),
            },
            ..RuleSettings::default()
        };
        assert!(content_of(&other).unwrap_err().contains("NewFilter"));
    }
}
