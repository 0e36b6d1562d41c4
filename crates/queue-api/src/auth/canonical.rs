//! The strings that a shared key signs.
//!
//! Clients disagree in a few details: the order of headers, whether runs of spaces in their values
//! are signed as one, and whether a `+` in a query is a space. A [`Reading`] is one choice.
//! Verification tries each that makes a difference.
//!
//! Source: *Authorize with Shared Key*.

use hyper::HeaderMap;
use hyper::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderName,
    HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE,
};

use super::{Credentials, X_MS_DATE, collation};
use crate::query::Plus;
use crate::version::Version;

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// The two layouts of the string to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Shared Key from 2009-09-19 on.
    Full,
    /// Shared Key Lite, and Shared Key before 2009-09-19.
    Lite,
}

/// How the corners of a request are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) order: Order,
    pub(super) spaces: Spaces,
    pub(super) plus: Plus,
    pub(super) path: Path,
}

/// How header names are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The service's order.
    Collation,
    /// By their bytes.
    Ordinal,
}

/// How to sign runs of white space in header values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spaces {
    /// As one space, outside quotes, as documented.
    Folded,
    /// As they were sent, as in the Python SDK.
    AsSent,
}

/// Which path is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// The one in the request.
    AsSent,
    /// With the name of the primary in place of the secondary's in the first segment.
    OfPrimary,
}

/// The signed headers of a request, sorted both ways.
pub(super) struct SignedHeaders<'a> {
    ordinal: Vec<&'a HeaderName>,
    /// `None` if it is the same.
    collated: Option<Vec<&'a HeaderName>>,
}

impl<'a> SignedHeaders<'a> {
    pub(super) fn new(headers: &'a HeaderMap) -> Self {
        let mut ordinal: Vec<_> = headers
            .keys()
            .filter(|name| name.as_str().starts_with("x-ms-"))
            .collect();
        ordinal.sort_unstable_by_key(|name| name.as_str());
        let by_collation =
            |a: &&HeaderName, b: &&HeaderName| collation::compare(a.as_str(), b.as_str());
        let collated = if has_special_order(&ordinal) {
            let mut collated = ordinal.clone();
            collated.sort_by(by_collation);
            (collated != ordinal).then_some(collated)
        } else {
            None
        };
        Self { ordinal, collated }
    }

    /// The orders that differ, the service's own first.
    pub(super) fn orders(&self) -> &'static [Order] {
        match self.collated {
            Some(_) => &[Order::Collation, Order::Ordinal],
            None => &[Order::Ordinal],
        }
    }

    /// The ways to sign white space that differ, the documented one first.
    pub(super) fn spaces(&self, headers: &HeaderMap) -> &'static [Spaces] {
        let has_run = |name: &&HeaderName| {
            let mut values = headers.get_all(*name).iter();
            values.any(|value| {
                let value = value.as_bytes().trim_ascii();
                value.contains(&b'\t') || memchr::memmem::find(value, b"  ").is_some()
            })
        };
        if self.ordinal.iter().any(has_run) {
            &[Spaces::Folded, Spaces::AsSent]
        } else {
            &[Spaces::Folded]
        }
    }

    fn in_order(&self, order: Order) -> &[&'a HeaderName] {
        match (order, &self.collated) {
            (Order::Collation, Some(collated)) => collated,
            (Order::Collation | Order::Ordinal, _) => &self.ordinal,
        }
    }
}

/// Whether the two orders could differ. They agree on the headers that nearly every request has,
/// and asking is cheaper than sorting twice.
fn has_special_order(ordinal: &[&HeaderName]) -> bool {
    !ordinal.iter().all(|name| {
        matches!(
            name.as_str(),
            "x-ms-client-request-id"
                | "x-ms-date"
                | "x-ms-return-client-request-id"
                | "x-ms-version"
        )
    })
}

/// About how many bytes of a request are signed: no string to sign is much longer.
pub(super) fn size_bytes(credentials: &Credentials<'_>) -> usize {
    let is_signed =
        |name: &HeaderName| name.as_str().starts_with("x-ms-") || FULL_LINES.contains(name);
    let headers = credentials.headers.iter();
    let headers = headers.filter(|(name, _)| is_signed(name));
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + 2);
    let query = credentials.query.iter();
    let query = query.map(|parameter| parameter.name.len() + parameter.raw_size_bytes() + 2);
    credentials.path.len() + headers.sum::<usize>() + query.sum::<usize>()
}

/// The headers whose values have a line of their own, in the order of the full form.
const FULL_LINES: [HeaderName; 11] = [
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_MD5,
    CONTENT_TYPE,
    DATE,
    IF_MODIFIED_SINCE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
    RANGE,
];

/// The same of the short form.
const LITE_LINES: [HeaderName; 3] = [CONTENT_MD5, CONTENT_TYPE, DATE];

