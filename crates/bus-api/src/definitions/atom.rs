//! Rules over HTTP: the elements `Filter` and `Action` of a description.
//!
//! Elements are known by their names with any prefix, and kinds by the attribute `type` with any prefix, because each SDK
//! has its own. What is written has the prefixes that JavaScript knows, `i` and `d6p1`.
//!
//! Source: Service Bus, *Create Rule*, and what the SDKs send and expect.

use bytes::{BufMut as _, BytesMut};
use kew_engine::bus::NewRule;
use kew_filter::limits::{EQUALITIES_MAX, PARAMETERS_MAX};
use kew_filter::{
    CorrelationFilter, Definition, Equality, FilterDefinition, SqlDefinition, SystemProperty, Value,
};
use kew_xml::{Element, put_attribute, put_element};

use super::value::{self, Written};
use super::{
    BadRule, DEFAULT_RULE, Properties, SHOWN_LENGTH_MAX, conditions, level_of, unknown_condition,
};

/// The elements of a correlation filter besides system properties. The last two belong to other filters; clients that
/// write all members of a filter's class may send them.
const OTHERS: [&str; 3] = ["Properties", "CompatibilityLevel", "RequiresPreprocessing"];

/// The expressions of the filters that need none. Clients read them as those of SQL filters.
const ALL: &str = "1=1";
const NOTHING: &str = "1=0";

impl From<kew_xml::Error> for BadRule {
    fn from(error: kew_xml::Error) -> Self {
        Self(error.to_string())
    }
}

/// The rule that an element describes. Its name is `name`, or else the one in the element, or else `$Default`.
pub(crate) fn read(description: &Element<'_>, name: Option<&str>) -> Result<NewRule, BadRule> {
    check_no_repeats(description)?;
    let own_name = description.child("Name").map(Element::exact_text);
    let own_name = own_name.transpose()?.filter(|name| !name.is_empty());
    let name = name.or(own_name).unwrap_or(DEFAULT_RULE);
    let filter = given(description, "Filter").ok_or_else(|| {
        BadRule::new("the rule must have a Filter, such as one of the type TrueFilter")
    })?;
    let action = given(description, "Action").map_or(Ok(None), action_of);
    super::rule(name, filter_of(filter)?, action?)
}

fn filter_of(filter: &Element<'_>) -> Result<FilterDefinition, BadRule> {
    check_no_repeats(filter)?;
    Ok(match &*kind_of(filter) {
        "TrueFilter" => FilterDefinition::True,
        "FalseFilter" => FilterDefinition::False,
        "SqlFilter" => FilterDefinition::Sql(sql_of(filter)?),
        "CorrelationFilter" => conditions(equalities_of(filter)?)?,
        other => {
            return Err(BadRule(format!(
                "the type of the Filter is '{}', and must be SqlFilter, CorrelationFilter, TrueFilter or FalseFilter",
                shown(other)
            )));
        }
    })
}

fn action_of(action: &Element<'_>) -> Result<Option<SqlDefinition>, BadRule> {
    check_no_repeats(action)?;
    match &*kind_of(action) {
        "EmptyRuleAction" => Ok(None),
        "SqlRuleAction" => sql_of(action).map(Some),
        other => Err(BadRule(format!(
            "the type of the Action is '{}', and must be SqlRuleAction or EmptyRuleAction",
            shown(other)
        ))),
    }
}

/// The child, unless it says that it is null.
fn given<'e, 'd>(parent: &'e Element<'d>, name: &str) -> Option<&'e Element<'d>> {
    parent.child(name).filter(|child| !is_nil(child))
}

fn is_nil(element: &Element<'_>) -> bool {
    element.attribute("nil").as_deref() == Some("true")
}

/// The type that an element says it has, without its prefix; or an empty text.
fn kind_of(element: &Element<'_>) -> String {
    let kind = element.attribute("type").unwrap_or_default();
    let kind = kind.trim();
    kind.rsplit(':').next().unwrap_or(kind).to_owned()
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_LENGTH_MAX).collect()
}

