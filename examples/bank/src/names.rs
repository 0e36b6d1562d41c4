//! Names of users, accounts and transactions. They are checked once, at the edge.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest name of a user or an account, in bytes.
const SIZE_MAX: usize = 64;

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// Of a user or an account.
    #[error("the {what} {value:?} is not 1 to 64 of the characters A-Z, a-z, 0-9 and -_.@:")]
    Id {
        /// What was to be named.
        what: &'static str,
        /// What came, cut.
        value: String,
    },
    /// Of a transaction.
    #[error("MessageId invalid")]
    MessageId,
}

/// An account of a user: the key of the balances.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountKey {
    user: String,
    account: String,
}

impl AccountKey {
    /// Checks both names. Neither can contain the separator of the key and of messages.
    pub fn new(user: &str, account: &str) -> Result<Self, InvalidName> {
        Ok(Self {
            user: checked("user id", user)?,
            account: checked("account id", account)?,
        })
    }

    /// The user's id.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The account's id.
    pub fn account(&self) -> &str {
        &self.account
    }
}

/// As `user|account`, the first part of the key of transactions.
impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}", self.user, self.account)
    }
}

fn checked(what: &'static str, value: &str) -> Result<String, InvalidName> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@:".contains(&byte);
    match (1..=SIZE_MAX).contains(&value.len()) && value.bytes().all(is_allowed) {
        true => Ok(value.to_owned()),
        false => Err(InvalidName::Id {
            what,
            value: value.chars().take(SIZE_MAX).collect(),
        }),
    }
}

/// A GUID, in lower case with hyphens. The caller chooses it, and repeats it with the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TransactionId(String);

impl TransactionId {
    /// Checks that a text is a GUID: 8, 4, 4, 4 and 12 hexadecimal digits, in upper or lower case.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let mut groups = text.split('-');
        let is_guid = [8, 4, 4, 4, 12].into_iter().all(|size| {
            let group = groups.next().unwrap_or_default();
            group.len() == size && group.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        match is_guid && groups.next().is_none() {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(InvalidName::MessageId),
        }
    }

    /// From 16 random bytes, as version 4.
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let digits = format!("{:032x}", u128::from_be_bytes(bytes));
        let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
        Self(groups.join("-"))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for TransactionId {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::parse(&text)
    }
}

impl From<TransactionId> for String {
    fn from(id: TransactionId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_contain_the_separator() {
        let key = AccountKey::new("ann@example.org", "giro-1").unwrap();
        assert_eq!(key.to_string(), "ann@example.org|giro-1");
        let long = "a".repeat(65);
        for bad in ["", "a|b", "a b", "é", "a/b", "a\n", long.as_str()] {
            assert!(AccountKey::new(bad, "x").is_err(), "{bad:?}");
            assert!(AccountKey::new("x", bad).is_err(), "{bad:?}");
        }
        let error = AccountKey::new("ann", "a|b").unwrap_err().to_string();
        assert!(error.contains("account id \"a|b\""), "{error}");
    }

    #[test]
    fn a_transaction_id_is_a_guid() {
        let text = "6F9619FF-8B86-D011-B42D-00C04FC964FF";
        let id = TransactionId::parse(text).unwrap();
        assert_eq!(id.as_str(), text.to_lowercase());
        for bad in [
            "",
            "7",
            "6F9619FF8B86D011B42D00C04FC964FF",
            "6F9619FF-8B86-D011-B42D-00C04FC964F",
            "6F9619FF-8B86-D011-B42D-00C04FC964FG",
            "6F9619FF-8B86-D011-B42D-00C04FC964FF-",
            "{6F9619FF-8B86-D011-B42D-00C04FC964FF}",
        ] {
            let error = TransactionId::parse(bad).unwrap_err();
            assert_eq!(error.to_string(), "MessageId invalid", "{bad}");
        }
        let random = TransactionId::from_random([0xff; 16]);
        assert_eq!(random.as_str(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(TransactionId::parse(random.as_str()).unwrap(), random);
    }
}
