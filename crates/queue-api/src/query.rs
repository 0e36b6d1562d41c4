//! The query of a request, parsed once.
//!
//! Names are compared without ASCII case, as in Azure; the string to sign lower-cases them by the
//! same rule. Values stay encoded until they are used.
//!
//! The string to sign has a line for each parameter, with name and value decoded and nothing
//! escaped. Characters that look like the end of a name or a line, or a second value, would let
//! another query have the same string: [`Query::parse`] refuses them.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::auth::is_signature_field;
use crate::error::Error;

/// How many parameters a query may have. The service has some thirty in all. Each is compared with
/// all others, before the client is authenticated.
const PARAMETER_COUNT_MAX: usize = 128;

/// The longest name of a parameter, in bytes. The service's longest has 17.
const NAME_SIZE_BYTES_MAX: usize = 64;

/// The parameters in the order sent, no two of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query<'a> {
    parameters: Vec<Parameter<'a>>,
    plus: Plus,
}

/// One `name=value`. Without `=` the value is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter<'a> {
    /// The name, decoded, in the case sent.
    pub(crate) name: Cow<'a, str>,
    /// The value, still percent-encoded.
    raw_value: &'a str,
}

/// The meaning of a `+` in a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plus {
    #[default]
    Literal,
    /// A space, as in forms.
    Space,
}

impl<'a> Query<'a> {
    /// Refuses with `InvalidQueryParameterValue` a name that is not letters, digits, `_`, `.` and
    /// `-` or is longer than 64 bytes, a repeated name, a value that is not UTF-8 or has a control
    /// character, and more than 128 parameters. A repeated field of a signature is refused with
    /// `AuthenticationFailed`, because the signature is judged first.
    pub(crate) fn parse(raw: Option<&'a str>) -> Result<Self, Error> {
        let mut parameters: Vec<Parameter<'a>> = Vec::new();
        for pair in raw.unwrap_or_default().split('&') {
            if pair.is_empty() {
                continue;
            }
            let parameter = Parameter::parse(pair)?;
            if find(&parameters, &parameter.name).is_some() {
                if is_signature_field(&parameter.name) {
                    return Err(Error::authentication_failed(format!(
                        "Signature fields not well formed: {} is given twice.",
                        parameter.name
                    )));
                }
                return Err(parameter.refuse("A parameter may be given only once."));
            }
            if parameters.len() >= PARAMETER_COUNT_MAX {
                return Err(parameter.refuse("A query may have at most 128 parameters."));
            }
            parameters.push(parameter);
        }
        Ok(Self {
            parameters,
            plus: Plus::default(),
        })
    }

    /// Sets how to read values from now on: as the client signed them.
    pub(crate) fn set_plus(&mut self, plus: Plus) {
        self.plus = plus;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Parameter<'a>> {
        self.parameters.iter()
    }

    /// Whether some value could be read in two ways.
    pub(crate) fn has_plus(&self) -> bool {
        self.parameters
            .iter()
            .any(|parameter| parameter.raw_value.contains('+'))
    }

    /// The decoded value of the parameter with that name.
    pub(crate) fn value(&self, name: &str) -> Option<Cow<'a, str>> {
        find(&self.parameters, name).map(|parameter| parameter.value(self.plus))
    }

    /// The same with a `+` read so.
    pub(crate) fn value_as(&self, name: &str, plus: Plus) -> Option<Cow<'a, str>> {
        find(&self.parameters, name).map(|parameter| parameter.value(plus))
    }
}

fn find<'p, 'a>(parameters: &'p [Parameter<'a>], name: &str) -> Option<&'p Parameter<'a>> {
    parameters
        .iter()
        .find(|parameter| parameter.name.eq_ignore_ascii_case(name))
}

impl<'a> Parameter<'a> {
    fn parse(pair: &'a str) -> Result<Self, Error> {
        let (name, raw_value) = pair.split_once('=').unwrap_or((pair, ""));
        let parameter = Self {
            name: percent_decode_str(name).decode_utf8_lossy(),
            raw_value,
        };
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if !(1..=NAME_SIZE_BYTES_MAX).contains(&parameter.name.len())
            || !parameter.name.bytes().all(in_name)
        {
            return Err(parameter.refuse("The parameter has no valid name."));
        }
        match percent_decode_str(raw_value).decode_utf8() {
            Err(_) => Err(parameter.refuse("The value is not UTF-8.")),
            Ok(value) if value.chars().any(char::is_control) => {
                Err(parameter.refuse("The value has a control character."))
            }
            Ok(_) => Ok(parameter),
        }
    }

