//! Rules over AMQP: what `add-rule` brings, and what `enumerate-rules` answers.
//!
//! Source: Service Bus, *AMQP request-response based operations*, and what the SDKs of .NET, Java and JavaScript send and
//! expect.

use bytes::BytesMut;
use kew_amqp::codec::{Map, Raw, Value, write_described, write_list, write_map};
use kew_bus_message::{amqp_of, value_of};
use kew_engine::Timestamp;
use kew_engine::bus::NewRule;
use kew_filter::limits::EQUALITIES_MAX;
use kew_filter::{CorrelationFilter, Definition, Equality, FilterDefinition, SqlDefinition};

use super::{BadRule, Properties, SYSTEM_COUNT, conditions, level_of, unknown_condition};
use crate::messages::outbound::wire_time;
use crate::messages::request::present;

// The descriptors. Those of filters have a digit less than those of rules and actions.
const RULE_DESCRIPTION: u64 = 0x0137_0000_0004;
const EMPTY_ACTION: u64 = 0x0137_0000_0005;
const SQL_ACTION: u64 = 0x0137_0000_0006;
const SQL_FILTER: u64 = 0x0013_7000_0006;
const TRUE_FILTER: u64 = 0x0013_7000_0007;
const FALSE_FILTER: u64 = 0x0013_7000_0008;
const CORRELATION_FILTER: u64 = 0x0013_7000_0009;

/// The names of system properties in a correlation filter, in the order of [`CorrelationFilter::SYSTEM`].
const SYSTEM_NAMES: [&str; SYSTEM_COUNT] = [
    "correlation-id",
    "message-id",
    "to",
    "reply-to",
    "label",
    "session-id",
    "reply-to-session-id",
    "content-type",
];

/// The field of a correlation filter with the properties of the application.
const PROPERTIES: &str = "properties";

/// The rule of this name that a map describes.
pub(crate) fn read(name: &str, description: &Map) -> Result<NewRule, BadRule> {
    let sql = map_in(description, "sql-filter")?;
    let correlation = map_in(description, "correlation-filter")?;
    let filter = match (sql, correlation) {
        (Some(sql), None) => FilterDefinition::Sql(sql_of(&sql, "sql-filter")?),
        (None, Some(correlation)) => conditions(equalities_of(&correlation)?)?,
        (Some(_), Some(_)) | (None, None) => {
            return Err(BadRule::new(
                "the rule-description must have either a sql-filter or a correlation-filter",
            ));
        }
    };
    let action = map_in(description, "sql-rule-action")?;
    let action = action.map(|action| sql_of(&action, "sql-rule-action"));
    super::rule(name, filter, action.transpose()?)
}

fn map_in(map: &Map, field: &str) -> Result<Option<Map>, BadRule> {
    match present(map, field) {
        None => Ok(None),
        Some(Value::Map(map)) => Ok(Some(map)),
        Some(_) => Err(BadRule(format!("the {field} must be a map"))),
    }
}

fn text_in(map: &Map, of: &str, field: &str) -> Result<Option<Box<str>>, BadRule> {
    match present(map, field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str().into())),
        Some(_) => Err(BadRule(format!("the {field} of the {of} must be a string"))),
    }
}

fn sql_of(map: &Map, of: &str) -> Result<SqlDefinition, BadRule> {
    if present(map, "parameters").is_some() {
        return Err(BadRule(format!(
            "the {of} cannot have parameters over AMQP: create the rule over HTTP"
        )));
    }
    let text = text_in(map, of, "expression")?;
    let text = text.ok_or_else(|| BadRule(format!("the {of} must have an expression")))?;
    Ok(SqlDefinition {
        text,
        ..SqlDefinition::default()
    })
}

/// An empty text names no property, as over HTTP, where it looks like one that is missing.
fn equalities_of(map: &Map) -> Result<Vec<Equality>, BadRule> {
    for (key, value) in map.iter() {
        let key = key.value();
        let name = key.as_str().unwrap_or_default();
        let is_known = name == PROPERTIES || SYSTEM_NAMES.contains(&name);
        // A null is a field that is not there, whatever its name.
        if !is_known && value.value() != Value::Null {
            return Err(unknown_condition(name, &SYSTEM_NAMES));
        }
    }
    let mut equalities = Vec::new();
    for (property, name) in CorrelationFilter::SYSTEM.into_iter().zip(SYSTEM_NAMES) {
        let text = text_in(map, "correlation-filter", name)?;
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            equalities.push(Equality::System { property, text });
        }
    }
    let properties = map_in(map, PROPERTIES)?.unwrap_or_default();
    let mut read = Properties::with_room_for(properties.len() as usize, EQUALITIES_MAX)?;
    for (key, value) in properties.iter() {
        let key = key.value();
        let name = key.as_str().ok_or_else(|| {
            BadRule::new("the names in the properties of the correlation-filter must be strings")
        })?;
        let value = value_of(value.as_bytes());
        let value = value.map_err(|error| BadRule(format!("the value of {name:?}: {error}")))?;
        read.add(name, value.to_owned())?;
    }
    equalities.extend(read.into_equalities());
    Ok(equalities)
}

