//! The query of a request, taken apart once.
//!
//! Names are compared without case, as the service does. Values stay as they were sent until
//! somebody asks: the string to sign and the parameters decode them differently.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::error::Error;

/// The parameters in the order sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query<'a> {
    parameters: Vec<Parameter<'a>>,
}

/// One `name=value`. Without `=` the value is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter<'a> {
    /// The name, decoded, in the case sent.
    pub(crate) name: Cow<'a, str>,
    /// The value, still percent-encoded.
    pub(crate) raw_value: &'a str,
}

impl<'a> Query<'a> {
    pub(crate) fn parse(raw: Option<&'a str>) -> Self {
        let Some(raw) = raw else {
            return Self::default();
        };
        let parameters = raw
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, raw_value) = pair.split_once('=').unwrap_or((pair, ""));
                Parameter {
                    name: percent_decode_str(name).decode_utf8_lossy(),
                    raw_value,
                }
            })
            .collect();
        Self { parameters }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Parameter<'a>> {
        self.parameters.iter()
    }

    /// The value of the first parameter of that name, still percent-encoded.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        self.parameters
            .iter()
            .find(|parameter| parameter.name.eq_ignore_ascii_case(name))
            .map(|parameter| parameter.raw_value)
    }

    /// The value of the first parameter of that name. Refuses with `InvalidQueryParameterValue` if
    /// its escapes are not UTF-8.
    pub(crate) fn value(&self, name: &'static str) -> Result<Option<Cow<'a, str>>, Error> {
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        percent_decode_str(raw)
            .decode_utf8()
            .map(Some)
            .map_err(|_| Error::invalid_query(name, raw, "The value is not UTF-8."))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(raw: &str, name: &'static str, expected: Option<&str>) {
        let query = Query::parse(Some(raw));
        assert_eq!(query.value(name).unwrap().as_deref(), expected, "{raw}");
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
        check("timeout=1&timeout=2", "timeout", Some("1"));
        assert!(Query::parse(Some("prefix=%ff")).value("prefix").is_err());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(raw in ".{0,200}") {
            let query = Query::parse(Some(&raw));
            let _ = query.value("comp");
        }
    }
}
