//! The SAS of a queue, alone or with a stored access policy of the queue.

use kew_engine::storage::{AccessPolicy, PolicyTime};

use super::time::{Frame, Ticks};
use super::{Fields, malformed, network, verified};
use crate::address::check_queue_name;
use crate::auth::{Authentic, Credentials, Principal, Who};
use crate::error::Error;
use crate::version::Version;

/// The fields of a stored access policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) start: Option<Ticks>,
    pub(crate) expiry: Option<Ticks>,
    pub(crate) permissions: Option<Box<str>>,
}

impl From<&AccessPolicy> for Policy {
    fn from(stored: &AccessPolicy) -> Self {
        let ticks = |time: PolicyTime| Ticks(time.0);
        Self {
            start: stored.start.map(ticks),
            expiry: stored.expiry.map(ticks),
            permissions: stored.permissions.clone().filter(|text| !text.is_empty()),
        }
    }
}

/// A SAS that depends on a policy of its queue, which is not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyLink {
    /// The policy's id.
    pub(crate) id: Box<str>,
    /// The fields in the signature itself.
    given: Policy,
}

impl PolicyLink {
    /// The rights of the SAS with the policy, or without one of that id.
    ///
    /// Refuses with `AuthenticationFailed` a missing policy, or a time outside its period. Refuses
    /// with `InvalidQueryParameterValue` a field that is in both.
    pub(crate) fn resolve(
        self,
        stored: Option<Policy>,
        credentials: &Credentials<'_>,
    ) -> Result<Principal, Error> {
        let Some(stored) = stored else {
            return Err(Error::authentication_failed(format!(
                "The queue has no stored access policy '{}' (si).",
                self.id
            )));
        };
        let once = |name, given, stored| {
            if given && stored {
                let value = credentials.query.value(name).unwrap_or_default();
                return Err(Error::invalid_query(
                    name,
                    value,
                    "The stored access policy also specifies the field, which may be given only \
                     once.",
                ));
            }
            Ok(())
        };
        let Self { id: _, given } = self;
        once("st", given.start.is_some(), stored.start.is_some())?;
        once("se", given.expiry.is_some(), stored.expiry.is_some())?;
        once(
            "sp",
            given.permissions.is_some(),
            stored.permissions.is_some(),
        )?;
        principal(
            Policy {
                start: given.start.or(stored.start),
                expiry: given.expiry.or(stored.expiry),
                permissions: given.permissions.or(stored.permissions),
            },
            credentials,
        )
    }
}

/// Source: *Create a service SAS*.
pub(super) fn authenticate(credentials: &Credentials<'_>) -> Result<Authentic, Error> {
    let account = credentials.account;
    let queue = queue(credentials)?;
    let fields = verified(
        credentials,
        |fields| string_to_sign(fields, account.name(), queue),
        |_, text, signature| account.verifies(text, signature),
    )?;
    fields.version(Version::V2012_02_12)?;
    let given = Policy {
        start: fields.time("st")?,
        expiry: fields.time("se")?,
        permissions: fields.given("sp").map(Into::into),
    };
    network::check(credentials, fields)?;
    let who = match fields.given("si") {
        Some(id) => Who::HolderOf(PolicyLink {
            id: id.into(),
            given,
        }),
        None => Who::Principal(principal(given, credentials)?),
    };
    Ok(Authentic {
        who,
        plus: fields.plus,
    })
}

/// The addressed queue, with its name checked: it goes into the string to sign. Empty if there is
/// none; then no signature of a queue is valid.
pub(super) fn queue<'a>(credentials: &'a Credentials<'_>) -> Result<&'a str, Error> {
    let Some(queue) = credentials.address.resource.queue() else {
        return Ok("");
    };
    check_queue_name(queue)?;
    Ok(queue)
}

fn string_to_sign(fields: Fields<'_>, account: &str, queue: &str) -> String {
    let text = |name| fields.text(name);
    let root = match fields.version(Version::V2015_02_21) {
        Ok(_) => "/queue",
        Err(_) => "",
    };
    let resource = format!("{root}/{account}/{queue}");
    let mut lines = vec![
        text("sp"),
        text("st"),
        text("se"),
        resource.into(),
        text("si"),
    ];
    if fields.version(Version::V2015_04_05).is_ok() {
        lines.extend([text("sip"), text("spr")]);
    }
    lines.push(text("sv"));
    lines.join("\n")
}

/// The rights of a SAS of a queue with all of its fields.
fn principal(complete: Policy, credentials: &Credentials<'_>) -> Result<Principal, Error> {
    let Some(expiry) = complete.expiry else {
        return Err(malformed(
            "the expiry (se) must be in the signature or in its stored access policy".into(),
        ));
    };
    let Some(permissions) = complete.permissions.filter(|text| !text.is_empty()) else {
        return Err(malformed(
            "the permissions (sp) must be in the signature or in its stored access policy".into(),
        ));
    };
    let start = complete.start;
    Frame { start, expiry }.check(credentials.now)?;
    Ok(Principal::QueueSas {
        permissions,
        user_roles: None,
    })
}
