//! Putting a message into a queue.

use super::{Decision, Turn};
use crate::profile::storage_queue;
use crate::{
    BodyEncoding, EntityName, Fact, LeaseGeneration, Outcome, Refusal, SentMessage,
    VisibilityTimeout,
};

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
                return Err(Refusal::HiddenBeyondExpiry {
                    visibility_timeout_seconds: hidden,
                    time_to_live_seconds,
                });
            }
            turn.check_size_quota(&account, body, None)?;
            let inserted_at = turn.now();
            let expires_at = storage_queue::expiry(inserted_at, time_to_live_seconds);
            let visible_at = visibility_timeout.after(inserted_at);
            let sequence_number = turn.entity(queue).backlog.next();
            let body = turn.journal.store_body(body);
            turn.emit(Fact::MessageSent {
                queue,
                sequence_number,
                expires_at,
                visible_at,
                encoding,
                body,
            });
            Ok(Outcome::Sent(SentMessage {
                message: turn.message_id(queue, sequence_number),
                receipt: turn.receipt(queue, sequence_number, LeaseGeneration::FIRST),
                inserted_at,
                expires_at,
                visible_at,
            }))
        })
    }
}
