//! Values with a type, in the elements of a rule: `<Value i:type="d6p1:int">5</Value>`.
//!
//! The types are those of XML Schema, and three that .NET adds. They are known by their names, with any prefix.
//!
//! Source: .NET, *Data contract schema reference*, *Primitive types*.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use kew_filter::{Decimal, OwnedValue, Value};

use crate::configuration::duration;

/// The namespace of most types.
const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";

/// That of the types that .NET adds.
const SERIALIZATION: &str = "http://schemas.microsoft.com/2003/10/Serialization/";

/// The time that timestamps count from.
const EPOCH: DateTime = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);

/// The first and the last millisecond of the years that .NET has, 1 to 9999.
const TIMES_MS: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// What a value must be that is not one of its type.
type Allowed = &'static str;

/// The value of this type. Without a type it is a text.
pub(super) fn read(type_name: &str, text: &str) -> Result<OwnedValue, Allowed> {
    let trimmed = text.trim();
    let value = match type_name {
        "" | "string" => return Ok(OwnedValue::Text(text.into())),
        "base64Binary" => {
            let bytes = STANDARD.decode(trimmed);
            let bytes = bytes.map_err(|_| "bytes in Base64")?;
            return Ok(OwnedValue::Binary(bytes.into()));
        }
        "boolean" => Value::Boolean(match trimmed {
            "1" => true,
            "0" => false,
            _ if trimmed.eq_ignore_ascii_case("true") => true,
            _ if trimmed.eq_ignore_ascii_case("false") => false,
            _ => return Err("true or false"),
        }),
        "byte" => Value::Byte(number(trimmed, "a whole number from -128 to 127")?),
        "short" => Value::Short(number(trimmed, "a whole number from -32768 to 32767")?),
        "int" => {
            let allowed = "a whole number from -2147483648 to 2147483647";
            Value::Int(number(trimmed, allowed)?)
        }
        "long" => Value::Long(number(trimmed, "a whole number of 64 bits")?),
        "unsignedByte" => Value::Ubyte(number(trimmed, "a whole number from 0 to 255")?),
        "unsignedShort" => Value::Ushort(number(trimmed, "a whole number from 0 to 65535")?),
        "unsignedInt" => Value::Uint(number(trimmed, "a whole number from 0 to 4294967295")?),
        "unsignedLong" => {
            let allowed = "a whole number of 64 bits that is not negative";
            Value::Ulong(number(trimmed, allowed)?)
        }
        "float" => Value::Float(number(trimmed, "a number such as 1.5 or 2E10")?),
        "double" => Value::Double(number(trimmed, "a number such as 1.5 or 2E10")?),
        "decimal" => {
            let decimal = decimal_of(trimmed);
            Value::Decimal(decimal.ok_or("a number such as 1.5, with up to 34 digits")?)
        }
        "dateTime" => {
            let ms = ms_of(trimmed);
            Value::Timestamp(ms.ok_or("a time such as 2026-01-31T12:00:00Z")?)
        }
        "duration" => {
            let ticks = duration::parse_ticks(trimmed);
            Value::Duration(ticks.ok_or("a duration of ISO 8601 such as PT1M")?)
        }
        "guid" => {
            let bytes = guid_of(trimmed);
            Value::Uuid(bytes.ok_or("a GUID of 32 hexadecimal digits with four hyphens")?)
        }
        "char" => {
            let code = trimmed.parse().ok().and_then(char::from_u32);
            Value::Char(code.ok_or("the number of a character")?)
        }
        _ => {
            return Err(
                "of the type string, boolean, byte, short, int, long, unsignedByte, unsignedShort, unsignedInt, \
                 unsignedLong, float, double, decimal, dateTime, duration, guid, char or base64Binary",
            );
        }
    };
    Ok(OwnedValue::Plain(value))
}

fn number<T: FromStr>(text: &str, allowed: Allowed) -> Result<T, Allowed> {
    text.parse().map_err(|_| allowed)
}

/// A value in an element.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// The namespace of its type, and the type's name.
    pub(super) typed: (&'static str, &'static str),
    pub(super) text: String,
}

