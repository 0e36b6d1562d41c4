//! Refused parts of transactions that send via an entity, or only name one for what fails.
//!
//! What its destination does not accept becomes a failed transfer of the other entity. So the destination is a reason for a
//! refusal only if that entity does not exist.

use kew_engine::bus::{BusMessage, BusRefusal, TransactionPart};

use crate::bus::checker::life::{Entity, Part};
use crate::bus::checker::transact::growth;
use crate::bus::checker::{ANSWERS_FIT, Checker};
use crate::bus::topics;
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
            BusRefusal::TransferFull { queue, to, .. } => {
                self.failures_are_refused(transfer, (queue, to))
            }
            // Without a session, a message becomes a failed transfer.
            _ => violated!(ANSWERS_FIT, "{:?}: {refusal}", transfer.messages),
        }
    }

    /// A part was refused that only names an entity for what fails. Afterwards that does not exist, unless the refusal says
    /// that it is full. Whether nothing is left to check.
    pub(in crate::bus::checker) fn transfer_is_refused(
        &mut self,
        transfer: Transfer<'_>,
        refusal: Option<&BusRefusal>,
    ) -> Result<bool, Violation> {
        let via = transfer.via.queue;
        if let Some(BusRefusal::TransferFull { queue, to, .. }) = refusal {
            self.is_there(via, &refusal)?;
            self.failures_are_refused(transfer, (queue, to))?;
            return Ok(true);
        }
        self.is_absent(via)?;
        if let Some(BusRefusal::QuotaExceeded { .. }) = refusal {
            self.is_full_after(transfer.to, transfer)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// The destination may not accept all, and the other entity has no room for the rest. The refusal names both.
    fn failures_are_refused(
        &mut self,
        transfer: Transfer<'_>,
        names: (&str, &str),
    ) -> Result<(), Violation> {
        let [via, to] = [transfer.via, transfer.to].map(|it| topics::name(it.queue));
        if names != (via.as_str(), to.as_str()) {
            return violated!(ANSWERS_FIT, "{names:?} are not {via} and {to}");
        }
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
