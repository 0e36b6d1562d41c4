//! The SAS of an account: permission letters for some types of resources of some services.

use super::time::Frame;
use super::{malformed, network, verified};
use crate::auth::rights::ResourceType;
use crate::auth::{Authentic, Credentials, Principal};
use crate::error::{Error, Mismatch};
use crate::version::Version;

/// The rights of an account SAS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountSas {
    resource_types: Box<str>,
    permissions: Box<str>,
}

impl AccountSas {
    /// Refuses with `AuthorizationResourceTypeMismatch` or `AuthorizationPermissionMismatch` an
    /// operation that needs another resource type, or one of these letters.
    pub(crate) fn check(
        &self,
        resource_type: ResourceType,
        letters: &str,
        credentials: &Credentials<'_>,
    ) -> Result<(), Error> {
        if !self.resource_types.contains(resource_type.letter()) {
            return Err(credentials.mismatch(
                Mismatch::ResourceType,
                format_args!(
                    "The signed resource types (srt) are '{}', and the operation needs '{}'.",
                    self.resource_types,
                    resource_type.letter()
                ),
            ));
        }
        if !letters.contains(|letter| self.permissions.contains(letter)) {
            return Err(credentials.permission_mismatch(&self.permissions, letters));
        }
        Ok(())
    }
}

/// Source: *Create an account SAS*.
pub(super) fn authenticate(credentials: &Credentials<'_>) -> Result<Authentic, Error> {
    let account = credentials.account;
    let fields = verified(
        credentials,
        |fields| {
            let mut text = String::from(&**account.name());
            for name in ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"] {
                text.push('\n');
                text.push_str(&fields.text(name));
            }
            text.push('\n');
            if fields.version(Version::V2020_12_06).is_ok() {
                text.push_str(&fields.text("ses"));
                text.push('\n');
            }
            text
        },
        |_, text, signature| account.verifies(text, signature),
    )?;
    fields.version(Version::V2015_04_05)?;
    for name in ["sp", "ss", "srt", "se"] {
        if fields.given(name).is_none() {
            return Err(malformed(format!(
                "{name} is mandatory, and must not be empty"
            )));
        }
    }
    let expiry = fields
        .time("se")?
        .ok_or_else(|| malformed("se is mandatory".into()))?;
    let start = fields.time("st")?;
    Frame { start, expiry }.check(credentials.now)?;
    network::check(credentials, fields)?;
    let services = fields.text("ss");
    if !services.contains('q') {
        return Err(credentials.mismatch(
            Mismatch::Service,
            format_args!("The signed services (ss) are '{services}', and this is 'q'."),
        ));
    }
    let sas = AccountSas {
        resource_types: fields.text("srt").into(),
        permissions: fields.text("sp").into(),
    };
    Ok(Authentic::of(Principal::AccountSas(sas), fields.plus))
}
