//! Putting a message into a queue.

use super::{Decision, Turn};
use crate::storage::message::Message;
use crate::storage::{Effect, SentMessage, StorageOutcome, StorageRefusal, limits};
use crate::table::{BodyEncoding, Placed};
use crate::vocabulary::{EntityName, LeaseGeneration, Place, VisibilityTimeout};

impl Turn<'_> {
    /// The receipt in the answer is valid at once, without a receive.
    ///
    /// Source: Queue Storage REST, *Put Message*.
    pub(super) fn send(
        &mut self,
        queue: &EntityName,
        body: &[u8],
        encoding: BodyEncoding,
        time_to_live_seconds: Option<u32>,
        visibility_timeout: VisibilityTimeout,
    ) -> Decision {
        let account = queue.account.clone();
        self.with_entity(queue, |turn, queue| {
            let hidden = visibility_timeout.as_seconds();
            if let Some(time_to_live_seconds) = time_to_live_seconds
                && hidden >= time_to_live_seconds
            {
                return Err(StorageRefusal::HiddenBeyondExpiry {
                    visibility_timeout_seconds: hidden,
                    time_to_live_seconds,
                });
            }
            turn.catalogue().check_size_quota(&account, body, None)?;
            let inserted_at = turn.now();
            let expires_at = limits::expiry(inserted_at, time_to_live_seconds);
            let visible_at = visibility_timeout.after(inserted_at);
            let to = Place {
                entity: queue,
                number: turn.entity(queue).backlog.next(),
            };
            let location = turn.0.store_body(body);
            let due_at = (visible_at > inserted_at).then_some(visible_at);
            let body = Placed { encoding, location };
            let message = Message::arrived(inserted_at, expires_at, due_at, body).into();
            turn.emit_effect(Effect::Arrived { to, message });
            Ok(StorageOutcome::Sent(SentMessage {
                message: turn.message_id(to),
                receipt: turn.receipt(to, LeaseGeneration::FIRST),
                inserted_at,
                expires_at,
                visible_at,
            }))
        })
    }
}
