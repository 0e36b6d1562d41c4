//! Shared Key and Shared Key Lite: an HMAC-SHA256 of the request with a key of the account.

use std::cell::RefCell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::canonical::{self, Form, Path, Reading, SignedHeaders, string_to_sign};
use super::{Authentic, Credentials, Principal, check_date};
use crate::address::Style;
use crate::error::Error;
use crate::query::Plus;
use crate::version::Version;

/// The size of an HMAC-SHA256.
const SIGNATURE_SIZE_BYTES: usize = 32;

/// The most readings that are tried of one request: the sender is not authenticated yet. Real
/// clients differ from the first reading in one or two details.
const READINGS_MAX: usize = 5;

/// How many bytes of a signature and of a string to sign an error shows.
const SHOWN_SIGNATURE_SIZE_BYTES_MAX: usize = 128;
const SHOWN_STRING_SIZE_BYTES_MAX: usize = 4 * 1024;

/// How many bytes of a request may be signed. Metadata of 8 KiB in the shortest pairs takes 20 KiB
/// of it, with the names of its headers. Everything else is short by documentation.
const SIGNED_SIZE_BYTES_MAX: usize = 32 * 1024;

thread_local! {
    /// A buffer for strings to sign. It is not held across an await.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// How the `Authorization` header names the form of the string to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    SharedKey,
    SharedKeyLite,
}

impl Scheme {
    fn form(self, version: Version) -> Form {
        match self {
            Self::SharedKey if version >= Version::V2009_09_19 => Form::Full,
            Self::SharedKey | Self::SharedKeyLite => Form::Lite,
        }
    }
}

/// `parameters` is `account:signature`. The first clients put a space after the colon.
pub(super) fn authenticate(
    credentials: &Credentials<'_>,
    scheme: Scheme,
    parameters: &str,
) -> Result<Authentic, Error> {
    let (account, signature) = parameters
        .split_once(':')
        .ok_or(Error::InvalidAuthenticationInfo)?;
    let signature = signature.trim();
    let decoded = STANDARD
        .decode(signature)
        .map_err(|_| Error::InvalidAuthenticationInfo)?;
    if account.trim() != &**credentials.account.name() {
        return Err(Error::authentication_failed(
            "The account in the Authorization header is not the account that the request \
             addresses.",
        ));
    }
    check_date(credentials)?;
    let size_bytes = canonical::size_bytes(credentials);
    if size_bytes > SIGNED_SIZE_BYTES_MAX {
        return Err(Error::authentication_failed(format!(
            "The string to sign has {size_bytes} bytes, at most {SIGNED_SIZE_BYTES_MAX} are \
             allowed."
        )));
    }
    let form = scheme.form(credentials.version);
    BUFFER.with_borrow_mut(|buffer| {
        verify(buffer, credentials, form, &decoded).ok_or_else(|| {
            Error::authentication_failed(format!(
                "The MAC signature found in the HTTP request '{}' is not the same as any \
                 computed signature. Server used following string to sign: '{}'.",
                shown(signature.as_bytes(), SHOWN_SIGNATURE_SIZE_BYTES_MAX),
                shown(buffer, SHOWN_STRING_SIZE_BYTES_MAX)
            ))
        })
    })
}

/// Finds the reading of the request that was signed. If there is none, the first stays in `buffer`.
fn verify(
    buffer: &mut Vec<u8>,
    credentials: &Credentials<'_>,
    form: Form,
    signature: &[u8],
) -> Option<Authentic> {
    let headers = SignedHeaders::new(credentials.headers);
    let readings: Vec<Reading> = readings(credentials, &headers).take(READINGS_MAX).collect();
    if signature.len() == SIGNATURE_SIZE_BYTES {
        for &reading in &readings {
            string_to_sign(buffer, credentials, form, &headers, reading);
            if credentials.account.verifies(buffer, signature) {
                return Some(Authentic::of(Principal::AccountOwner, reading.plus));
            }
        }
    }
    if let Some(&first) = readings.first() {
        string_to_sign(buffer, credentials, form, &headers, first);
    }
    None
}

/// The beginning of bytes that may be long, and may not be text.
fn shown(bytes: &[u8], size_bytes_max: usize) -> String {
    match bytes.get(..size_bytes_max) {
        Some(start) if start.len() < bytes.len() => {
            format!("{}...", String::from_utf8_lossy(start))
        }
        Some(_) | None => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// All readings of the request that differ, the most likely first.
fn readings<'a>(
    credentials: &Credentials<'_>,
    headers: &'a SignedHeaders<'_>,
) -> impl Iterator<Item = Reading> + use<'a> {
    let pluses: &[Plus] = if credentials.query.has_plus() {
        &[Plus::Literal, Plus::Space]
    } else {
        &[Plus::Literal]
    };
    // For the secondary in the path style, some clients sign the path of the primary.
    let address = credentials.address;
    let paths: &[Path] = if address.secondary && address.style == Style::Path {
        &[Path::AsSent, Path::OfPrimary]
    } else {
        &[Path::AsSent]
    };
    let all_spaces = headers.spaces(credentials.headers);
    paths.iter().flat_map(move |&path| {
        pluses.iter().flat_map(move |&plus| {
            all_spaces.iter().flat_map(move |&spaces| {
                headers.orders().iter().map(move |&order| Reading {
                    order,
                    spaces,
                    plus,
                    path,
                })
            })
        })
    })
}
