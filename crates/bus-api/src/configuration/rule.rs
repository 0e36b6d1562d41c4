//! Rules of a configuration file.

use std::collections::BTreeMap;

use kew_engine::bus::NewRule;
use kew_filter::{
    CorrelationFilter, Definition, Equality, FilterDefinition, OwnedValue, SqlDefinition,
    SystemProperty, Value,
};

use super::config::ImportError;
use super::file::{Correlation, FilterType, Rule, RuleProperties, Sql};

/// What the file has in place of a true and of a false filter.
const TRUE: &str = "1=1";
const FALSE: &str = "1=0";

/// A rule of the file.
pub(super) fn imported(rule: &Rule) -> Result<NewRule, ImportError> {
    let given = &rule.properties;
    let filter = match given.filter_type {
        FilterType::Sql => match &given.sql_filter {
            Some(sql) => match sql.sql_expression.as_str() {
                TRUE => FilterDefinition::True,
                FALSE => FilterDefinition::False,
                _ => FilterDefinition::Sql(sql_of(sql)),
            },
            None => return Err(lacks("Sql", "SqlFilter")),
        },
        FilterType::Correlation => match &given.correlation_filter {
            Some(filter) => FilterDefinition::Correlation(equalities(filter)?),
            None => return Err(lacks("Correlation", "CorrelationFilter")),
        },
    };
    if let Some(unused) = given.unused() {
        let kind = given.filter_type;
        return Err(ImportError(format!(
            "FilterType is {kind:?}, and the rule has a {unused}, too: remove one of them"
        )));
    }
    let wrong = |why: String| ImportError(why);
    let definition = Definition::new(filter, given.action().map(sql_of));
    let definition = definition.map_err(|error| wrong(error.to_string()))?;
    definition
        .compile()
        .map_err(|error| wrong(error.to_string()))?;
    Ok(NewRule {
        name: rule.name.as_str().into(),
        definition,
    })
}

fn lacks(kind: &str, part: &str) -> ImportError {
    ImportError(format!("FilterType is {kind}, and there is no {part}"))
}

fn sql_of(sql: &Sql) -> SqlDefinition {
    SqlDefinition {
        text: sql.sql_expression.as_str().into(),
        ..SqlDefinition::default()
    }
}

fn equalities(filter: &Correlation) -> Result<Vec<Equality>, ImportError> {
    // As over HTTP and AMQP, an empty text is no condition, and neither is a null.
    let system = filter
        .system
        .iter()
        .filter(|(_, value)| !value.is_null() && value.as_str() != Some(""));
    let system = system.map(|(name, value)| {
        let found = SystemProperty::named(name);
        let property = found.filter(|it| CorrelationFilter::SYSTEM.contains(it) && it.name() == name);
        match (property, value.as_str()) {
            (Some(property), Some(text)) => Ok(Equality::System {
                property,
                text: text.into(),
            }),
            (Some(_), None) => Err(ImportError(format!(
                "CorrelationFilter: {name} is {value}, and must be a text"
            ))),
            (None, _) => {
                let known = CorrelationFilter::SYSTEM.map(SystemProperty::name).join(", ");
                Err(ImportError(format!(
                    "CorrelationFilter: unknown property {name:?}: expected {known}, or Properties for those of \
                     the application"
                )))
            }
        }
    });
    let user = filter.properties.iter().map(|(name, json)| {
        let value = value_of(json).ok_or_else(|| {
            ImportError(format!(
                "CorrelationFilter: the property {name:?} is {json}, and must be a text, a number, true or false"
            ))
        })?;
        Ok(Equality::User {
            name: name.as_str().into(),
            value,
        })
    });
    let all = system
        .chain(user)
        .collect::<Result<Vec<_>, ImportError>>()?;
    if all.is_empty() {
        return Err(ImportError(
            "CorrelationFilter: it has no property, and must have one or more".into(),
        ));
    }
    Ok(all)
}

fn value_of(json: &serde_json::Value) -> Option<OwnedValue> {
    let plain = |value| Some(OwnedValue::Plain(value));
    match json {
        serde_json::Value::String(text) => Some(OwnedValue::Text(text.as_str().into())),
        serde_json::Value::Bool(it) => plain(Value::Boolean(*it)),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(integer) => plain(Value::Long(integer)),
            None => plain(Value::Double(number.as_f64()?)),
        },
        serde_json::Value::Null | serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            None
        }
    }
}

