//! The SAS of a queue that a user signed with a user delegation key.
//!
//! Kew does not store such keys. A key is an HMAC, with a key of the account, of the fields that
//! the query repeats and of the roles that the user had when it was made. So a reader cannot sign
//! rights to delete. Keys survive a restart, need no storage, and end with the account's key:
//! replacing both of the account's keys revokes them all. (Azure checks the user's roles when a
//! signature is used. In Kew, removed roles stay in effect until `ske`, seven days at most.)

use super::time::Frame;
use super::{Fields, malformed, network, service, verified};
use crate::accounts::{Account, AccountKey};
use crate::auth::rights::Roles;
use crate::auth::{Authentic, Credentials, Principal, bearer};
use crate::error::Error;
use crate::version::Version;

/// The value of `sks` for the queue service.
pub(crate) const SERVICE: &str = "q";

/// The beginning of the text from which a key is made. No string to sign of a client begins like
/// this: their only control characters are line feeds.
const CONTEXT: &str = "\0kew user delegation key 1";

/// The fields that a user delegation key is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DelegationFields<'a> {
    pub(crate) user: &'a str,
    pub(crate) tenant: &'a str,
    pub(crate) start: &'a str,
    pub(crate) expiry: &'a str,
    pub(crate) version: &'a str,
    /// The tenant of the user that a signature may name, if it is another one.
    pub(crate) delegated_tenant: &'a str,
}

impl DelegationFields<'_> {
    /// The key's value: 32 bytes.
    pub(crate) fn value(&self, account: &Account, key: &AccountKey, roles: Roles) -> [u8; 32] {
        let parts = [
            CONTEXT,
            account.name(),
            self.user,
            self.tenant,
            self.start,
            self.expiry,
            SERVICE,
            self.version,
            self.delegated_tenant,
        ];
        // None of them has the separator.
        let mut text = parts.join("\0").into_bytes();
        text.extend_from_slice(&[0, roles.byte()]);
        key.sign(&text)
    }
}

/// Source: *Create a user delegation SAS*.
pub(super) fn authenticate(
    credentials: &Credentials<'_>,
    bearer_token: Option<&str>,
) -> Result<Authentic, Error> {
    let account = credentials.account;
    let queue = service::queue(credentials)?;
    let mut roles = Roles::default();
    let fields = verified(
        credentials,
        |fields| string_to_sign(fields, account.name(), queue),
        |fields, text, signature| match roles_of(fields, account, text, signature) {
            Some(found) => {
                roles = found;
                true
            }
            None => false,
        },
    )?;
    fields.version(Version::V2025_07_05)?;
    for name in ["sp", "se", "skoid", "sktid", "skt", "ske", "skv"] {
        if fields.given(name).is_none() {
            return Err(malformed(format!(
                "{name} is mandatory, and must not be empty"
            )));
        }
    }
    if fields.text("sks") != SERVICE {
        return Err(malformed("sks is not q".into()));
    }
    for (start, expiry) in [("st", "se"), ("skt", "ske")] {
        let expiry = fields
            .time(expiry)?
            .ok_or_else(|| malformed(format!("{expiry} is mandatory")))?;
        let start = fields.time(start)?;
        Frame { start, expiry }.check(credentials.now)?;
    }
    network::check(credentials, fields)?;
    check_user(credentials, fields, bearer_token)?;
    let principal = Principal::QueueSas {
        permissions: fields.text("sp").into(),
        user_roles: Some(roles),
    };
    Ok(Authentic::of(principal, fields.plus))
}

fn string_to_sign(fields: Fields<'_>, account: &str, queue: &str) -> String {
    let mut lines: Vec<_> = ["sp", "st", "se"].map(|name| fields.text(name)).into();
    lines.push(format!("/queue/{account}/{queue}").into());
    lines.extend(
        [
            "skoid", "sktid", "skt", "ske", "sks", "skv", "skdutid", "sduoid", "sip", "spr", "sv",
        ]
        .map(|name| fields.text(name)),
    );
    lines.join("\n")
}

/// The roles of the key with which the text has the signature.
fn roles_of(fields: Fields<'_>, account: &Account, text: &[u8], signature: &[u8]) -> Option<Roles> {
    let [user, tenant, start, expiry, version, delegated_tenant] =
        ["skoid", "sktid", "skt", "ske", "skv", "skdutid"].map(|name| fields.text(name));
    let made_for = DelegationFields {
        user: &user,
        tenant: &tenant,
        start: &start,
        expiry: &expiry,
        version: &version,
        delegated_tenant: &delegated_tenant,
    };
    let mut found = None;
    // All are tried, so that the time reveals nothing.
    for key in account.keys() {
        for roles in Roles::all_delegated() {
            let value = made_for.value(account, key, roles);
            if AccountKey::new(&value).verifies(text, signature) {
                found = Some(roles);
            }
        }
    }
    found
}

/// Checks that the user in the signature (`sduoid`), if any, has sent a bearer token too.
fn check_user(
    credentials: &Credentials<'_>,
    fields: Fields<'_>,
    bearer_token: Option<&str>,
) -> Result<(), Error> {
    let Some(user) = fields.given("sduoid") else {
        return Ok(());
    };
    let Some(token) = bearer_token else {
        return Err(Error::InvalidBearerToken {
            detail: "The signature names a user (sduoid): send a bearer token of that user with \
                     it.",
        });
    };
    let caller = bearer::verify(credentials, token)?;
    let tenant = fields
        .given("skdutid")
        .unwrap_or_else(|| fields.text("sktid"));
    if *caller.user != *user || *caller.tenant != *tenant {
        return Err(Error::authentication_failed(
            "The bearer token does not belong to the user in the signature (sduoid).",
        ));
    }
    Ok(())
}
