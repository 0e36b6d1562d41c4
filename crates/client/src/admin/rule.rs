//! The rules of a subscription: filters and actions, both ways.

use super::INSTANCE;
use super::description::UnknownElements;
use super::elements::{Elements, Odd, Part, Settings};
use super::filter_value::FilterValue;
use super::read::{Source, text_of};
use super::write::put_description;
use crate::http::xml::{Element, put_element};

/// What the service writes into SQL filters and actions as its version of SQL.
const COMPATIBILITY_LEVEL: u32 = 20;

/// A rule of a subscription: which messages it selects, and what it changes in their copies.
#[derive(Clone, Debug, Default)]
pub struct RuleSettings {
    /// Which messages it selects. By default all.
    pub filter: Filter,
    /// What it changes in the copy of a message. Each rule with an action makes a copy of its own.
    pub action: Option<Sql>,
    /// What else the service said of the rule, which an update sends back.
    pub unknown: UnknownElements,
}

/// Source: Service Bus, *Rule description*.
impl Settings for RuleSettings {
    const ELEMENT: &'static str = "RuleDescription";
    const WHAT: &'static str = "rule";

    fn each(&mut self, it: &mut impl Elements) {
        it.required("Filter", &mut self.filter);
        it.value("Action", &mut self.action);
    }

    fn unknown(&mut self) -> &mut UnknownElements {
        &mut self.unknown
    }
}

/// A rule with its name.
#[derive(Clone, Debug, Default)]
pub struct NewRule {
    /// Its name: up to 50 characters. The service calls a rule that has none `$Default`.
    pub name: String,
    /// What it does.
    pub settings: RuleSettings,
}

impl Settings for NewRule {
    const ELEMENT: &'static str = RuleSettings::ELEMENT;
    const WHAT: &'static str = RuleSettings::WHAT;

    fn each(&mut self, it: &mut impl Elements) {
        self.settings.each(it);
        it.required("Name", &mut self.name);
    }

    fn unknown(&mut self) -> &mut UnknownElements {
        &mut self.settings.unknown
    }
}

/// The rule that a subscription begins with. Services do not show it.
impl Part for NewRule {
    fn read(_: &Source<'_>, _: &Element<'_>) -> Result<Option<Self>, Odd> {
        Ok(None)
    }

    fn write(&self, name: &str, out: &mut String) {
        // Rules name no entities, so the host is of no interest.
        put_description(out, name, "", &mut self.clone(), "");
    }
}

/// Which messages a rule selects.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Filter {
    /// All.
    #[default]
    True,
    /// None.
    False,
    /// Those for which an expression is true, such as `color = 'red' AND size > @least`.
    Sql(Sql),
    /// Those with all these properties.
    Correlation(Box<CorrelationFilter>),
    /// A filter of a kind that this crate does not know. An update sends it back as the service wrote it.
    Other {
        /// The service's name of the kind.
        kind: String,
        /// The filter.
        element: UnknownElements,
    },
}

/// The text of an SQL filter or of an SQL action.
///
/// Source: Service Bus, *SQL filter syntax* and *SQL action syntax*.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sql {
    /// The text.
    pub text: String,
    /// Values for names such as `@least` in the text.
    pub parameters: Vec<(String, FilterValue)>,
    /// The version of SQL. Without it, the current one (20).
    pub compatibility_level: Option<u32>,
}

impl Sql {
    /// A text without parameters.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

/// Properties that a message must all have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CorrelationFilter {
    /// The correlation id.
    pub correlation_id: Option<String>,
    /// The message id.
    pub message_id: Option<String>,
    /// The address that the message is for.
    pub to: Option<String>,
    /// The address for replies.
    pub reply_to: Option<String>,
    /// The subject, which rules call the label.
    pub subject: Option<String>,
    /// The session id.
    pub session_id: Option<String>,
    /// The session id for replies.
    pub reply_to_session_id: Option<String>,
    /// The content type.
    pub content_type: Option<String>,
    /// Application properties.
    pub properties: Vec<(String, FilterValue)>,
}

impl CorrelationFilter {
    /// The system properties with their elements, in the order of the service.
    fn system(&mut self) -> [(&'static str, &mut Option<String>); 8] {
        [
            ("CorrelationId", &mut self.correlation_id),
            ("MessageId", &mut self.message_id),
            ("To", &mut self.to),
            ("ReplyTo", &mut self.reply_to),
            ("Label", &mut self.subject),
            ("SessionId", &mut self.session_id),
            ("ReplyToSessionId", &mut self.reply_to_session_id),
            ("ContentType", &mut self.content_type),
        ]
    }
}

impl Part for Filter {
    fn read(source: &Source<'_>, element: &Element<'_>) -> Result<Option<Self>, Odd> {
        let kind = kind_of(element);
        Ok(Some(match kind {
            "TrueFilter" => Self::True,
            "FalseFilter" => Self::False,
            "SqlFilter" => Self::Sql(sql(element)?),
            "CorrelationFilter" => Self::Correlation(Box::new(correlation(element)?)),
            _ => Self::Other {
                kind: kind.to_owned(),
                element: source.kept(element),
            },
        }))
    }

