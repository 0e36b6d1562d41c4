//! Messages that are sent via an entity to another one.
//!
//! The via entity keeps nothing of a message that its destination accepts: the message arrives there, in the same batch as
//! all else that the command does. What the destination does not accept then becomes a dead letter among the failed
//! transfers of the via entity. So an accepted message is in one of the two places, and there is no state between.
//!
//! Source: Service Bus, *Overview of transaction processing* (transfers and send via); *Overview of dead-letter queues*
//! (send via scenarios).

use bytes::Bytes;

use super::super::message;
use super::super::room::TRANSFER_TEXT_SIZE_BYTES_MAX;
use super::super::{BusMessage, BusOutcome, BusRefusal, DeadLetterCause};
use super::effects::place;
use super::plan::Plan;
use super::{Decision, Turn};
use crate::bus::Effect;
use crate::catalogue::Scope;
use crate::effect::{Arrival, Rest};
use crate::table::{MESSAGE_OVERHEAD_BYTES, Record, Side};
use crate::vocabulary::{EntityName, Incarnation, SequenceNumber, Timestamp};

/// What becomes of a message that is sent via an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// It arrives at its destination.
    Arrives(Incarnation),
    /// The destination does not accept it: it becomes a dead letter among the failed transfers of this entity, with a change
    /// that says where it was to go.
    Fails {
        via: Incarnation,
        cause: DeadLetterCause,
        description: Bytes,
    },
}

/// The destinations of those that arrive. To fail is no use of a destination.
pub(super) fn destinations(transfers: &[Transfer]) -> impl Iterator<Item = Incarnation> {
    transfers.iter().filter_map(|transfer| match transfer {
        Transfer::Arrives(to) => Some(*to),
        Transfer::Fails { .. } => None,
    })
}

