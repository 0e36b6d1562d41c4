//! The envelope of Queue Storage, whose messages are one text without properties.
//!
//! ```json
//! {"kew-envelope":1,"id":"a-7","properties":{"traceparent":"00-…"},"history":[],"checkpoint":"UGFnZQ==","body":"text"}
//! ```
//!
//! Every member but the first is optional. `body64` is in place of `body` if the body is not UTF-8. A message in
//! the poison queue also has `buried`. Listeners recognize an envelope by how it begins, and read both forms.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::message::{Attempt, Outgoing};
use crate::source::bury::Buried;

/// How every envelope begins.
const BEGIN: &str = "{\"kew-envelope\":1,";

/// The property with the business id.
pub(crate) const ID: &str = "kew-id";

/// Whether listeners and senders write envelopes. They read them in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Envelopes {
    /// Texts stay as applications wrote them, so that other workers can share the queue. Then a message has no
    /// properties, no trace context and no history, and checkpoints are refused.
    #[default]
    Off,
    /// Texts become envelopes when they are sent, and when a failure or a checkpoint is stored with them.
    On,
}

/// What an envelope holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Envelope {
    #[serde(rename = "kew-envelope")]
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "pairs")]
    pub(crate) properties: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<Attempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) buried: Option<Buried>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body64: Option<String>,
}

impl Envelope {
    /// Around a body.
    pub(crate) fn of_body(body: &Bytes) -> Self {
        let (text, base64) = match std::str::from_utf8(body) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(BASE64_STANDARD.encode(body))),
        };
        Self {
            version: 1,
            body: text,
            body64: base64,
            ..Self::default()
        }
    }

    /// Around a message that is sent.
    pub(crate) fn of_outgoing(message: &Outgoing) -> Self {
        Self {
            id: message.id.clone(),
            properties: message.properties.clone(),
            ..Self::of_body(&message.body)
        }
    }

    /// Reads one. `None`: the text is a message by itself. An error says why an envelope cannot be read.
    pub(crate) fn read(text: &[u8]) -> Option<Result<Self, String>> {
        if !text.starts_with(BEGIN.as_bytes()) {
            return None;
        }
        let read = serde_json::from_slice(text);
        Some(read.map_err(|error| format!("the envelope cannot be read: {error}")))
    }

    /// As it is written.
    pub(crate) fn text(&self) -> String {
        // Its types cannot fail: strings and numbers.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn body(&self) -> Result<Bytes, String> {
        match (&self.body, &self.body64) {
            (Some(text), _) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            (None, Some(text)) => base64_of(text, "body64"),
            (None, None) => Ok(Bytes::new()),
        }
    }

    pub(crate) fn checkpoint(&self) -> Result<Option<Bytes>, String> {
        let text = self.checkpoint.as_ref();
        text.map(|text| base64_of(text, "checkpoint")).transpose()
    }

    pub(crate) fn set_checkpoint(&mut self, progress: &[u8]) {
        self.checkpoint = Some(BASE64_STANDARD.encode(progress));
    }
}

fn base64_of(text: &str, member: &str) -> Result<Bytes, String> {
    let decoded = BASE64_STANDARD.decode(text).map(Bytes::from);
    decoded.map_err(|error| format!("{member} of the envelope is not Base64: {error}"))
}

/// Properties as an object, in their order.
mod pairs {
    use std::fmt;

    use serde::de::{MapAccess, Visitor};
    use serde::{Deserializer, Serializer};

    type Pairs = Vec<(String, String)>;

    pub(super) fn serialize<S: Serializer>(pairs: &Pairs, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(pairs.iter().map(|(name, value)| (name, value)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Pairs, D::Error> {
        struct OfPairs;
        impl<'de> Visitor<'de> for OfPairs {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object whose values are text")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Pairs::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }
        from.deserialize_map(OfPairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_reads_what_it_wrote() {
        let message = Outgoing {
            body: Bytes::from_static(b"text"),
            id: Some("a-7".to_owned()),
            properties: vec![("b".into(), "1".into()), ("a".into(), "2".into())],
            ..Outgoing::default()
        };
        let mut envelope = Envelope::of_outgoing(&message);
        envelope.history = vec![Attempt::new(1, "Type", "text")];
        envelope.set_checkpoint(b"page 3");
        let text = envelope.text();
        assert!(text.starts_with(BEGIN), "{text}");
        let read = Envelope::read(text.as_bytes()).unwrap().unwrap();
        assert_eq!(read, envelope);
        assert_eq!(read.body().unwrap(), "text");
        assert_eq!(read.checkpoint().unwrap().unwrap(), "page 3");
        let binary = Envelope::of_body(&Bytes::from_static(&[0xff, 0]));
        let read = Envelope::read(binary.text().as_bytes()).unwrap().unwrap();
        assert_eq!(read.body().unwrap(), &[0xff, 0][..]);
    }

    #[test]
    fn other_texts_are_messages_and_broken_envelopes_are_errors() {
        assert_eq!(Envelope::read(b"{\"order\":1}"), None);
        assert_eq!(Envelope::read(b""), None);
        let broken = Envelope::read(b"{\"kew-envelope\":1,\"body\":3}").unwrap();
        assert!(broken.unwrap_err().contains("cannot be read"));
        let envelope = Envelope::read(b"{\"kew-envelope\":1,\"body64\":\"?\"}");
        let body = envelope.unwrap().unwrap().body();
        assert!(body.unwrap_err().contains("not Base64"));
    }
}
