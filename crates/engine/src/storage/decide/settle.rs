//! Commands of a receipt's holder: update and delete. And clearing a whole queue.

use bytes::Bytes;
use kew_planted::{Bug, is_planted};

use super::{Decision, Turn};
use crate::storage::message::Message;
use crate::storage::{StorageOutcome, StorageRefusal};
use crate::table::{BodyEncoding, Placed};
use crate::vocabulary::token::TokenKind;
use crate::vocabulary::{EntityName, Incarnation, Place, Token, VisibilityTimeout};

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
            let (at, message) = turn.held(queue, message, receipt)?;
            if let Some((_, body)) = &body {
                turn.catalogue()
                    .check_size_quota(&account, body, Some(message.body.length))?;
            }
            let visible_at = visibility_timeout.after(turn.now());
            let body = body.map(|(encoding, body)| Placed {
                encoding,
                location: turn.0.store_body(&body),
            });
            let lease = message.next_lease(visible_at);
            turn.emit_effect(message.leased(at, lease, body));
            Ok(StorageOutcome::Updated {
                receipt: turn.receipt(at, lease.generation),
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
            let (at, message) = turn.held(queue, message, receipt)?;
            turn.emit_effect(message.ended(at));
            Ok(StorageOutcome::Deleted)
        })
    }

    /// Source: Queue Storage REST, *Clear Messages*.
    pub(super) fn clear(&mut self, queue: &EntityName) -> Decision {
        self.with_entity(queue, |turn, queue| {
            if let Some(all) = turn.entity(queue).backlog.all_ended(queue) {
                turn.emit_effect(all);
            }
            Ok(StorageOutcome::Cleared)
        })
    }

    /// The message of that id, if the receipt is its latest.
    fn held(
        &self,
        queue: Incarnation,
        message: Token,
        receipt: Token,
    ) -> Result<(Place, Message), StorageRefusal> {
        let place = self
            .cipher()
            .open(TokenKind::MessageId, message)
            .filter(|place| place.incarnation == queue)
            .ok_or(StorageRefusal::MessageNotFound)?;
        let number = place.sequence_number;
        let message = self
            .entity(queue)
            .backlog
            .get(number, self.now())
            .ok_or(StorageRefusal::MessageNotFound)?;
        let lease = self
            .cipher()
            .open(TokenKind::PopReceipt, receipt)
            .ok_or(StorageRefusal::PopReceiptMismatch)?;
        let is_latest =
            lease.generation == message.generation || is_planted(Bug::StaleReceiptAccepted);
        if (lease.incarnation, lease.sequence_number) == (queue, number) && is_latest {
            let at = Place {
                entity: queue,
                number,
            };
            Ok((at, message))
        } else {
            Err(StorageRefusal::PopReceiptMismatch)
        }
    }
}