/// Writes a rule as a described list.
pub(crate) fn write(
    out: &mut BytesMut,
    name: &str,
    definition: &Definition,
    created_at: Timestamp,
) {
    write_described(out, RULE_DESCRIPTION, |out| {
        write_list(out, |list| {
            list.with(|out| write_filter(out, definition.filter()));
            list.with(|out| match definition.action() {
                None => write_described(out, EMPTY_ACTION, |out| write_list(out, |_| {})),
                Some(sql) => write_sql(out, SQL_ACTION, sql),
            });
            list.field(name);
            list.field(&wire_time(created_at));
        });
    });
}

fn write_filter(out: &mut BytesMut, filter: &FilterDefinition) {
    match filter {
        FilterDefinition::True => write_described(out, TRUE_FILTER, |out| write_list(out, |_| {})),
        FilterDefinition::False => {
            write_described(out, FALSE_FILTER, |out| write_list(out, |_| {}));
        }
        FilterDefinition::Sql(sql) => write_sql(out, SQL_FILTER, sql),
        FilterDefinition::Correlation(equalities) => {
            write_described(out, CORRELATION_FILTER, |out| {
                write_correlation(out, equalities);
            });
        }
    }
}

fn write_sql(out: &mut BytesMut, descriptor: u64, sql: &SqlDefinition) {
    let level = i32::try_from(level_of(sql)).unwrap_or(i32::MAX);
    write_described(out, descriptor, |out| {
        write_list(out, |list| {
            list.field(&*sql.text);
            list.field(&level);
        });
    });
}

