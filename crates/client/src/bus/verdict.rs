//! What is to become of a message, and how the service is told.

use kew_amqp::codec::{Map, Symbol, Value};
use kew_amqp::error::Error as AmqpError;
use kew_amqp::performative::{DeliveryState, Modified, Outcome, Rejected};

/// What a dead letter is told with.
const DEAD_LETTER: &str = "com.microsoft:dead-letter";

/// Properties that a settlement sets or replaces.
pub type Changes = Vec<(String, Value)>;

/// What is to become of a message.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    Complete,
    Abandon(Changes),
    Defer(Changes),
    DeadLetter {
        reason: String,
        description: String,
        changes: Changes,
    },
}

impl Verdict {
    /// As it is told over the link.
    pub(super) fn state(&self) -> DeliveryState {
        let modified = |changes: &Changes, is_deferred: bool| {
            Outcome::Modified(Modified {
                delivery_failed: Some(!is_deferred),
                undeliverable_here: Some(is_deferred),
                message_annotations: (!changes.is_empty()).then(|| symbols(changes)),
            })
        };
        DeliveryState::Outcome(match self {
            Self::Complete => Outcome::Accepted,
            Self::Abandon(changes) => modified(changes, false),
            Self::Defer(changes) => modified(changes, true),
            Self::DeadLetter {
                reason,
                description,
                changes,
            } => Outcome::Rejected(Rejected {
                error: Some(AmqpError {
                    condition: Symbol::from_static(DEAD_LETTER),
                    description: Some(description.as_str().into()),
                    info: Some(dead_letter_info(reason, description, changes)),
                }),
            }),
        })
    }

    /// As it is told by lock token.
    pub(super) fn request(&self) -> Vec<(&'static str, Value)> {
        let text = |text: &str| Value::String(text.into());
        let with_changes = |status: &str, changes: &Changes| {
            let mut fields = vec![("disposition-status", text(status))];
            if !changes.is_empty() {
                fields.push(("properties-to-modify", Value::Map(strings(changes))));
            }
            fields
        };
        match self {
            Self::Complete => with_changes("completed", &Vec::new()),
            Self::Abandon(changes) => with_changes("abandoned", changes),
            // The service spells it so.
            Self::Defer(changes) => with_changes("defered", changes),
            Self::DeadLetter {
                reason,
                description,
                changes,
            } => {
                let mut fields = with_changes("suspended", changes);
                fields.push(("deadletter-reason", text(reason)));
                fields.push(("deadletter-description", text(description)));
                fields
            }
        }
    }
}

/// Names as the annotations of a message have them. One that is not ASCII cannot be one.
fn symbols(changes: &Changes) -> Map {
    Map::build(|map| {
        for (name, value) in changes {
            match Symbol::new(name) {
                Ok(name) => map.entry(&name, value),
                Err(_) => map.entry(name.as_str(), value),
            }
        }
    })
}

fn strings(changes: &Changes) -> Map {
    Map::build(|map| {
        for (name, value) in changes {
            map.entry(name.as_str(), value);
        }
    })
}

fn dead_letter_info(reason: &str, description: &str, changes: &Changes) -> Map {
    Map::build(|map| {
        map.entry(&Symbol::from_static("DeadLetterReason"), reason);
        map.entry(
            &Symbol::from_static("DeadLetterErrorDescription"),
            description,
        );
        for (name, value) in changes {
            match Symbol::new(name) {
                Ok(name) => map.entry(&name, value),
                Err(_) => map.entry(name.as_str(), value),
            }
        }
    })
}
