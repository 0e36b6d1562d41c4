//! Commands of a receipt's holder: update and delete. And clearing a whole queue.

use bytes::Bytes;
use kew_planted::{Bug, is_planted};

use super::{Decision, Turn};
use crate::token::TokenKind;
use crate::{
    BodyEncoding, EntityName, Fact, Incarnation, Outcome, Refusal, SequenceNumber, Token,
    VisibilityTimeout,
};

impl Turn<'_> {
    /// A receipt stays valid after its visibility timeout, until the message is received again.
    ///
    /// Source: Queue Storage REST, *Update Message*.
    pub(super) fn update(
        &mut self,
        queue: &EntityName,
        message: Token,
        receipt: Token,
        visibility_timeout: VisibilityTimeout,
        body: Option<(BodyEncoding, Bytes)>,
    ) -> Decision {
        let account = queue.account.clone();
        self.with_entity(queue, |turn, queue| {
            let sequence_number = turn.held(queue, message, receipt)?;
            if let Some((_, body)) = &body {
                let replaced = turn.message(queue, sequence_number).body.length;
                turn.check_size_quota(&account, body, Some(replaced))?;
            }
            let visible_at = visibility_timeout.after(turn.now());
            let body = body.map(|(encoding, body)| (encoding, turn.journal.store_body(&body)));
            turn.emit(Fact::MessageUpdated {
                queue,
                sequence_number,
                visible_at,
                body,
            });
            let generation = turn.message(queue, sequence_number).generation;
            Ok(Outcome::Updated {
                receipt: turn.receipt(queue, sequence_number, generation),
                visible_at,
            })
        })
    }

    /// Source: Queue Storage REST, *Delete Message*.
    pub(super) fn delete(
        &mut self,
        queue: &EntityName,
        message: Token,
        receipt: Token,
    ) -> Decision {
        self.with_entity(queue, |turn, queue| {
            let sequence_number = turn.held(queue, message, receipt)?;
            turn.emit(Fact::MessageDeleted {
                queue,
                sequence_number,
            });
            Ok(Outcome::Deleted)
        })
    }

    /// Source: Queue Storage REST, *Clear Messages*.
    pub(super) fn clear(&mut self, queue: &EntityName) -> Decision {
        self.with_entity(queue, |turn, queue| {
            let backlog = &turn.entity(queue).backlog;
            if backlog.count() > 0 {
                let before = backlog.next();
                turn.emit(Fact::QueueCleared { queue, before });
            }
            Ok(Outcome::Cleared)
        })
    }

    /// The message of that id, if the receipt is its latest.
    fn held(
        &self,
        queue: Incarnation,
        message: Token,
        receipt: Token,
    ) -> Result<SequenceNumber, Refusal> {
        let place = self
            .cipher()
            .open(TokenKind::MessageId, message)
            .filter(|place| place.incarnation == queue)
            .ok_or(Refusal::MessageNotFound)?;
        let sequence_number = place.sequence_number;
        let message = self
            .entity(queue)
            .backlog
            .get(sequence_number, self.now())
            .ok_or(Refusal::MessageNotFound)?;
        let lease = self
            .cipher()
            .open(TokenKind::PopReceipt, receipt)
            .ok_or(Refusal::PopReceiptMismatch)?;
        let is_latest =
            lease.generation == message.generation || is_planted(Bug::StaleReceiptAccepted);
        if (lease.incarnation, lease.sequence_number) == (queue, sequence_number) && is_latest {
            Ok(sequence_number)
        } else {
            Err(Refusal::PopReceiptMismatch)
        }
    }
}
