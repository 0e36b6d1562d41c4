//! The authorization rules of a queue or a topic, both ways.

use super::INSTANCE;
use super::description::UnknownElements;
use super::elements::{Odd, Part};
use super::read::{Source, text_of};
use crate::http::xml::{Element, put_element};
use crate::secret::Secret;

const KIND: &str = "SharedAccessAuthorizationRule";
const CLAIM_TYPE: &str = "SharedAccessKey";

/// What is read of a rule, and what the service alone writes.
const KNOWN: [&str; 8] = [
    "ClaimType",
    "ClaimValue",
    "Rights",
    "CreatedTime",
    "ModifiedTime",
    "KeyName",
    "PrimaryKey",
    "SecondaryKey",
];

/// An authorization rule of a queue or a topic.
#[derive(Clone, Debug)]
pub struct QueueRule {
    /// Its name.
    pub name: String,
    /// What tokens allow that its keys have signed.
    pub rights: Vec<Right>,
    /// Without it the service makes one, or keeps the one that the rule has.
    pub primary_key: Option<Secret>,
    /// The same for the second key.
    pub secondary_key: Option<Secret>,
    /// What else the service said of the rule, which an update sends back.
    pub unknown: UnknownElements,
}

/// What a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Everything. It comes with the two others.
    Manage,
    /// Sending.
    Send,
    /// Receiving.
    Listen,
}

impl Right {
    fn of(text: &str) -> Option<Self> {
        match text {
            "Manage" => Some(Self::Manage),
            "Send" => Some(Self::Send),
            "Listen" => Some(Self::Listen),
            _ => None,
        }
    }

    /// The service's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manage => "Manage",
            Self::Send => "Send",
            Self::Listen => "Listen",
        }
    }
}

/// Rules of a kind that is not known here stay as they are.
impl Part for Vec<QueueRule> {
    fn read(source: &Source<'_>, element: &Element<'_>) -> Result<Option<Self>, Odd> {
        let rules = element.children.iter();
        let rules: Option<Self> = rules.map(|element| rule(source, element)).collect();
        rules.map(Some).ok_or(Odd::Unknown)
    }

    fn write(&self, name: &str, out: &mut String) {
        out.extend(["<", name, ">"]);
        for rule in self {
            put(out, rule);
        }
        out.extend(["</", name, ">"]);
    }
}

fn rule(source: &Source<'_>, element: &Element<'_>) -> Option<QueueRule> {
    let text = |name: &str| text_of(element, name);
    let kind = element.attribute("type").unwrap_or(KIND);
    let claim_type = text("ClaimType").unwrap_or(CLAIM_TYPE);
    if kind.rsplit(':').next() != Some(KIND) || claim_type != CLAIM_TYPE {
        return None;
    }
    let rights = element.child("Rights").map(|it| it.children.as_slice());
    let rights = rights.unwrap_or_default().iter();
    let key = |name: &str| text(name).filter(|key| !key.is_empty()).map(Secret::new);
    Some(QueueRule {
        name: text("KeyName")?.to_owned(),
        rights: rights
            .map(|right| Right::of(right.text.trim()))
            .collect::<Option<_>>()?,
        primary_key: key("PrimaryKey"),
        secondary_key: key("SecondaryKey"),
        unknown: source.unknown(element, &KNOWN),
    })
}

/// Writes a rule, in the order of the service.
fn put(out: &mut String, rule: &QueueRule) {
    out.push_str("<AuthorizationRule");
    rule.unknown.put_prefixes(out, &["xmlns:i"]);
    out.push_str(&format!(" xmlns:i=\"{INSTANCE}\" i:type=\"{KIND}\">"));
    put_element(out, "ClaimType", CLAIM_TYPE);
    put_element(out, "ClaimValue", "None");
    out.push_str("<Rights>");
    for right in &rule.rights {
        put_element(out, "AccessRights", right.as_str());
    }
    out.push_str("</Rights>");
    put_element(out, "KeyName", &rule.name);
    for (name, key) in [
        ("PrimaryKey", &rule.primary_key),
        ("SecondaryKey", &rule.secondary_key),
    ] {
        if let Some(key) = key {
            put_element(out, name, key.expose());
        }
    }
    rule.unknown.put_all_but(out, &[]);
    out.push_str("</AuthorizationRule>");
}
