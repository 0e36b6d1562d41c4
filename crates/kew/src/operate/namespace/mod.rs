//! The part of `kew export` and `kew import` that speaks to Service Bus.
//!
//! Both use the public protocols: they list entities and browse messages, create entities, send, receive and settle. No
//! public operation puts a message into one subscription: the import asks Kew's own interface for that.

mod current;
mod define;
mod definition;
mod entities;
mod existing;
mod export;
mod finish;
mod import;
mod mark;
mod order;
mod restore;
mod rule;
mod ruled;
mod topic_definition;

pub(crate) use export::export_namespace;
pub(crate) use import::NamespaceImport;
pub(crate) use order::NamespaceCheck;

use serde_json::Value as Json;

use super::Doors;
use super::dead_letters;
use crate::operate_args::Common;
use crate::portable::Record;
use crate::queue_command::Failure;

/// The suffix of a queue's name for messages that could not be forwarded.
const FAILED_TRANSFERS: &str = "/$transfer/$deadletterqueue";

/// Where in its queue a message is. Within a queue, an export has its messages in this order: those that an import has
/// to receive and settle come before those that would be received before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    FailedTransfer,
    DeadLetter,
    Deferred,
    Rest,
}

/// A namespace, for an export or an import.
pub(crate) struct Namespace(Doors);

impl Namespace {
    pub(crate) fn open(common: &Common) -> Result<Self, Failure> {
        Doors::open(common).map(Self)
    }
}

/// The queue of a record without the suffix of its place, and that place.
fn place_of(record: &Record) -> Result<(&str, Place), String> {
    let whole = record
        .queue()
        .ok_or("it has no \"queue\": kew bus message import sends it to a queue of your choice")?;
    let lower = whole.to_lowercase();
    let state = record.facts().get("state").and_then(Json::as_str);
    let ends = |suffix: &str| lower.ends_with(&suffix.to_lowercase());
    let (suffix, place) = match state {
        _ if ends(FAILED_TRANSFERS) => (FAILED_TRANSFERS, Place::FailedTransfer),
        _ if ends(super::DEAD_LETTERS) => (super::DEAD_LETTERS, Place::DeadLetter),
        Some("deferred") => ("", Place::Deferred),
        Some(_) | None => ("", Place::Rest),
    };
    let length = whole.len() - suffix.len();
    let queue = whole.get(..length).filter(|queue| !queue.is_empty());
    Ok((queue.ok_or("its \"queue\" has no name")?, place))
}

/// The entity in which messages of a place are.
fn entity_of(queue: &str, place: Place) -> String {
    match place {
        Place::FailedTransfer => format!("{queue}{FAILED_TRANSFERS}"),
        Place::DeadLetter => dead_letters(queue),
        Place::Deferred | Place::Rest => queue.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_where_it_was() {
        for (queue, state, expected) in [
            ("orders", "active", Ok(("orders", Place::Rest))),
            ("orders", "scheduled", Ok(("orders", Place::Rest))),
            ("orders", "deferred", Ok(("orders", Place::Deferred))),
            (
                "a/$DeadLetterQueue",
                "deferred",
                Ok(("a", Place::DeadLetter)),
            ),
            (
                "a/$Transfer/$DeadLetterQueue",
                "active",
                Ok(("a", Place::FailedTransfer)),
            ),
            (
                "/$deadletterqueue",
                "active",
                Err("its \"queue\" has no name"),
            ),
        ] {
            let line = format!(
                r#"{{"version": 1, "service": "service-bus", "queue": "{queue}", "facts": {{"state": "{state}"}}}}"#
            );
            let record = Record::read(line.as_bytes()).unwrap();
            assert_eq!(
                place_of(&record),
                expected.map_err(str::to_owned),
                "{queue}"
            );
        }
        let none = Record::read(br#"{"version": 1, "service": "service-bus"}"#).unwrap();
        assert!(
            place_of(&none)
                .unwrap_err()
                .contains("kew bus message import")
        );
    }
}
