//! The bytes of messages, which the engine does not understand, as rules need them.
//!
//! A front end gives a [`Format`] to a turn. Only decisions use it: to apply and to replay need none.

use std::fmt::Debug;

use bytes::Bytes;
use kew_filter::{Change, Message};
use thiserror::Error;

use crate::vocabulary::Timestamp;

/// The most bytes of the changes that an action makes. More is a failure of its rule. A message has room for twice as
/// many, so settlements of the copy can still change properties.
pub const ACTION_SIZE_BYTES_MAX: usize = 32 * 1024;

/// The most bytes of a dead letter's description that the engine gives.
pub const DESCRIPTION_SIZE_BYTES_MAX: usize = 1024;

/// The messages of a protocol, as rules see and change them.
///
/// It is pure: the same bytes give the same answers. Changes to a message are stored beside it as *overlays*, whose bytes
/// the engine does not understand either.
pub trait Format: Debug + Send + Sync {
    /// A message with its overlays, oldest first. `None` if the bytes are not a message.
    fn view<'a>(
        &self,
        message: &'a Bytes,
        overlays: &'a [Bytes],
        known: Known<'a>,
    ) -> Option<Box<dyn Message + 'a>>;

    /// The overlay that makes these changes. Each property is in them once, as in those of an action.
    fn made_by(&self, changes: &[Change]) -> Result<Made, Unfit>;

    /// The overlay with the description of a dead letter: the text, or its first [`DESCRIPTION_SIZE_BYTES_MAX`] bytes. The
    /// reason follows from the cause.
    fn description(&self, text: &str) -> Bytes;
}

/// What the bytes of a message do not say. A fact that is missing is null in rules.
#[derive(Clone, Debug, Default)]
pub struct Known<'a> {
    /// Its number in its entity.
    pub sequence_number: Option<i64>,
    /// Its number where it was first sent to.
    pub enqueued_sequence_number: Option<i64>,
    /// When it arrived, in milliseconds since 1970-01-01 UTC.
    pub enqueued_at_ms: Option<i64>,
    /// When its life ends.
    pub expires_at_ms: Option<i64>,
    /// When its lock ends.
    pub locked_until_ms: Option<i64>,
    /// How often it was delivered.
    pub delivery_count: Option<i32>,
    /// 0 active, 1 deferred, 2 scheduled.
    pub state: Option<i32>,
    /// The entity in which it was dead-lettered.
    pub dead_letter_source: Option<&'a str>,
    /// Its lock token.
    pub lock_token: Option<[u8; 16]>,
}

/// An overlay that an action made, and what the engine has to know of it. `None` is a property that did not change,
/// `Some(None)` one that was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// The overlay.
    pub overlay: Bytes,
    /// The copy's id, in the form that detects duplicates. An action cannot remove it.
    pub message_id: Option<Box<str>>,
    /// The copy's session.
    pub session: Option<Option<Box<str>>>,
    /// How long the copy lives.
    pub time_to_live_ms: Option<Option<u64>>,
    /// When the copy becomes active where it is sent on to.
    pub scheduled_at: Option<Option<Timestamp>>,
}

/// Changes that no message can have: the action fails. The text is for the dead letter.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unfit {
    /// They take too many bytes.
    #[error(
        "the changes of the action take {size_bytes} bytes, the maximum is {ACTION_SIZE_BYTES_MAX}"
    )]
    TooLarge {
        /// How many they take.
        size_bytes: usize,
    },
    /// A property cannot have its new value.
    #[error("the action cannot set {name}: expected {allowed}")]
    Value {
        /// The property.
        name: Box<str>,
        /// Which values it may have.
        allowed: &'static str,
    },
}

/// No messages: what a partition has that no front end uses. It refuses messages that rules have to look at.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFormat;

impl Format for NoFormat {
    fn view<'a>(
        &self,
        _message: &'a Bytes,
        _overlays: &'a [Bytes],
        _known: Known<'a>,
    ) -> Option<Box<dyn Message + 'a>> {
        None
    }

    fn made_by(&self, _changes: &[Change]) -> Result<Made, Unfit> {
        Err(Unfit::Value {
            name: "a property".into(),
            allowed: "nothing, because no message can be read here",
        })
    }

    fn description(&self, text: &str) -> Bytes {
        let end = text.floor_char_boundary(DESCRIPTION_SIZE_BYTES_MAX);
        Bytes::copy_from_slice(text.get(..end).unwrap_or_default().as_bytes())
    }
}
