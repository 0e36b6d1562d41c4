//! Transactions: work in several queues that is carried out as a whole or not at all.
//!
//! Every part is checked before the first one is carried out, with the effects of the parts before it. The
//! events are the same as without a transaction: all events of one command are in one batch of the log,
//! which is durable as a whole or not at all.
//!
//! Source: AMQP 1.0, part 4; Service Bus, *Overview of transaction processing*.

use std::collections::{BTreeMap, BTreeSet};

use kew_planted::{Bug, is_planted};

use super::super::{
    BusMessageState, BusOutcome, BusRefusal, Disposition, NotSupported, PartRefusal,
    TransactionPart, TransactionWork, Verdict,
};
use super::messages::not_found;
use super::{By, Decision, Turn};
use crate::catalogue::Scope;
use crate::vocabulary::{EntityName, Incarnation, SequenceNumber};

/// The effects of the checked parts, as far as they matter to the parts that follow.
#[derive(Default)]
struct Plan {
    /// Messages whose lock or schedule ends.
    ended: BTreeSet<(Incarnation, SequenceNumber)>,
    /// The size of each queue or topic after these parts, with all that counts against its limit.
    size_bytes: BTreeMap<Incarnation, u64>,
}

impl Turn<'_> {
    pub(super) fn transact(&mut self, parts: Vec<TransactionPart>) -> Decision {
        self.do_due_for(&parts);
        let result = self.check_parts(&parts).map(|queues| {
            self.do_parts(parts, &queues);
            self.note_uses(&queues);
            BusOutcome::Transacted
        });
        Decision {
            result,
            scope: Scope::Everything,
        }
    }

    /// Carries out due things in each queue first: they may end a queue.
    fn do_due_for(&mut self, parts: &[TransactionPart]) {
        if self.0.is_due_done() {
            return;
        }
        let queues: BTreeSet<&EntityName> = parts.iter().map(|part| &part.queue).collect();
        let budget = self.due_budget_for(queues.len());
        for name in queues {
            if let Some(queue) = self.catalogue().find(name) {
                self.do_due(queue, budget, By::Command);
            }
        }
    }

    /// The budget of each of so many queues.
    pub(super) fn due_budget_for(&self, count: usize) -> u32 {
        let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
        match self.due_budget() {
            0 => 0,
            budget => (budget / count).max(1),
        }
    }

    /// The queue of each part, or the part that cannot be carried out and why.
    fn check_parts(&self, parts: &[TransactionPart]) -> Result<Vec<Incarnation>, BusRefusal> {
        let mut plan = Plan::default();
        let checked = parts.iter().enumerate().map(|(index, part)| {
            let checked = self.check_part(&mut plan, part);
            checked.map_err(|why| BusRefusal::Transaction {
                part: index as u64 + 1,
                queue: part.queue.name.clone(),
                why: Box::new(why),
            })
        });
        checked.collect()
    }

    fn check_part(
        &self,
        plan: &mut Plan,
        part: &TransactionPart,
    ) -> Result<Incarnation, PartRefusal> {
        let found = self.catalogue().find(&part.queue);
        let found = found.filter(|queue| self.is_addressable(*queue));
        let found = found.filter(|queue| part.incarnation.is_none_or(|meant| meant == *queue));
        let queue = found.ok_or_else(|| {
            PartRefusal::Refused(BusRefusal::QueueNotFound {
                queue: part.queue.name.clone(),
            })
        })?;
        let first = self.charged(queue);
        let held = plan.size_bytes.get(&first).copied();
        let mut size_bytes = held.unwrap_or_else(|| self.size_bytes(first));
        match &part.work {
            TransactionWork::Send(messages) => {
                self.check_is_no_topic(queue, NotSupported::Transaction)
                    .map_err(PartRefusal::Refused)?;
                let with_these = self.check_sendable(queue, messages, size_bytes);
                size_bytes = with_these.map_err(PartRefusal::Refused)?;
            }
            TransactionWork::Settle(lock, disposition) => {
                let number = self
                    .held_message(queue, *lock)
                    .map_err(PartRefusal::Unsettled)?;
                if !plan.ended.insert((queue, number)) {
                    return Err(PartRefusal::Unsettled(Verdict::LockLost));
                }
                let refused = self.refuse_settlement(queue, number, disposition, size_bytes);
                if let Some(verdict) = refused {
                    return Err(PartRefusal::Unsettled(verdict));
                }
                // In a topic, another copy may count its body from then on.
                let frees = first == self.first_of(queue);
                if frees && matches!(disposition, Disposition::Complete) {
                    size_bytes = size_bytes.saturating_sub(self.message_size(queue, number));
                }
                size_bytes = size_bytes.saturating_add(disposition.overlay_size_bytes());
            }
            TransactionWork::CancelScheduled(numbers) => {
                for number in numbers {
                    let message = self.bus_backlog(queue).get(*number);
                    let is_scheduled =
                        message.is_some_and(|it| it.state == BusMessageState::Scheduled);
                    if !is_scheduled || !plan.ended.insert((queue, *number)) {
                        return Err(PartRefusal::Refused(not_found(*number)));
                    }
                    size_bytes = size_bytes.saturating_sub(self.message_size(queue, *number));
                }
            }
        }
        if !is_planted(Bug::BusTransactionOverfills) {
            plan.size_bytes.insert(first, size_bytes);
        }
        Ok(queue)
    }

    fn message_size(&self, queue: Incarnation, number: SequenceNumber) -> u64 {
        let message = self.bus_backlog(queue).get(number);
        message.map_or(0, |message| message.size_bytes())
    }

    fn do_parts(&mut self, parts: Vec<TransactionPart>, queues: &[Incarnation]) {
        for (part, queue) in parts.into_iter().zip(queues) {
            self.do_part(*queue, part.work);
        }
    }

    /// Carries out a part that was checked.
    fn do_part(&mut self, queue: Incarnation, work: TransactionWork) {
        match work {
            TransactionWork::Send(messages) => {
                self.send_checked(queue, messages);
            }
            TransactionWork::Settle(lock, disposition) => {
                let number = self.held_message(queue, lock);
                assert!(
                    number.is_ok(),
                    "the lock held when it was checked, and no part of the transaction before has ended it"
                );
                if let Ok(number) = number {
                    // Its overlay was checked with the effects of the parts before it.
                    self.settle_checked(queue, number, disposition);
                }
            }
            TransactionWork::CancelScheduled(numbers) => {
                for sequence_number in numbers {
                    self.remove(queue, sequence_number);
                }
            }
        }
    }

    /// The settlements of a sub-queue do not show that its queue was used, nor those of a subscription that its topic
    /// was.
    fn note_uses(&mut self, queues: &[Incarnation]) {
        let firsts: BTreeSet<Incarnation> = queues.iter().map(|it| self.first_of(*it)).collect();
        if self.due_budget() > 0 {
            for queue in firsts {
                self.note_use(queue);
            }
        }
    }
}
