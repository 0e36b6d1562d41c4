//! Get User Delegation Key.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, BytesMut};
use kew_xml::{DECLARATION, Element, put_element};

use super::RequestBody;
use crate::auth::{DELEGATED_SERVICE, DelegationFields, Ticks};
use crate::error::Error;
use crate::reply::Reply;
use crate::request::Request;

/// How long a key may be good.
const LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// How far a client's clock may be ahead, for clients that request the maximum from now.
const CLOCK_SKEW: Duration = Duration::from_secs(15 * 60);

/// The longest name of a tenant, in bytes. It is a GUID.
const TENANT_SIZE_BYTES_MAX: usize = 64;

/// Creates a key with which a user signs shared access signatures in their name: 200.
///
/// The key is valid from `Start` to `Expiry`, at most 7 days from now. It has the roles that the
/// token names now. `DelegatedUserTid` names the tenant of the users that it may sign for, if it is
/// not their own.
///
/// Source: *Get User Delegation Key*.
pub(super) fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let body = body?;
    let root = kew_xml::read(&body, "KeyInfo")?;
    let [start, expiry, tenant] = root.fields(["Start", "Expiry", "DelegatedUserTid"])?;
    let start = Moment::read(start, "Start")?;
    let expiry = Moment::read(expiry, "Expiry")?;
    check_lifetime(&start, &expiry, Ticks::of(request.now()))?;
    let delegated_tenant = match tenant {
        Some(tenant) => self::tenant(tenant)?,
        None => "",
    };
    let caller = request.caller()?;
    let version = request.version.to_string();
    let made_for = DelegationFields {
        user: &caller.user,
        tenant: &caller.tenant,
        start: start.text,
        expiry: expiry.text,
        version: &version,
        delegated_tenant,
    };
    let value = request.delegation_key(&made_for, caller.roles);
    request.reply(document(&made_for, &value))
}

/// A time in the request: its element, its text, and its value.
struct Moment<'a> {
    element: &'a Element<'a>,
    text: &'a str,
    at: Ticks,
}

impl<'a> Moment<'a> {
    fn read(element: Option<&'a Element<'a>>, name: &'static str) -> Result<Self, Error> {
        let element = element.ok_or(Error::MissingRequiredXmlNode { name })?;
        let text = element.text()?;
        let at = Ticks::parse(text).ok_or_else(|| {
            element.invalid_value::<Error>("The value is not a time in UTC of ISO 8601.")
        })?;
        Ok(Self { element, text, at })
    }
}

fn check_lifetime(start: &Moment<'_>, expiry: &Moment<'_>, now: Ticks) -> Result<(), Error> {
    if expiry.at <= start.at {
        return Err(expiry
            .element
            .invalid_value("The expiry must be after the start."));
    }
    if expiry.at <= now {
        return Err(expiry.element.invalid_value("The expiry is in the past."));
    }
    if expiry.at > now.plus(LIFETIME_MAX + CLOCK_SKEW) {
        return Err(expiry
            .element
            .invalid_value("The expiry is above the maximum of 7 days from now."));
    }
    Ok(())
}

fn tenant<'a>(element: &'a Element<'_>) -> Result<&'a str, Error> {
    let text = element.text()?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !(1..=TENANT_SIZE_BYTES_MAX).contains(&text.len()) || !text.bytes().all(is_name) {
        return Err(element.invalid_value("The value is not the id of a tenant."));
    }
    Ok(text)
}

fn document(made_for: &DelegationFields<'_>, value: &[u8]) -> BytesMut {
    let mut out = BytesMut::with_capacity(1024);
    out.put_slice(DECLARATION);
    out.put_slice(b"<UserDelegationKey>");
    for (name, text) in [
        ("SignedOid", made_for.user),
        ("SignedTid", made_for.tenant),
        ("SignedStart", made_for.start),
        ("SignedExpiry", made_for.expiry),
        ("SignedService", DELEGATED_SERVICE),
        ("SignedVersion", made_for.version),
    ] {
        put_element(&mut out, name, text);
    }
    if !made_for.delegated_tenant.is_empty() {
        put_element(
            &mut out,
            "SignedDelegatedUserTid",
            made_for.delegated_tenant,
        );
    }
    put_element(&mut out, "Value", &STANDARD.encode(value));
    out.put_slice(b"</UserDelegationKey>");
    out
}
