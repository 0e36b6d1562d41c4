//! A message in an answer.

use bytes::Bytes;
use kew_engine::Timestamp;
use kew_engine::bus::{BusMessageState, DeadLetterCause, DeliveredMessage, PeekedBusMessage};

use super::life::{Entity, Life, Span};
use super::{ANSWERS_FIT, Answered, number_of};
use crate::bus::topics::number_in;
use crate::checker::{Violation, violated};

#[derive(Debug)]
pub(super) struct Shown {
    pub(super) number: u64,
    first_number: u64,
    expires_at: Timestamp,
    failures: u32,
    pub(super) state: BusMessageState,
    cause: Option<DeadLetterCause>,
    body: Bytes,
    overlays: Vec<u64>,
}

/// The fields that both kinds of answer have, with the same names.
macro_rules! shown {
    ($message:expr, $bodies:expr) => {{
        let (body, overlays) = $bodies.next($message.overlays.len())?;
        Ok(Self {
            number: $message.sequence_number.as_u64(),
            first_number: $message.first_sequence_number.as_u64(),
            expires_at: $message.expires_at,
            failures: $message.delivery_count,
            state: $message.state,
            cause: $message.cause,
            body,
            overlays,
        })
    }};
}

impl Shown {
    pub(super) fn delivered(
        message: &DeliveredMessage,
        bodies: &mut Bodies<'_>,
    ) -> Result<Self, Violation> {
        shown!(message, bodies)
    }

    pub(super) fn peeked(
        message: &PeekedBusMessage,
        bodies: &mut Bodies<'_>,
    ) -> Result<Self, Violation> {
        shown!(message, bodies)
    }

    /// The message that it shows, in this entity.
    pub(super) fn message(&self, entity: Entity) -> u64 {
        number_in(entity.queue, number_of(&self.body))
    }

    /// Whether it fits this state.
    pub(super) fn fits(&self, entity: Entity, life: &Life) -> bool {
        life.may_have_number(entity, self.number)
            && life.first_number.is_none_or(|own| own == self.first_number)
            && life.expires.has(self.expires_at)
            && life.failures == self.failures
            && life.is_shown_as(self.state)
            && life.cause == self.cause
            && life.overlays == self.overlays
            && life.content.body == self.body
    }

    /// The facts about this message after it was shown. A scheduled one now has another number,
    /// which is its first.
    pub(super) fn learned(&self, life: &Life) -> Life {
        let is_scheduled = self.state == BusMessageState::Scheduled;
        Life {
            number: Some(self.number),
            first_number: (!is_scheduled).then_some(self.first_number),
            expires: Span::at(self.expires_at),
            ..life.clone()
        }
    }
}

/// Splits an answer's bodies: for each message its own, then the changes to its properties.
pub(super) struct Bodies<'a>(std::slice::Iter<'a, Bytes>);

impl<'a> Bodies<'a> {
    pub(super) fn of(answered: &Answered<'a>) -> Self {
        Self(answered.bodies.iter())
    }

    fn next(&mut self, overlay_count: usize) -> Result<(Bytes, Vec<u64>), Violation> {
        let Some(body) = self.0.next() else {
            return violated!(ANSWERS_FIT, "a message without a body");
        };
        let overlays = self.0.by_ref().take(overlay_count);
        Ok((body.clone(), overlays.map(|it| number_of(it)).collect()))
    }
}