/// Why a message is a failed transfer that its destination refuses. `None` if the refusal has another reason.
fn cause_of(refusal: &BusRefusal) -> Option<DeadLetterCause> {
    match refusal {
        BusRefusal::SessionRequired => Some(DeadLetterCause::TransferNeedsSession),
        BusRefusal::QueueNotFound { .. }
        | BusRefusal::Disabled { .. }
        | BusRefusal::QuotaExceeded { .. }
        | BusRefusal::MessageTooLarge { .. }
        | BusRefusal::NotSendable { .. }
        | BusRefusal::NotSendableSubscription { .. } => Some(DeadLetterCause::TransferFailed),
        // Only a transfer itself is refused so.
        BusRefusal::TransferFull { .. }
        // That is wrong with the message, and not with its destination.
        | BusRefusal::NotAMessage
        // No destination refuses a message for these. A topic stores what is sent via another entity, and compares it later.
        | BusRefusal::NoMatchingSubscription { .. }
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
        | BusRefusal::SessionStateTooLarge { .. } => None,
    }
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
        let mut plan = Plan::default();
        let found = self.find_addressable(via);
        let found = found.ok_or_else(|| not_found(via));
        let checked = found.and_then(|via| {
            let transfers = self.check_via(&mut plan, via, to, messages)?;
            Ok((via, transfers))
        });
        let result = checked.map(|(via, transfers)| {
            let uses: Vec<_> = [via].into_iter().chain(destinations(&transfers)).collect();
            let numbers = self.transfer_all(messages.to_vec(), transfers);
            self.note_uses(&uses);
            BusOutcome::Sent(numbers)
        });
        Decision {
            result,
            scope: Scope::Everything,
        }
    }

    pub(super) fn find_addressable(&self, name: &EntityName) -> Option<Incarnation> {
        let found = self.catalogue().find(name);
        found.filter(|queue| self.is_addressable(*queue))
    }

    /// What becomes of each message, or why the via entity accepts none. The plan gets what they count for.
    pub(super) fn check_via(
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
        let sizes = messages.iter().map(|it| it.body.len() as u64);
        if let Some(size_bytes) = sizes.max().filter(|it| *it > limit_bytes) {
            return Err(BusRefusal::MessageTooLarge {
                size_bytes,
                limit_bytes,
            });
        }
        self.check_transfers(plan, (Some(via), to, None), messages)
    }

    /// What becomes of each message that is sent to this name, or this incarnation of it. If there is no other entity for
    /// those that fail, or one that has no failed transfers, the refusal of the destination counts.
    pub(super) fn check_transfers(
        &mut self,
        plan: &mut Plan,
        (via, to, meant): (Option<Incarnation>, &EntityName, Option<Incarnation>),
        messages: &[BusMessage],
    ) -> Result<Vec<Transfer>, BusRefusal> {
        let via = via.filter(|via| self.check_takes_sends(*via).is_ok());
        let transfers = messages.iter().map(|message| {
            let refusal = match self.check_arrival(plan, (to, meant), message) {
                Ok(to) => return Ok(Transfer::Arrives(to)),
                Err(refusal) => refusal,
            };
            match (via, cause_of(&refusal)) {
                (Some(via), Some(cause)) => {
                    let why = (to, &refusal, cause);
                    self.check_failure(plan, via, message, why)
                }
                (None, _) | (_, None) => Err(refusal),
            }
        });
        transfers.collect()
    }

    /// The destination of a message, or why it is not accepted there.
    fn check_arrival(
        &mut self,
        plan: &mut Plan,
        (to, meant): (&EntityName, Option<Incarnation>),
        message: &BusMessage,
    ) -> Result<Incarnation, BusRefusal> {
        let found = self.find_addressable(to);
        let found = found.filter(|found| meant.is_none_or(|meant| meant == *found));
        let to = found.ok_or_else(|| not_found(to))?;
        // The limits of another kind of entity may be those of a topic.
        self.check_takes_sends(to)?;
        // It has arrived. As a failed transfer it would be there twice.
        if self.is_duplicate(plan, to, message.message_id.as_deref()) {
            return Ok(to);
        }
        let size_bytes = self.check_sent(plan, to, std::slice::from_ref(message))?;
        plan.size_bytes.insert(to, size_bytes);
        Ok(to)
    }

    /// A failed transfer of the via entity, or why that has no room for it.
    fn check_failure(
        &mut self,
        plan: &mut Plan,
        via: Incarnation,
        message: &BusMessage,
        (to, refusal, cause): (&EntityName, &BusRefusal, DeadLetterCause),
    ) -> Result<Transfer, BusRefusal> {
        let why = reason(refusal);
        let description = self.0.format().description(&transfer_text(&to.name, &why));
        let added_bytes = (message.body.len() + description.len()) as u64 + MESSAGE_OVERHEAD_BYTES;
        let via_queue = self.bus(via);
        let queue: Box<str> = (*via_queue.name.name).into();
        let limit_bytes = via_queue.options.size_bytes_max;
        let full = |size_bytes: u64| BusRefusal::TransferFull {
            queue: queue.clone(),
            size_bytes,
            limit_bytes,
            to: to.name.clone(),
            why: why.clone(),
        };
        let is_full = |refusal: &BusRefusal| matches!(refusal, BusRefusal::TransferFull { .. });
        let size_bytes = self.fit(plan, via, is_full, |_, size_bytes| {
            let size_bytes = size_bytes.saturating_add(added_bytes);
            match size_bytes > limit_bytes {
                true => Err(full(size_bytes)),
                false => Ok(size_bytes),
            }
        })?;
        plan.size_bytes.insert(via, size_bytes);
        Ok(Transfer::Fails {
            via,
            cause,
            description,
        })
    }

    /// Carries out what was checked. Returns the numbers of the messages at their destination.
    pub(super) fn transfer_all(
        &mut self,
        messages: Vec<BusMessage>,
        transfers: Vec<Transfer>,
    ) -> Vec<Option<SequenceNumber>> {
        let mut numbers = Vec::with_capacity(messages.len());
        for (message, transfer) in messages.into_iter().zip(transfers) {
            match transfer {
                Transfer::Arrives(to) => numbers.extend(self.send_tallied(to, vec![message])),
                Transfer::Fails {
                    via,
                    cause,
                    description,
                } => {
                    self.fail_transfer(via, &message, (cause, &description));
                    numbers.push(None);
                }
            }
        }
        numbers
    }

    /// Makes a message a dead letter among the failed transfers of a queue or topic.
    fn fail_transfer(
        &mut self,
        via: Incarnation,
        message: &BusMessage,
        (cause, description): (DeadLetterCause, &Bytes),
    ) {
        let [_, _, to] = via.with_sub_queues();
        let body = self.store_body(&message.body);
        let session = message.session.as_deref();
        let session = session.map(|id| self.session_named(to, id));
        let record = Record {
            cause: Some(cause),
            // A dead letter does not expire.
            ..message::sent(self.now(), Timestamp::NEVER, None, body)
        };
        let side = Side {
            overlays: vec![self.store_body(description)],
            ..Side::default()
        };
        let rest = Rest {
            side,
            ..Rest::default()
        };
        self.emit_bus_effect(Effect::Arrived {
            to: place(to, self.bus_backlog(to).next()),
            message: Arrival::new(record, session, rest),
        });
    }
}

/// Why a destination refuses a message, in a sentence that has named it. A name can be so long that it would leave no room
/// for a second one.
fn reason(refusal: &BusRefusal) -> Box<str> {
    if let BusRefusal::QueueNotFound { .. } = refusal {
        return "it could not be found".into();
    }
    if let BusRefusal::Disabled { .. } = refusal {
        return "it is disabled for this operation".into();
    }
    if let BusRefusal::NotSendable { .. } = refusal {
        return "it is a sub-queue".into();
    }
    if let BusRefusal::NotSendableSubscription { .. } = refusal {
        return "it is a subscription".into();
    }
    // No other one names the destination.
    refusal.to_string().into()
}

/// Says where a failed transfer was to go, and why it could not. A long name is cut, and not the reason.
fn transfer_text(to: &str, why: &str) -> String {
    let with = |to: &str| format!("The message was not transferred to '{to}': {why}.");
    let room = TRANSFER_TEXT_SIZE_BYTES_MAX.saturating_sub(with("").len());
    with(&to[..to.floor_char_boundary(room)])
}

fn not_found(name: &EntityName) -> BusRefusal {
    BusRefusal::QueueNotFound {
        queue: name.name.clone(),
    }
}
