//! The body of a message: JSON that other languages can read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::codec::Encoding;
use crate::content::check_content_type;
use crate::error::Error;
use crate::name;

/// The content type of messages that [`ClaimCheck::check_in`](crate::ClaimCheck::check_in) makes.
pub const CONTENT_TYPE: &str = "application/vnd.kew.claim-check+json";

const VERSION: u64 = 1;

/// What every version has.
#[derive(Deserialize)]
struct Versioned {
    #[serde(rename = "claimCheck")]
    version: u64,
}

/// One message or several. Said by itself, so that a group is never taken for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    One,
    Group,
}

/// Version 1.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    claim_check: u64,
    content_type: String,
    form: Form,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<u32>,
    size: u64,
    encoding: Encoding,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<Reference>,
}

/// An object of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// Its name, within the folder.
    pub(crate) name: String,
    /// Its size, in bytes, as it lies in the store.
    pub(crate) size: u64,
    /// Its hash, as it lies in the store.
    pub(crate) sha256: String,
}

/// Where the data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the message, in its encoding.
    Inline(Bytes),
    /// In the store.
    Object(Reference),
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) content_type: String,
    /// How many messages there are, if it is a group.
    pub(crate) items: Option<u32>,
    /// The size of the data, before it is encoded.
    pub(crate) size: u64,
    pub(crate) encoding: Encoding,
    pub(crate) place: Place,
}

impl Envelope {
    /// As it is sent.
    pub(crate) fn to_bytes(&self) -> Result<Bytes, Error> {
        let (mut text, mut base64, mut object) = (None, None, None);
        match &self.place {
            Place::Object(reference) => object = Some(reference.clone()),
            Place::Inline(data) => match (self.encoding, std::str::from_utf8(data)) {
                // Readable for people and for every language, and not larger than Base64 in most cases.
                (Encoding::Identity, Ok(readable)) if self.items.is_none() => {
                    text = Some(readable.to_owned());
                }
                (Encoding::Identity | Encoding::Zstd, _) => base64 = Some(STANDARD.encode(data)),
            },
        }
        let written = Written {
            claim_check: VERSION,
            content_type: self.content_type.clone(),
            form: match self.items {
                None => Form::One,
                Some(_) => Form::Group,
            },
            items: self.items,
            size: self.size,
            encoding: self.encoding,
            text,
            base64,
            object,
        };
        let json = serde_json::to_vec(&written)
            .map_err(|error| Error::invalid(format!("the message has no JSON: {error}")))?;
        Ok(json.into())
    }

    /// What a body says. Fields that are not known are passed over.
    pub(crate) fn from_bytes(body: &[u8]) -> Result<Self, Error> {
        let told = |error: serde_json::Error| Error::malformed(error.to_string());
        let Versioned { version } = serde_json::from_slice(body).map_err(told)?;
        if version != VERSION {
            return Err(Error::UnknownVersion { version });
        }
        let written: Written = serde_json::from_slice(body).map_err(told)?;
        check_content_type(&written.content_type)
            .map_err(|error| Error::malformed(error.to_string()))?;
        let items = match (written.form, written.items) {
            (Form::One, None) => None,
            (Form::Group, Some(count)) => Some(count),
            (Form::One, Some(_)) | (Form::Group, None) => {
                return Err(Error::malformed(
                    "a group has items, and one message has none",
                ));
            }
        };
        let place = match (written.text, written.base64, written.object) {
            (Some(text), None, None) if written.encoding == Encoding::Identity => {
                Place::Inline(text.into())
            }
            (None, Some(base64), None) => {
                let data = STANDARD.decode(base64);
                let told = |error| Error::malformed(format!("base64: {error}"));
                Place::Inline(data.map_err(told)?.into())
            }
            (None, None, Some(reference)) => Place::Object(checked(reference)?),
            _ => {
                return Err(Error::malformed(
                    "it has one of text (not compressed), base64 and object",
                ));
            }
        };
        Ok(Self {
            content_type: written.content_type,
            items,
            size: written.size,
            encoding: written.encoding,
            place,
        })
    }
}

