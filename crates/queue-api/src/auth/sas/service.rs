//! The SAS of a queue, by itself or with a policy that is stored with the queue.

use kew_engine::{AccessPolicy, PolicyTime};

use super::time::{Frame, Ticks};
use super::{Fields, malformed, network, verified};
use crate::address::check_queue_name;
use crate::auth::{Authentic, Credentials, Principal, Who};
use crate::error::Error;
use crate::version::Version;

/// What a stored access policy says.
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

/// A SAS that holds with a policy of its queue, which is still to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyLink {
    /// The policy's id.
    pub(crate) id: Box<str>,
    /// What the signature itself says.
    given: Policy,
}

impl PolicyLink {
    /// What the SAS allows with the policy, or without one of that id.
    ///
    /// Refuses with `AuthenticationFailed` without one, or what is out of its time; and with
    /// `InvalidQueryParameterValue` a field that is given in both.
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
                    "The stored access policy specifies the field, too: it may be given once.",
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

/// The queue that is addressed, with its name in order: it goes into the string to sign. Empty where
/// none is, for which no signature of a queue holds.
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

/// What a SAS of a queue allows with all that it goes by.
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
