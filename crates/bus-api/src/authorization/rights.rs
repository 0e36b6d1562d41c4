//! Authorization rules: a name, two keys, and the rights of a client that knows one of the keys.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use kew_principals::{Key, NoRandomBytes};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ground::constants::{WELL_KNOWN_KEY, WELL_KNOWN_RULE};

/// A right that a rule can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// Sending and scheduling messages.
    Send,
    /// Receiving, peeking and settling messages.
    Listen,
    /// Creating, changing and deleting entities. Includes the other two rights.
    Manage,
}

impl Right {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Send, Self::Listen, Self::Manage];

    fn bit(self) -> u8 {
        match self {
            Self::Send => 1,
            Self::Listen => 2,
            Self::Manage => 4,
        }
    }

    /// Its name as the service writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "Send",
            Self::Listen => "Listen",
            Self::Manage => "Manage",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Right {
    type Err = InvalidRule;

    /// Reads a name, in any case.
    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let named = |right: &Self| right.name().eq_ignore_ascii_case(text);
        let found = Self::ALL.into_iter().find(named);
        found.ok_or_else(|| InvalidRule::UnknownRight(text.to_owned()))
    }
}

/// A set of rights. Managing includes the other two, so a set with [`Right::Manage`] has all three.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Right>", into = "Vec<Right>")]
pub struct Rights(u8);

impl Rights {
    /// All three.
    pub const ALL: Self = Self(7);

    /// Whether it has a right.
    pub fn has(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its rights, in the order in which they are shown.
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.has(*right))
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        let bits = rights.into_iter().fold(0, |bits, right| bits | right.bit());
        let manages = bits & Right::Manage.bit() != 0;
        if manages { Self::ALL } else { Self(bits) }
    }
}

impl From<Vec<Right>> for Rights {
    fn from(rights: Vec<Right>) -> Self {
        rights.into_iter().collect()
    }
}

impl From<Rights> for Vec<Right> {
    fn from(rights: Rights) -> Self {
        rights.iter().collect()
    }
}

impl fmt::Display for Rights {
    /// Shows them as `Send, Listen, Manage`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Right::name).collect();
        f.write_str(&names.join(", "))
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// A rule of the namespace or of an entity. A client that knows one of its keys has its rights there.
///
/// `serde` writes its keys, because that is how rules are stored.
///
/// Source: Service Bus, *Shared Access Signatures*.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationRule {
    /// Its name: 1 to 256 letters, digits and `. - _`. Case does not tell names apart.
    pub name: Box<str>,
    /// Its rights, at least one.
    pub rights: Rights,
    /// The first key: signatures are made with the bytes of this text. 1 to 256 bytes.
    pub primary_key: Box<str>,
    /// The second key, of the same form.
    pub secondary_key: Box<str>,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// When the rule or one of its keys was last changed, in milliseconds since 1970.
    pub modified_at_ms: u64,
}

/// Why a rule or a list of rules is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidRule {
    /// Not a name.
    #[error("rule name {0:?} is not 1 to 256 letters, digits and . - _")]
    Name(String),
    /// Not a right.
    #[error("right {0:?} is not Send, Listen or Manage")]
    UnknownRight(String),
    /// A rule without rights.
    #[error("the rule {0:?} has no rights: it must have at least one of Send, Listen and Manage")]
    NoRight(String),
    /// Not a key.
    #[error("a key of the rule {0:?} is not 1 to 256 bytes long")]
    Key(String),
    /// Two rules with one name.
    #[error("two rules have the name {0:?}")]
    Twice(String),
    /// Too many rules.
    #[error("{0} authorization rules, at most {max} are allowed", max = AuthorizationRule::COUNT_MAX)]
    TooMany(usize),
    /// Keys could not be generated.
    #[error(transparent)]
    NoRandomBytes(#[from] NoRandomBytes),
}

impl AuthorizationRule {
    /// The most rules of the namespace, and of an entity.
    ///
    /// Source: Service Bus, *Quotas*.
    pub const COUNT_MAX: usize = 12;

    const NAME_LENGTH_MAX: usize = 256;
    const KEY_LENGTH_MAX: usize = 256;

    /// A rule with two new keys.
    pub fn generate(name: &str, rights: Rights, now_ms: u64) -> Result<Self, InvalidRule> {
        let rule = Self::new(name, rights, &Key::pair(None)?, now_ms);
        rule.check()?;
        Ok(rule)
    }

    /// A rule with these keys. Nothing is checked yet.
    pub fn new(name: &str, rights: Rights, keys: &[Key; 2], now_ms: u64) -> Self {
        let [primary_key, secondary_key] = keys.each_ref().map(Key::to_base64);
        Self {
            name: name.into(),
            rights,
            primary_key,
            secondary_key,
            created_at_ms: now_ms,
            modified_at_ms: now_ms,
        }
    }

    /// The emulator's rule, whose key is public.
    pub fn well_known() -> Self {
        Self {
            name: WELL_KNOWN_RULE.into(),
            rights: Rights::ALL,
            primary_key: WELL_KNOWN_KEY.into(),
            secondary_key: WELL_KNOWN_KEY.into(),
            created_at_ms: 0,
            modified_at_ms: 0,
        }
    }