fn check_no_repeats(parent: &Element<'_>) -> Result<(), BadRule> {
    let mut names: Vec<&str> = Vec::new();
    for child in &parent.children {
        let name = child.local_name();
        if names.contains(&name) {
            return Err(child.invalid(format!("a second {name}")));
        }
        names.push(name);
    }
    Ok(())
}

fn sql_of(element: &Element<'_>) -> Result<SqlDefinition, BadRule> {
    let text = element.child("SqlExpression").ok_or_else(|| {
        let name = element.local_name();
        BadRule(format!("the {name} must have an SqlExpression"))
    })?;
    let level = element.child("CompatibilityLevel").map(|level| {
        let parsed = level.text()?.parse::<u32>();
        let allowed = "must be a whole number such as 20";
        parsed.map_err(|_| BadRule::from(level.invalid_value::<kew_xml::Error>(allowed)))
    });
    let parameters = values_of(element.child("Parameters"), PARAMETERS_MAX)?;
    Ok(SqlDefinition {
        text: text.exact_text()?.into(),
        parameters: parameters.all,
        compatibility_level: level.transpose()?,
    })
}

fn equalities_of(filter: &Element<'_>) -> Result<Vec<Equality>, BadRule> {
    let known = CorrelationFilter::SYSTEM.map(SystemProperty::name);
    for child in &filter.children {
        let name = child.local_name();
        if !known.contains(&name) && !OTHERS.contains(&name) {
            return Err(unknown_condition(name, &known));
        }
    }
    let mut equalities = Vec::new();
    for property in CorrelationFilter::SYSTEM {
        let Some(element) = filter.child(property.name()) else {
            continue;
        };
        let text = element.exact_text()?;
        if !text.is_empty() {
            let text = text.into();
            equalities.push(Equality::System { property, text });
        }
    }
    let properties = values_of(filter.child("Properties"), EQUALITIES_MAX)?;
    equalities.extend(properties.into_equalities());
    Ok(equalities)
}

fn values_of(parent: Option<&Element<'_>>, max: usize) -> Result<Properties, BadRule> {
    let entries = parent.map_or(&[][..], |parent| &parent.children);
    let mut all = Properties::with_room_for(entries.len(), max)?;
    for entry in entries {
        if entry.local_name() != "KeyValueOfstringanyType" {
            return Err(entry.unsupported());
        }
        let field = |name: &str| {
            let found = entry.child(name);
            found.ok_or_else(|| entry.invalid::<kew_xml::Error>(format!("no {name} in the entry")))
        };
        let (key, value) = (field("Key")?.exact_text()?, field("Value")?);
        let read = match is_nil(value) {
            true => Ok(Value::Null.to_owned()),
            false => value::read(&kind_of(value), value.exact_text()?),
        };
        let read = read.map_err(|allowed| {
            let (key, text) = (shown(key), shown(value.exact_text().unwrap_or_default()));
            BadRule(format!(
                "the value of {key:?} is {text:?}, and must be {allowed}"
            ))
        })?;
        all.add(key, read)?;
    }
    Ok(all)
}

/// Writes the filter and the action, in the order of the service.
pub(crate) fn write(out: &mut BytesMut, definition: &Definition) {
    match definition.filter() {
        FilterDefinition::True => write_plain(out, "TrueFilter", ALL),
        FilterDefinition::False => write_plain(out, "FalseFilter", NOTHING),
        FilterDefinition::Sql(sql) => write_sql(out, "Filter", "SqlFilter", sql),
        FilterDefinition::Correlation(equalities) => write_correlation(out, equalities),
    }
    match definition.action() {
        // Go and JavaScript expect one.
        None => out.put_slice(b"<Action i:type=\"EmptyRuleAction\" />"),
        Some(sql) => write_sql(out, "Action", "SqlRuleAction", sql),
    }
}