    fn write(&self, name: &str, out: &mut String) {
        match self {
            // Services read the text, too.
            Self::True => put_sql(out, name, "TrueFilter", &Sql::new("1=1")),
            Self::False => put_sql(out, name, "FalseFilter", &Sql::new("1=0")),
            Self::Sql(sql) => put_sql(out, name, "SqlFilter", sql),
            Self::Correlation(filter) => {
                begin(out, name, "CorrelationFilter");
                for (name, value) in (**filter).clone().system() {
                    if let Some(value) = value {
                        put_element(out, name, value);
                    }
                }
                put_values(out, "Properties", &filter.properties);
                out.extend(["</", name, ">"]);
            }
            Self::Other { element, .. } => element.put_alone(out),
        }
    }
}

/// An SQL action. One that is empty is none.
impl Part for Sql {
    fn read(_: &Source<'_>, element: &Element<'_>) -> Result<Option<Self>, Odd> {
        match kind_of(element) {
            "EmptyRuleAction" => Ok(None),
            "SqlRuleAction" => sql(element).map(Some),
            _ => Err(Odd::Unknown),
        }
    }

    fn write(&self, name: &str, out: &mut String) {
        put_sql(out, name, "SqlRuleAction", self);
    }
}

/// The kind of a filter or an action, without its prefix.
fn kind_of<'a>(element: &'a Element<'_>) -> &'a str {
    let kind = element.attribute("type").unwrap_or_default();
    kind.rsplit(':').next().unwrap_or_default()
}

fn sql(element: &Element<'_>) -> Result<Sql, Odd> {
    let text = element.child("SqlExpression");
    let text = text.ok_or_else(|| Odd::Bad("without SqlExpression".to_owned()))?;
    let level = text_of(element, "CompatibilityLevel").map(str::parse);
    Ok(Sql {
        text: text.text.to_string(),
        parameters: values(element.child("Parameters"))?,
        compatibility_level: level.and_then(Result::ok),
    })
}

fn correlation(element: &Element<'_>) -> Result<CorrelationFilter, Odd> {
    let mut filter = CorrelationFilter {
        properties: values(element.child("Properties"))?,
        ..CorrelationFilter::default()
    };
    for (name, value) in filter.system() {
        // JavaScript writes all, also those that it does not say.
        let text = element.child(name).map(|it| it.text.to_string());
        *value = text.filter(|text| !text.is_empty());
    }
    Ok(filter)
}

fn values(list: Option<&Element<'_>>) -> Result<Vec<(String, FilterValue)>, Odd> {
    let pairs = list.into_iter().flat_map(|list| &list.children);
    let read = |pair: &Element<'_>| {
        let part = |name: &str| {
            let part = pair.child(name);
            part.ok_or_else(|| Odd::Bad(format!("with a property without {name}")))
        };
        let (key, value) = (part("Key")?, part("Value")?);
        Ok((key.text.to_string(), FilterValue::read(value)))
    };
    pairs.map(read).collect()
}

fn begin(out: &mut String, name: &str, kind: &str) {
    out.push_str(&format!(
        "<{name} xmlns:i=\"{INSTANCE}\" i:type=\"{kind}\">"
    ));
}

fn put_sql(out: &mut String, name: &str, kind: &str, sql: &Sql) {
    begin(out, name, kind);
    put_element(out, "SqlExpression", &sql.text);
    let level = sql.compatibility_level.unwrap_or(COMPATIBILITY_LEVEL);
    put_element(out, "CompatibilityLevel", &level.to_string());
    put_values(out, "Parameters", &sql.parameters);
    out.extend(["</", name, ">"]);
}

fn put_values(out: &mut String, name: &str, values: &[(String, FilterValue)]) {
    if values.is_empty() {
        return;
    }
    out.extend(["<", name, ">"]);
    for (key, value) in values {
        out.push_str("<KeyValueOfstringanyType>");
        put_element(out, "Key", key);
        value.write(out);
        out.push_str("</KeyValueOfstringanyType>");
    }
    out.extend(["</", name, ">"]);
}
