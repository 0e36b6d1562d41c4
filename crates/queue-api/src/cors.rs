//! CORS: which pages of other origins may send requests from a browser and read the answers.
//!
//! This is not authorization: a request still needs its credential. A browser first sends a
//! preflight, and then lets the page read as much of the real answer as its headers allow.
//!
//! Source: *Cross-Origin Resource Sharing (CORS) support for Azure Storage*.

use std::fmt::Write as _;

use bytes::BytesMut;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName,
    HeaderValue, ORIGIN, VARY,
};
use kew_xml::{Element, put_element};

use crate::error::Error;
use crate::properties::{put_within, required};

/// How many rules an account may have.
const RULE_COUNT_MAX: usize = 5;

/// The limit for all texts of all rules together, in bytes.
const RULES_SIZE_BYTES_MAX: usize = 2048;

/// How many origins a rule may have, and how long one may be, in characters. Headers have the same
/// length.
const ORIGIN_COUNT_MAX: usize = 64;
const NAME_LENGTH_MAX: usize = 256;

/// How many headers a list may have as whole names, and how many that end in `*`.
const WHOLE_NAME_COUNT_MAX: usize = 64;
const PREFIX_COUNT_MAX: usize = 2;

/// The methods that a rule can have.
const METHODS: [&str; 8] = [
    "DELETE", "GET", "HEAD", "MERGE", "PATCH", "POST", "OPTIONS", "PUT",
];

/// Matches anything.
const ANY: &str = "*";

/// Pages of these origins may send such requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CorsRule {
    methods: Vec<Box<str>>,
    origins: Vec<Box<str>>,
    allowed_headers: Vec<Box<str>>,
    exposed_headers: Vec<Box<str>>,
    max_age_seconds: u32,
}

/// How a rule matches an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    Any,
    Exactly,
}

impl CorsRule {
    /// Reads `Cors`: at most five rules of at most 2 KiB of text in all.
    pub(crate) fn read_all(element: &Element<'_>) -> Result<Vec<Self>, Error> {
        if element.children.is_empty() && !element.text()?.is_empty() {
            return Err(element.invalid_value("It may contain only rules."));
        }
        let rules = element.items("CorsRule")?;
        if rules.len() > RULE_COUNT_MAX {
            return Err(element.invalid(format!(
                "{} rules are above the maximum of {RULE_COUNT_MAX}",
                rules.len()
            )));
        }
        let mut size_bytes = 0;
        for text in rules.iter().flat_map(|rule| &rule.children) {
            size_bytes += text.text()?.len();
        }
        if size_bytes > RULES_SIZE_BYTES_MAX {
            return Err(element.invalid(format!(
                "rules of {size_bytes} bytes are above the maximum of {RULES_SIZE_BYTES_MAX} bytes"
            )));
        }
        rules.iter().map(Self::read).collect()
    }

    fn read(element: &Element<'_>) -> Result<Self, Error> {
        let [methods, origins, allowed, exposed, max_age] = element.fields([
            "AllowedMethods",
            "AllowedOrigins",
            "AllowedHeaders",
            "ExposedHeaders",
            "MaxAgeInSeconds",
        ])?;
        Ok(Self {
            methods: read_methods(required(methods, "AllowedMethods")?)?,
            origins: read_origins(required(origins, "AllowedOrigins")?)?,
            allowed_headers: read_headers(required(allowed, "AllowedHeaders")?)?,
            exposed_headers: read_headers(required(exposed, "ExposedHeaders")?)?,
            max_age_seconds: read_seconds(required(max_age, "MaxAgeInSeconds")?)?,
        })
    }

