//! A queue's access policies as XML, in requests and answers.
//!
//! Source: *Set Queue ACL*, *Get Queue ACL*.

use bytes::{BufMut as _, BytesMut};
use kew_engine::storage::{AccessPolicies, AccessPolicy, PolicyTime};
use kew_xml::{DECLARATION, Element, put_element};

use crate::date;
use crate::error::Error;
use crate::properties::{put_within, required};

const ROOT: &str = "SignedIdentifiers";

/// How many policies a queue may have.
const POLICY_COUNT_MAX: usize = 5;

/// How long an id may be, in characters.
const ID_LENGTH_MAX: usize = 64;

/// The letters of a policy: read, add, update, process.
const PERMISSIONS: &str = "raup";

/// Reads the body of Set Queue ACL. An empty body means no policies.
///
/// Refuses with `InvalidXmlDocument`, also for more than five policies and an id that is too long,
/// and with `UnsupportedXmlNode`, `MissingRequiredXmlNode` and `InvalidXmlNodeValue`.
pub(crate) fn parse(document: &[u8]) -> Result<AccessPolicies, Error> {
    if document.is_empty() {
        return Ok(AccessPolicies::default());
    }
    let root = kew_xml::read(document, ROOT)?;
    let items = root.items("SignedIdentifier")?;
    if items.is_empty() && !root.text()?.is_empty() {
        return Err(root.invalid("text is not allowed here"));
    }
    if items.len() > POLICY_COUNT_MAX {
        return Err(root.invalid(format!(
            "{} policies are above the maximum of {POLICY_COUNT_MAX}",
            items.len()
        )));
    }
    let mut policies: Vec<AccessPolicy> = Vec::with_capacity(items.len());
    for item in items {
        let policy = read(item)?;
        if policies.iter().any(|other| other.id == policy.id) {
            return Err(item.invalid(format!("a second policy with the id {}", policy.id)));
        }
        policies.push(policy);
    }
    AccessPolicies::new(policies).map_err(|error| root.invalid(error.to_string()))
}

fn read(element: &Element<'_>) -> Result<AccessPolicy, Error> {
    let [id, policy] = element.fields(["Id", "AccessPolicy"])?;
    let id = required(id, "Id")?;
    let id_text = id.text()?;
    let length = id_text.chars().count();
    let reason = || format!("The id has {length} characters, and must have 1 to {ID_LENGTH_MAX}.");
    match length {
        0 => return Err(id.invalid_value(reason())),
        1..=ID_LENGTH_MAX => {}
        // Azure reports this error, and not that the value is wrong.
        _ => return Err(id.invalid(reason())),
    }
    let [start, expiry, permissions] = match policy {
        Some(policy) => policy.fields(["Start", "Expiry", "Permission"])?,
        None => [None; 3],
    };
    Ok(AccessPolicy {
        id: id_text.into(),
        start: time(start)?,
        expiry: time(expiry)?,
        permissions: read_permissions(permissions)?,
    })
}

/// A time; `None` for a missing or empty element.
fn time(element: Option<&Element<'_>>) -> Result<Option<PolicyTime>, Error> {
    let Some(element) = element else {
        return Ok(None);
    };
    match element.text()? {
        "" => Ok(None),
        text => match date::parse_iso8601(text) {
            Some(ticks) => Ok(Some(PolicyTime(ticks))),
            None => Err(element.invalid_value(
                "The value is not a time from 1970 to 9999 such as 2026-11-20 or \
                 2026-11-20T10:30:00.1234567Z.",
            )),
        },
    }
}

fn read_permissions(element: Option<&Element<'_>>) -> Result<Option<Box<str>>, Error> {
    let Some(element) = element else {
        return Ok(None);
    };
    let text = element.text()?;
    let mut letters = text.chars().enumerate();
    // A letter may occur only once.
    let is_well_formed = letters.all(|(index, letter)| {
        PERMISSIONS.contains(letter)
            && text.chars().position(|other| other == letter) == Some(index)
    });
    match text {
        _ if !is_well_formed => Err(element
            .invalid_value("The value must have letters of r, a, u and p, each at most once.")),
        "" => Ok(None),
        text => Ok(Some(text.into())),
    }
}

/// The answer of Get Queue ACL. Missing fields of a policy are left out, and so is `AccessPolicy`
/// if it has none.
pub(crate) fn document(policies: &AccessPolicies) -> BytesMut {
    let mut out = BytesMut::with_capacity(1024);
    out.put_slice(DECLARATION);
    if policies.iter().next().is_none() {
        put_element(&mut out, ROOT, "");
        return out;
    }
    put_within(&mut out, ROOT, |out| {
        for policy in policies.iter() {
            put_within(out, "SignedIdentifier", |out| put(out, policy));
        }
    });
    out
}