/// Writes the string to sign into `out`.
pub(super) fn string_to_sign(
    out: &mut Vec<u8>,
    credentials: &Credentials<'_>,
    form: Form,
    headers: &SignedHeaders<'_>,
    reading: Reading,
) {
    out.clear();
    out.extend_from_slice(credentials.method.as_bytes());
    out.push(b'\n');
    let lines: &[HeaderName] = match form {
        Form::Full => &FULL_LINES,
        Form::Lite => &LITE_LINES,
    };
    for name in lines {
        if let Some(value) = standard_header(credentials, name) {
            out.extend_from_slice(value.as_bytes());
        }
        out.push(b'\n');
    }
    for name in headers.in_order(reading.order) {
        put_header(out, credentials, name, reading.spaces);
    }
    out.push(b'/');
    out.extend_from_slice(credentials.account.name().as_bytes());
    put_path(out, credentials, reading.path);
    match form {
        Form::Full => put_query(out, credentials, reading.plus),
        Form::Lite => {
            if let Some(comp) = credentials.query.value("comp") {
                out.extend_from_slice(b"?comp=");
                out.extend_from_slice(comp.as_bytes());
            }
        }
    }
}

fn put_path(out: &mut Vec<u8>, credentials: &Credentials<'_>, path: Path) {
    let sent = credentials.path;
    let rest = match path {
        Path::AsSent => sent,
        Path::OfPrimary => {
            out.push(b'/');
            out.extend_from_slice(credentials.account.name().as_bytes());
            let after_slash = sent.strip_prefix('/').unwrap_or(sent);
            after_slash
                .find('/')
                .and_then(|index| after_slash.get(index..))
                .unwrap_or_default()
        }
    };
    out.extend_from_slice(rest.as_bytes());
}

/// The value of a line without a name; empty where its rules demand that.
fn standard_header<'a>(
    credentials: &Credentials<'a>,
    name: &HeaderName,
) -> Option<&'a HeaderValue> {
    let value = credentials.headers.get(name)?;
    let empty =
        (name == CONTENT_LENGTH && value == "0" && credentials.version >= Version::V2015_02_21)
            || (name == DATE && credentials.headers.contains_key(X_MS_DATE));
    (!empty).then_some(value)
}

fn put_header(out: &mut Vec<u8>, credentials: &Credentials<'_>, name: &HeaderName, spaces: Spaces) {
    let values = credentials.headers.get_all(name);
    let is_empty = values.iter().all(HeaderValue::is_empty);
    if is_empty && credentials.version < Version::V2016_05_31 {
        return;
    }
    out.extend_from_slice(name.as_str().as_bytes());
    out.push(b':');
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let value = value.as_bytes().trim_ascii();
        match spaces {
            Spaces::Folded => put_unfolded(out, value),
            Spaces::AsSent => out.extend_from_slice(value),
        }
    }
    out.push(b'\n');
}

/// Writes a value with every run of white space outside quotes as one space.
fn put_unfolded(out: &mut Vec<u8>, value: &[u8]) {
    let mut in_quotes = false;
    let mut in_run = false;
    for &byte in value {
        in_quotes ^= byte == b'"';
        let is_space = matches!(byte, b' ' | b'\t') && !in_quotes;
        if is_space {
            if !in_run {
                out.push(b' ');
            }
        } else {
            out.push(byte);
        }
        in_run = is_space;
    }
}

