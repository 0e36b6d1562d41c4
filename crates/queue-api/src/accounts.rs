//! The storage accounts that a listener serves, and their keys.
//!
//! A key is prepared for signing once, when it is read. After that it cannot be shown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_engine::{AccountRecord, AccountSecret};
use kew_principals::Served;
use thiserror::Error;

/// The account name that development tools and SDKs know without configuration.
const WELL_KNOWN_ACCOUNT: &str = "devstoreaccount1";

/// Its key, which is public: every client that reaches a listener that serves this account has full access.
const WELL_KNOWN_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Account names are 3 to 24 lower-case letters and digits.
const NAME_LENGTHS: std::ops::RangeInclusive<usize> = 3..=24;

/// Why an account cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidAccount {
    /// The name is not 3 to 24 lower-case letters and digits.
    #[error("account name {name:?} is not 3 to 24 lower-case letters and digits")]
    Name {
        /// The name given.
        name: Box<str>,
    },
    /// The key is not Base64, or is empty. The key itself is not repeated.
    #[error("account key is not Base64, or is empty")]
    Key,
}

/// A secret key of an account.
#[derive(Clone)]
pub struct AccountKey(hmac::Key);

impl AccountKey {
    /// Reads a key from its Base64 form, as connection strings carry it.
    ///
    /// Azure generates 64 bytes; any length from one byte up is accepted.
    pub fn from_base64(text: &str) -> Result<Self, InvalidAccount> {
        let bytes = STANDARD
            .decode(text.trim())
            .map_err(|_| InvalidAccount::Key)?;
        if bytes.is_empty() {
            return Err(InvalidAccount::Key);
        }
        Ok(Self::new(&bytes))
    }

    /// The Base64 form of a key of the log.
    pub(crate) fn text_of(secret: &AccountSecret) -> Box<str> {
        STANDARD.encode(secret.as_bytes()).into()
    }

    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Whether `signature` is this key's HMAC-SHA256 of `text`. Takes the same time whichever
    /// byte differs.
    pub(crate) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        hmac::verify(&self.0, text, signature).is_ok()
    }

    /// Whether the other key makes the same signatures.
    fn is_same(&self, other: &Self) -> bool {
        other.verifies(b"", hmac::sign(&self.0, b"").as_ref())
    }

    pub(crate) fn sign(&self, text: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&self.0, text);
        // An HMAC-SHA256 has as many bytes as a SHA-256.
        let mut bytes = [0; 32];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }
}

impl fmt::Debug for AccountKey {
    /// Shows nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountKey(..)")
    }
}

/// An account: its name and its two keys, either of which signs.
#[derive(Clone, Debug)]
pub struct Account {
    name: Arc<str>,
    primary: AccountKey,
    /// `None` if it is the same: a wrong signature is not computed twice.
    secondary: Option<AccountKey>,
    is_disabled: bool,
}

impl Account {
    /// An account with this name. Two keys let its owner replace one while clients use the other. If there
    /// is only one key, pass it twice.
    ///
    /// Names are 3 to 24 lower-case letters and digits.
    pub fn new(
        name: &str,
        primary: AccountKey,
        secondary: AccountKey,
    ) -> Result<Self, InvalidAccount> {
        let valid = NAME_LENGTHS.contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if !valid {
            return Err(InvalidAccount::Name { name: name.into() });
        }
        Ok(Self {
            name: name.into(),
            secondary: (!secondary.is_same(&primary)).then_some(secondary),
            primary,
            is_disabled: false,
        })
    }

    /// An account of the log, ready to be served.
    pub(crate) fn of_record(record: &AccountRecord) -> Result<Self, InvalidAccount> {
        let key = |secret: &AccountSecret| AccountKey::new(secret.as_bytes());
        let [primary, secondary] = &record.keys;
        Ok(Self {
            is_disabled: record.is_disabled,
            ..Self::new(&record.name, key(primary), key(secondary))?
        })
    }

    /// Whether requests to it are refused.
    pub(crate) fn is_disabled(&self) -> bool {
        self.is_disabled
    }

