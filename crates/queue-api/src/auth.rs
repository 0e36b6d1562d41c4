//! Who sends a request, and whether they may.
//!
//! [`authenticate`] is the one door. It knows shared keys; a shared access signature or a bearer
//! token is refused by name, never taken for something else.

mod canonical;
mod collation;
mod shared_key;

use std::time::{Duration, SystemTime};

use hyper::header::{AUTHORIZATION, DATE, HeaderMap};

use crate::accounts::Account;
use crate::address::Address;
use crate::error::Error;
use crate::query::{Plus, Query};
use crate::route::Operation;
use crate::version::Version;
use shared_key::Scheme;

/// The header that replaces `Date` where a client cannot set that one.
pub(crate) const X_MS_DATE: &str = "x-ms-date";

/// What of a request takes part in authentication.
pub(crate) struct Credentials<'a> {
    pub(crate) method: &'a str,
    /// The path as it was sent, still percent-encoded.
    pub(crate) path: &'a str,
    pub(crate) query: &'a Query<'a>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) version: Version,
    pub(crate) address: &'a Address<'a>,
    /// The account that is addressed.
    pub(crate) account: &'a Account,
    pub(crate) now: SystemTime,
    pub(crate) clock_skew_max: Duration,
}

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    /// Somebody who has a key of the account.
    AccountOwner,
}

impl Principal {
    /// Whether they may carry out the operation.
    pub(crate) const fn may(self, _operation: Operation) -> bool {
        match self {
            Self::AccountOwner => true,
        }
    }
}

/// What a credential proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Authentic {
    pub(crate) principal: Principal,
    /// What the sender means by a `+` in the query: the signature holds for this reading alone.
    pub(crate) plus: Plus,
}

/// Finds out who sent a request.
///
/// Refuses with `NoAuthenticationInformation` (before 2019-12-12 `ResourceNotFound`) without a
/// credential, `InvalidAuthenticationInfo` for one that cannot be read, and `AuthenticationFailed`,
/// with an explanation that holds no secret, for one that does not hold.
///
/// Source: *Authorize requests to Azure Storage*.
pub(crate) fn authenticate(credentials: &Credentials<'_>) -> Result<Authentic, Error> {
    let mut values = credentials.headers.get_all(AUTHORIZATION).iter();
    let Some(header) = values.next() else {
        return Err(refuse_anonymous(credentials));
    };
    if values.next().is_some() {
        return Err(Error::InvalidAuthenticationInfo);
    }
    let header = header
        .to_str()
        .map_err(|_| Error::InvalidAuthenticationInfo)?;
    let (scheme, rest) = header
        .trim()
        .split_once(' ')
        .ok_or(Error::InvalidAuthenticationInfo)?;
    if scheme.eq_ignore_ascii_case("SharedKey") {
        shared_key::authenticate(credentials, Scheme::SharedKey, rest)
    } else if scheme.eq_ignore_ascii_case("SharedKeyLite") {
        shared_key::authenticate(credentials, Scheme::SharedKeyLite, rest)
    } else if scheme.eq_ignore_ascii_case("Bearer") {
        Err(Error::InvalidBearerToken {
            detail: "Bearer tokens are not enabled on this server.",
        })
    } else {
        Err(Error::InvalidAuthenticationInfo)
    }
}

fn refuse_anonymous(credentials: &Credentials<'_>) -> Error {
    if credentials.query.value("sig").is_some() {
        Error::authentication_failed("Shared access signatures are not enabled on this server.")
    } else if credentials.version >= Version::V2019_12_12 {
        Error::NoAuthenticationInformation
    } else {
        Error::ResourceNotFound
    }
}

/// Checks that a request is recent: a signature without an end could be replayed for ever.
fn check_date(credentials: &Credentials<'_>) -> Result<(), Error> {
    let header = credentials
        .headers
        .get(X_MS_DATE)
        .or_else(|| credentials.headers.get(DATE));
    let text = header
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let Some(date) = crate::date::parse(text) else {
        return Err(Error::authentication_failed(
            "The Date header in the request is incorrect.",
        ));
    };
    let now = credentials.now;
    let skew = now
        .duration_since(date)
        .unwrap_or_else(|error| error.duration());
    if skew > credentials.clock_skew_max {
        return Err(Error::authentication_failed(format!(
            "Request date header too old: '{text}'"
        )));
    }
    Ok(())
}
