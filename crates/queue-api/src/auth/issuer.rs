//! Bearer tokens for Queue Storage.

use std::time::SystemTime;

use kew_issuer::Issuer;

use super::rights::Roles;

/// The application id of Azure Storage, which tokens may have as their audience.
const STORAGE_APPLICATION_ID: &str = "e406a681-f3d4-42a8-90b6-c2b029497af1";

/// The resource that clients must request a token for.
pub(crate) const RESOURCE: &str = "https://storage.azure.com";

/// The bearer that a token names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) user: Box<str>,
    pub(crate) tenant: Box<str>,
    pub(crate) roles: Roles,
}

/// The bearer that the token names, or why the token is refused, in the service's words.
pub(crate) fn verify(
    issuer: &Issuer,
    token: &str,
    account: &str,
    now: SystemTime,
) -> Result<Caller, &'static str> {
    let bearer = issuer.verify(token, |audience| is_audience(audience, account), now)?;
    Ok(Caller {
        user: bearer.user,
        tenant: bearer.tenant,
        roles: bearer.roles.into_iter().collect(),
    })
}

/// The documented audiences: `https://storage.azure.com`,
/// `https://{account}.queue.core.windows.net`, each with or without a slash at its end, or the
/// application id of Azure Storage.
fn is_audience(audience: &str, account: &str) -> bool {
    let resource = audience.strip_suffix('/').unwrap_or(audience);
    audience == STORAGE_APPLICATION_ID
        || resource == RESOURCE
        || resource
            .strip_prefix("https://")
            .and_then(|host| host.strip_suffix(".queue.core.windows.net"))
            == Some(account)
}
