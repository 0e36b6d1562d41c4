//! XML, through serde.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Codec, CodecError, outgoing};
use crate::source::{Incoming, Outgoing};

/// Messages as an XML document, with the content type `application/xml`.
pub struct Xml<T>(PhantomData<fn() -> T>);

impl<T> Xml<T> {
    /// The codec. It has no settings.
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for Xml<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Xml<T> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Xml<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Xml")
    }
}

impl<T> Codec<T> for Xml<T>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    const CLEANS_UP: bool = false;
    const WAITS: bool = false;

    async fn decode(&self, incoming: &Incoming) -> Result<T, CodecError> {
        let text = std::str::from_utf8(&incoming.body)
            .map_err(|error| CodecError::Malformed(format!("XML that is not UTF-8: {error}")))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let read = quick_xml::de::from_str(text);
        read.map_err(|error| CodecError::Malformed(format!("not the expected XML: {error}")))
    }

    async fn encode(&self, message: &T) -> Result<Outgoing, CodecError> {
        let written = quick_xml::se::to_string(message);
        let body = written.map_err(|error| CodecError::Malformed(format!("not XML: {error}")))?;
        Ok(outgoing(body, Some("application/xml")))
    }
}
