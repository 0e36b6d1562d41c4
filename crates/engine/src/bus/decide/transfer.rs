//! Messages that are sent via an entity to another one.
//!
//! The via entity keeps nothing of a message that its destination accepts: the message arrives there, in the same batch as
//! all else that the command does. What the destination does not accept then becomes a dead letter among the failed
//! transfers of the via entity. So an accepted message is in one of the two places, and there is no state between.
//!
//! Source: Service Bus, *Overview of transaction processing* (transfers and send via); *Overview of dead-letter queues*
//! (send via scenarios).

use super::super::message;
use super::super::{BusMessage, BusOutcome, BusRefusal, DeadLetterCause, EntityKind};
use super::effects::place;
use super::plan::{Plan, is_full};
use super::{Decision, Turn};
use crate::catalogue::Scope;
use crate::effect::{Arrival, Effect, Rest};
use crate::table::{MESSAGE_OVERHEAD_BYTES, Record};
use crate::vocabulary::{EntityName, Incarnation, SequenceNumber, Timestamp};

/// What becomes of a message that is sent via an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// It arrives at its destination.
    Arrives(Incarnation),
    /// The destination does not accept it.
    Fails(DeadLetterCause),
}

/// The entities that are used by these transfers via another one, which is used, too. To fail is no use of a destination.
pub(super) fn uses(via: Incarnation, transfers: &[Transfer]) -> impl Iterator<Item = Incarnation> {
    let destinations = transfers.iter().filter_map(|transfer| match transfer {
        Transfer::Arrives(to) => Some(*to),
        Transfer::Fails(_) => None,
    });
    [via].into_iter().chain(destinations)
}

/// What becomes of a message that its destination refuses, or the refusal again if it is of another kind.
fn failure_of(refusal: BusRefusal) -> Result<Transfer, BusRefusal> {
    let cause = match refusal {
        BusRefusal::SessionRequired => DeadLetterCause::SessionIdIsNull,
        BusRefusal::QueueNotFound { .. }
        | BusRefusal::Disabled { .. }
        | BusRefusal::QuotaExceeded { .. }
        | BusRefusal::MessageTooLarge { .. }
        | BusRefusal::NotSendable { .. }
        | BusRefusal::NotSendableSubscription { .. } => DeadLetterCause::DestinationUnavailable,
        // That is wrong with the message, and not with its destination.
        BusRefusal::NotAMessage
        // No destination refuses a message for these.
        | BusRefusal::QueueAlreadyExists { .. }
        | BusRefusal::InvalidOption(_)
        | BusRefusal::UnchangeableOption { .. }
        | BusRefusal::NotReceivable { .. }
        | BusRefusal::TooManySubscriptions { .. }
        | BusRefusal::TooManyCopies { .. }
        | BusRefusal::RulesTakeLong { .. }
        | BusRefusal::CopiesTooLarge { .. }
        | BusRefusal::NotSupportedYet { .. }
        | BusRefusal::RuleNotFound { .. }
        | BusRefusal::RuleAlreadyExists { .. }
        | BusRefusal::InvalidRule { .. }
        | BusRefusal::TooManyRules { .. }
        | BusRefusal::RulesTooLarge { .. }
        | BusRefusal::RulesBusy { .. }
        | BusRefusal::Forwards { .. }
        | BusRefusal::DestinationNotFound { .. }
        | BusRefusal::SessionsNotSupported
        | BusRefusal::SessionCannotBeLocked { .. }
        | BusRefusal::NoSessionAvailable
        | BusRefusal::LockLost
        | BusRefusal::SessionLockLost
        | BusRefusal::MessageNotFound { .. }
        | BusRefusal::MessageLocked { .. }
        | BusRefusal::MessageDamaged { .. }
        | BusRefusal::MessageScheduled { .. }
        | BusRefusal::NotLocked
        | BusRefusal::TooMany { .. }
        | BusRefusal::SessionIdTooLong { .. }
        | BusRefusal::Transaction { .. }
        | BusRefusal::SessionStateTooLarge { .. } => return Err(refusal),
    };
    Ok(Transfer::Fails(cause))
}

