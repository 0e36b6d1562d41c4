//! Answers: values from XML and headers, and errors.

use std::time::{Duration, SystemTime};

use super::model::{ListedQueue, PutMessage, QueueMessage, Receipt, ServiceStats};
use crate::error::{Effect, Error, StorageRefusal};
use crate::http::answer::{Answer, Headers};
use crate::http::records::{Record, records};
use crate::http::xml::Element;

/// Reads the XML of an answer, whose root is to have that name.
pub(super) fn read<T>(
    answer: &Answer,
    name: &str,
    effect: Effect,
    reader: impl FnOnce(&Element<'_>) -> Result<T, String>,
) -> Result<T, Error> {
    let read = Element::parse(&answer.body).and_then(|root| match root.name == name {
        true => reader(&root),
        false => Err(format!("XML that is not {name}")),
    });
    read.map_err(|what| unreadable(&what, effect))
}

/// The value of a header that an answer must have.
pub(super) fn header<'a>(answer: &'a Answer, name: &str, effect: Effect) -> Result<&'a str, Error> {
    answer
        .headers
        .get(name)
        .ok_or_else(|| unreadable(&format!("an answer without {name}"), effect))
}

/// An answer with success, from which what was asked for cannot be read.
pub(super) fn unreadable(what: &str, effect: Effect) -> Error {
    let text = not_storage(what);
    match effect {
        Effect::Change => Error::unknown(text),
        Effect::Read => Error::refused(text),
    }
}

fn not_storage(what: &str) -> String {
    format!("the service answered something that is not Queue Storage: {what}")
}

/// The error in an answer that is no success.
pub(super) fn error_of(answer: &Answer, effect: Effect) -> Error {
    let status = answer.status;
    let root = Element::parse(&answer.body).ok();
    let root = root.filter(|root| root.name == "Error");
    let child = |name: &str| root.as_ref().and_then(|root| root.child_text(name).ok());
    let code = answer
        .headers
        .get("x-ms-error-code")
        .or_else(|| child("Code"));
    let message = child("Message").and_then(|text| text.lines().next());
    let mut text = match message {
        Some(message) => message.trim().to_owned(),
        // A gateway in front of the service has no codes, and answers with 500 and more for it.
        None if status < 500 && code.is_none() => not_storage("an error without a code"),
        None => "the service gave no explanation".to_owned(),
    };
    for detail in root.iter().flat_map(|root| &root.children) {
        if detail.name != "Code" && detail.name != "Message" {
            text.extend(["; ", detail.name, ": ", &detail.text]);
        }
    }
    let refusal = StorageRefusal {
        status,
        code,
        request_id: answer.headers.get("x-ms-request-id"),
        retry_after: retry_after(&answer.headers),
    };
    Error::of_storage(refusal, &text, effect)
}

/// How long the service asks to wait. It can also be a date, which no queue service sends.
fn retry_after(headers: &Headers) -> Option<Duration> {
    let seconds = headers.get("retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

pub(super) fn metadata(headers: &Headers) -> Vec<(String, String)> {
    let mut metadata: Vec<_> = headers
        .iter()
        .filter_map(|(name, value)| {
            let name = name.to_ascii_lowercase();
            let name = name.strip_prefix("x-ms-meta-")?;
            let value = String::from_utf8_lossy(value);
            Some((name.to_owned(), value.into_owned()))
        })
        .collect();
    metadata.sort();
    metadata
}

/// The queues of a page of a list, and where the next page begins.
pub(super) fn page(root: &Element<'_>) -> Result<(Vec<ListedQueue>, Option<String>), String> {
    let queues = root.child("Queues").ok_or("a list without Queues")?;
    let queues = queues.children.iter().map(queue);
    let next = root.child_text("NextMarker").unwrap_or_default();
    let next = Some(next.to_owned()).filter(|next| !next.is_empty());
    Ok((queues.collect::<Result<_, _>>()?, next))
}

fn queue(element: &Element<'_>) -> Result<ListedQueue, String> {
    let metadata = element.child("Metadata").map(|metadata| {
        let pairs = metadata.children.iter();
        pairs
            .map(|pair| (pair.name.to_owned(), pair.text.to_string()))
            .collect()
    });
    Ok(ListedQueue {
        name: element.child_text("Name")?.to_owned(),
        metadata: metadata.unwrap_or_default(),
    })
}

pub(super) fn put(root: &Element<'_>) -> Result<PutMessage, String> {
    let message = root
        .child("QueueMessage")
        .ok_or("a put without its message")?;
    Ok(PutMessage {
        id: message.child_text("MessageId")?.to_owned(),
        inserted: time(message, "InsertionTime")?,
        expires: time(message, "ExpirationTime")?,
        receipt: receipt(message)?,
    })
}

/// The messages of an answer to a receive or a peek.
pub(super) fn messages(
    answer: &Answer,
    effect: Effect,
    is_leased: bool,
) -> Result<Vec<QueueMessage>, Error> {
    const LIST: &str = "QueueMessagesList";
    match records(&answer.body, LIST, "QueueMessage") {
        Some(records) => {
            let messages = records.iter().map(|it| message(it, is_leased));
            let messages: Result<_, String> = messages.collect();
            messages.map_err(|what| unreadable(&what, effect))
        }
        None => read(answer, LIST, effect, |root| {
            let messages = root.children.iter();
            messages.map(|it| message(it, is_leased)).collect()
        }),
    }
}

/// Texts by their names.
trait Texts {
    fn child_text(&self, name: &str) -> Result<&str, String>;
}

impl Texts for Element<'_> {
    fn child_text(&self, name: &str) -> Result<&str, String> {
        Element::child_text(self, name)
    }
}

impl Texts for Record<'_> {
    fn child_text(&self, name: &str) -> Result<&str, String> {
        self.text(name)
            .ok_or_else(|| format!("QueueMessage without {name}"))
    }
}

fn message(element: &impl Texts, is_leased: bool) -> Result<QueueMessage, String> {
    let count = element.child_text("DequeueCount")?;
    Ok(QueueMessage {
        id: element.child_text("MessageId")?.to_owned(),
        inserted: time(element, "InsertionTime")?,
        expires: time(element, "ExpirationTime")?,
        dequeue_count: count.parse().map_err(|_| "a bad DequeueCount")?,
        text: element.child_text("MessageText")?.to_owned(),
        receipt: is_leased.then(|| receipt(element)).transpose()?,
    })
}

pub(super) fn stats(root: &Element<'_>) -> Result<ServiceStats, String> {
    let replication = root
        .child("GeoReplication")
        .ok_or("stats without GeoReplication")?;
    let last_sync = replication.child_text("LastSyncTime").unwrap_or_default();
    Ok(ServiceStats {
        status: replication.child_text("Status")?.to_owned(),
        last_sync: httpdate::parse_http_date(last_sync).ok(),
    })
}

fn receipt(element: &impl Texts) -> Result<Receipt, String> {
    Ok(Receipt {
        value: element.child_text("PopReceipt")?.to_owned(),
        next_visible: time(element, "TimeNextVisible")?,
    })
}

fn time(element: &impl Texts, name: &str) -> Result<SystemTime, String> {
    httpdate::parse_http_date(element.child_text(name)?).map_err(|_| format!("a bad {name}"))
}