    /// Writes `CorsRule`.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        put_within(out, "CorsRule", |out| {
            put_element(out, "AllowedMethods", &self.methods.join(","));
            put_element(out, "AllowedOrigins", &self.origins.join(","));
            put_element(out, "AllowedHeaders", &self.allowed_headers.join(","));
            put_element(out, "ExposedHeaders", &self.exposed_headers.join(","));
            put_element(out, "MaxAgeInSeconds", &self.max_age_seconds.to_string());
        });
    }

    fn match_of(&self, origin: &str, method: &str) -> Option<Match> {
        if !self.methods.iter().any(|allowed| **allowed == *method) {
            None
        } else if self.origins.iter().any(|allowed| **allowed == *ANY) {
            Some(Match::Any)
        } else {
            let is_listed = self.origins.iter().any(|allowed| **allowed == *origin);
            is_listed.then_some(Match::Exactly)
        }
    }
}

/// Answers a browser's preflight for a request of a page.
///
/// The first rule that matches the origin, the method and every header decides. Refuses with
/// `InvalidHeaderValue` if the origin or the method is missing, and `CorsPreflightFailure`.
pub(crate) fn preflight(
    rules: &[CorsRule],
    asked: &HeaderMap,
    reply: &mut HeaderMap,
) -> Result<(), Error> {
    let (origin, origin_text) = needed(asked, ORIGIN, "Origin")?;
    let (method, method_text) = needed(
        asked,
        ACCESS_CONTROL_REQUEST_METHOD,
        "Access-Control-Request-Method",
    )?;
    let headers = asked.get(ACCESS_CONTROL_REQUEST_HEADERS);
    let header_text = match headers.map(HeaderValue::to_str) {
        None => "",
        Some(Ok(text)) => text,
        Some(Err(_)) => return Err(Error::CorsPreflightFailure),
    };
    let found = rules.iter().find_map(|rule| {
        let found = rule.match_of(origin_text, method_text)?;
        let all = names(header_text).all(|name| is_listed(&rule.allowed_headers, name));
        all.then_some((rule, found))
    });
    let (rule, found) = found.ok_or(Error::CorsPreflightFailure)?;
    allow_origin(found, origin, reply);
    reply.insert(ACCESS_CONTROL_ALLOW_METHODS, method.clone());
    if let Some(headers) = headers {
        reply.insert(ACCESS_CONTROL_ALLOW_HEADERS, headers.clone());
    }
    reply.insert(ACCESS_CONTROL_MAX_AGE, rule.max_age_seconds.into());
    reply.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
    Ok(())
}

/// Tells the browser which page may read an answer, and which of its headers.
///
/// The first rule that matches the origin and the method decides. Without one only `Vary` is added.
pub(crate) fn share(rules: &[CorsRule], origin: &HeaderValue, method: &str, reply: &mut HeaderMap) {
    if rules.is_empty() {
        return;
    }
    let found = origin.to_str().ok().and_then(|origin| {
        rules
            .iter()
            .find_map(|rule| Some((rule, rule.match_of(origin, method)?)))
    });
    let Some((rule, found)) = found else {
        reply.append(VARY, VARY_ORIGIN);
        return;
    };
    let exposed = exposed(rule, reply);
    allow_origin(found, origin, reply);
    if found == Match::Exactly {
        reply.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
    }
    if let Ok(exposed) = HeaderValue::try_from(exposed)
        && !exposed.is_empty()
    {
        reply.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
}

/// Whether a rule lets pages of an origin send requests of a method.
pub(crate) fn allows(rules: &[CorsRule], origin: &str, method: &str) -> bool {
    let mut rules = rules.iter();
    rules.any(|rule| rule.match_of(origin, method).is_some())
}

const TRUE: HeaderValue = HeaderValue::from_static("true");
const VARY_ORIGIN: HeaderValue = HeaderValue::from_static("Origin");

fn allow_origin(found: Match, origin: &HeaderValue, reply: &mut HeaderMap) {
    match found {
        Match::Any => {
            reply.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static(ANY));
        }
        Match::Exactly => {
            reply.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            reply.append(VARY, VARY_ORIGIN);
        }
    }
}

