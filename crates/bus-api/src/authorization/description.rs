//! The data that the front end stores with a queue. The engine does not read it.

use serde::{Deserialize, Serialize};

use super::rights::AuthorizationRule;

/// The version that this build writes.
const VERSION: u32 = 1;

/// Properties of a queue that do not change what happens to its messages.
///
/// Stored as JSON in [`BusQueueOptions::description`]. A missing field has its default. An unknown field, which a
/// later version wrote, is ignored.
///
/// [`BusQueueOptions::description`]: kew_engine::bus::BusQueueOptions::description
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Description {
    /// The version that wrote it.
    pub(crate) version: u32,
    /// Its name as it was spelled when it was created; empty if the spelling is unknown.
    pub(crate) name: String,
    /// Its authorization rules: at most [`AuthorizationRule::COUNT_MAX`].
    pub(crate) rules: Vec<AuthorizationRule>,
    /// A text that its owner has set.
    pub(crate) user_metadata: String,
    /// Shown as it was set. The server stores sends together in any case.
    pub(crate) enable_batched_operations: bool,
    /// Shown as it was set. One queue is one partition in any case.
    pub(crate) enable_partitioning: bool,
    /// Shown as it was set. Messages are durable in any case.
    pub(crate) enable_express: bool,
    /// Shown as it was set. Order is kept in any case.
    pub(crate) support_ordering: bool,
    /// The queue that messages are forwarded to, as its name was spelled.
    pub(crate) forward_to: String,
    /// The queue that dead letters are forwarded to, as its name was spelled.
    pub(crate) forward_dead_letters_to: String,
    /// The duplicate window of a queue that does not detect duplicates. Shown as it was set.
    pub(crate) duplicate_window_ms: Option<u64>,
}

impl Default for Description {
    fn default() -> Self {
        Self {
            version: VERSION,
            name: String::new(),
            rules: Vec::new(),
            user_metadata: String::new(),
            enable_batched_operations: true,
            enable_partitioning: false,
            enable_express: false,
            support_ordering: true,
            forward_to: String::new(),
            forward_dead_letters_to: String::new(),
            duplicate_window_ms: None,
        }
    }
}

impl Description {
    /// The description of a queue that was created with this spelling.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Box<[u8]> {
        let bytes = serde_json::to_vec(self);
        bytes
            .expect("texts, numbers and lists of them can always be written")
            .into()
    }

    /// Reads the bytes that [`Self::encode`] wrote. No bytes mean the default. Unreadable bytes are a bug, because
    /// the log has checksums: they are logged and mean the default, which has no rules and so allows nothing.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::default();
        }
        serde_json::from_slice(bytes).unwrap_or_else(|error| {
            tracing::error!(%error, "the description of a queue cannot be read, which is a bug");
            Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::rights::Rights;

    #[test]
    fn a_description_survives_a_round_trip() {
        let description = Description {
            rules: vec![AuthorizationRule::generate("r", Rights::ALL, 7).unwrap()],
            user_metadata: "mine".into(),
            enable_batched_operations: false,
            enable_partitioning: true,
            enable_express: true,
            support_ordering: false,
            forward_to: "Next".into(),
            forward_dead_letters_to: "Letters".into(),
            duplicate_window_ms: Some(1),
            ..Description::named("Orders")
        };
        assert_eq!(Description::decode(&description.encode()), description);
    }

    #[test]
    fn a_missing_or_unreadable_description_is_the_default() {
        assert_eq!(Description::decode(b""), Description::default());
        assert_eq!(
            Description::decode(b"{\"name\":\"Q\",\"later\":1}"),
            Description::named("Q")
        );
        assert_eq!(Description::decode(b"\x00"), Description::default());
    }

    #[test]
    fn the_largest_one_fits_into_the_engine() {
        let mut rule =
            AuthorizationRule::generate(&"n".repeat(256), Rights::ALL, u64::MAX).unwrap();
        rule.primary_key = "\u{1}".repeat(256).into();
        rule.secondary_key = rule.primary_key.clone();
        let description = Description {
            rules: vec![rule; AuthorizationRule::COUNT_MAX],
            user_metadata: "\u{1}".repeat(1024),
            forward_to: "𐐀".repeat(260),
            forward_dead_letters_to: "𐐀".repeat(260),
            ..Description::named(&"𐐀".repeat(260))
        };
        assert!(description.encode().len() <= 64 * 1024);
    }
}
