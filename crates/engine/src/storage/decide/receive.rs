//! Receiving messages from the head of a queue, and peeking at them.

use super::{Decision, Turn};
use crate::effect::Lease;
use crate::storage::message::Message;
use crate::storage::{Effects, PeekedMessage, ReceivedMessage, StorageFact, StorageOutcome};
use crate::vocabulary::{EntityName, Place, VisibilityTimeout};

impl Turn<'_> {
    /// Source: Queue Storage REST, *Get Messages*.
    pub(super) fn receive(
        &mut self,
        queue: &EntityName,
        count: u32,
        visibility_timeout: VisibilityTimeout,
    ) -> Decision {
        self.with_entity(queue, |turn, queue| {
            let visible_at = visibility_timeout.after(turn.now());
            let mut received = Vec::new();
            let visible = turn.entity(queue).backlog.visible(turn.now());
            let leased = visible.take(count as usize).map(|(number, message)| {
                let at = Place {
                    entity: queue,
                    number,
                };
                let lease = message.next_delivery(visible_at);
                received.push(turn.received(at, message, lease));
                message.leased(at, lease, None)
            });
            let effects: Effects = leased.collect();
            if !effects.is_empty() {
                turn.emit(StorageFact::Messages { effects });
            }
            Ok(StorageOutcome::Received(received))
        })
    }

    fn received(&self, at: Place, message: Message, lease: Lease) -> ReceivedMessage {
        ReceivedMessage {
            message: self.message_id(at),
            receipt: self.receipt(at, lease.generation),
            inserted_at: message.enqueued_at,
            expires_at: message.expires_at,
            visible_at: lease.standing.until,
            delivery_count: lease.deliveries,
            encoding: message.encoding,
            body: message.body,
        }
    }

    /// Source: Queue Storage REST, *Peek Messages*.
    pub(super) fn peek(&mut self, queue: &EntityName, count: u32) -> Decision {
        self.with_entity(queue, |turn, queue| {
            let visible = turn.entity(queue).backlog.visible(turn.now());
            let peeked = visible
                .take(count as usize)
                .map(|(number, message)| PeekedMessage {
                    message: turn.message_id(Place {
                        entity: queue,
                        number,
                    }),
                    inserted_at: message.enqueued_at,
                    expires_at: message.expires_at,
                    delivery_count: message.deliveries,
                    encoding: message.encoding,
                    body: message.body,
                });
            Ok(StorageOutcome::Peeked(peeked.collect()))
        })
    }
}
