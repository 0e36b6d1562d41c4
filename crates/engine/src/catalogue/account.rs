//! Storage accounts: their keys, their quotas, and what they use.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::vocabulary::codec::{
    DecodeError, Reader, optional, put_bytes, put_optional, put_str, put_varint,
};

/// A storage account as it was set last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRecord {
    /// Its name. The front end has checked it.
    pub name: Arc<str>,
    /// Its primary and its secondary key, either of which signs.
    pub keys: [AccountSecret; 2],
    /// Its limits.
    pub quota: AccountQuota,
    /// Whether requests to it are refused.
    pub is_disabled: bool,
}

/// The bytes of an account's key: 1 to 64. They are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountSecret(Box<[u8]>);

/// A key that no account can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "account key of {length} bytes is not 1 to {} bytes long",
    AccountSecret::LENGTH_MAX
)]
pub struct InvalidAccountSecret {
    /// Its length in bytes.
    pub length: usize,
}

impl AccountSecret {
    /// The longest key, in bytes: what the service generates.
    pub const LENGTH_MAX: usize = 64;

    /// A key of these bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidAccountSecret> {
        let length = bytes.len();
        if (1..=Self::LENGTH_MAX).contains(&length) {
            Ok(Self(bytes.into()))
        } else {
            Err(InvalidAccountSecret { length })
        }
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for AccountSecret {
    /// Shows nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountSecret(..)")
    }
}

/// The limits of an account. Without limits by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountQuota {
    /// The most queues.
    pub queues_max: Option<u64>,
    /// The most bytes in messages: for each its body and [`MESSAGE_OVERHEAD_BYTES`](crate::MESSAGE_OVERHEAD_BYTES). A message
    /// that has expired counts until a tick has removed it.
    pub size_bytes_max: Option<u64>,
}

/// Which limit of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaLimit {
    /// [`AccountQuota::queues_max`].
    Queues,
    /// [`AccountQuota::size_bytes_max`].
    SizeBytes,
}

impl fmt::Display for QuotaLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queues => "queues",
            Self::SizeBytes => "bytes",
        })
    }
}

/// What an account uses of its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountUsage {
    /// Queues.
    pub queues: u64,
    /// Bytes in messages, as [`AccountQuota::size_bytes_max`] counts them.
    pub size_bytes: u64,
}

pub(crate) fn put_account(out: &mut Vec<u8>, account: &AccountRecord) {
    put_str(out, &account.name);
    for key in &account.keys {
        put_bytes(out, key.as_bytes());
    }
    put_optional(out, account.quota.queues_max, put_varint);
    put_optional(out, account.quota.size_bytes_max, put_varint);
    out.push(u8::from(account.is_disabled));
}

pub(crate) fn account(r: &mut Reader<'_>) -> Result<AccountRecord, DecodeError> {
    Ok(AccountRecord {
        name: r.str()?.into(),
        keys: [secret(r)?, secret(r)?],
        quota: AccountQuota {
            queues_max: optional(r, Reader::varint)?,
            size_bytes_max: optional(r, Reader::varint)?,
        },
        is_disabled: r.flag()?,
    })
}

fn secret(r: &mut Reader<'_>) -> Result<AccountSecret, DecodeError> {
    let bytes = r.bytes()?;
    AccountSecret::new(bytes).map_err(|_| r.error("account key that no account can have"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_1_to_64_bytes_and_is_not_shown() {
        assert!(AccountSecret::new(&[]).is_err());
        assert!(AccountSecret::new(&[7; 65]).is_err());
        let secret = AccountSecret::new(&[7; 64]).unwrap();
        assert_eq!(secret.as_bytes(), [7; 64]);
        assert_eq!(format!("{secret:?}"), "AccountSecret(..)");
    }
}
