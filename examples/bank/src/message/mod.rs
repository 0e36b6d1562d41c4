//! The two shapes in which transactions travel through the queue.

mod text;
mod xml;

use bytes::Bytes;
use kew_worker::{Codec, CodecError, Incoming, Outgoing};

use crate::money::InvalidMoney;
use crate::names::InvalidName;
use crate::transaction::Transaction;

/// The largest body, in bytes: what the first version of Queue Storage accepted.
pub const BODY_SIZE_MAX: usize = 8 << 10;

/// How a transaction is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `userid|accountid|transactionid|amount`. It has no place for unknown fields; the log of messages keeps them.
    Text,
    /// An XML document, with unknown fields.
    Xml,
}

impl Shape {
    /// Its name in the log of messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Xml => "xml",
        }
    }
}

/// A transaction with the shape that it has in the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The transaction.
    pub transaction: Transaction,
    /// How it is written, or was read.
    pub shape: Shape,
}

/// Why a body is not a transaction. It is not booked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// Not the four fields.
    #[error("the text has {0} fields; expected 4: userid|accountid|transactionid|amount")]
    FieldCount(usize),
    /// An element that must be there once.
    #[error("the XML has {count} elements {name}; expected 1")]
    ElementCount {
        /// Its name.
        name: &'static str,
        /// How often it is there.
        count: usize,
    },
    /// Not XML, or not of this kind.
    #[error("the XML cannot be read: {0}")]
    Xml(String),
    /// Not text.
    #[error("the body is not UTF-8")]
    NotUtf8,
    /// Larger than a message may be.
    #[error("the body has {0} bytes; {BODY_SIZE_MAX} are allowed")]
    TooLarge(usize),
    /// Nothing to book.
    #[error("the amount is 0.00; expected another one")]
    NoAmount,
    /// A name of it.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Its amount.
    #[error(transparent)]
    Money(#[from] InvalidMoney),
}

impl Message {
    /// The body of the message.
    pub fn to_body(&self) -> Result<String, InvalidMessage> {
        let body = match self.shape {
            Shape::Text => text::write(&self.transaction),
            Shape::Xml => xml::write(&self.transaction),
        };
        match body.len() <= BODY_SIZE_MAX {
            true => Ok(body),
            false => Err(InvalidMessage::TooLarge(body.len())),
        }
    }

    /// Reads a body. The first character tells the shapes apart.
    pub fn from_body(body: &[u8]) -> Result<Self, InvalidMessage> {
        if body.len() > BODY_SIZE_MAX {
            return Err(InvalidMessage::TooLarge(body.len()));
        }
        let text = std::str::from_utf8(body).map_err(|_| InvalidMessage::NotUtf8)?;
        let text = text.trim_start_matches('\u{feff}').trim();
        let (transaction, shape) = match text.starts_with('<') {
            true => (xml::read(text)?, Shape::Xml),
            false => (text::read(text)?, Shape::Text),
        };
        match transaction.amount.is_zero() {
            true => Err(InvalidMessage::NoAmount),
            false => Ok(Self { transaction, shape }),
        }
    }
}

/// Both shapes, as listeners and senders use them. A body that cannot be read goes to the dead letters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Messages;

impl Codec<Message> for Messages {
    async fn decode(&self, incoming: &Incoming) -> Result<Message, CodecError> {
        let read = Message::from_body(&incoming.body);
        read.map_err(|error| CodecError::Malformed(error.to_string()))
    }