/// The headers of an answer that a rule exposes, including those that are added when it is sent.
fn exposed(rule: &CorsRule, reply: &HeaderMap) -> String {
    let mut exposed = String::new();
    let present = reply.keys().map(HeaderName::as_str);
    for name in present.chain(["content-length", "date"]) {
        if is_listed(&rule.exposed_headers, name) {
            let comma = if exposed.is_empty() { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(exposed, "{comma}{name}");
        }
    }
    exposed
}

fn needed<'a>(
    asked: &'a HeaderMap,
    header: HeaderName,
    name: &'static str,
) -> Result<(&'a HeaderValue, &'a str), Error> {
    let missing = Error::CorsHeaderMissing { name };
    let Some(value) = asked.get(header) else {
        return Err(missing);
    };
    match value.to_str() {
        Ok("") => Err(missing),
        Ok(text) => Ok((value, text)),
        Err(_) => Err(Error::CorsPreflightFailure),
    }
}

/// Whether a header is in a list, by its name or a prefix. Case does not matter.
fn is_listed(list: &[Box<str>], name: &str) -> bool {
    list.iter().any(|listed| match listed.strip_suffix(ANY) {
        None => listed.eq_ignore_ascii_case(name),
        Some(prefix) => name
            .get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix)),
    })
}

/// The parts of a list with commas.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

fn read_methods(element: &Element<'_>) -> Result<Vec<Box<str>>, Error> {
    let methods: Vec<Box<str>> = names(element.text()?).map(Into::into).collect();
    if methods.is_empty() {
        return Err(element.invalid_value("At least one method is needed."));
    }
    match methods.iter().find(|name| !METHODS.contains(&&***name)) {
        None => Ok(methods),
        Some(name) => Err(element.invalid_value(format!(
            "The method {name} is not one of {}.",
            METHODS.join(", ")
        ))),
    }
}

fn read_origins(element: &Element<'_>) -> Result<Vec<Box<str>>, Error> {
    let origins: Vec<Box<str>> = names(element.text()?).map(Into::into).collect();
    if origins.is_empty() || origins.len() > ORIGIN_COUNT_MAX {
        return Err(element.invalid_value(format!(
            "The number of origins is {}, and must be 1 to {ORIGIN_COUNT_MAX}.",
            origins.len()
        )));
    }
    check_lengths(element, &origins)?;
    Ok(origins)
}

fn read_headers(element: &Element<'_>) -> Result<Vec<Box<str>>, Error> {
    let headers: Vec<Box<str>> = names(element.text()?).map(Into::into).collect();
    let prefix_count = headers.iter().filter(|name| name.ends_with(ANY)).count();
    if prefix_count > PREFIX_COUNT_MAX || headers.len() - prefix_count > WHOLE_NAME_COUNT_MAX {
        return Err(element.invalid_value(format!(
            "There are more than {WHOLE_NAME_COUNT_MAX} names, or more than {PREFIX_COUNT_MAX} \
             that end in *."
        )));
    }
    check_lengths(element, &headers)?;
    let is_name = |name: &str| {
        let whole = name.strip_suffix(ANY).unwrap_or(name);
        name == ANY || (!whole.contains(ANY) && HeaderName::from_bytes(whole.as_bytes()).is_ok())
    };
    match headers.iter().find(|name| !is_name(name)) {
        None => Ok(headers),
        Some(name) => Err(element.invalid_value(format!("{name} is not the name of a header."))),
    }
}

fn check_lengths(element: &Element<'_>, names: &[Box<str>]) -> Result<(), Error> {
    if names
        .iter()
        .all(|name| name.chars().count() <= NAME_LENGTH_MAX)
    {
        Ok(())
    } else {
        Err(element.invalid_value(format!("One is longer than {NAME_LENGTH_MAX} characters.")))
    }
}

fn read_seconds(element: &Element<'_>) -> Result<u32, Error> {
    match element.text()?.parse::<u32>() {
        Ok(seconds) if i32::try_from(seconds).is_ok() => Ok(seconds),
        Ok(_) | Err(_) => {
            Err(element.invalid_value("The value is not a number from 0 to 2147483647."))
        }
    }
}

#[cfg(test)]
mod tests;
