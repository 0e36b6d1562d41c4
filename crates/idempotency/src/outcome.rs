//! Outcomes as bytes.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why an outcome cannot be written or read.
pub type OutcomeError = Box<dyn std::error::Error + Send + Sync>;

/// What a handler returns, and a repeated request gets.
///
/// Newer versions of a program read what older ones recorded: change the form only so that they can.
pub trait Outcome: Sized + Send {
    /// The bytes to be recorded.
    fn to_bytes(&self) -> Result<Vec<u8>, OutcomeError>;

    /// The outcome that was recorded as these bytes.
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, OutcomeError>;
}

/// No outcome but the fact that the work is done.
impl Outcome for () {
    fn to_bytes(&self) -> Result<Vec<u8>, OutcomeError> {
        Ok(Vec::new())
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, OutcomeError> {
        match bytes.len() {
            0 => Ok(()),
            size => Err(format!("{size} bytes were recorded; none are expected").into()),
        }
    }
}

impl Outcome for Vec<u8> {
    fn to_bytes(&self) -> Result<Vec<u8>, OutcomeError> {
        Ok(self.clone())
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, OutcomeError> {
        Ok(bytes)
    }
}

impl Outcome for String {
    fn to_bytes(&self) -> Result<Vec<u8>, OutcomeError> {
        Ok(self.clone().into_bytes())
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, OutcomeError> {
        Ok(Self::from_utf8(bytes)?)
    }
}

/// An outcome that is recorded as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Json<T>(pub T);

impl<T: Serialize + DeserializeOwned + Send> Outcome for Json<T> {
    fn to_bytes(&self) -> Result<Vec<u8>, OutcomeError> {
        Ok(serde_json::to_vec(&self.0)?)
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, OutcomeError> {
        Ok(Self(serde_json::from_slice(&bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn check<O: Outcome + PartialEq + Debug>(outcome: O, bytes: &[u8]) {
        assert_eq!(outcome.to_bytes().unwrap(), bytes);
        assert_eq!(O::from_bytes(bytes.to_vec()).unwrap(), outcome);
    }

    #[test]
    fn outcomes_have_their_bytes() {
        check((), b"");
        check(vec![0, 255], &[0, 255]);
        check("é".to_owned(), "é".as_bytes());
        check(Json(vec![1, 2]), b"[1,2]");
    }

    #[test]
    fn bytes_of_another_type_are_refused() {
        assert!(<()>::from_bytes(vec![1]).is_err());
        assert!(String::from_bytes(vec![255]).is_err());
        assert!(Json::<u8>::from_bytes(b"[1]".to_vec()).is_err());
    }
}
