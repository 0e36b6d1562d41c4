//! Authorization rules of a queue, in requests and answers.

use bytes::BytesMut;
use kew_engine::Timestamp;
use kew_xml::{Element, put_element};

use super::document::{close, open};
use crate::authorization::rights::{AuthorizationRule, Rights};
use crate::http::answers::HttpError;
use crate::http::answers::times::rfc3339;

/// A rule in a request. A missing key is generated.
#[derive(Debug)]
pub(super) struct AskedRule {
    name: String,
    rights: Rights,
    primary_key: Option<String>,
    secondary_key: Option<String>,
}

impl AskedRule {
    pub(super) fn read_all(element: &Element<'_>) -> Result<Vec<Self>, HttpError> {
        let mut rules = Vec::new();
        for child in &element.children {
            if child.local_name() != "AuthorizationRule" {
                return Err(child.unsupported());
            }
            rules.push(Self::read(child)?);
        }
        Ok(rules)
    }

    fn read(element: &Element<'_>) -> Result<Self, HttpError> {
        let text = |name: &str| match element.child(name) {
            Some(child) => child
                .text()
                .map(|text| Some(text).filter(|it| !it.is_empty())),
            None => Ok(None),
        };
        for (name, only) in [("ClaimType", "SharedAccessKey"), ("ClaimValue", "None")] {
            if let (Some(child), Some(text)) = (element.child(name), text(name)?)
                && text != only
            {
                return Err(child.invalid_value(format!("must be {only}")));
            }
        }
        let name = text("KeyName")?;
        let name =
            name.ok_or_else(|| HttpError::bad_request("An AuthorizationRule has no KeyName."))?;
        Ok(Self {
            name: name.to_owned(),
            rights: rights(element)?,
            primary_key: text("PrimaryKey")?.map(str::to_owned),
            secondary_key: text("SecondaryKey")?.map(str::to_owned),
        })
    }

    /// The rule, given the previous one with its name.
    fn made(
        &self,
        before: Option<&AuthorizationRule>,
        now_ms: u64,
    ) -> Result<AuthorizationRule, HttpError> {
        let mut rule = AuthorizationRule::generate(&self.name, self.rights, now_ms)
            .map_err(|error| HttpError::bad_request(format!("{error}.")))?;
        if let Some(before) = before {
            rule.created_at_ms = before.created_at_ms;
            rule.primary_key = before.primary_key.clone();
            rule.secondary_key = before.secondary_key.clone();
        }
        if let Some(key) = &self.primary_key {
            rule.primary_key = key.as_str().into();
        }
        if let Some(key) = &self.secondary_key {
            rule.secondary_key = key.as_str().into();
        }
        if let Some(before) = before {
            // Unchanged, it was not modified.
            rule.modified_at_ms = before.modified_at_ms;
            if rule != *before {
                rule.modified_at_ms = now_ms;
            }
        }
        Ok(rule)
    }
}

fn rights(element: &Element<'_>) -> Result<Rights, HttpError> {
    let rights = element.child("Rights");
    let rights = rights.map_or(&[][..], |rights| &rights.children);
    rights
        .iter()
        .map(|right| {
            let parsed = right.text()?.parse();
            parsed.map_err(|_| right.invalid_value("must be Manage, Send or Listen"))
        })
        .collect()
}

/// The rules that replace the previous ones.
pub(super) fn replaced(
    before: &[AuthorizationRule],
    asked: &[AskedRule],
    now_ms: u64,
) -> Result<Vec<AuthorizationRule>, HttpError> {
    if asked.len() > AuthorizationRule::COUNT_MAX {
        // Before any keys are made.
        let error = crate::authorization::rights::InvalidRule::TooMany(asked.len());
        return Err(HttpError::bad_request(format!("{error}.")));
    }
    let made = asked.iter().map(|rule| {
        let same = before.iter().find(|before| before.is_named(&rule.name));
        rule.made(same, now_ms)
    });
    let rules: Vec<_> = made.collect::<Result<_, _>>()?;
    AuthorizationRule::check_all(&rules)
        .map_err(|error| HttpError::bad_request(format!("{error}.")))?;
    Ok(rules)
}

/// Writes the rules of a queue with their keys, which a caller that may manage it can see.
pub(super) fn write(out: &mut BytesMut, rules: &[AuthorizationRule]) {
    if rules.is_empty() {
        return put_element(out, "AuthorizationRules", "");
    }
    open(out, "AuthorizationRules", b"");
    for rule in rules {
        open(
            out,
            "AuthorizationRule",
            b" i:type=\"SharedAccessAuthorizationRule\"",
        );
        put_element(out, "ClaimType", "SharedAccessKey");
        put_element(out, "ClaimValue", "None");
        open(out, "Rights", b"");
        for right in rule.rights.iter() {
            put_element(out, "AccessRights", right.name());
        }
        close(out, "Rights");
        put_element(out, "CreatedTime", &time(rule.created_at_ms));
        put_element(out, "ModifiedTime", &time(rule.modified_at_ms));
        put_element(out, "KeyName", &rule.name);
        put_element(out, "PrimaryKey", &rule.primary_key);
        put_element(out, "SecondaryKey", &rule.secondary_key);
        close(out, "AuthorizationRule");
    }
    close(out, "AuthorizationRules");
}

fn time(ms: u64) -> String {
    rfc3339(Timestamp::from_ms(ms))
}
