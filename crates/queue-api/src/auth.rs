//! Authentication and authorization of requests.
//!
//! [`authenticate`] is the only entrance: Shared Key, shared access signatures of three kinds, and
//! bearer tokens. [`rights`] has the one table of the rights that each operation needs.

mod bearer;
mod canonical;
mod collation;
mod issuer;
mod rights;
mod sas;
mod shared_key;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::{Duration, SystemTime};

use hyper::header::{AUTHORIZATION, DATE, HeaderMap};

use crate::accounts::Account;
use crate::address::Address;
use crate::error::{Error, Mismatch};
use crate::origin::Origin;
use crate::query::{Plus, Query};
use crate::route::Operation;
use crate::version::Version;
use rights::Bearer;
use sas::AccountSas;
use shared_key::Scheme;

pub(crate) use issuer::{Caller, RESOURCE};
pub use kew_issuer::{InvalidKeys, Issuer, IssuerOptions, Issuers, Role};
pub(crate) use rights::Roles;
pub(crate) use sas::is_signature_field;
pub(crate) use sas::time::Ticks;
pub(crate) use sas::{DELEGATED_SERVICE, DelegationFields, Policy, PolicyLink};

/// The header that replaces `Date` for clients that cannot set that one.
pub(crate) const X_MS_DATE: &str = "x-ms-date";

/// The parts of a request that matter for authentication.
pub(crate) struct Credentials<'a> {
    pub(crate) method: &'a str,
    /// The path as it was sent, still percent-encoded.
    pub(crate) path: &'a str,
    pub(crate) query: &'a Query<'a>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) version: Version,
    pub(crate) address: &'a Address<'a>,
    /// The addressed account.
    pub(crate) account: &'a Account,
    pub(crate) now: SystemTime,
    pub(crate) clock_skew_max: Duration,
    pub(crate) origin: &'a Origin,
    /// The issuers whose bearer tokens are accepted.
    pub(crate) issuers: &'a Issuers,
}

impl Credentials<'_> {
    /// The refusal of an authenticated client without the right. From 2024-08-04 on it has an
    /// explanation.
    fn mismatch(&self, mismatch: Mismatch, detail: fmt::Arguments<'_>) -> Error {
        if self.version < Version::V2015_04_05 {
            // Older versions do not have these codes: for them, a forbidden resource does not
            // exist.
            return Error::ResourceNotFound;
        }
        let explains = self.version >= Version::V2024_08_04;
        Error::NotAuthorized {
            mismatch,
            detail: explains.then(|| detail.to_string().into()),
        }
    }

    fn permission_mismatch(&self, has: &str, letters: &str) -> Error {
        self.mismatch(
            Mismatch::Permission,
            format_args!(
                "The signed permissions (sp) are '{has}', and the operation needs {}.",
                Alternatives(letters)
            ),
        )
    }
}

/// Letters of which one is needed.
struct Alternatives<'a>(&'a str);

impl fmt::Display for Alternatives<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, letter) in self.0.chars().enumerate() {
            let before = if index > 0 { " or " } else { "" };
            write!(f, "{before}'{letter}'")?;
        }
        Ok(())
    }
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    /// A client with a key of the account.
    AccountOwner,
    /// A client with rights in the account that its owner signed.
    AccountSas(AccountSas),
    /// A client with rights in the addressed queue, signed by the owner or by a user with these
    /// roles.
    QueueSas {
        permissions: Box<str>,
        user_roles: Option<Roles>,
    },
    /// A user with a token.
    Bearer(Caller),
}

impl Principal {
    /// Whether its only credential is a key of the account: its own signature, or that of a key
    /// that is derived from it.
    pub(crate) fn is_known_by_key(&self) -> bool {
        match self {
            Self::AccountOwner | Self::AccountSas(_) | Self::QueueSas { .. } => true,
            Self::Bearer(_) => false,
        }
    }

    /// Refuses operations without the right, with `AuthorizationPermissionMismatch`,
    /// `AuthorizationResourceTypeMismatch`, or `AuthorizationFailure` if no client of its kind may
    /// do them.
    pub(crate) fn check(
        &self,
        operation: Operation,
        credentials: &Credentials<'_>,
    ) -> Result<(), Error> {
        let needs = rights::needs(operation);
        let never = || {
            credentials.mismatch(
                Mismatch::Other,
                format_args!("No credential of this kind allows the operation."),
            )
        };
        let check_roles = |roles: &Roles| match needs.bearer {
            Bearer::Needs([]) => Err(never()),
            bearer if roles.allow(bearer) => Ok(()),
            Bearer::AnyRole | Bearer::Needs(_) => Err(credentials.mismatch(
                Mismatch::Permission,
                format_args!("The user has no role that allows the operation."),
            )),
        };
        match self {
            Self::AccountOwner if needs.owner => Ok(()),
            Self::AccountOwner => Err(Error::authentication_failed(
                "Only authentication scheme Bearer is supported.",
            )),
            Self::AccountSas(sas) => match needs.account_sas {
                Some((resource_type, letters)) => sas.check(resource_type, letters, credentials),
                None => Err(never()),
            },
            Self::QueueSas {
                permissions,
                user_roles,
            } => {
                let letter = needs.service_sas.ok_or_else(never)?;
                if !permissions.contains(letter) {
                    let mut text = [0; 4];
                    let letter = letter.encode_utf8(&mut text);
                    return Err(credentials.permission_mismatch(permissions, letter));
                }
                user_roles.as_ref().map_or(Ok(()), check_roles)
            }
            Self::Bearer(_) if credentials.version < needs.bearer_since => Err(never()),
            Self::Bearer(caller) => check_roles(&caller.roles),
        }
    }
}

/// The result of a valid credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authentic {
    pub(crate) who: Who,
    /// The meaning of a `+` in the query: the signature is valid for this reading only.
    pub(crate) plus: Plus,
}

/// A known sender, or one whose rights are stored with a queue and not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Principal(Principal),
    HolderOf(PolicyLink),
}

impl Authentic {
    fn of(principal: Principal, plus: Plus) -> Self {
        Self {
            who: Who::Principal(principal),
            plus,
        }
    }
}

/// Authenticates the sender of a request.
///
/// Refuses with `NoAuthenticationInformation` (before 2019-12-12 `ResourceNotFound`) without a
/// credential, `InvalidAuthenticationInfo` for one that cannot be read, and `AuthenticationFailed`,
/// with an explanation that contains no secret, for an invalid one.
///
/// Source: *Authorize requests to Azure Storage*.
pub(crate) fn authenticate(credentials: &Credentials<'_>) -> Result<Authentic, Error> {
    let mut values = credentials.headers.get_all(AUTHORIZATION).iter();
    let Some(header) = values.next() else {
        if credentials.query.value("sig").is_some() {
            return sas::authenticate(credentials, None);
        }
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
        let query = credentials.query;
        let given = |name| query.value(name).is_some_and(|value| !value.is_empty());
        // Such a signature is for one user, who authenticates with the token.
        if given("sig") && given("sduoid") {
            sas::authenticate(credentials, Some(rest))
        } else {
            bearer::authenticate(credentials, rest)
        }
    } else {
        Err(Error::InvalidAuthenticationInfo)
    }
}

fn refuse_anonymous(credentials: &Credentials<'_>) -> Error {
    if credentials.version >= Version::V2019_12_12 {
        Error::NoAuthenticationInformation
    } else {
        Error::ResourceNotFound
    }
}

/// Checks that a request is recent: a signature without an expiry could be replayed without limit.
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
