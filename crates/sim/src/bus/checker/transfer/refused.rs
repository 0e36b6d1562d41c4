//! Refused parts of transactions that send via an entity, or only name one for what fails.
//!
//! What its destination does not accept becomes a failed transfer of the other entity. So the destination is a reason for a
//! refusal only if that entity does not exist.

use kew_engine::bus::{BusMessage, BusRefusal, TransactionPart};

use crate::bus::checker::life::{Entity, Part};
use crate::bus::checker::transact::growth;
use crate::bus::checker::{ANSWERS_FIT, Checker};
use crate::checker::{Violation, violated};

/// The two entities of a part, and what is sent.
#[derive(Clone, Copy)]
pub(in crate::bus::checker) struct Transfer<'a> {
    pub(in crate::bus::checker) via: Entity,
    pub(in crate::bus::checker) to: Entity,
    pub(in crate::bus::checker) messages: &'a [BusMessage],
    /// The parts of the transaction until this one.
    pub(in crate::bus::checker) so_far: &'a [TransactionPart],
}

impl Checker {
    /// A part was refused that sends via an entity, which exists.
    pub(in crate::bus::checker) fn send_via_is_refused(
        &mut self,
        transfer: Transfer<'_>,
        refusal: &BusRefusal,
    ) -> Result<(), Violation> {
        let via = transfer.via;
        match refusal {
            BusRefusal::NotSendable { .. } if via.part != Part::Queue => Ok(()),
            BusRefusal::Disabled { .. } => {
                self.note("a transaction was refused by a disabled queue");
                self.must_be(via, refusal, |it| !it.status.allows_send())
            }
            BusRefusal::QuotaExceeded { .. } => self.failures_are_refused(transfer),
            // Without a session, a message becomes a failed transfer.
            _ => violated!(ANSWERS_FIT, "{:?}: {refusal}", transfer.messages),
        }
    }

    /// A part was refused that only names an entity for what fails. Afterwards that does not exist, unless the refusal says
    /// that it is full.
    pub(in crate::bus::checker) fn transfer_is_refused(
        &mut self,
        transfer: Transfer<'_>,
        is_for_room: bool,
    ) -> Result<(), Violation> {
        let via = self.queues.get(transfer.via.queue);
        let (may_exist, may_be_absent) = (via.options().next().is_some(), via.may_be_absent());
        if is_for_room && may_exist {
            let failures = self.failures_are_refused(transfer);
            if failures.is_ok() || !may_be_absent {
                return failures;
            }
        }
        self.is_absent(transfer.via.queue)?;
        match is_for_room {
            true => self.is_full_after(transfer.to, transfer),
            false => Ok(()),
        }
    }

    /// The destination may not accept all, and the other entity has no room for the rest.
    fn failures_are_refused(&mut self, transfer: Transfer<'_>) -> Result<(), Violation> {
        self.is_full_after(transfer.via, transfer)?;
        if self.refuses_at_any_size(transfer) {
            return Ok(());
        }
        self.is_full_after(transfer.to, transfer)
    }

    /// Whether the destination may refuse some of the messages, however much room it has.
    fn refuses_at_any_size(&mut self, transfer: Transfer<'_>) -> bool {
        let no_session = transfer.messages.iter().any(|it| it.session.is_none());
        let to = self.queues.get(transfer.to.queue);
        let refuses = |wants: bool, allows: bool| !allows || (wants && no_session);
        to.may_be_absent()
            || to
                .options()
                .any(|it| refuses(it.requires_session, it.status.allows_send()))
    }

    fn is_full_after(&mut self, entity: Entity, transfer: Transfer<'_>) -> Result<(), Violation> {
        self.note("a transaction was refused by a full queue");
        self.is_full(entity.queue, growth(entity.queue, transfer.so_far))
    }
}