fn write_plain(out: &mut BytesMut, kind: &str, text: &str) {
    let sql = SqlDefinition {
        text: text.into(),
        ..SqlDefinition::default()
    };
    write_sql(out, "Filter", kind, &sql);
}

fn open(out: &mut BytesMut, name: &str, kind: &str) {
    out.put_slice(format!("<{name} i:type=\"{kind}\">").as_bytes());
}

fn close(out: &mut BytesMut, name: &str) {
    out.put_slice(format!("</{name}>").as_bytes());
}

fn write_sql(out: &mut BytesMut, name: &str, kind: &str, sql: &SqlDefinition) {
    open(out, name, kind);
    put_element(out, "SqlExpression", &sql.text);
    put_element(out, "CompatibilityLevel", &level_of(sql).to_string());
    let parameters = sql.parameters.iter();
    let parameters = parameters.map(|(name, value)| (&**name, value.as_value()));
    write_values(out, "Parameters", parameters);
    close(out, name);
}

fn write_correlation(out: &mut BytesMut, equalities: &[Equality]) {
    open(out, "Filter", "CorrelationFilter");
    for wanted in CorrelationFilter::SYSTEM {
        for equality in equalities {
            if let Equality::System { property, text } = equality
                && *property == wanted
            {
                put_element(out, wanted.name(), text);
            }
        }
    }
    let properties = equalities.iter().filter_map(|equality| match equality {
        Equality::User { name, value } => Some((&**name, value.as_value())),
        Equality::System { .. } => None,
    });
    write_values(out, "Properties", properties);
    close(out, "Filter");
}

fn write_values<'a>(
    out: &mut BytesMut,
    name: &str,
    values: impl Iterator<Item = (&'a str, Value<'a>)>,
) {
    let mut values = values.peekable();
    if values.peek().is_none() {
        return put_element(out, name, "");
    }
    out.put_slice(format!("<{name}>").as_bytes());
    for (key, value) in values {
        out.put_slice(b"<KeyValueOfstringanyType>");
        put_element(out, "Key", key);
        match value::write(value) {
            None => out.put_slice(b"<Value i:nil=\"true\" />"),
            Some(Written {
                typed: (namespace, kind),
                text,
            }) => {
                out.put_slice(format!("<Value i:type=\"d6p1:{kind}\" xmlns:d6p1=\"").as_bytes());
                put_attribute(out, namespace);
                out.put_slice(b"\">");
                put_allowed(out, &text);
                close(out, "Value");
            }
        }
        close(out, "KeyValueOfstringanyType");
    }
    close(out, name);
}