/// Writes the parameters, sorted by name, one a line. There are no two of one name.
fn put_query(out: &mut Vec<u8>, credentials: &Credentials<'_>, plus: Plus) {
    let mut parameters: Vec<_> = credentials
        .query
        .iter()
        .map(|parameter| (parameter.name.to_ascii_lowercase(), parameter.value(plus)))
        .collect();
    parameters.sort_unstable();
    for (name, value) in &parameters {
        out.push(b'\n');
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::Accounts;
    use crate::address::Address;
    use crate::auth::Issuers;
    use crate::origin::Origin;
    use crate::query::Query;
    use std::time::{Duration, UNIX_EPOCH};

    struct Case<'a> {
        method: &'a str,
        uri: &'a str,
        version: Version,
        headers: &'a [(&'a str, &'a str)],
    }

    fn signed(case: &Case<'_>, form: Form, order: Order, plus: Plus) -> String {
        let accounts = Accounts::well_known();
        let mut headers = HeaderMap::new();
        for (name, value) in case.headers {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        let (path, query) = match case.uri.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (case.uri, None),
        };
        let query = Query::parse(query).unwrap();
        let address = Address::parse(path, "127.0.0.1:10001", &accounts).unwrap();
        let credentials = Credentials {
            method: case.method,
            path,
            query: &query,
            headers: &headers,
            version: case.version,
            account: accounts.find(address.account).unwrap(),
            address: &address,
            now: UNIX_EPOCH,
            clock_skew_max: Duration::ZERO,
            origin: &Origin {
                peer: ([127, 0, 0, 1], 1).into(),
                is_secure: false,
                may_use_public_key: true,
            },
            issuers: &Issuers::default(),
        };
        let mut out = Vec::new();
        let headers = SignedHeaders::new(&headers);
        let reading = Reading {
            order,
            spaces: Spaces::Folded,
            plus,
            path: Path::AsSent,
        };
        string_to_sign(&mut out, &credentials, form, &headers, reading);
        String::from_utf8(out).unwrap()
    }

    const PUT: Case<'_> = Case {
        method: "POST",
        uri: "/devstoreaccount1/q/messages?visibilitytimeout=0&messagettl=60",
        version: Version::NEWEST,
        headers: &[
            ("content-type", "application/xml"),
            ("content-length", "69"),
            ("accept", "application/xml"),
            ("x-ms-version", "2026-10-06"),
            ("x-ms-date", "Tue, 25 Jun 2019 20:45:00 GMT"),
            ("x-ms-client-request-id", "1a2b"),
            ("date", "ignored"),
        ],
    };

    #[test]
    fn full_form() {
        assert_eq!(
            signed(&PUT, Form::Full, Order::Collation, Plus::Literal),
            "POST\n\n\n69\n\napplication/xml\n\n\n\n\n\n\n\
             x-ms-client-request-id:1a2b\n\
             x-ms-date:Tue, 25 Jun 2019 20:45:00 GMT\n\
             x-ms-version:2026-10-06\n\
             /devstoreaccount1/devstoreaccount1/q/messages\n\
             messagettl:60\nvisibilitytimeout:0"
        );
    }

    #[test]
    fn lite_form() {
        let list = Case {
            method: "GET",
            uri: "/devstoreaccount1/?prefix=a&comp=list",
            ..PUT
        };
        assert_eq!(
            signed(&list, Form::Lite, Order::Ordinal, Plus::Literal),
            "GET\n\napplication/xml\n\n\
             x-ms-client-request-id:1a2b\n\
             x-ms-date:Tue, 25 Jun 2019 20:45:00 GMT\n\
             x-ms-version:2026-10-06\n\
             /devstoreaccount1/devstoreaccount1/?comp=list"
        );
    }

    #[test]
    fn a_length_of_zero_is_signed_before_2015() {
        let create = |version| {
            let case = Case {
                method: "PUT",
                uri: "/devstoreaccount1/q",
                version,
                headers: &[
                    ("content-length", "0"),
                    ("date", "Tue, 25 Jun 2019 20:45:00 GMT"),
                    ("x-ms-meta-empty", ""),
                ],
            };
            signed(&case, Form::Full, Order::Ordinal, Plus::Literal)
        };
        let tail = "/devstoreaccount1/devstoreaccount1/q";
        assert_eq!(
            create(Version::V2013_08_15),
            format!("PUT\n\n\n0\n\n\nTue, 25 Jun 2019 20:45:00 GMT\n\n\n\n\n\n{tail}")
        );
        assert_eq!(
            create(Version::V2015_02_21),
            format!("PUT\n\n\n\n\n\nTue, 25 Jun 2019 20:45:00 GMT\n\n\n\n\n\n{tail}")
        );
        assert_eq!(
            create(Version::V2016_05_31),
            format!(
                "PUT\n\n\n\n\n\nTue, 25 Jun 2019 20:45:00 GMT\n\n\n\n\n\nx-ms-meta-empty:\n{tail}"
            )
        );
    }

    #[test]
    fn header_orders_and_folding() {
        let case = Case {
            method: "PUT",
            uri: "/devstoreaccount1/q",
            version: Version::NEWEST,
            headers: &[
                ("x-ms-meta-a-b", "1"),
                ("x-ms-meta-a_b", "2  3\t\t4 \"5  6\""),
                ("x-ms-meta-ab", "7"),
                ("x-ms-meta-ab", "8"),
            ],
        };
        let headers = |order| {
            let text = signed(&case, Form::Full, order, Plus::Literal);
            let start = text.find("x-ms").unwrap();
            let end = text.find("/dev").unwrap();
            text[start..end].to_owned()
        };
        assert_eq!(
            headers(Order::Collation),
            "x-ms-meta-a_b:2 3 4 \"5  6\"\nx-ms-meta-ab:7,8\nx-ms-meta-a-b:1\n"
        );
        assert_eq!(
            headers(Order::Ordinal),
            "x-ms-meta-a-b:1\nx-ms-meta-a_b:2 3 4 \"5  6\"\nx-ms-meta-ab:7,8\n"
        );
    }

    #[test]
    fn queries_are_decoded_and_sorted() {
        let case = Case {
            method: "DELETE",
            uri: "/devstoreaccount1/q/messages/1?popreceipt=a%2Bb+c%3d&Timeout=30&z=2&flag",
            version: Version::NEWEST,
            headers: &[],
        };
        let query = |plus| {
            let text = signed(&case, Form::Full, Order::Ordinal, plus);
            text[text.find("/1\n").unwrap() + 3..].to_owned()
        };
        assert_eq!(
            query(Plus::Literal),
            "flag:\npopreceipt:a+b+c=\ntimeout:30\nz:2"
        );
        assert_eq!(
            query(Plus::Space),
            "flag:\npopreceipt:a+b c=\ntimeout:30\nz:2"
        );
    }

    #[test]
    fn the_shortcut_agrees_with_the_collation() {
        let names = [
            "x-ms-client-request-id",
            "x-ms-date",
            "x-ms-return-client-request-id",
            "x-ms-version",
        ];
        for pair in names.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(collation::compare(pair[0], pair[1]).is_lt());
        }
    }
}
