//! An XML document with the same fields as elements, and everything else that came.
//!
//! Unknown fields of JSON become elements `Extension`, whose text is JSON. Other unknown elements stay as they are.

use std::fmt::Write as _;

use quick_xml::escape::{escape, unescape};
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use serde_json::Value;

use super::InvalidMessage;
use crate::names::{AccountKey, TransactionId};
use crate::transaction::{Transaction, Unknown, is_too_deep};

const ROOT: &str = "Transaction";
const EXTENSION: &str = "Extension";
const NAMES: [&str; 4] = ["UserId", "AccountId", "TransactionId", "Amount"];

pub(super) fn write(transaction: &Transaction) -> String {
    let Transaction {
        key,
        id,
        amount,
        unknown,
    } = transaction;
    let values = [key.user(), key.account(), id.as_str(), &amount.to_string()];
    let mut xml = format!("<{ROOT}>");
    for (name, value) in NAMES.iter().zip(values) {
        let _ = write!(xml, "<{name}>{}</{name}>", escape(value));
    }
    for (name, value) in &unknown.fields {
        let (name, text) = (attribute(name), json(value));
        let text = escape(text.as_str());
        let _ = write!(xml, "<{EXTENSION} name=\"{name}\">{text}</{EXTENSION}>");
    }
    xml.extend(unknown.elements.iter().map(String::as_str));
    xml + "</Transaction>"
}

/// An attribute is read with spaces in place of what is not escaped here.
fn attribute(name: &str) -> String {
    let name = escape(name).replace('\t', "&#9;");
    name.replace('\n', "&#10;").replace('\r', "&#13;")
}

/// JSON escapes all characters that XML has no place for but two, which can only be inside its strings.
fn json(value: &Value) -> String {
    let text = value.to_string();
    text.replace('\u{fffe}', "\\ufffe")
        .replace('\u{ffff}', "\\uffff")
}

pub(super) fn read(document: &str) -> Result<Transaction, InvalidMessage> {
    let mut parts = Parts::default();
    parts.read(document)?;
    let [user, account, id, amount] = parts.values;
    let [user, account, id, amount] = [
        once(NAMES[0], user)?,
        once(NAMES[1], account)?,
        once(NAMES[2], id)?,
        once(NAMES[3], amount)?,
    ];
    Ok(Transaction {
        key: AccountKey::new(&user, &account)?,
        id: TransactionId::parse(&id)?,
        amount: amount.parse()?,
        unknown: parts.unknown,
    })
}

fn once(name: &'static str, values: Vec<String>) -> Result<String, InvalidMessage> {
    let count = values.len();
    match <[String; 1]>::try_from(values) {
        Ok([value]) => Ok(value),
        Err(_) => Err(InvalidMessage::ElementCount { name, count }),
    }
}

/// What was found in a document.
#[derive(Default)]
struct Parts {
    values: [Vec<String>; 4],
    unknown: Unknown,
}

impl Parts {
    fn read(&mut self, document: &str) -> Result<(), InvalidMessage> {
        let mut reader = Reader::from_str(document);
        let (mut is_inside, mut is_over) = (false, false);
        loop {
            let begin = position(&reader);
            match reader.read_event().map_err(bad)? {
                Event::Start(_) | Event::Empty(_) if is_over => {
                    return Err(bad("there is more than one root"));
                }
                Event::Start(start) if !is_inside => {
                    check_root(&start)?;
                    is_inside = true;
                }
                Event::Empty(start) if !is_inside => return check_root(&start),
                Event::Start(start) => {
                    let inner = reader.read_to_end(start.name()).map_err(bad)?;
                    let inner = at(inner.start)..at(inner.end);
                    let raw = document.get(inner).unwrap_or_default();
                    let whole = document.get(begin..position(&reader)).unwrap_or_default();
                    self.take(&start, raw, whole)?;
                }
                Event::Empty(start) => {
                    let whole = document.get(begin..position(&reader)).unwrap_or_default();
                    self.take(&start, "", whole)?;
                }
                Event::End(_) => (is_inside, is_over) = (false, true),
                Event::DocType(_) => return Err(bad("a document type is not accepted")),
                Event::Eof if is_inside => return Err(bad("the end is missing")),
                Event::Eof => return Ok(()),
                Event::Text(_)
                | Event::CData(_)
                | Event::Comment(_)
                | Event::Decl(_)
                | Event::PI(_)
                | Event::GeneralRef(_) => {}
            }
        }
    }

    fn take(
        &mut self,
        start: &BytesStart<'_>,
        raw: &str,
        whole: &str,
    ) -> Result<(), InvalidMessage> {
        let name = start.name();
        let name: &str = name.as_ref();
        if let Some(place) = NAMES.iter().position(|it| *it == name) {
            if raw.contains('<') {
                return Err(bad(format!("there are elements in {name}")));
            }
            let value = unescape(raw).map_err(bad)?.trim().to_owned();
            if let Some(values) = self.values.get_mut(place) {
                values.push(value);
            }
            return Ok(());
        }
        match extension(start, raw) {
            Some((name, value)) if !self.unknown.fields.contains_key(&name) => {
                self.unknown.fields.insert(name, value);
            }
            Some(_) | None => self.unknown.elements.push(whole.to_owned()),
        }
        Ok(())
    }
}

/// A field of JSON, if it is one of ours.
fn extension(start: &BytesStart<'_>, raw: &str) -> Option<(String, Value)> {
    if AsRef::<str>::as_ref(&start.name()) != EXTENSION {
        return None;
    }
    let name = start.try_get_attribute("name").ok()??;
    let name = name
        .normalized_value(XmlVersion::Implicit1_0)
        .ok()?
        .into_owned();
    let value = serde_json::from_str(&unescape(raw).ok()?).ok()?;
    (!is_too_deep(&value)).then_some((name, value))
}

fn check_root(start: &BytesStart<'_>) -> Result<(), InvalidMessage> {
    let name = start.name();
    let name: &str = name.as_ref();
    match name == ROOT {
        true => Ok(()),
        false => Err(bad(format!("the root is {name}; expected {ROOT}"))),
    }
}

fn position(reader: &Reader<&[u8]>) -> usize {
    at(reader.buffer_position())
}

fn at(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

fn bad(error: impl ToString) -> InvalidMessage {
    InvalidMessage::Xml(error.to_string())
}