/// Over AMQP come characters that XML does not have.
fn put_allowed(out: &mut BytesMut, text: &str) {
    let allowed = |c| {
        if kew_xml::document::is_allowed(c) {
            c
        } else {
            '\u{FFFD}'
        }
    };
    let text: String = text.chars().map(allowed).collect();
    kew_xml::put_text(out, text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(elements: &str) -> Result<NewRule, BadRule> {
        let document = format!("<R>{elements}</R>");
        read(&kew_xml::parse(document.as_bytes()).unwrap(), None)
    }

    fn written(rule: &NewRule) -> String {
        let mut out = BytesMut::new();
        write(&mut out, &rule.definition);
        String::from_utf8(out.to_vec()).unwrap()
    }

    const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";
    const EMPTY: &str = "<Action i:type=\"EmptyRuleAction\" />";

    fn sql(kind: &str, text: &str) -> String {
        format!(
            "<Filter i:type=\"{kind}\"><SqlExpression>{text}</SqlExpression>\
             <CompatibilityLevel>20</CompatibilityLevel><Parameters /></Filter>"
        )
    }

    /// Each as an SDK writes it, and as all of them read it.
    #[test]
    fn the_forms_of_sdks_are_read_and_shown() {
        let value = |prefix: &str, kind: &str, text: &str| {
            format!("<Value {prefix}:type=\"d6p1:{kind}\" xmlns:d6p1=\"{SCHEMA}\">{text}</Value>")
        };
        let entry = |key: &str, value: &str| {
            format!("<KeyValueOfstringanyType><Key>{key}</Key>{value}</KeyValueOfstringanyType>")
        };
        let go = format!(
            "<Filter xmlns:X=\"i\" X:type=\"SqlFilter\"><SqlExpression>a = @p</SqlExpression><Parameters>\
             <KeyValueOfstringanyType><Key>@p</Key><Value X:type=\"l28:int\" xmlns:l28=\"{SCHEMA}\">5</Value>\
             </KeyValueOfstringanyType></Parameters></Filter><Name>go</Name>"
        );
        let go_shown = format!(
            "<Filter i:type=\"SqlFilter\"><SqlExpression>a = @p</SqlExpression>\
             <CompatibilityLevel>20</CompatibilityLevel><Parameters>{}</Parameters></Filter>{EMPTY}",
            entry("@p", &value("i", "int", "5"))
        );
        let java_script = format!(
            "<Filter p4:type=\"CorrelationFilter\" xmlns:p4=\"i\"><CorrelationId/><Label>l &amp; m</Label>\
             <To></To><ReplyTo> x </ReplyTo><Properties>{}{}</Properties></Filter>\
             <Action p4:type=\"SqlRuleAction\" xmlns:p4=\"i\"><SqlExpression>SET a = 1</SqlExpression></Action>\
             <Name>js</Name>",
            entry("a", &value("p4", "string", " b ")),
            entry("n", "<Value p4:nil=\"true\" />")
        );
        let java_script_shown = format!(
            "<Filter i:type=\"CorrelationFilter\"><ReplyTo> x </ReplyTo><Label>l &amp; m</Label><Properties>{}{}\
             </Properties></Filter><Action i:type=\"SqlRuleAction\"><SqlExpression>SET a = 1</SqlExpression>\
             <CompatibilityLevel>20</CompatibilityLevel><Parameters /></Action>",
            entry("a", &value("i", "string", " b ")),
            entry("n", "<Value i:nil=\"true\" />")
        );
        let python = "<ns1:Filter xsi:type=\"FalseFilter\"><ns1:SqlExpression>1=0</ns1:SqlExpression>\
             <ns1:CompatibilityLevel>20</ns1:CompatibilityLevel></ns1:Filter>\
             <ns1:Action xsi:type=\"EmptyRuleAction\" /><ns1:Name>python</ns1:Name>";
        let level = "<Filter i:type=\"x:SqlFilter\"><CompatibilityLevel>17</CompatibilityLevel>\
             <SqlExpression>\n a</SqlExpression></Filter><Action i:nil=\"true\"/>";
        let level_shown = sql("SqlFilter", "\n a").replace("20", "17") + EMPTY;
        for (elements, name, shown) in [
            (go.as_str(), "go", go_shown.as_str()),
            (&java_script, "js", &java_script_shown),
            (python, "python", &(sql("FalseFilter", "1=0") + EMPTY)),
            (
                "<Filter i:type='TrueFilter'><SqlExpression>any</SqlExpression><Parameters/></Filter><Name/>",
                "$Default",
                &(sql("TrueFilter", "1=1") + EMPTY),
            ),
            (level, "$Default", &level_shown),
            (
                "<Filter i:type='CorrelationFilter'><To>t</To><RequiresPreprocessing>false</RequiresPreprocessing></Filter>",
                "$Default",
                &format!(
                    "<Filter i:type=\"CorrelationFilter\"><To>t</To><Properties /></Filter>{EMPTY}"
                ),
            ),
        ] {
            let rule = read_text(elements).unwrap();
            assert_eq!(&*rule.name, name);
            assert_eq!(written(&rule), shown);
            // What is shown is the same rule.
            let again = read_text(&written(&rule)).unwrap();
            assert_eq!(written(&again), shown, "{elements}");
        }
        let named = format!("<R>{python}</R>");
        let named = read(
            &kew_xml::parse(named.as_bytes()).unwrap(),
            Some("of the path"),
        );
        assert_eq!(&*named.unwrap().name, "of the path");
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        let of_sql = |elements: &str| {
            format!(
                "<Filter i:type='SqlFilter'><SqlExpression>a</SqlExpression>{elements}</Filter>"
            )
        };
        let parameters = |entries: &str| of_sql(&format!("<Parameters>{entries}</Parameters>"));
        let entry = |key: &str, value: &str| {
            format!("<KeyValueOfstringanyType>{key}{value}</KeyValueOfstringanyType>")
        };
        let key = "<Key>k</Key>";
        let one = entry(key, "<Value i:type='x:int'>1</Value>");
        let action = |action: &str| format!("<Filter i:type='TrueFilter'/>{action}");
        for (elements, says) in [
            (String::new(), "must have a Filter"),
            ("<Filter i:nil='true'/>".into(), "must have a Filter"),
            ("<Filter/>".into(), "the type of the Filter is ''"),
            (
                "<Filter i:type='JsonFilter'/>".into(),
                "'JsonFilter', and must be",
            ),
            (
                "<Filter i:type='SqlFilter'/>".into(),
                "the Filter must have an SqlExpression",
            ),
            (
                "<Filter i:type='TrueFilter'/><Filter/>".into(),
                "a second Filter",
            ),
            (
                of_sql("<SqlExpression>b</SqlExpression>"),
                "a second SqlExpression",
            ),
            (
                of_sql("<CompatibilityLevel>x</CompatibilityLevel>"),
                "must be a whole number",
            ),
            (parameters("<x/>"), "x"),
            (parameters(&entry(key, "")), "no Value"),
            (parameters(&entry("", "<Value>1</Value>")), "no Key"),
            (parameters(&one.repeat(2)), "\"k\" is there twice"),
            (parameters(&one.repeat(129)), "has 129"),
            (
                parameters(&entry(key, "<Value i:type='x:int'>many</Value>")),
                "the value of \"k\" is \"many\", and must be a whole number",
            ),
            (
                parameters(&entry(key, "<Value i:type='x:anyURI'>u</Value>")),
                "of the type string, boolean",
            ),
            (
                parameters(&entry(key, "<Value><x/></Value>")),
                "is not allowed in it",
            ),
            (
                "<Filter i:type='CorrelationFilter'/>".into(),
                "no property with a value",
            ),
            (
                "<Filter i:type='CorrelationFilter'><Label/><To></To><Properties/></Filter>".into(),
                "no property with a value",
            ),
            (
                "<Filter i:type='CorrelationFilter'><To>t</To><Colour>x</Colour></Filter>".into(),
                "the unknown property \"Colour\": it can have CorrelationId,",
            ),
            (action("<Action/>"), "the type of the Action is ''"),
            (
                action("<Action i:type='Run'/>"),
                "'Run', and must be SqlRuleAction",
            ),
            (
                action("<Action i:type='SqlRuleAction'/>"),
                "the Action must have an SqlExpression",
            ),
            (action("<Name>a/b</Name>"), "the character '/'"),
            (
                format!(
                    "<Filter i:type='SqlFilter'><SqlExpression>{}</SqlExpression></Filter>",
                    "x".repeat(33_000)
                ),
                "the maximum is 32768",
            ),
        ] {
            let error = read_text(&elements).unwrap_err().to_string();
            assert!(error.contains(says), "{error} does not say {says}");
        }
    }

    #[test]
    fn characters_that_xml_does_not_have_are_replaced() {
        let filter = FilterDefinition::Correlation(vec![Equality::User {
            name: "n".into(),
            value: kew_filter::OwnedValue::Text("a\0<".into()),
        }]);
        let rule = super::super::rule("r", filter, None).unwrap();
        let shown = written(&rule);
        assert!(shown.contains(">a\u{FFFD}&lt;</Value>"), "{shown}");
        kew_xml::parse(format!("<R>{shown}</R>").as_bytes()).unwrap();
    }
}
