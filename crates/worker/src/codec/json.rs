//! JSON, through serde.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Codec, CodecError, outgoing};
use crate::source::{Incoming, Outgoing};

/// Messages as JSON, with the content type `application/json`.
pub struct Json<T>(PhantomData<fn() -> T>);

impl<T> Json<T> {
    /// The codec. It has no settings.
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for Json<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Json<T> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Json")
    }
}

impl<T> Codec<T> for Json<T>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    const CLEANS_UP: bool = false;
    const WAITS: bool = false;

    async fn decode(&self, incoming: &Incoming) -> Result<T, CodecError> {
        let read = serde_json::from_slice(&incoming.body);
        read.map_err(|error| CodecError::Malformed(format!("not the expected JSON: {error}")))
    }

    async fn encode(&self, message: &T) -> Result<Outgoing, CodecError> {
        let written = serde_json::to_vec(message);
        let body = written.map_err(|error| CodecError::Malformed(format!("not JSON: {error}")))?;
        Ok(outgoing(body, Some("application/json")))
    }
}
