//! Text and bytes as they are.

use bytes::Bytes;

use super::{Codec, CodecError, outgoing};
use crate::source::{Incoming, Outgoing};

/// Messages as UTF-8 text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text;

impl Codec<String> for Text {
    const CLEANS_UP: bool = false;
    const WAITS: bool = false;

    async fn decode(&self, incoming: &Incoming) -> Result<String, CodecError> {
        let text = String::from_utf8(incoming.body.to_vec());
        text.map_err(|error| CodecError::Malformed(format!("text that is not UTF-8: {error}")))
    }

    async fn encode(&self, message: &String) -> Result<Outgoing, CodecError> {
        Ok(outgoing(message.clone(), Some("text/plain")))
    }
}

/// Messages as bytes. On Queue Storage set [`TextEncoding::Base64`](crate::TextEncoding::Base64) for any bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw;

impl Codec<Bytes> for Raw {
    const CLEANS_UP: bool = false;
    const WAITS: bool = false;

    async fn decode(&self, incoming: &Incoming) -> Result<Bytes, CodecError> {
        Ok(incoming.body.clone())
    }

    async fn encode(&self, message: &Bytes) -> Result<Outgoing, CodecError> {
        Ok(outgoing(message.clone(), None))
    }
}
