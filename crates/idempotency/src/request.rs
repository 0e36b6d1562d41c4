//! Requests: which work is asked for, and with which content.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::error::StoreError;
use crate::key::BusinessId;

/// The SHA-256 of a request's content: tells a repeated request from another one that has the same id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of this content. Every delivery and every repetition of a request must have the same bytes here: leave out what
    /// changes, such as a time of sending.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// As it is recorded.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// As it was recorded.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let bytes = bytes.try_into().map_err(|_| {
            let length = bytes.len();
            StoreError::refused(format!(
                "a record is damaged: its fingerprint has {length} bytes, and 32 were expected"
            ))
        });
        bytes.map(Self)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// A piece of work, as a client asks for it: the business id, and what the request says.
///
/// A guard compares the content of a repeated request with that of the request that was done, and refuses another one
/// ([`GuardError::AnotherRequest`](crate::GuardError::AnotherRequest)). A [`BusinessId`] by itself is a request whose
/// content is not compared: use it only where no client can choose the id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Which work.
    pub id: BusinessId,
    /// What the request says. `None`: it is not compared.
    pub fingerprint: Option<Fingerprint>,
}

impl Request {
    /// The request with this id and this content, such as the body of the message: see [`Fingerprint::of`].
    pub fn new(id: &BusinessId, content: &[u8]) -> Self {
        Self {
            id: id.clone(),
            fingerprint: Some(Fingerprint::of(content)),
        }
    }
}

impl From<&BusinessId> for Request {
    fn from(id: &BusinessId) -> Self {
        Self {
            id: id.clone(),
            fingerprint: None,
        }
    }
}

impl From<&Request> for Request {
    fn from(request: &Request) -> Self {
        request.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_a_sha_256() {
        let fingerprint = Fingerprint::of(b"abc");
        assert!(format!("{fingerprint:?}").starts_with("Fingerprint(ba7816bf8f01cfea"));
        let read = Fingerprint::from_bytes(fingerprint.as_bytes());
        assert_eq!(read.unwrap(), fingerprint);
        let damaged = Fingerprint::from_bytes(&[0; 31]).unwrap_err();
        assert!(damaged.to_string().contains("31 bytes"), "{damaged}");
        assert_ne!(Fingerprint::of(b"abd"), fingerprint);
    }
}
