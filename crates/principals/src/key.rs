//! The keys of principals.

use std::fmt;
use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One of the two keys of a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhichKey {
    /// The first key.
    Primary,
    /// The second key. Clients use it while the first one is replaced.
    Secondary,
}

impl WhichKey {
    /// Both keys, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Primary, Self::Secondary];

    /// Its name in commands and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
        }
    }

    /// This one of two.
    pub fn of<T>(self, [primary, secondary]: [T; 2]) -> T {
        match self {
            Self::Primary => primary,
            Self::Secondary => secondary,
        }
    }
}

/// A key that Kew generated or that an administrator supplied.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Box<[u8]>);

/// A text that cannot be a key. The text itself is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the key is not Base64 of {} to {} bytes; leave it out to let Kew generate two",
    Key::SIZES_BYTES.start(),
    Key::SIZES_BYTES.end()
)]
pub struct InvalidKey;

/// The operating system gave no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the operating system gave no random bytes for a key: {0}")]
pub struct NoRandomBytes(#[from] getrandom::Error);

impl Key {
    /// The allowed lengths of a supplied key. A shorter key could be guessed.
    pub const SIZES_BYTES: RangeInclusive<usize> = 16..=64;

    /// The length of a generated key: 256 bits.
    const MADE_SIZE_BYTES: usize = 32;

    /// A key of random bytes.
    pub fn generate() -> Result<Self, NoRandomBytes> {
        let mut bytes = [0; Self::MADE_SIZE_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes.into()))
    }

    /// The two keys of a new principal: the supplied key twice, or two generated keys.
    pub fn pair(brought: Option<Self>) -> Result<[Self; 2], NoRandomBytes> {
        match brought {
            Some(key) => Ok([key.clone(), key]),
            None => Ok([Self::generate()?, Self::generate()?]),
        }
    }

    /// Reads a key that an administrator supplies, in Base64. White space around it does not matter.
    pub fn brought(text: &str) -> Result<Self, InvalidKey> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| InvalidKey)?;
        if !Self::SIZES_BYTES.contains(&bytes.len()) {
            return Err(InvalidKey);
        }
        Ok(Self(bytes.into()))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its text in connection strings: Base64.
    pub fn to_base64(&self) -> Box<str> {
        STANDARD.encode(&self.0).into()
    }
}

impl fmt::Debug for Key {
    /// Shows nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// A text that is or contains a key. Only `serde` and [`Secret::as_str`] show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(Box<str>);

impl Secret {
    /// A secret text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for a user who may see it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    /// Shows nothing of the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_new_and_are_not_shown() {
        let [one, two] = [Key::generate().unwrap(), Key::generate().unwrap()];
        assert_ne!(one, two);
        assert_eq!(one.to_base64().len(), 44);
        assert_eq!(format!("{one:?}"), "Key(..)");
        assert_eq!(format!("{:?}", Secret::new("text")), "Secret(..)");
    }

    #[test]
    fn a_supplied_key_must_be_long_enough_and_is_not_repeated() {
        for (size, valid) in [(0, false), (15, false), (16, true), (64, true), (65, false)] {
            let text = STANDARD.encode(vec![7; size]);
            let key = Key::brought(&format!(" {text}\n"));
            assert_eq!(key.is_ok(), valid, "{size}");
            if let Ok(key) = key {
                assert_eq!(*key.to_base64(), text);
            }
        }
        let error = Key::brought("not;Base64").unwrap_err().to_string();
        assert!(error.contains("16 to 64"), "{error}");
        assert!(!error.contains("not;"), "{error}");
    }

    #[test]
    fn a_key_is_named_as_it_is_written() {
        for key in WhichKey::ALL {
            let text = serde_json::to_string(&key).unwrap();
            assert_eq!(text, format!("\"{}\"", key.name()));
        }
        assert_eq!(WhichKey::Secondary.of([1, 2]), 2);
    }
}