/// A rule as the file has it, or what of it the file cannot have.
pub(crate) fn exported(name: &str, definition: &Definition) -> Result<Rule, &'static str> {
    let filter = definition.filter();
    let (filter_type, correlation_filter, sql_filter) = match filter {
        FilterDefinition::True => (FilterType::Sql, None, Some(written(TRUE))),
        FilterDefinition::False => (FilterType::Sql, None, Some(written(FALSE))),
        FilterDefinition::Sql(sql) => (FilterType::Sql, None, Some(text_of(sql)?)),
        // Earlier versions took such a filter, which selects all messages.
        FilterDefinition::Correlation(all) if all.is_empty() => {
            (FilterType::Sql, None, Some(written(TRUE)))
        }
        FilterDefinition::Correlation(all) => {
            (FilterType::Correlation, Some(correlation_of(all)?), None)
        }
    };
    Ok(Rule {
        name: name.to_owned(),
        properties: RuleProperties {
            filter_type,
            correlation_filter,
            sql_filter,
            action: definition.action().map(text_of).transpose()?,
        },
    })
}

/// What a subscription without rules has in the file, where no rule means that it gets every message.
pub(super) fn gets_nothing() -> Rule {
    Rule {
        name: "$Default".into(),
        properties: RuleProperties {
            filter_type: FilterType::Sql,
            correlation_filter: None,
            sql_filter: Some(written(FALSE)),
            action: None,
        },
    }
}

fn written(text: &str) -> Sql {
    Sql::new(text)
}

fn text_of(sql: &SqlDefinition) -> Result<Sql, &'static str> {
    match sql.parameters.is_empty() {
        true => Ok(written(&sql.text)),
        false => Err("parameters"),
    }
}

fn correlation_of(all: &[Equality]) -> Result<Correlation, &'static str> {
    let mut filter = Correlation {
        properties: BTreeMap::new(),
        system: BTreeMap::new(),
    };
    for equality in all {
        match equality {
            Equality::System { property, text } => {
                let name = property.name().to_owned();
                filter.system.insert(name, serde_json::Value::from(&**text));
            }
            Equality::User { name, value } => {
                let json = json_of(value.as_value())
                    .ok_or("a property that is no text, number, true or false")?;
                filter.properties.insert(name.to_string(), json);
            }
        }
    }
    Ok(filter)
}

fn json_of(value: Value<'_>) -> Option<serde_json::Value> {
    match value {
        Value::Boolean(it) => Some(it.into()),
        Value::Byte(it) => Some(it.into()),
        Value::Short(it) => Some(it.into()),
        Value::Int(it) => Some(it.into()),
        Value::Long(it) => Some(it.into()),
        Value::Ubyte(it) => Some(it.into()),
        Value::Ushort(it) => Some(it.into()),
        Value::Uint(it) => Some(it.into()),
        Value::Ulong(it) => i64::try_from(it).ok().map(Into::into),
        Value::Float(it) => number(f64::from(it)),
        Value::Double(it) => number(it),
        Value::Text(text) | Value::Symbol(text) => Some(text.into()),
        Value::Null
        | Value::Decimal(_)
        | Value::Char(_)
        | Value::Timestamp(_)
        | Value::Duration(_)
        | Value::Uuid(_)
        | Value::Binary(_)
        | Value::Other => None,
    }
}

