//! How messages become bytes, and bytes messages.

mod json;
mod text;
mod xml;

use std::future::Future;

use bytes::Bytes;

pub use self::json::Json;
pub use self::text::{Raw, Text};
pub use self::xml::Xml;
use crate::failure::chain_of;
use crate::source::{Incoming, Outgoing};

/// Why a message cannot be decoded or encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes are not a message, and another try will not change that. The message is buried.
    #[error("malformed payload: {0}")]
    Malformed(String),
    /// Something that the codec needs is not available now, such as a store of large bodies. The message is tried
    /// again.
    #[error("the payload is not available: {0}")]
    Unavailable(String),
    /// What the message refers to cannot be used, and another try will not change that. The message is buried with this
    /// reason. [`CodecError::unusable`] makes one of an error.
    #[error("the payload cannot be used: {}", chain.join(": "))]
    Unusable {
        /// A short word to group by, such as `ClaimMissing`.
        reason: String,
        /// The texts of the error and of its sources, outermost first.
        chain: Vec<String>,
    },
}

impl CodecError {
    /// An error that no other try changes, with the texts of its sources.
    pub fn unusable(reason: impl Into<String>, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Unusable {
            reason: reason.into(),
            chain: chain_of(error),
        }
    }
}

/// Converts messages of the type `T`. All methods are asynchronous, so a codec can fetch parts of a message from
/// elsewhere. A listener drops their futures if the lease ends.
pub trait Codec<T>: Send + Sync + 'static {
    /// Whether [`completed`](Self::completed) does anything. A codec that says no saves a little for each message.
    const CLEANS_UP: bool = true;

    /// Whether [`decode`](Self::decode) may wait for something. A codec that says no saves a little for each message. If
    /// its future waits nevertheless, it is dropped and `decode` is called again.
    const WAITS: bool = true;

    /// Reads a message.
    fn decode(&self, incoming: &Incoming) -> impl Future<Output = Result<T, CodecError>> + Send;

    /// Writes a message. It may add properties.
    fn encode(&self, message: &T) -> impl Future<Output = Result<Outgoing, CodecError>> + Send;

    /// The message was completed: what it referred to can be removed. It is called once after the service confirmed
    /// the delete, and not at all if the process ends in between; so clean up what is left over in another way too.
    /// The message counts as one that is being deleted meanwhile, for a minute at most. It is not called if
    /// [`CLEANS_UP`](Self::CLEANS_UP) is false.
    fn completed(&self, incoming: &Incoming) -> impl Future<Output = ()> + Send {
        let _ = incoming;
        async {}
    }

    /// The message is about to be buried: what it refers to must stay for as long as it lies there. It can be called
    /// several times for one message. After an error, or without an end before the lease ends, the message is not
    /// buried: it comes back after its back-off, and is buried then.
    fn burying(&self, incoming: &Incoming) -> impl Future<Output = Result<(), CodecError>> + Send {
        let _ = incoming;
        async { Ok(()) }
    }

    /// A message that [`encode`](Self::encode) wrote was certainly not sent: what its body refers to can be removed.
    /// A [`Sender`](crate::Sender) calls it when the send was refused, or can be tried again later; not if its outcome
    /// is unknown or its future was dropped.
    fn not_sent(&self, body: &Bytes) -> impl Future<Output = ()> + Send {
        let _ = body;
        async {}
    }
}

/// A body with its content type, and nothing else.
fn outgoing(body: impl Into<Bytes>, content_type: Option<&str>) -> Outgoing {
    Outgoing {
        body: body.into(),
        content_type: content_type.map(str::to_owned),
        ..Outgoing::default()
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::source::Meta;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Order {
        id: u32,
        note: String,
    }

    async fn round_trip<T, C: Codec<T>>(codec: C, message: &T) -> (Outgoing, T) {
        let out = codec.encode(message).await.unwrap();
        let incoming = of(out.body.clone());
        let back = codec.decode(&incoming).await.unwrap();
        (out, back)
    }

    fn of(body: Bytes) -> Incoming {
        let meta = Meta::new("jobs".into(), "1", 1).into();
        Incoming { body, meta }
    }

    #[tokio::test]
    async fn messages_are_read_as_they_were_written() {
        let order = Order {
            id: 7,
            note: "a < b & c".to_owned(),
        };
        let (out, back) = round_trip(Json::new(), &order).await;
        assert_eq!(out.body, r#"{"id":7,"note":"a < b & c"}"#);
        assert_eq!(out.content_type.as_deref(), Some("application/json"));
        assert_eq!(back, order);
        let (out, back) = round_trip(Xml::new(), &order).await;
        assert_eq!(out.content_type.as_deref(), Some("application/xml"));
        assert_eq!(back, order, "{:?}", out.body);
        let (_, back) = round_trip(Text, &"héllo".to_owned()).await;
        assert_eq!(back, "héllo");
        let bytes = Bytes::from_static(&[0, 0xff]);
        assert_eq!(round_trip(Raw, &bytes).await.1, bytes);
    }

    #[tokio::test]
    async fn malformed_payloads_say_where() {
        let codec = Json::<Order>::new();
        let error = codec.decode(&of("{\"id\":".into())).await.unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
        let error = Xml::<Order>::new().decode(&of("<Order>".into())).await;
        assert!(matches!(error, Err(CodecError::Malformed(_))));
        let bytes = Bytes::from_static(&[0xff]);
        let error = Text.decode(&of(bytes)).await.unwrap_err();
        assert!(error.to_string().contains("UTF-8"), "{error}");
    }
}
