//! Bearer tokens of the configured issuers.

use super::issuer::{self, Caller};
use super::{Authentic, Credentials, Principal};
use crate::error::Error;
use crate::query::Plus;
use crate::version::Version;

/// Source: *Authorize with Microsoft Entra ID*.
pub(super) fn authenticate(credentials: &Credentials<'_>, token: &str) -> Result<Authentic, Error> {
    let caller = verify(credentials, token)?;
    Ok(Authentic::of(Principal::Bearer(caller), Plus::Literal))
}

/// The bearer of a token.
///
/// Refuses with `AuthenticationFailed` if tokens are not enabled, over a connection that others may
/// read, or in a version before tokens. Refuses with `InvalidAuthenticationInfo`, 401, an invalid
/// token.
pub(super) fn verify(credentials: &Credentials<'_>, token: &str) -> Result<Caller, Error> {
    if credentials.issuers.is_empty() {
        return Err(Error::InvalidBearerToken {
            detail: "Bearer tokens are not enabled on this server.",
        });
    }
    if credentials.version < Version::V2017_11_09 {
        return Err(Error::authentication_failed(
            "Authentication scheme Bearer is not supported in this version.",
        ));
    }
    let refused = |detail| Error::InvalidBearerToken { detail };
    let trusted = credentials.issuers.select(token.trim()).map_err(refused)?;
    let origin = credentials.origin;
    if !trusted.is_private(origin.peer.ip(), origin.is_secure) {
        return Err(Error::authentication_failed(
            "Authentication scheme Bearer is supported over https only.",
        ));
    }
    let account = credentials.account.name();
    issuer::verify(trusted, token.trim(), account, credentials.now).map_err(refused)
}