fn number(it: f64) -> Option<serde_json::Value> {
    serde_json::Number::from_f64(it).map(serde_json::Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: serde_json::Value) -> Result<NewRule, String> {
        let rule: Rule = serde_json::from_value(json).map_err(|error| error.to_string())?;
        imported(&rule).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_are_the_same_after_export_and_import() {
        for properties in [
            serde_json::json!({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = 1"}}),
            serde_json::json!({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a IS NULL"},
                "Action": {"SqlExpression": "SET sys.To = 'x'"}}),
            serde_json::json!({"FilterType": "Correlation", "CorrelationFilter": {
                "ContentType": "c", "CorrelationId": "i", "Label": "l", "MessageId": "m", "ReplyTo": "r",
                "ReplyToSessionId": "q", "SessionId": "s", "To": "t",
                "Properties": {"text": "x", "flag": true, "whole": 7, "part": 0.5}}}),
        ] {
            let json = serde_json::json!({"Name": "R", "Properties": properties});
            let new = rule(json.clone()).unwrap();
            let written = exported(&new.name, &new.definition).unwrap();
            assert_eq!(serde_json::to_value(&written).unwrap(), json);
        }
    }

    /// As .NET Aspire and others write them.
    #[test]
    fn what_says_nothing_is_as_if_it_were_not_there() {
        let plain =
            serde_json::json!({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = 1"}});
        let padded = serde_json::json!({"FilterType": "Sql",
            "SqlFilter": {"SqlExpression": "a = 1", "RequiresPreprocessing": true},
            "CorrelationFilter": {"To": null, "Label": "", "Properties": {}},
            "Action": {"SqlExpression": ""}});
        let named = |properties| serde_json::json!({"Name": "r", "Properties": properties});
        let definition = rule(named(plain)).unwrap().definition;
        assert_eq!(rule(named(padded)).unwrap().definition, definition);
        let correlated = serde_json::json!({"FilterType": "Correlation", "CorrelationFilter": {"To": "x"},
            "SqlFilter": {"SqlExpression": ""}, "Action": null});
        assert!(rule(named(correlated)).is_ok());
    }

    #[test]
    fn true_and_false_filters_become_sql() {
        for (filter, text) in [
            (FilterDefinition::True, "1=1"),
            (FilterDefinition::False, "1=0"),
            (FilterDefinition::Correlation(Vec::new()), "1=1"),
        ] {
            let definition = Definition::new(filter, None).unwrap();
            let written = exported("r", &definition).unwrap();
            assert_eq!(written.properties.sql_filter.unwrap().sql_expression, text);
        }
    }

    #[test]
    fn wrong_rules_are_refused_with_the_reason() {
        let sql = |text: &str| serde_json::json!({"SqlExpression": text});
        for (properties, says) in [
            (
                serde_json::json!({"FilterType": "Xml"}),
                "unknown variant `Xml`",
            ),
            (
                serde_json::json!({"FilterType": "Sql"}),
                "there is no SqlFilter",
            ),
            (
                serde_json::json!({"FilterType": "Correlation", "SqlFilter": sql("a=1")}),
                "there is no CorrelationFilter",
            ),
            (
                serde_json::json!({"FilterType": "Sql", "SqlFilter": sql("a=1"), "CorrelationFilter": {"To": "x"}}),
                "has a CorrelationFilter, too",
            ),
            (
                serde_json::json!({"FilterType": "Sql", "SqlFilter": sql("a =")}),
                "the filter is not valid",
            ),
            (
                serde_json::json!({"FilterType": "Sql", "SqlFilter": sql("a=1"), "Action": sql("DROP a")}),
                "the action is not valid",
            ),
            (
                serde_json::json!({"FilterType": "Correlation", "CorrelationFilter": {}}),
                "has no property",
            ),
            (
                serde_json::json!({"FilterType": "Correlation", "CorrelationFilter": {"Subject": "x"}}),
                "unknown property \"Subject\": expected",
            ),
            (
                serde_json::json!({"FilterType": "Correlation", "CorrelationFilter": {"To": 1}}),
                "To is 1, and must be a text",
            ),
            (
                serde_json::json!({"FilterType": "Correlation", "CorrelationFilter": {"Properties": {"p": [1]}}}),
                "the property \"p\" is [1]",
            ),
        ] {
            let refused = rule(serde_json::json!({"Name": "r", "Properties": properties}));
            let refused = refused.unwrap_err();
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn what_the_file_cannot_have_is_named() {
        let sql = SqlDefinition {
            text: "a = @p".into(),
            parameters: vec![("@p".into(), OwnedValue::Plain(Value::Long(1)))],
            compatibility_level: None,
        };
        let definition = Definition::new(FilterDefinition::Sql(sql), None).unwrap();
        assert_eq!(exported("r", &definition).unwrap_err(), "parameters");
        let value = OwnedValue::Plain(Value::Uuid([1; 16]));
        let name = "p".into();
        let filter = FilterDefinition::Correlation(vec![Equality::User { name, value }]);
        let definition = Definition::new(filter, None).unwrap();
        assert!(
            exported("r", &definition)
                .unwrap_err()
                .contains("no text, number")
        );
    }
}
