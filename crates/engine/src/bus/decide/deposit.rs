//! Messages that an operator puts into an entity, also into a subscription, where no client sends to.
//!
//! In a subscription, a message becomes what a copy of its topic's is, but with a body of its own, and without its topic:
//! no rule looks at it, the topic gives it no number, and remembers no id. So messages that were exported from a
//! subscription come back into it alone.

use super::super::{BusMessage, BusOutcome, BusRefusal};
use super::copies::{Copy, Original};
use super::{Answer, Turn};
use crate::table::MESSAGE_OVERHEAD_BYTES;
use crate::vocabulary::{Hold, Incarnation, SequenceNumber};

impl Turn<'_> {
    /// Puts all messages into a queue, topic or subscription, or none.
    pub(super) fn deposit(&mut self, queue: Incarnation, messages: Vec<BusMessage>) -> Answer {
        if self.bus(queue).role.topic().is_none() {
            return self.bus_send(queue, messages);
        }
        // In a damaged history, its topic may be missing.
        let charged = self.charged(queue);
        self.check_deposit(queue, charged, &messages)?;
        let mut numbers = Vec::with_capacity(messages.len());
        for message in messages {
            let (number, is_dead) = self.deposit_one(queue, charged, message);
            numbers.push((!is_dead).then_some(number));
        }
        Ok(BusOutcome::Sent(numbers))
    }

    /// Puts a message into a subscription. Returns its number there, and whether it became a dead letter instead.
    pub(super) fn deposit_one(
        &mut self,
        subscription: Incarnation,
        charged: Incarnation,
        message: BusMessage,
    ) -> (SequenceNumber, bool) {
        let number = self.bus_backlog(subscription).next();
        let now = self.now();
        let expires_at = self.life_in_topic(charged, now, message.time_to_live_ms);
        let body = self.store_body(&message.body);
        let original = Original::new(number, now, expires_at, body, message.session);
        let is_dead = self.copy(
            charged,
            subscription,
            &original,
            (&Copy::Plain, Hold::Alone),
        );
        (number, is_dead)
    }

    /// Why a subscription does not accept these messages. It gets copies whatever its status is, and so it does these. The
    /// limits are those of its topic.
    fn check_deposit(
        &mut self,
        subscription: Incarnation,
        charged: Incarnation,
        messages: &[BusMessage],
    ) -> Result<(), BusRefusal> {
        let entity = self.bus(charged);
        let options = &entity.options;
        if charged != subscription && !options.status.allows_send() {
            let queue = entity.name.name.clone();
            return Err(BusRefusal::Disabled { queue });
        }
        let (size_limit_bytes, limit_bytes) =
            (options.size_bytes_max, options.message_size_bytes_max);
        let mut added_bytes = 0;
        for message in messages {
            let size_bytes = message.body.len() as u64;
            if size_bytes > limit_bytes {
                return Err(BusRefusal::MessageTooLarge {
                    size_bytes,
                    limit_bytes,
                });
            }
            added_bytes += size_bytes + MESSAGE_OVERHEAD_BYTES;
        }
        let limit_bytes = size_limit_bytes;
        let (size_bytes, _) =
            self.size_bytes_above(charged, limit_bytes.saturating_sub(added_bytes));
        let size_bytes = size_bytes.saturating_add(added_bytes);
        if size_bytes > limit_bytes {
            return Err(BusRefusal::QuotaExceeded {
                size_bytes,
                limit_bytes,
            });
        }
        Ok(())
    }
}
