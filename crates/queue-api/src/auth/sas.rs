//! Shared access signatures: rights in a query, signed by the owner of an account or by a user with
//! a delegation key.
//!
//! Three kinds: of an account, of a queue, and of a queue by a user. Each has strings to sign by
//! the version `sv` that it names. Their fields are the decoded values of the query. Kew enforces
//! all that is signed: addresses (`sip`), protocols (`spr`), times (`st`, `se`), and permissions.
//!
//! Every field is one line of the string to sign. Queries have no control characters, and the name
//! of the queue is checked before it is used, so no field can look like two.
//!
//! Sources: *Create an account SAS*, *Create a service SAS*, *Create a user delegation SAS*, *Shared
//! access signature error codes*.

mod account;
mod delegation;
mod network;
mod service;
pub(crate) mod time;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(crate) use account::AccountSas;
pub(crate) use delegation::{DelegationFields, SERVICE as DELEGATED_SERVICE};
pub(crate) use service::{Policy, PolicyLink};

use super::{Authentic, Credentials};
use crate::error::Error;
use crate::query::{Plus, Query};
use crate::version::Version;

/// Every field, and its longest value in bytes: the documented one if there is one, else a generous
/// one. The sender is not authenticated yet, and each field is part of a text that is signed many
/// times.
const FIELDS: [(&str, usize); 20] = [
    ("sv", 10),
    ("ss", 16),
    ("srt", 16),
    ("sp", 64),
    ("st", TIME_SIZE_BYTES_MAX),
    ("se", TIME_SIZE_BYTES_MAX),
    // 64 characters.
    ("si", 256),
    // Two IPv4 addresses with a hyphen between them, or an invalid text to show in the refusal.
    ("sip", 128),
    ("spr", 16),
    // The name of an encryption scope.
    ("ses", 63),
    ("sr", 16),
    ("sig", 128),
    ("skoid", USER_SIZE_BYTES_MAX),
    ("sktid", USER_SIZE_BYTES_MAX),
    ("skt", TIME_SIZE_BYTES_MAX),
    ("ske", TIME_SIZE_BYTES_MAX),
    ("sks", 16),
    ("skv", 10),
    ("skdutid", USER_SIZE_BYTES_MAX),
    ("sduoid", USER_SIZE_BYTES_MAX),
];

/// The longest time, in bytes: one with seven digits of the second has 28.
const TIME_SIZE_BYTES_MAX: usize = 64;

/// The longest names of users and tenants, in bytes: the limit for issuers.
const USER_SIZE_BYTES_MAX: usize = 256;

/// Whether a parameter of the query is a field of a signature.
pub(crate) fn is_signature_field(name: &str) -> bool {
    let mut fields = FIELDS.iter();
    fields.any(|(field, _)| field.eq_ignore_ascii_case(name))
}

/// How many bytes of a string to sign an error shows.
const SHOWN_STRING_SIZE_BYTES_MAX: usize = 4 * 1024;

/// Determines the rights of the signature in the query. `bearer_token` is the token in the header,
/// for signatures whose user must authenticate too.
pub(super) fn authenticate(
    credentials: &Credentials<'_>,
    bearer_token: Option<&str>,
) -> Result<Authentic, Error> {
    let query = credentials.query;
    check_sizes(query)?;
    let has = |name| query.value(name).is_some_and(|value| !value.is_empty());
    if has("ss") || has("srt") {
        account::authenticate(credentials)
    } else if has("skoid") {
        delegation::authenticate(credentials, bearer_token)
    } else {
        service::authenticate(credentials)
    }
}

/// Refuses fields that are too long, before anything is computed from them.
fn check_sizes(query: &Query<'_>) -> Result<(), Error> {
    for (name, size_bytes_max) in FIELDS {
        let size_bytes = query.value(name).map_or(0, |value| value.len());
        if size_bytes > size_bytes_max {
            return Err(malformed(format!(
                "{name} has {size_bytes} bytes, at most {size_bytes_max} are allowed"
            )));
        }
    }
    Ok(())
}

/// The fields of a signature in one reading of the query.
#[derive(Clone, Copy)]
struct Fields<'a> {
    query: &'a Query<'a>,
    plus: Plus,
}

impl<'a> Fields<'a> {
    /// The value of a field. A missing and an empty field are signed alike and mean the same.
    fn text(&self, name: &str) -> Cow<'a, str> {
        self.query.value_as(name, self.plus).unwrap_or_default()
    }

    fn given(&self, name: &str) -> Option<Cow<'a, str>> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// The version that determines the string to sign.
    fn version(&self, since: Version) -> Result<Version, Error> {
        let text = self.text("sv");
        Version::parse(text.as_bytes())
            .filter(|version| *version >= since)
            .ok_or_else(|| {
                malformed(format!(
                    "sv is '{text}', which is not a version with signatures of this kind"
                ))
            })
    }

    fn time(&self, name: &'static str) -> Result<Option<time::Ticks>, Error> {
        let Some(text) = self.given(name) else {
            return Ok(None);
        };
        match time::Ticks::parse(&text) {
            Some(ticks) => Ok(Some(ticks)),
            None => Err(malformed(format!(
                "{name} is '{text}', which is not a time of the form YYYY-MM-DDThh:mm:ssZ"
            ))),
        }
    }
}

fn malformed(why: String) -> Error {
    Error::authentication_failed(format!("Signature fields not well formed: {why}."))
}

/// Finds the reading of the fields whose string to sign has the signature in the query.
///
/// `string_to_sign` has one line for each field; `verifies` returns whether it has the signature.
fn verified<'a>(
    credentials: &'a Credentials<'a>,
    string_to_sign: impl Fn(Fields<'a>) -> String,
    mut verifies: impl FnMut(Fields<'a>, &[u8], &[u8]) -> bool,
) -> Result<Fields<'a>, Error> {
    let query = credentials.query;
    let signature = query.value("sig").unwrap_or_default();
    let signature = STANDARD.decode(signature.as_bytes());
    let literal = Fields {
        query,
        plus: Plus::Literal,
    };
    let text = string_to_sign(literal);
    if let Ok(signature) = &signature {
        if verifies(literal, text.as_bytes(), signature) {
            return Ok(literal);
        }
        let spaced = Fields {
            query,
            plus: Plus::Space,
        };
        if query.has_plus() {
            let other = string_to_sign(spaced);
            if other != text && verifies(spaced, other.as_bytes(), signature) {
                return Ok(spaced);
            }
        }
    }
    let shown = String::from_utf8_lossy(
        text.as_bytes()
            .get(..SHOWN_STRING_SIZE_BYTES_MAX)
            .unwrap_or(text.as_bytes()),
    );
    Err(Error::authentication_failed(format!(
        "Signature did not match. String to sign used was {shown}"
    )))
}
