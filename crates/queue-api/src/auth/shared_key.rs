//! Shared Key and Shared Key Lite: an HMAC-SHA256 of the request with a key of the account.

use std::cell::RefCell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::canonical::{Form, Path, Plus, Reading, SignedHeaders, string_to_sign};
use super::{Credentials, Principal, check_date};
use crate::address::Style;
use crate::error::Error;
use crate::version::Version;

/// The size of an HMAC-SHA256.
const SIGNATURE_SIZE_BYTES: usize = 32;

/// A buffer that outgrew this is not kept for the next request.
const BUFFER_SIZE_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    /// Where strings to sign are built; none is held across an await.
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

/// `parameters` is `account:signature`; the first clients put a space after the colon.
pub(super) fn authenticate(
    credentials: &Credentials<'_>,
    scheme: Scheme,
    parameters: &str,
) -> Result<Principal, Error> {
    let (account, signature) = parameters
        .split_once(':')
        .ok_or(Error::InvalidAuthenticationInfo)?;
    let signature = signature.trim();
    let decoded = STANDARD
        .decode(signature)
        .map_err(|_| Error::InvalidAuthenticationInfo)?;
    if account.trim() != &**credentials.account.name() {
        return Err(Error::authentication_failed(
            "The account in the Authorization header is not the account that is addressed.",
        ));
    }
    check_date(credentials)?;
    let form = scheme.form(credentials.version);
    let headers = SignedHeaders::new(credentials.headers);
    BUFFER.with_borrow_mut(|buffer| {
        let verified = decoded.len() == SIGNATURE_SIZE_BYTES
            && readings(credentials, &headers).any(|reading| {
                string_to_sign(buffer, credentials, form, &headers, reading);
                let keys = credentials.account.keys();
                keys.iter().any(|key| key.verifies(buffer, &decoded))
            });
        if verified {
            if buffer.capacity() > BUFFER_SIZE_BYTES_MAX {
                *buffer = Vec::new();
            }
            return Ok(Principal::AccountOwner);
        }
        if let Some(reading) = readings(credentials, &headers).next() {
            string_to_sign(buffer, credentials, form, &headers, reading);
        }
        Err(Error::authentication_failed(format!(
            "The MAC signature found in the HTTP request '{signature}' is not the same as any \
             computed signature. Server used following string to sign: '{}'.",
            String::from_utf8_lossy(buffer)
        )))
    })
}

/// Every way to read the request that makes a difference, the most likely first.
fn readings<'a>(
    credentials: &Credentials<'_>,
    headers: &'a SignedHeaders<'_>,
) -> impl Iterator<Item = Reading> + use<'a> {
    let has_plus = credentials
        .query
        .iter()
        .any(|parameter| parameter.raw_value.contains('+'));
    let pluses: &[Plus] = if has_plus {
        &[Plus::Literal, Plus::Space]
    } else {
        &[Plus::Literal]
    };
    // Asking the secondary with the path style, some clients sign the path of the primary.
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