    /// Whether its key is public.
    pub(crate) fn is_well_known(&self) -> bool {
        *self.name == *WELL_KNOWN_ACCOUNT
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) const fn primary(&self) -> &AccountKey {
        &self.primary
    }

    /// The keys that differ, the primary one first.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &AccountKey> {
        std::iter::once(&self.primary).chain(&self.secondary)
    }

    /// Whether `signature` is the HMAC-SHA256 of `text` with one of the keys. Tries each, so that the time
    /// does not reveal which key it was.
    pub(crate) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        self.keys()
            .fold(false, |found, key| key.verifies(text, signature) | found)
    }
}

/// The accounts that a listener serves, by name.
#[derive(Clone, Debug, Default)]
pub struct Accounts(BTreeMap<Arc<str>, Account>);

impl Accounts {
    /// The name of the account that SDKs document for development.
    pub const WELL_KNOWN_NAME: &str = WELL_KNOWN_ACCOUNT;

    /// Its key, in Base64. It is public.
    pub const WELL_KNOWN_KEY: &str = WELL_KNOWN_KEY;

    /// The one account `devstoreaccount1` with the key that the SDKs document for development.
    ///
    /// That key is public. Serve it on loopback only.
    pub fn well_known() -> Self {
        let key = AccountKey::from_base64(WELL_KNOWN_KEY).expect("the documented key is Base64");
        let account = Account::new(WELL_KNOWN_ACCOUNT, key.clone(), key)
            .expect("the documented name is an account name");
        [account].into_iter().collect()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Account> {
        self.0.get(name)
    }

    pub(crate) fn insert(&mut self, account: Account) {
        self.0.insert(account.name.clone(), account);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }
}

/// The accounts that are served now.
pub type ServedAccounts = Served<Accounts>;

impl FromIterator<Account> for Accounts {
    fn from_iter<I: IntoIterator<Item = Account>>(accounts: I) -> Self {
        Self(
            accounts
                .into_iter()
                .map(|account| (account.name.clone(), account))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown() {
        let shown = format!("{:?}", Accounts::well_known());
        assert!(shown.contains("devstoreaccount1"));
        assert!(!shown.contains("Eby8"), "{shown}");
        assert_eq!(
            AccountKey::from_base64("not a key").unwrap_err(),
            InvalidAccount::Key
        );
        assert!(AccountKey::from_base64("").is_err());
    }

    #[test]
    fn names_are_checked() {
        let key = AccountKey::from_base64("a2V5").unwrap();
        for (name, valid) in [
            ("abc", true),
            ("devstoreaccount1", true),
            ("ab", false),
            ("Abc", false),
            ("a-c", false),
            ("abcdefghijklmnopqrstuvwxy", false),
        ] {
            let account = Account::new(name, key.clone(), key.clone());
            assert_eq!(account.is_ok(), valid, "{name}");
        }
    }

    #[test]
    fn a_signature_verifies_whole_or_not_at_all() {
        let key = AccountKey::from_base64("a2V5").unwrap();
        let mut signature = key.sign(b"text");
        assert!(key.verifies(b"text", &signature));
        assert!(!key.verifies(b"other", &signature));
        assert!(!key.verifies(b"text", &signature[..16]));
        assert!(!key.verifies(b"text", b""));
        signature[31] ^= 1;
        assert!(!key.verifies(b"text", &signature));
    }

    #[test]
    fn either_key_signs_and_a_key_passed_twice_is_stored_once() {
        let [one, two] = ["b25l", "dHdv"].map(|text| AccountKey::from_base64(text).unwrap());
        let both = Account::new("abc", one.clone(), two.clone()).unwrap();
        assert!(both.verifies(b"text", &one.sign(b"text")));
        assert!(both.verifies(b"text", &two.sign(b"text")));
        let first = Account::new("abc", one.clone(), one.clone()).unwrap();
        assert!(first.secondary.is_none());
        assert!(first.verifies(b"text", &one.sign(b"text")));
        assert!(!first.verifies(b"text", &two.sign(b"text")));
    }
}
