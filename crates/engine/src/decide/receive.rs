//! Receiving messages from the head of a queue, and peeking at them.

use super::{Decision, Turn};
use crate::message::Message;
use crate::{
    EntityName, Fact, Incarnation, Outcome, PeekedMessage, ReceivedMessage, SequenceNumber,
    VisibilityTimeout,
};

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
            let taken: Vec<SequenceNumber> = turn
                .entity(queue)
                .backlog
                .visible(turn.now())
                .map(|(sequence_number, _)| sequence_number)
                .take(count as usize)
                .collect();
            let mut received = Vec::with_capacity(taken.len());
            for sequence_number in taken {
                turn.emit(Fact::MessageReceived {
                    queue,
                    sequence_number,
                    visible_at,
                });
                received.push(turn.received(queue, sequence_number));
            }
            Ok(Outcome::Received(received))
        })
    }

    fn received(&self, queue: Incarnation, sequence_number: SequenceNumber) -> ReceivedMessage {
        let message = self.message(queue, sequence_number);
        ReceivedMessage {
            message: self.message_id(queue, sequence_number),
            receipt: self.receipt(queue, sequence_number, message.generation),
            inserted_at: message.inserted_at,
            expires_at: message.expires_at,
            visible_at: message.visible_at,
            delivery_count: message.delivery_count,
            encoding: message.encoding,
            body: message.body,
        }
    }

    /// The message that this turn has just changed.
    pub(super) fn message(&self, queue: Incarnation, sequence_number: SequenceNumber) -> &Message {
        self.entity(queue)
            .backlog
            .get(sequence_number, self.now())
            .expect("the message was there when this turn chose it, and leases remove nothing")
    }

    /// Source: Queue Storage REST, *Peek Messages*.
    pub(super) fn peek(&mut self, queue: &EntityName, count: u32) -> Decision {
        self.with_entity(queue, |turn, queue| {
            let visible = turn.entity(queue).backlog.visible(turn.now());
            let peeked = visible
                .take(count as usize)
                .map(|(sequence_number, message)| PeekedMessage {
                    message: turn.message_id(queue, sequence_number),
                    inserted_at: message.inserted_at,
                    expires_at: message.expires_at,
                    delivery_count: message.delivery_count,
                    encoding: message.encoding,
                    body: message.body,
                });
            Ok(Outcome::Peeked(peeked.collect()))
        })
    }
}
