//! The two shapes in which transactions travel through the queue.

mod text;
mod xml;

use bytes::Bytes;
use kew_worker::{Codec, CodecError, Incoming, Outgoing};

use crate::money::InvalidMoney;
use crate::names::InvalidName;
use crate::transaction::{Transaction, UnknownRefused};

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
    /// A character that no message can carry, because Queue Storage and XML have no place for it.
    #[error("the text has the character U+{:04X}, which XML does not allow", u32::from(*.0))]
    Character(char),
    /// It would not be read as it was written.
    #[error("the fields cannot be written as XML: {0}")]
    Unwritable(String),
    /// Its unknown fields.
    #[error(transparent)]
    Unknown(#[from] UnknownRefused),
    /// A name of it.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Its amount.
    #[error(transparent)]
    Money(#[from] InvalidMoney),
}

impl InvalidMessage {
    /// Whether less of the same would be accepted.
    pub fn is_size(&self) -> bool {
        matches!(
            self,
            Self::TooLarge(_) | Self::Unknown(UnknownRefused::TooLarge(_))
        )
    }
}

impl Message {
    /// The body of the message. Whatever a worker would not book is refused here: the body is read again, and must be
    /// the same transaction.
    pub fn to_body(&self) -> Result<String, InvalidMessage> {
        let body = match self.shape {
            Shape::Text => text::write(&self.transaction),
            Shape::Xml => xml::write(&self.transaction),
        };
        if body.len() > BODY_SIZE_MAX {
            return Err(InvalidMessage::TooLarge(body.len()));
        }
        self.transaction.unknown.check()?;
        let read = Self::from_body(body.as_bytes())?;
        match self.is_carried_by(&read) {
            true => Ok(body),
            false => Err(InvalidMessage::Unwritable(
                "they would be read back as another transaction".to_owned(),
            )),
        }
    }

    /// Whether what was read from a body is this message. Values of unknown fields are not compared: JSON numbers may
    /// differ in the last digit.
    fn is_carried_by(&self, read: &Self) -> bool {
        let (ours, theirs) = (&self.transaction, &read.transaction);
        let same = ours.key == theirs.key && ours.id == theirs.id && ours.amount == theirs.amount;
        let unknown = match self.shape {
            // It has no place for them.
            Shape::Text => true,
            Shape::Xml => {
                let [ours, theirs] = [&ours.unknown, &theirs.unknown];
                ours.fields.keys().eq(theirs.fields.keys()) && ours.elements == theirs.elements
            }
        };
        same && unknown && self.shape == read.shape
    }

    /// Reads a body. The first character tells the shapes apart.
    pub fn from_body(body: &[u8]) -> Result<Self, InvalidMessage> {
        if body.len() > BODY_SIZE_MAX {
            return Err(InvalidMessage::TooLarge(body.len()));
        }
        let text = std::str::from_utf8(body).map_err(|_| InvalidMessage::NotUtf8)?;
        if let Some(character) = text.chars().find(|it| !is_allowed(*it)) {
            return Err(InvalidMessage::Character(character));
        }
        let text = text.trim_start_matches('\u{feff}').trim();
        let (transaction, shape) = match text.starts_with('<') {
            true => (xml::read(text)?, Shape::Xml),
            false => (text::read(text)?, Shape::Text),
        };
        transaction.amount.as_amount()?;
        Ok(Self { transaction, shape })
    }
}

/// Whether XML 1.0 allows a character.
fn is_allowed(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        other => other >= ' ',
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
        assert!(refusal(&format!("ann|giro|{ID}|0.00")).contains("the amount 0.00 is not between"));
        let too_much = format!("ann|giro|{ID}|-10000000000.01");
        assert!(refusal(&too_much).contains("is not between 0.01 and 10000000000.00"));
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

    #[test]
    fn odd_fields_arrive_as_they_were_or_are_refused() {
        let mut deep = json!(1);
        for _ in 0..64 {
            deep = json!([deep]);
        }
        for fields in [
            json!({"line\nbreak\tand\rreturn": 1, " spaces ": 2, "<&>\"'": 3, "": 4}),
            json!({"value": "\u{0}\u{1}\u{fffe}\u{ffff}\u{85}\u{2028}\r\n"}),
            json!({"]]>": "]]>", "<!--": "-->", "名": "é"}),
            json!({"deep": deep}),
        ] {
            let message = message(Shape::Xml, fields);
            let body = message.to_body().unwrap();
            assert_eq!(Message::from_body(body.as_bytes()).unwrap(), message);
        }
        for (fields, expected) in [
            (json!({"a\u{0}": 1}), "U+0000"),
            (json!({"a\u{1b}": 1}), "U+001B"),
            (json!({"a\u{ffff}": 1}), "U+FFFF"),
            (json!({"too": [deep]}), "\"too\" is nested deeper than 64"),
        ] {
            let refused = message(Shape::Xml, fields).to_body().unwrap_err();
            assert!(refused.to_string().contains(expected), "{refused}");
        }
        let many = message(Shape::Text, json!({"n": "x".repeat(8_192)}));
        let refused = many.to_body().unwrap_err();
        assert!(matches!(refused, InvalidMessage::Unknown(_)), "{refused}");
    }

    #[test]
    fn numbers_of_unknown_fields_keep_their_value_or_are_rounded() {
        let fields = r#"{"a":18446744073709551615,"b":-9223372036854775808,"c":-1234567890.12345}"#;
        for (sent, expected) in [
            (fields, fields),
            (
                r#"{"a":18446744073709551617}"#,
                r#"{"a":1.8446744073709552e+19}"#,
            ),
            (
                r#"{"a":"18446744073709551617"}"#,
                r#"{"a":"18446744073709551617"}"#,
            ),
        ] {
            let sent = message(Shape::Xml, serde_json::from_str(sent).unwrap());
            let body = sent.to_body().unwrap();
            let read = Message::from_body(body.as_bytes()).unwrap();
            let fields = serde_json::to_string(&read.transaction.unknown.fields);
            assert_eq!(fields.unwrap(), expected);
        }
    }

    #[test]
    fn what_a_worker_would_not_book_has_no_body() {
        for amount in ["0", "10000000000.01", "-10000000000.01"] {
            for shape in [Shape::Text, Shape::Xml] {
                let mut message = message(shape, json!({}));
                message.transaction.amount = amount.parse().unwrap();
                let refused = message.to_body().unwrap_err();
                assert!(matches!(refused, InvalidMessage::Money(_)), "{refused}");
            }
        }
    }

    #[test]
    fn fields_of_other_writers_are_kept_as_elements_if_they_are_no_json_of_ours() {
        let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
        let extension = |text: &str| format!("<Extension name=\"n\">{text}</Extension>");
        let elements = [extension(&deep), extension("2"), extension("no JSON")];
        let body = format!(
            "<Transaction><UserId>ann</UserId><AccountId>giro</AccountId>\
             <TransactionId>{ID}</TransactionId><Amount>5</Amount>{}{}</Transaction>",
            extension("1"),
            elements.concat()
        );
        let read = Message::from_body(body.as_bytes()).unwrap();
        let unknown = read.transaction.unknown;
        assert_eq!(unknown.fields["n"], 1);
        assert_eq!(unknown.elements, elements);
        assert!(unknown.check().is_ok());
    }

    #[test]
    fn a_document_has_one_root() {
        let one = message(Shape::Xml, json!({})).to_body().unwrap();
        let refused = refusal(&format!("{one}{one}"));
        assert!(refused.contains("more than one root"), "{refused}");
        let split = one.replace("<AccountId>", "</Transaction><Transaction><AccountId>");
        assert!(refusal(&split).contains("more than one root"));
    }
}