    /// Checks name, rights and keys.
    pub fn check(&self) -> Result<(), InvalidRule> {
        let name = || self.name.to_string();
        let is_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let length = self.name.len();
        if !(1..=Self::NAME_LENGTH_MAX).contains(&length) || !self.name.chars().all(is_char) {
            return Err(InvalidRule::Name(name()));
        }
        if self.rights.is_empty() {
            return Err(InvalidRule::NoRight(name()));
        }
        let is_key = |key: &str| (1..=Self::KEY_LENGTH_MAX).contains(&key.len());
        if !is_key(&self.primary_key) || !is_key(&self.secondary_key) {
            return Err(InvalidRule::Key(name()));
        }
        Ok(())
    }

    /// Checks every rule of a list, and the list.
    pub fn check_all(rules: &[Self]) -> Result<(), InvalidRule> {
        if rules.len() > Self::COUNT_MAX {
            return Err(InvalidRule::TooMany(rules.len()));
        }
        for (index, rule) in rules.iter().enumerate() {
            rule.check()?;
            let has_name = |other: &Self| other.is_named(&rule.name);
            if rules.iter().take(index).any(has_name) {
                return Err(InvalidRule::Twice(rule.name.to_string()));
            }
        }
        Ok(())
    }

    /// Whether it has this name: case does not matter.
    pub fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Whether these are the bytes of one of its keys. Takes the same time whichever bytes are wrong.
    pub fn has_key(&self, key: &[u8]) -> bool {
        let is_key = |own: &str| verify_slices_are_equal(own.as_bytes(), key).is_ok();
        is_key(&self.primary_key) | is_key(&self.secondary_key)
    }

    /// Whether one of its keys has signed something.
    pub(crate) fn has_signed(&self, signed: &[u8], signature: &[u8]) -> bool {
        let has_signed = |key: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
            hmac::verify(&key, signed, signature).is_ok()
        };
        has_signed(&self.primary_key) | has_signed(&self.secondary_key)
    }
}

impl fmt::Debug for AuthorizationRule {
    /// Shows nothing of the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthorizationRule({} {:?})", self.name, self.rights)
    }
}

#[cfg(test)]
mod tests {
    use kew_principals::{Kind as _, WhichKey};

    use super::*;
    use crate::authorization::rules::BusRules;

    fn rule(name: &str) -> AuthorizationRule {
        AuthorizationRule::generate(name, Rights::ALL, 5).unwrap()
    }

    #[test]
    fn managing_includes_everything() {
        let sets: Vec<Rights> = vec![
            [].into_iter().collect(),
            [Right::Send].into_iter().collect(),
            [Right::Listen].into_iter().collect(),
            [Right::Send, Right::Listen].into_iter().collect(),
            [Right::Manage].into_iter().collect(),
        ];
        let shown: Vec<_> = sets.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            ["", "Send", "Listen", "Send, Listen", "Send, Listen, Manage"]
        );
        for set in sets {
            let text = serde_json::to_string(&set).unwrap();
            assert_eq!(serde_json::from_str::<Rights>(&text).unwrap(), set);
        }
        assert_eq!("LISTEN".parse(), Ok(Right::Listen));
        assert!("all".parse::<Right>().is_err());
    }

    #[test]
    fn keys_are_new_and_are_not_shown() {
        let mut rule = rule("r");
        assert_eq!(rule.primary_key.len(), 44);
        assert_ne!(rule.primary_key, rule.secondary_key);
        let (primary, secondary) = (rule.primary_key.clone(), rule.secondary_key.clone());
        assert!(rule.has_key(primary.as_bytes()) && rule.has_key(secondary.as_bytes()));
        assert!(!rule.has_key(b"") && !rule.has_key(b"other"));
        BusRules::set_key(&mut rule, WhichKey::Primary, &Key::generate().unwrap());
        assert!(!rule.has_key(primary.as_bytes()) && rule.has_key(secondary.as_bytes()));
        assert_eq!((rule.created_at_ms, rule.modified_at_ms), (5, 5));
        let shown = format!("{rule:?}");
        assert_eq!(shown, "AuthorizationRule(r {Send, Listen, Manage})");
    }

    #[test]
    fn an_invalid_rule_is_named_in_the_error() {
        let invalid = |change: fn(&mut AuthorizationRule)| {
            let mut rule = rule("r");
            change(&mut rule);
            rule.check().unwrap_err().to_string()
        };
        assert!(invalid(|rule| rule.name = "a b".into()).contains("\"a b\""));
        assert!(invalid(|rule| rule.name = "".into()).contains("\"\""));
        assert!(invalid(|rule| rule.name = "n".repeat(257).into()).contains("256"));
        assert!(invalid(|rule| rule.rights = Rights::default()).contains("no right"));
        assert!(invalid(|rule| rule.secondary_key = "".into()).contains("key"));
        assert!(invalid(|rule| rule.primary_key = "k".repeat(257).into()).contains("256"));
        let many: Vec<_> = (0..13).map(|n| rule(&format!("r{n}"))).collect();
        assert_eq!(
            AuthorizationRule::check_all(&many),
            Err(InvalidRule::TooMany(13))
        );
        let twice = [rule("a"), rule("A")];
        assert_eq!(
            AuthorizationRule::check_all(&twice),
            Err(InvalidRule::Twice("A".into()))
        );
        assert_eq!(AuthorizationRule::check_all(&many[..12]), Ok(()));
    }
}
