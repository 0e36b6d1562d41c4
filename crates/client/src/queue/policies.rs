//! Stored access policies of a queue: what signatures that name them permit, until when.
//!
//! Source: *Get Queue ACL*, *Set Queue ACL*, *Define a stored access policy*.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::answers;
use super::client::QueueClient;
use super::request::Operation;
use crate::error::{Effect, Error};
use crate::http::xml::{Element, are_allowed, put_element};

/// A stored access policy. A part that it does not set must be in each signature that names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessPolicy {
    /// What signatures name it by: up to 64 characters.
    pub id: String,
    /// From when they hold.
    pub start: Option<SystemTime>,
    /// Until when they hold.
    pub expiry: Option<SystemTime>,
    /// What they permit: letters of `raup`.
    pub permissions: Option<String>,
}

impl QueueClient {
    /// Reads the stored access policies of a queue.
    pub async fn access_policies(&self, queue: &str) -> Result<Vec<AccessPolicy>, Error> {
        let read = Operation::new("GET", &[queue], Effect::Read).query("comp", "acl");
        let answer = self.call(&read, &[200]).await?;
        answers::read(&answer, "SignedIdentifiers", Effect::Read, |root| {
            root.children.iter().map(policy).collect()
        })
    }

    /// Replaces all stored access policies of a queue; it can have 5. A signature that names a policy that is gone
    /// stops working, within 30 s at most.
    pub async fn set_access_policies(
        &self,
        queue: &str,
        policies: &[AccessPolicy],
    ) -> Result<(), Error> {
        let set = Operation::repeatable("PUT", &[queue]).query("comp", "acl");
        let set = set.document(written(policies)?);
        self.call(&set, &[204]).await.map(drop)
    }
}

fn policy(element: &Element<'_>) -> Result<AccessPolicy, String> {
    let parts = element.child("AccessPolicy");
    let part = |name: &str| {
        let text = parts.and_then(|parts| parts.child_text(name).ok());
        text.filter(|text| !text.is_empty())
    };
    let time = |name: &str| {
        let read = |text: &str| point_in_time(text).ok_or_else(|| format!("a bad {name}: {text}"));
        part(name).map(read).transpose()
    };
    Ok(AccessPolicy {
        id: element.child_text("Id")?.to_owned(),
        start: time("Start")?,
        expiry: time("Expiry")?,
        permissions: part("Permission").map(str::to_owned),
    })
}

/// Reads the forms of ISO 8601 that the service takes: with or without fractions, seconds and a time of the day.
fn point_in_time(text: &str) -> Option<SystemTime> {
    let time = text.parse::<Timestamp>();
    let day = || {
        let day = text.parse::<Date>().ok()?;
        let begin = day.to_zoned(TimeZone::UTC).ok()?;
        Some(begin.timestamp())
    };
    time.ok().or_else(day).map(SystemTime::from)
}

fn written(policies: &[AccessPolicy]) -> Result<String, Error> {
    let mut out = String::from("<SignedIdentifiers>");
    for policy in policies {
        let texts = [Some(&policy.id), policy.permissions.as_ref()];
        if !texts.into_iter().flatten().all(|it| are_allowed(it)) {
            let text = "the access policy has characters that XML cannot carry";
            return Err(Error::refused(text));
        }
        out.push_str("<SignedIdentifier>");
        put_element(&mut out, "Id", &policy.id);
        out.push_str("<AccessPolicy>");
        for (name, time) in [("Start", policy.start), ("Expiry", policy.expiry)] {
            if let Some(time) = time {
                put_element(&mut out, name, &iso_8601(time)?);
            }
        }
        if let Some(permissions) = &policy.permissions {
            put_element(&mut out, "Permission", permissions);
        }
        out.push_str("</AccessPolicy></SignedIdentifier>");
    }
    out.push_str("</SignedIdentifiers>");
    Ok(out)
}

/// With seven digits of fractions, as the service has them.
fn iso_8601(time: SystemTime) -> Result<String, Error> {
    let time = Timestamp::try_from(time);
    let time = time.map_err(|_| Error::refused("the time of the access policy is after 9999"))?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%S%.7fZ").to_string())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_are_read_in_all_their_forms() {
        let seconds = |text| {
            let time = point_in_time(text)?;
            Some(time.duration_since(UNIX_EPOCH).unwrap().as_secs_f64())
        };
        for (text, expected) in [
            ("2026-11-21T00:00:01.5000000Z", Some(1_795_219_201.5)),
            ("2026-11-21T00:00:01Z", Some(1_795_219_201.0)),
            ("2026-11-21T00:01Z", Some(1_795_219_260.0)),
            ("2026-11-21T02:00:00+02:00", Some(1_795_219_200.0)),
            ("2026-11-21", Some(1_795_219_200.0)),
            ("", None),
            ("soon", None),
            ("2026-13-01", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let at = |ms| Some(UNIX_EPOCH + Duration::from_millis(ms));
        let policies = [
            AccessPolicy {
                id: "a<&b".to_owned(),
                start: at(1_795_219_200_500),
                expiry: at(1_795_219_201_000),
                permissions: Some("raup".to_owned()),
            },
            AccessPolicy {
                id: "bare".to_owned(),
                ..AccessPolicy::default()
            },
        ];
        let document = written(&policies).unwrap();
        assert!(document.contains("<Start>2026-11-21T00:00:00.5000000Z</Start>"));
        let root = Element::parse(document.as_bytes()).unwrap();
        let read: Result<Vec<_>, _> = root.children.iter().map(policy).collect();
        assert_eq!(read.unwrap(), policies);
        let odd = AccessPolicy {
            id: "\u{1}".to_owned(),
            ..AccessPolicy::default()
        };
        assert!(written(&[odd]).is_err());
    }
}