    async fn encode(&self, message: &Message) -> Result<Outgoing, CodecError> {
        let body = message.to_body();
        let body = body.map_err(|error| CodecError::Malformed(error.to_string()))?;
        let content_type = match message.shape {
            Shape::Text => "text/plain",
            Shape::Xml => "application/xml",
        };
        Ok(Outgoing {
            body: Bytes::from(body),
            content_type: Some(content_type.to_owned()),
            ..Outgoing::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::names::{AccountKey, TransactionId};
    use crate::transaction::Unknown;

    const ID: &str = "6f9619ff-8b86-d011-b42d-00c04fc964ff";

    fn message(shape: Shape, fields: Value) -> Message {
        let fields: Map<String, Value> = serde_json::from_value(fields).unwrap();
        Message {
            transaction: Transaction {
                key: AccountKey::new("ann", "giro").unwrap(),
                id: TransactionId::parse(ID).unwrap(),
                amount: "-12.30".parse().unwrap(),
                unknown: Unknown {
                    fields,
                    elements: Vec::new(),
                },
            },
            shape,
        }
    }

    fn refusal(body: &str) -> String {
        Message::from_body(body.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn both_shapes_are_read_as_they_were_written() {
        let text = message(Shape::Text, json!({}));
        assert_eq!(text.to_body().unwrap(), format!("ann|giro|{ID}|-12.30"));
        let xml = message(
            Shape::Xml,
            json!({"note": "a < b & \"c\"", "deep": {"x": [1]}}),
        );
        for message in [text, xml] {
            let body = message.to_body().unwrap();
            assert_eq!(Message::from_body(body.as_bytes()).unwrap(), message);
        }
    }

    #[test]
    fn unknown_elements_stay_as_they_are() {
        let body = format!(
            "<?xml version=\"1.0\"?>\n<Transaction xmlns:p=\"urn:p\"><UserId>ann</UserId>\n\
             <p:Tag a=\"1\"><p:B>x &amp; y</p:B></p:Tag><AccountId> giro </AccountId><Empty/>\
             <TransactionId>{ID}</TransactionId><Amount>5</Amount></Transaction>"
        );
        let read = Message::from_body(body.as_bytes()).unwrap();
        assert_eq!(read.transaction.key.account(), "giro");
        let elements = &read.transaction.unknown.elements;
        let expected = ["<p:Tag a=\"1\"><p:B>x &amp; y</p:B></p:Tag>", "<Empty/>"];
        assert_eq!(elements, &expected);
        let again = read.to_body().unwrap();
        assert!(expected.iter().all(|it| again.contains(it)), "{again}");
        assert_eq!(Message::from_body(again.as_bytes()).unwrap(), read);
    }

    #[test]
    fn any_other_number_of_fields_is_not_booked() {
        for (body, count) in [
            ("", 1),
            ("ann|giro|5.00", 3),
            (&format!("ann|giro|{ID}|5.00|"), 5),
            (&format!("ann|giro|{ID}|5.00|x|y"), 6),
        ] {
            assert!(
                refusal(body).starts_with(&format!("the text has {count} fields")),
                "{body}"
            );
        }
        assert!(refusal(&format!("ann||{ID}|5")).contains("account id \"\""));
        assert_eq!(refusal("ann|giro|7|5"), "MessageId invalid");
        assert!(refusal(&format!("ann|giro|{ID}|5,00")).contains("amount \"5,00\""));
        assert!(refusal(&format!("ann|giro|{ID}|0.00")).contains("the amount is 0.00"));
    }

    #[test]
    fn xml_that_is_not_a_transaction_is_refused() {
        let id = format!("<TransactionId>{ID}</TransactionId>");
        for (body, expected) in [
            ("<Order/>".to_owned(), "root is Order"),
            ("<Transaction/>".to_owned(), "0 elements UserId"),
            ("<Transaction><UserId>".to_owned(), "cannot be read"),
            (
                "<!DOCTYPE x><Transaction/>".to_owned(),
                "a document type is not accepted",
            ),
            (
                format!(
                    "<Transaction><UserId>a</UserId><UserId>b</UserId><AccountId>c</AccountId>\
                     {id}<Amount>5</Amount></Transaction>"
                ),
                "2 elements UserId",
            ),
            (
                format!(
                    "<Transaction><UserId><b/></UserId><AccountId>c</AccountId>\
                     {id}<Amount>5</Amount></Transaction>"
                ),
                "elements in UserId",
            ),
        ] {
            let refused = refusal(&body);
            assert!(refused.contains(expected), "{body}: {refused}");
        }
    }

    #[test]
    fn bodies_have_8_kb_at_most() {
        let fit = message(Shape::Xml, json!({"n": "x".repeat(7_000)}));
        assert!(fit.to_body().is_ok());
        let large = message(Shape::Xml, json!({"n": "x".repeat(8_192)}));
        assert!(matches!(large.to_body(), Err(InvalidMessage::TooLarge(_))));
        let body = vec![b'x'; BODY_SIZE_MAX + 1];
        assert!(Message::from_body(&body).is_err());
        assert_eq!(Message::from_body(&[0xff]), Err(InvalidMessage::NotUtf8));
    }
}