impl Turn<'_> {
    /// Sends all messages or none. A message that its destination does not accept counts as sent, and has no number.
    pub(super) fn send_via(
        &mut self,
        via: &EntityName,
        to: &EntityName,
        messages: &[BusMessage],
    ) -> Decision {
        self.do_due_for([via, to].into_iter());
        let found = self.catalogue().find(via);
        let found = found.filter(|queue| self.is_addressable(*queue));
        let found = found.ok_or_else(|| BusRefusal::QueueNotFound {
            queue: via.name.clone(),
        });
        let mut plan = Plan::default();
        let checked = found.and_then(|via| {
            let transfers = self.check_transfers(&mut plan, via, to, messages)?;
            Ok((via, transfers))
        });
        let result = checked.map(|(via, transfers)| {
            let uses: Vec<_> = uses(via, &transfers).collect();
            let numbers = self.transfer_all(via, messages.to_vec(), transfers);
            self.note_uses(&uses);
            BusOutcome::Sent(numbers)
        });
        Decision {
            result,
            scope: Scope::Everything,
        }
    }

    /// What becomes of each message, or why the via entity accepts none. The plan gets what they count for.
    pub(super) fn check_transfers(
        &mut self,
        plan: &mut Plan,
        via: Incarnation,
        to: &EntityName,
        messages: &[BusMessage],
    ) -> Result<Vec<Transfer>, BusRefusal> {
        self.check_takes_sends(via)?;
        let options = &self.bus(via).options;
        if !options.status.allows_send() {
            let queue = self.bus(via).name.name.clone();
            return Err(BusRefusal::Disabled { queue });
        }
        let limit_bytes = options.message_size_bytes_max;
        let size_bytes_max = options.size_bytes_max;
        let mut transfers = Vec::with_capacity(messages.len());
        for message in messages {
            let own_bytes = message.body.len() as u64;
            if own_bytes > limit_bytes {
                return Err(BusRefusal::MessageTooLarge {
                    size_bytes: own_bytes,
                    limit_bytes,
                });
            }
            let transfer = self.check_transfer(plan, to, message)?;
            if let Transfer::Fails(_) = transfer {
                let size_bytes = self.check_failure(plan, via, own_bytes, size_bytes_max)?;
                plan.size_bytes.insert(via, size_bytes);
            }
            transfers.push(transfer);
        }
        Ok(transfers)
    }

    /// Returns the size of the via entity with a failed transfer, or why there is no room for it.
    fn check_failure(
        &mut self,
        plan: &mut Plan,
        via: Incarnation,
        own_bytes: u64,
        limit_bytes: u64,
    ) -> Result<u64, BusRefusal> {
        let added_bytes = own_bytes + MESSAGE_OVERHEAD_BYTES;
        self.fit(plan, via, is_full, |_, size_bytes| {
            let size_bytes = size_bytes.saturating_add(added_bytes);
            match size_bytes > limit_bytes {
                true => Err(BusRefusal::QuotaExceeded {
                    size_bytes,
                    limit_bytes,
                }),
                false => Ok(size_bytes),
            }
        })
    }

    /// What becomes of a message, or why it is none that anybody could accept.
    fn check_transfer(
        &mut self,
        plan: &mut Plan,
        to: &EntityName,
        message: &BusMessage,
    ) -> Result<Transfer, BusRefusal> {
        let unavailable = Ok(Transfer::Fails(DeadLetterCause::DestinationUnavailable));
        let found = self.catalogue().find(to);
        let Some(to) = found.filter(|to| self.queues().contains_key(to)) else {
            return unavailable;
        };
        // Nothing can be sent to another kind of entity, and its limits may be those of a topic.
        let kind = self.bus(to).role.kind();
        if !matches!(kind, Some(EntityKind::Queue | EntityKind::Topic)) {
            return unavailable;
        }
        // It has arrived. As a failed transfer it would be there twice.
        if self.is_duplicate(plan, to, message.message_id.as_deref()) {
            return Ok(Transfer::Arrives(to));
        }
        match self.check_sent(plan, to, std::slice::from_ref(message)) {
            Ok(size_bytes) => {
                plan.size_bytes.insert(to, size_bytes);
                Ok(Transfer::Arrives(to))
            }
            Err(refusal) => failure_of(refusal),
        }
    }

    /// Carries out what was checked. Returns the numbers of the messages at their destination.
    pub(super) fn transfer_all(
        &mut self,
        via: Incarnation,
        messages: Vec<BusMessage>,
        transfers: Vec<Transfer>,
    ) -> Vec<Option<SequenceNumber>> {
        let mut numbers = Vec::with_capacity(messages.len());
        for (message, transfer) in messages.into_iter().zip(transfers) {
            match transfer {
                Transfer::Arrives(to) => numbers.extend(self.send_tallied(to, vec![message])),
                Transfer::Fails(cause) => {
                    self.fail_transfer(via, &message, cause);
                    numbers.push(None);
                }
            }
        }
        numbers
    }

    /// Makes a message a dead letter among the failed transfers of a queue or topic.
    fn fail_transfer(&mut self, via: Incarnation, message: &BusMessage, cause: DeadLetterCause) {
        let [_, _, to] = via.with_sub_queues();
        let body = self.store_body(&message.body);
        let session = message.session.as_deref();
        let session = session.map(|id| self.session_named(to, id));
        let record = Record {
            cause: Some(cause),
            // A dead letter does not expire.
            ..message::sent(self.now(), Timestamp::NEVER, None, body)
        };
        self.emit_bus_effect(Effect::Arrived {
            to: place(to, self.bus_backlog(to).next()),
            message: Arrival::new(record, session, Rest::default()),
        });
    }
}