/// The text of a value, with its type. `None` for a null.
pub(super) fn write(value: Value<'_>) -> Option<Written> {
    let written = |typed, text| Some(Written { typed, text });
    let schema = |name, text| written((SCHEMA, name), text);
    match value {
        Value::Null | Value::Other => None,
        Value::Boolean(it) => schema("boolean", it.to_string()),
        Value::Byte(it) => schema("byte", it.to_string()),
        Value::Short(it) => schema("short", it.to_string()),
        Value::Int(it) => schema("int", it.to_string()),
        Value::Long(it) => schema("long", it.to_string()),
        Value::Ubyte(it) => schema("unsignedByte", it.to_string()),
        Value::Ushort(it) => schema("unsignedShort", it.to_string()),
        Value::Uint(it) => schema("unsignedInt", it.to_string()),
        Value::Ulong(it) => schema("unsignedLong", it.to_string()),
        Value::Float(it) => schema("float", text_of(it.into(), &it)),
        Value::Double(it) => schema("double", text_of(it, &it)),
        Value::Decimal(it) => schema("decimal", decimal_text(it)),
        Value::Timestamp(ms) => schema("dateTime", date_time(ms)),
        Value::Binary(bytes) => schema("base64Binary", STANDARD.encode(bytes)),
        Value::Text(text) | Value::Symbol(text) => schema("string", text.to_owned()),
        Value::Duration(ticks) => {
            written((SERIALIZATION, "duration"), duration::format_ticks(ticks))
        }
        Value::Uuid(bytes) => written((SERIALIZATION, "guid"), guid_text(bytes)),
        Value::Char(it) => written((SERIALIZATION, "char"), u32::from(it).to_string()),
    }
}

/// The text of a number, with an exponent if it would have many zeros.
fn text_of(number: f64, exact: &(impl std::fmt::Display + std::fmt::UpperExp)) -> String {
    if number.is_nan() {
        "NaN".into()
    } else if number.is_infinite() {
        if number > 0.0 { "INF" } else { "-INF" }.into()
    } else if number == 0.0 || (1e-5..1e15).contains(&number.abs()) {
        format!("{exact}")
    } else {
        format!("{exact:E}")
    }
}

fn decimal_of(text: &str) -> Option<Decimal> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = format!("{whole}{fraction}");
    let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    let coefficient = digits.parse().ok().filter(|_| is_number)?;
    let exponent = i16::try_from(fraction.len()).ok()?;
    Decimal::new(is_negative, coefficient, -exponent)
}

/// All digits of a decimal, unless it has very many zeros: then it has an exponent.
fn decimal_text(decimal: Decimal) -> String {
    let text = decimal.to_string();
    let (digits, exponent) = text.split_once('E').unwrap_or((&text, "0"));
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    match exponent.parse::<isize>() {
        Ok(zeros @ 0..=40) => format!("{sign}{digits}{}", "0".repeat(zeros.unsigned_abs())),
        Ok(places @ -40..0) => {
            let places = places.unsigned_abs();
            let padded = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = padded.split_at(padded.len() - places);
            format!("{sign}{whole}.{fraction}")
        }
        _ => text,
    }
}

/// The milliseconds since 1970 of a time, which is in UTC if it names no zone.
fn ms_of(text: &str) -> Option<i64> {
    let (local, minutes) = match text.strip_suffix(['Z', 'z']) {
        Some(local) => (local, 0),
        None => zone_of(text).unwrap_or((text, 0)),
    };
    let at: DateTime = local.parse().ok()?;
    let since = i64::try_from(at.duration_since(EPOCH).as_millis()).ok()?;
    Some(since - minutes * 60_000)
}

/// A time that ends in `+hh:mm` or `-hh:mm`: what is before it, and how many minutes it is.
fn zone_of(text: &str) -> Option<(&str, i64)> {
    let (local, zone) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    let minutes = i64::from(hours) * 60 + i64::from(minutes);
    match zone.get(..1)? {
        "+" => Some((local, minutes)),
        "-" => Some((local, -minutes)),
        _ => None,
    }
}

/// A time, or the nearest that clients can read.
fn date_time(ms: i64) -> String {
    let ms = ms.clamp(*TIMES_MS.start(), *TIMES_MS.end());
    let at = EPOCH.saturating_add(SignedDuration::from_millis(ms));
    format!("{at}Z")
}

/// The places of hyphens in a GUID.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

fn guid_of(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let hyphens = text.match_indices('-').map(|(place, _)| place);
    let is_guid = hyphens.eq(HYPHENS) && digits.len() == 32 && !digits.starts_with('+');
    let number = u128::from_str_radix(&digits, 16).ok()?;
    is_guid.then(|| number.to_be_bytes())
}

