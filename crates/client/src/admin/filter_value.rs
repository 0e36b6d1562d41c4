//! The values of properties and parameters in rules: a type of XML Schema, and a text.

use std::time::SystemTime;

use kew_amqp::codec::Uuid;

use super::{INSTANCE, duration};
use crate::http::xml::{Element, put_text};
use crate::uuid::uuid_of;

/// The types of XML Schema.
const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";

/// Those that .NET adds.
const SERIALIZATION: &str = "http://schemas.microsoft.com/2003/10/Serialization/";

/// The types that are not of XML Schema.
const OF_DOTNET: [&str; 2] = ["guid", "char"];

/// The value of a property in a correlation filter, or of a parameter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FilterValue {
    /// No value.
    Null,
    /// A text.
    Text(String),
    /// True or false.
    Boolean(bool),
    /// A whole number of 32 bits.
    Int(i32),
    /// A whole number of 64 bits.
    Long(i64),
    /// A number with a fraction.
    Double(f64),
    /// A point in time.
    Time(SystemTime),
    /// A span of time in ticks of 100 ns, which may be negative.
    Span(i64),
    /// A UUID.
    Uuid(Uuid),
    /// A value of another type.
    Other {
        /// The type's name in XML Schema, such as `unsignedInt` or `decimal`.
        kind: String,
        /// The value as XML Schema writes it.
        text: String,
    },
}

impl FilterValue {
    /// A text that its type does not have is kept as it is.
    pub(super) fn read(element: &Element<'_>) -> Self {
        if element.attribute("nil") == Some("true") {
            return Self::Null;
        }
        let kind = element.attribute("type").unwrap_or("string");
        let kind = kind.rsplit(':').next().unwrap_or(kind);
        let text = &*element.text;
        let value = match kind {
            "string" => Some(Self::Text(text.to_owned())),
            "boolean" => super::elements::boolean(text.trim()).map(Self::Boolean),
            "int" => text.trim().parse().ok().map(Self::Int),
            "long" => text.trim().parse().ok().map(Self::Long),
            "double" => text.trim().parse().ok().map(Self::Double),
            "dateTime" => time(text.trim()).map(Self::Time),
            "duration" => duration::parse_ticks(text.trim()).map(Self::Span),
            "guid" => uuid_of(text.trim()).map(Self::Uuid),
            _ => None,
        };
        value.unwrap_or_else(|| Self::Other {
            kind: kind.to_owned(),
            text: text.to_owned(),
        })
    }

    pub(super) fn write(&self, out: &mut String) {
        let Some((kind, text)) = self.kind_and_text() else {
            out.push_str(&format!("<Value xmlns:i=\"{INSTANCE}\" i:nil=\"true\"/>"));
            return;
        };
        let namespace = match OF_DOTNET.contains(&kind) {
            true => SERIALIZATION,
            false => SCHEMA,
        };
        out.push_str(&format!(
            "<Value xmlns:i=\"{INSTANCE}\" xmlns:l28=\"{namespace}\" i:type=\"l28:"
        ));
        put_text(out, &kind.replace('"', ""));
        out.push_str("\">");
        put_text(out, &text);
        out.push_str("</Value>");
    }

    /// The name of the type, and the value as a text: both as XML Schema writes them. `None` for a null.
    pub fn kind_and_text(&self) -> Option<(&str, String)> {
        Some(match self {
            Self::Null => return None,
            Self::Text(text) => ("string", text.clone()),
            Self::Boolean(it) => ("boolean", it.to_string()),
            Self::Int(it) => ("int", it.to_string()),
            Self::Long(it) => ("long", it.to_string()),
            Self::Double(it) => ("double", number(*it)),
            Self::Time(it) => ("dateTime", written(*it)),
            Self::Span(ticks) => ("duration", duration::format_ticks(*ticks)),
            Self::Uuid(it) => ("guid", it.text()),
            Self::Other { kind, text } => (kind, text.clone()),
        })
    }
}

impl From<&str> for FilterValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

fn number(number: f64) -> String {
    match number {
        it if it == f64::INFINITY => "INF".to_owned(),
        it if it == f64::NEG_INFINITY => "-INF".to_owned(),
        it => it.to_string(),
    }
}

/// A time without a zone is one of UTC.
fn time(text: &str) -> Option<SystemTime> {
    let time = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        let zoned = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        Some(zoned.timestamp())
    });
    time.map(SystemTime::from)
}

/// A time that XML Schema cannot write is the last one that it can.
fn written(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time);
    time.unwrap_or(jiff::Timestamp::MAX).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_null_is_a_value() {
        let mut written = String::new();
        FilterValue::Null.write(&mut written);
        let element = Element::parse(written.as_bytes()).unwrap();
        assert_eq!(FilterValue::read(&element), FilterValue::Null);
    }

    #[test]
    fn values_as_services_write_them() {
        let other = |kind: &str, text: &str| FilterValue::Other {
            kind: kind.to_owned(),
            text: text.to_owned(),
        };
        let id = "01234567-89ab-cdef-0123-456789abcdef";
        for (kind, text, value) in [
            ("string", " a<b ", FilterValue::from(" a<b ")),
            ("boolean", "true", FilterValue::Boolean(true)),
            ("int", "-7", FilterValue::Int(-7)),
            ("long", "8589934592", FilterValue::Long(1 << 33)),
            ("double", "0.5", FilterValue::Double(0.5)),
            ("double", "-INF", FilterValue::Double(f64::NEG_INFINITY)),
            (
                "dateTime",
                "2026-01-31T12:00:00.5Z",
                FilterValue::Time(UNIX_EPOCH + Duration::from_millis(1_769_860_800_500)),
            ),
            ("duration", "-PT1.5S", FilterValue::Span(-15_000_000)),
            ("guid", id, FilterValue::Uuid(uuid_of(id).expect("a UUID"))),
            ("int", "many", other("int", "many")),
            ("decimal", "1.10", other("decimal", "1.10")),
        ] {
            let mut written = String::new();
            value.write(&mut written);
            assert!(written.contains(&format!("i:type=\"l28:{kind}\">")));
            let element = Element::parse(written.as_bytes()).unwrap();
            assert_eq!(element.text, text);
            assert_eq!(FilterValue::read(&element), value, "{written}");
        }
    }
}