    /// The value, decoded.
    pub(crate) fn value(&self, plus: Plus) -> Cow<'a, str> {
        if plus == Plus::Space && self.raw_value.contains('+') {
            let spaced = self.raw_value.replace('+', "%20");
            let value = percent_decode_str(&spaced).decode_utf8_lossy();
            return Cow::Owned(value.into_owned());
        }
        percent_decode_str(self.raw_value).decode_utf8_lossy()
    }

    /// The size of the encoded value, in bytes.
    pub(crate) fn raw_size_bytes(&self) -> usize {
        self.raw_value.len()
    }

    fn refuse(&self, reason: &'static str) -> Error {
        Error::InvalidQueryParameterValue {
            name: self.name.clone().into_owned().into(),
            value: self.raw_value.into(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(raw: &str, name: &str, expected: Option<&str>) {
        let query = Query::parse(Some(raw)).unwrap();
        assert_eq!(query.value(name).as_deref(), expected, "{raw}");
    }

    #[test]
    fn names_have_no_case() {
        check("comp=list&PREFIX=a", "prefix", Some("a"));
        check("messageTtl=5", "messagettl", Some("5"));
        check("c%6fmp=list", "comp", Some("list"));
    }

    #[test]
    fn values_are_decoded() {
        check("popreceipt=a%2Bb%3d%3D", "popreceipt", Some("a+b=="));
        check("popreceipt=a+b==", "popreceipt", Some("a+b=="));
        check("prefix", "prefix", Some(""));
        check("prefix=", "prefix", Some(""));
        check("&&a=1&&", "prefix", None);
        assert_eq!(Query::parse(None).unwrap(), Query::default());
    }

    #[test]
    fn a_plus_means_what_the_client_signed() {
        let mut query = Query::parse(Some("prefix=a+b%2Bc")).unwrap();
        assert_eq!(query.value("prefix").unwrap(), "a+b+c");
        query.set_plus(Plus::Space);
        assert_eq!(query.value("prefix").unwrap(), "a b+c");
    }

    #[test]
    fn ambiguous_lines_are_refused() {
        for raw in [
            "numofmessages%3A5%0Apeekonly=true",
            "a%0Ab=1",
            "a:b=1",
            "a,b=1",
            "=1",
            "%20a=1",
            "\u{212A}ey=1",
            "%E2%84%AAey=1",
            "%ff=1",
            "a=1%0Ab:2",
            "a=%0d",
            "a=%00",
            "a=%7f",
            "a=%C2%85",
            "a=%ff",
            &format!("{}=1", "x".repeat(65)),
            "timeout=1&timeout=2",
            "timeout=1&Time%6fut=1",
        ] {
            let refused = Query::parse(Some(raw));
            assert!(
                matches!(refused, Err(Error::InvalidQueryParameterValue { .. })),
                "{raw}: {refused:?}"
            );
        }
    }

    #[test]
    fn a_repeated_field_of_a_signature_is_refused() {
        for raw in ["sig=a&sig=a", "sp=r&sig=a&SP=r", "comp=list&se=1&se=2"] {
            let refused = Query::parse(Some(raw));
            assert!(
                matches!(refused, Err(Error::AuthenticationFailed { .. })),
                "{raw}: {refused:?}"
            );
        }
    }

    #[test]
    fn parameters_are_few() {
        let raw = |count: usize| -> String { (0..count).map(|n| format!("&x{n}=")).collect() };
        assert!(Query::parse(Some(&raw(128))).is_ok());
        let many = raw(129);
        let refused = Query::parse(Some(&many));
        assert!(
            matches!(&refused, Err(Error::InvalidQueryParameterValue { name, .. }) if **name == *"x128"),
            "{refused:?}"
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics(raw in ".{0,200}") {
            if let Ok(query) = Query::parse(Some(&raw)) {
                let _ = query.value("comp");
            }
        }
    }
}