fn put(out: &mut BytesMut, policy: &AccessPolicy) {
    put_element(out, "Id", &policy.id);
    let times = [("Start", policy.start), ("Expiry", policy.expiry)];
    if times.iter().all(|(_, time)| time.is_none()) && policy.permissions.is_none() {
        return;
    }
    put_within(out, "AccessPolicy", |out| {
        for (name, time) in times {
            if let Some(PolicyTime(ticks)) = time {
                put_element(out, name, &date::iso8601_of_ticks(ticks));
            }
        }
        if let Some(permissions) = &policy.permissions {
            put_element(out, "Permission", permissions);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(inner: &str) -> Result<String, Error> {
        let policies = parse(format!("<SignedIdentifiers>{inner}</SignedIdentifiers>").as_bytes())?;
        let shown = String::from_utf8(document(&policies).to_vec()).unwrap();
        let start = "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers";
        Ok(shown.strip_prefix(start).unwrap().to_owned())
    }

    fn check(inner: &str, expected: &str) {
        let shown = round_trip(inner).unwrap_or_else(|error| panic!("{inner}: {error:?}"));
        assert_eq!(shown, format!(">{expected}</SignedIdentifiers>"), "{inner}");
    }

    fn check_refused(inner: &str, expected: &str) {
        match round_trip(inner) {
            Ok(shown) => panic!("{inner}: {shown}"),
            Err(error) => assert_eq!(error.wire().code, expected, "{inner}"),
        }
    }

    fn policy(id: &str, inner: &str) -> String {
        format!("<SignedIdentifier><Id>{id}</Id>{inner}</SignedIdentifier>")
    }

    #[test]
    fn times_are_shown_with_seven_digits() {
        check(
            &policy(
                "a",
                "<AccessPolicy><Permission>pu</Permission><Expiry>2026-11-20T10:30Z</Expiry>\
                 <Start>2026-11-20</Start></AccessPolicy>",
            ),
            &policy(
                "a",
                "<AccessPolicy><Start>2026-11-20T00:00:00.0000000Z</Start>\
                 <Expiry>2026-11-20T10:30:00.0000000Z</Expiry><Permission>pu</Permission>\
                 </AccessPolicy>",
            ),
        );
        check(
            &policy(
                "&lt;",
                "<AccessPolicy><Start>2026-11-20T10:30:01.5Z</Start></AccessPolicy>",
            ),
            &policy(
                "&lt;",
                "<AccessPolicy><Start>2026-11-20T10:30:01.5000000Z</Start></AccessPolicy>",
            ),
        );
    }

    #[test]
    fn an_empty_policy_is_an_id() {
        for inner in [
            "",
            "<AccessPolicy/>",
            "<AccessPolicy><Start/><Expiry></Expiry><Permission/></AccessPolicy>",
        ] {
            check(&policy("a", inner), &policy("a", ""));
        }
        assert_eq!(round_trip("").unwrap(), " />");
        assert_eq!(
            document(&parse(b"").unwrap()),
            document(&AccessPolicies::default())
        );
    }

    #[test]
    fn policies_are_few_and_have_ids_of_their_own() {
        let many =
            |count: usize| -> String { (0..count).map(|n| policy(&n.to_string(), "")).collect() };
        check(&many(5), &many(5));
        check_refused(&many(6), "InvalidXmlDocument");
        check_refused(&policy("a", "").repeat(2), "InvalidXmlDocument");
        check(&policy(&"é".repeat(64), ""), &policy(&"é".repeat(64), ""));
        check_refused(&policy(&"x".repeat(65), ""), "InvalidXmlDocument");
        check_refused(&policy("", ""), "InvalidXmlNodeValue");
        check_refused("<SignedIdentifier/>", "MissingRequiredXmlNode");
        check_refused("<Other/>", "UnsupportedXmlNode");
        check_refused("text", "InvalidXmlDocument");
        check_refused(
            &policy("a", "<AccessPolicy/><AccessPolicy/>"),
            "InvalidXmlDocument",
        );
    }

    #[test]
    fn values_are_checked() {
        for (name, value) in [
            ("Permission", "rx"),
            ("Permission", "rr"),
            ("Permission", "R"),
            ("Start", "soon"),
            ("Start", "2026-02-29"),
            ("Expiry", "2026-11-20T10:30:00"),
            ("Expiry", "1969-12-31"),
            ("Expiry", "2026-11-20T10:30:00.12345678Z"),
        ] {
            let inner = format!("<AccessPolicy><{name}>{value}</{name}></AccessPolicy>");
            check_refused(&policy("a", &inner), "InvalidXmlNodeValue");
        }
    }
}