fn guid_text(bytes: [u8; 16]) -> String {
    let mut text = format!("{:032x}", u128::from_be_bytes(bytes));
    for place in HYPHENS {
        text.insert(place, '-');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: (&str, &str) = (SERIALIZATION, "duration");

    fn checked(name: &str, text: &str) -> String {
        let value = read(name, text).unwrap_or_else(|allowed| panic!("{text} is not {allowed}"));
        let written = write(value.as_value()).unwrap();
        assert_eq!(written.typed.1, name, "{text}");
        // What is written is read as the same.
        assert_eq!(read(name, &written.text).unwrap(), value, "{text}");
        written.text
    }

    #[test]
    fn values_are_shown_as_they_were_given() {
        for (name, text) in [
            ("string", " a < b & ä \n"),
            ("string", ""),
            ("boolean", "true"),
            ("boolean", "false"),
            ("byte", "-128"),
            ("short", "-32768"),
            ("int", "2147483647"),
            ("long", "-9223372036854775808"),
            ("unsignedByte", "255"),
            ("unsignedShort", "65535"),
            ("unsignedInt", "4294967295"),
            ("unsignedLong", "18446744073709551615"),
            ("float", "0.1"),
            ("double", "100.1"),
            ("double", "5"),
            ("double", "-0"),
            ("double", "1E300"),
            ("double", "1.5E-7"),
            ("double", "INF"),
            ("double", "-INF"),
            ("decimal", "-0.05"),
            ("decimal", "1234567890123456789012345678.90"),
            ("decimal", "7"),
            ("dateTime", "2020-07-05T11:12:13Z"),
            ("dateTime", "1969-12-31T23:59:59.999Z"),
            ("dateTime", "0001-01-01T00:00:00Z"),
            ("dateTime", "9999-12-31T23:59:59.999Z"),
            ("duration", "P1DT2H3M"),
            ("duration", "-PT0.0000001S"),
            ("guid", "6e9a8a3e-0d4c-4f43-9a53-2b1e0a5f2d11"),
            ("char", "228"),
            ("base64Binary", "AAEC"),
        ] {
            assert_eq!(checked(name, text), text, "{name}");
        }
        for (name, text, shown) in [
            ("boolean", " True ", "true"),
            ("boolean", "0", "false"),
            ("int", " 5\n", "5"),
            ("double", "1e+20", "1E20"),
            ("double", "inf", "INF"),
            ("dateTime", "2020-07-05T11:12:13", "2020-07-05T11:12:13Z"),
            (
                "dateTime",
                "2020-07-05T11:12:13.1234567+02:00",
                "2020-07-05T09:12:13.123Z",
            ),
            (
                "dateTime",
                "2020-07-05T11:12:13-00:30",
                "2020-07-05T11:42:13Z",
            ),
            (
                "dateTime",
                "9999-12-31T23:59:59.9999999",
                "9999-12-31T23:59:59.999Z",
            ),
            ("duration", "PT90M", "PT1H30M"),
            (
                "guid",
                "6E9A8A3E-0D4C-4F43-9A53-2B1E0A5F2D11",
                "6e9a8a3e-0d4c-4f43-9a53-2b1e0a5f2d11",
            ),
        ] {
            assert_eq!(checked(name, text), shown, "{name} {text}");
        }
        let nan = read("double", "NaN").unwrap();
        assert_eq!(write(nan.as_value()).unwrap().text, "NaN");
        assert_eq!(read("", "x"), read("string", "x"));
    }

    #[test]
    fn other_texts_are_refused() {
        for (name, text) in [
            ("boolean", "yes"),
            ("byte", "128"),
            ("int", "2147483648"),
            ("int", "1.0"),
            ("int", ""),
            ("long", "9223372036854775808"),
            ("unsignedInt", "-1"),
            ("double", "1,5"),
            ("decimal", "1E5"),
            ("decimal", "."),
            ("decimal", "12345678901234567890123456789012345"),
            ("decimal", "+-1"),
            ("dateTime", "tomorrow"),
            ("dateTime", "2020-13-01T00:00:00Z"),
            ("dateTime", "ää:0"),
            ("duration", "1:00"),
            ("guid", "6e9a8a3e0d4c4f439a532b1e0a5f2d11"),
            ("guid", "+e9a8a3e-0d4c-4f43-9a53-2b1e0a5f2d11"),
            ("guid", "-"),
            ("char", "55296"),
            ("char", "a"),
            ("base64Binary", "*"),
            ("anyURI", "a"),
            ("int ", "5"),
        ] {
            assert!(read(name, text).is_err(), "{name} {text:?}");
        }
    }

    /// Over AMQP come values that no text over HTTP has.
    #[test]
    fn every_value_can_be_shown() {
        let text = |value| write(value).map(|it| it.text);
        assert_eq!(text(Value::Null), None);
        assert_eq!(text(Value::Symbol("s")).as_deref(), Some("s"));
        let last = Some("9999-12-31T23:59:59.999Z");
        assert_eq!(text(Value::Timestamp(i64::MAX)).as_deref(), last);
        let first = Some("0001-01-01T00:00:00Z");
        assert_eq!(text(Value::Timestamp(i64::MIN)).as_deref(), first);
        let decimal = |exponent| Value::Decimal(Decimal::new(true, 12, exponent).unwrap());
        assert_eq!(text(decimal(3)).as_deref(), Some("-12000"));
        assert_eq!(text(decimal(-4)).as_deref(), Some("-0.0012"));
        assert_eq!(text(decimal(6000)).as_deref(), Some("-12E6000"));
        let duration = write(Value::Duration(1)).unwrap();
        assert_eq!(duration.typed, DURATION);
    }
}