fn checked(reference: Reference) -> Result<Reference, Error> {
    if !name::is_valid(&reference.name) {
        return Err(Error::malformed(
            "the name of its object is not a day and 32 hexadecimal digits",
        ));
    }
    Ok(reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "2026-11-18/0123456789abcdef0123456789abcdef";

    fn inline(data: &'static [u8], encoding: Encoding, items: Option<u32>) -> Envelope {
        Envelope {
            content_type: "text/plain".to_owned(),
            items,
            size: 3,
            encoding,
            place: Place::Inline(Bytes::from_static(data)),
        }
    }

    fn check(envelope: &Envelope, json: &str) {
        assert_eq!(envelope.to_bytes().unwrap(), json.as_bytes());
        assert_eq!(&Envelope::from_bytes(json.as_bytes()).unwrap(), envelope);
    }

    #[test]
    fn the_wire_form_does_not_change() {
        check(
            &inline("é\"".as_bytes(), Encoding::Identity, None),
            r#"{"claimCheck":1,"contentType":"text/plain","form":"one","size":3,"encoding":"identity","text":"é\""}"#,
        );
        check(
            &inline(b"\xff\0\x01", Encoding::Identity, None),
            r#"{"claimCheck":1,"contentType":"text/plain","form":"one","size":3,"encoding":"identity","base64":"/wAB"}"#,
        );
        check(
            &inline(b"abc", Encoding::Zstd, Some(2)),
            r#"{"claimCheck":1,"contentType":"text/plain","form":"group","items":2,"size":3,"encoding":"zstd","base64":"YWJj"}"#,
        );
        let object = Envelope {
            place: Place::Object(Reference {
                name: NAME.to_owned(),
                size: 7,
                sha256: "00".repeat(32),
            }),
            ..inline(b"", Encoding::Zstd, None)
        };
        check(
            &object,
            &format!(
                r#"{{"claimCheck":1,"contentType":"text/plain","form":"one","size":3,"encoding":"zstd","object":{{"name":"{NAME}","size":7,"sha256":"{}"}}}}"#,
                "00".repeat(32)
            ),
        );
    }

    #[test]
    fn unknown_fields_are_passed_over() {
        let json = r#"{"more":{},"text":"abc","encoding":"identity","size":3,"form":"one","contentType":"text/plain","claimCheck":1}"#;
        let envelope = Envelope::from_bytes(json.as_bytes()).unwrap();
        assert_eq!(envelope, inline(b"abc", Encoding::Identity, None));
    }

    #[test]
    fn other_bodies_are_refused() {
        let with = |rest: &str| {
            let json =
                format!(r#"{{"claimCheck":1,"contentType":"a/b","form":"one","size":3,{rest}}}"#);
            Envelope::from_bytes(json.as_bytes())
                .unwrap_err()
                .to_string()
        };
        let one_of = "one of text (not compressed), base64 and object";
        assert!(with(r#""encoding":"identity""#).contains(one_of));
        assert!(with(r#""encoding":"zstd","text":"abc""#).contains(one_of));
        assert!(with(r#""encoding":"identity","text":"abc","base64":"YWJj""#).contains(one_of));
        assert!(with(r#""encoding":"identity","base64":"?""#).contains("base64"));
        assert!(with(r#""encoding":"gzip","text":"abc""#).contains("gzip"));
        let group = with(r#""items":2,"encoding":"identity","text":"abc""#);
        assert!(group.contains("a group has items"), "{group}");
        let object = r#""encoding":"identity","object":{"size":1,"sha256":"","name":"../x"}"#;
        assert!(with(object).contains("the name of its object"));
        for body in ["", "abc", "{}", "[]", r#"{"claimCheck":"1"}"#] {
            let error = Envelope::from_bytes(body.as_bytes()).unwrap_err();
            assert!(matches!(error, Error::Malformed { .. }), "{body}: {error}");
        }
        let newer = Envelope::from_bytes(br#"{"claimCheck":2,"size":"?"}"#).unwrap_err();
        assert!(matches!(newer, Error::UnknownVersion { version: 2 }));
    }
}
