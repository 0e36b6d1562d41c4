//! What is sent.

use bytes::Bytes;

use crate::error::Error;

/// The longest content type, in bytes.
const CONTENT_TYPE_SIZE_MAX: usize = 255;

/// What a message carries, whether it lies in the message or in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// What the data is, such as `application/json`. 1 to 255 printable ASCII characters. One for all messages of a
    /// group.
    pub content_type: String,
    /// The data.
    pub body: Body,
}

/// One message, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// One message.
    One(Bytes),
    /// Several messages, in order.
    Group(Vec<Bytes>),
}

impl Content {
    /// One message.
    pub fn one(content_type: impl Into<String>, data: impl Into<Bytes>) -> Self {
        Self {
            content_type: content_type.into(),
            body: Body::One(data.into()),
        }
    }

    /// Several messages.
    pub fn group(content_type: impl Into<String>, items: Vec<Bytes>) -> Self {
        Self {
            content_type: content_type.into(),
            body: Body::Group(items),
        }
    }

    /// The messages, however many there are.
    pub fn into_items(self) -> Vec<Bytes> {
        match self.body {
            Body::One(data) => vec![data],
            Body::Group(items) => items,
        }
    }
}

pub(crate) fn check_content_type(text: &str) -> Result<(), Error> {
    let is_printable = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    if text.is_empty() || text.len() > CONTENT_TYPE_SIZE_MAX || !is_printable {
        return Err(Error::invalid(format!(
            "the content type has {} bytes; it can have 1 to {CONTENT_TYPE_SIZE_MAX} printable ASCII characters",
            text.len()
        )));
    }
    Ok(())
}