/// Every field is there, because .NET goes through the properties also if there are none.
fn write_correlation(out: &mut BytesMut, equalities: &[Equality]) {
    write_list(out, |list| {
        for wanted in CorrelationFilter::SYSTEM {
            let mut texts = equalities.iter().filter_map(|equality| match equality {
                Equality::System { property, text } if *property == wanted => Some(&**text),
                Equality::System { .. } | Equality::User { .. } => None,
            });
            match texts.next() {
                Some(text) => list.field(text),
                None => list.null(),
            }
        }
        list.with(|out| {
            write_map(out, |map| {
                for equality in equalities {
                    if let Equality::User { name, value } = equality {
                        let value = amqp_of(value.as_value()).unwrap_or(Value::Null);
                        map.entry(&**name, &Raw::of(&value));
                    }
                }
            });
        });
    });
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kew_amqp::codec::{Encode, Timestamp as WireTime};
    use kew_filter::{OwnedValue, SystemProperty};

    use super::*;

    fn map(write: impl FnOnce(&mut kew_amqp::codec::MapWriter<'_>)) -> Map {
        Map::build(write)
    }

    fn with(field: &str, value: &(impl Encode + ?Sized)) -> Map {
        map(|map| map.entry(field, value))
    }

    fn sql(text: &str) -> SqlDefinition {
        SqlDefinition {
            text: text.into(),
            ..SqlDefinition::default()
        }
    }

    #[test]
    fn rules_of_sdks_are_read() {
        let expression = with("expression", "color = 'red'");
        let simple = map(|map| {
            map.entry("sql-filter", &expression);
            // .NET sends both.
            map.entry("sql-rule-action", &Value::Null);
            map.entry("rule-name", "r");
        });
        let read_simple = read("r", &simple).unwrap();
        assert_eq!(&*read_simple.name, "r");
        let definition = read_simple.definition;
        assert_eq!(
            *definition.filter(),
            FilterDefinition::Sql(sql("color = 'red'"))
        );
        assert_eq!(definition.action(), None);

        let action = with("expression", "SET a = 1");
        let properties = map(|map| {
            map.entry("int", &1_i32);
            map.entry("when", &WireTime(-1));
            map.entry("none", &Value::Null);
        });
        let correlation = map(|map| {
            map.entry("correlation-id", "c");
            map.entry("message-id", &Value::Null);
            map.entry("label", "l");
            map.entry("to", "");
            map.entry("of-another-version", &Value::Null);
            map.entry("properties", &properties);
        });
        let full = map(|map| {
            map.entry("correlation-filter", &correlation);
            map.entry("sql-rule-action", &action);
        });
        let definition = read("r", &full).unwrap().definition;
        let user = |name: &str, value| Equality::User {
            name: name.into(),
            value: OwnedValue::Plain(value),
        };
        let system = |property, text: &str| Equality::System {
            property,
            text: text.into(),
        };
        let equalities = vec![
            system(SystemProperty::CorrelationId, "c"),
            system(SystemProperty::Label, "l"),
            user("int", kew_filter::Value::Int(1)),
            user("when", kew_filter::Value::Timestamp(-1)),
            user("none", kew_filter::Value::Null),
        ];
        assert_eq!(
            *definition.filter(),
            FilterDefinition::Correlation(equalities)
        );
        assert_eq!(definition.action(), Some(&sql("SET a = 1")));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        let expression = with("expression", "a = 1");
        let both = map(|map| {
            map.entry("sql-filter", &expression);
            map.entry("correlation-filter", &Map::default());
        });
        let twice = map(|map| {
            map.entry("a", &1);
            map.entry("a", &2);
        });
        let many = map(|map| {
            for number in 0..129 {
                map.entry(&*format!("p{number}"), &number);
            }
        });
        let large = with("a", &*"x".repeat(33_000));
        let list = Raw::new(Bytes::from_static(&[0x45])).unwrap();
        let no_name = map(|map| map.entry(&1, &2));
        let properties = |value: &Map| with("correlation-filter", &with("properties", value));
        let action = |action: &dyn Fn(&mut kew_amqp::codec::MapWriter<'_>)| {
            map(|map| {
                map.entry("sql-filter", &expression);
                action(map);
            })
        };
        let with_parameters = map(|map| {
            map.entry("expression", "a = @p");
            map.entry("parameters", &twice);
        });
        for (description, says) in [
            (Map::default(), "either a sql-filter or"),
            (both, "either a sql-filter or"),
            (with("true-filter", &Map::default()), "either a sql-filter"),
            (with("sql-filter", "a = 1"), "the sql-filter must be a map"),
            (with("sql-filter", &Map::default()), "have an expression"),
            (
                with("sql-filter", &with("expression", &1)),
                "the expression of the sql-filter must be a string",
            ),
            (
                with("sql-filter", &with_parameters),
                "cannot have parameters",
            ),
            (
                with("correlation-filter", &with("message-id", &7_u64)),
                "the message-id of the correlation-filter must be a string",
            ),
            (
                with("correlation-filter", &with("properties", "a")),
                "the properties must be a map",
            ),
            (
                with("correlation-filter", &Map::default()),
                "no property with a value",
            ),
            (
                with("correlation-filter", &with("label", "")),
                "no property with a value",
            ),
            (
                with("correlation-filter", &with("foo", "x")),
                "the unknown property \"foo\": it can have correlation-id,",
            ),
            (properties(&no_name), "must be strings"),
            (properties(&twice), "twice"),
            (properties(&many), "129 properties"),
            (properties(&large), "the maximum is 32768"),
            (properties(&with("l", &list)), "a list, a map"),
            (
                action(&|map| map.entry("sql-rule-action", "SET a = 1")),
                "the sql-rule-action must be a map",
            ),
            (
                action(&|map| map.entry("sql-rule-action", &Map::default())),
                "the sql-rule-action must have an expression",
            ),
        ] {
            let error = read("r", &description).unwrap_err().to_string();
            assert!(error.contains(says), "{error} does not say {says}");
        }
        for name in ["a/b", "a\\b", "a@b", "a?b", "a#b", "a\nb"] {
            let error = read(name, &with("sql-filter", &expression)).unwrap_err();
            assert!(error.to_string().contains("the character"), "{error}");
        }
    }

    fn written(filter: FilterDefinition, action: Option<SqlDefinition>) -> String {
        let definition = Definition::new(filter, action).unwrap();
        let mut out = BytesMut::new();
        write(&mut out, "r", &definition, Timestamp::from_ms(256));
        kew_amqp::codec::hex(&out)
    }

    /// The numbers are those that JavaScript and Java compare with.
    #[test]
    fn rules_are_written_as_sdks_read_them() {
        let code = |decimal: u64| format!("0080{decimal:016x}");
        let (rule, empty) = (code(1_335_734_829_060), code(1_335_734_829_061) + "45");
        // The name, and the time.
        let end = "a10172830000000000000100";
        for (filter, decimal) in [
            (FilterDefinition::True, 83_483_426_823),
            (FilterDefinition::False, 83_483_426_824),
        ] {
            let list = format!("{}45{empty}{end}", code(decimal));
            let size = list.len() / 2 + 1;
            let expected = format!("{rule}c0{size:02x}04{list}");
            assert_eq!(written(filter, None), expected);
        }
        let filter = FilterDefinition::Sql(sql("a"));
        let action = SqlDefinition {
            compatibility_level: Some(7),
            ..sql("b")
        };
        let list = format!(
            "{}c00602a101615414{}c00602a101625407{end}",
            code(83_483_426_822),
            code(1_335_734_829_062)
        );
        let size = list.len() / 2 + 1;
        let expected = format!("{rule}c0{size:02x}04{list}");
        assert_eq!(written(filter, Some(action)), expected);

        let equalities = vec![
            Equality::System {
                property: SystemProperty::To,
                text: "t".into(),
            },
            Equality::User {
                name: "n".into(),
                value: OwnedValue::Plain(kew_filter::Value::Long(2)),
            },
        ];
        let fields = "4040a101744040404040c10602a1016e5502";
        let list = format!(
            "{}c0{:02x}09{fields}{empty}{end}",
            code(83_483_426_825),
            fields.len() / 2 + 1
        );
        let size = list.len() / 2 + 1;
        let expected = format!("{rule}c0{size:02x}04{list}");
        let filter = FilterDefinition::Correlation(equalities);
        assert_eq!(written(filter, None), expected);
        // Also without properties there is a map.
        let fields = "4040404040404040c10100";
        let list = format!("{}c00c09{fields}", code(83_483_426_825));
        assert!(written(FilterDefinition::Correlation(Vec::new()), None).contains(&list));
    }
}
