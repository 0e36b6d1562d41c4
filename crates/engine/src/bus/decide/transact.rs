//! Transactions: work in several queues that is carried out as a whole or not at all.
//!
//! Every part is checked before the first one is carried out, with the effects of the parts before it. The
//! events are the same as without a transaction: all events of one command are in one batch of the log,
//! which is durable as a whole or not at all.
//!
//! Source: AMQP 1.0, part 4; Service Bus, *Overview of transaction processing*.

use std::collections::BTreeSet;

use kew_planted::{Bug, is_planted};

use super::super::rules::TopicTally;
use super::super::{
    BusMessage, BusMessageState, BusOutcome, BusRefusal, Disposition, PartRefusal, TransactionPart,
    TransactionWork, Verdict,
};
use super::messages::not_found;
use super::plan::Plan;
use super::transfer::{Transfer, destinations};
use super::{By, Decision, Turn};
use crate::catalogue::Scope;
use crate::vocabulary::{EntityName, Incarnation, SequenceNumber, Token};

/// A part that can be carried out.
enum Checked {
    /// On this queue.
    On(Incarnation),
    /// With what becomes of each of its messages. If they are sent via an entity, all of them use that.
    Transfers(Option<Incarnation>, Vec<Transfer>),
}

impl Checked {
    /// The queues that it uses.
    fn uses(&self) -> impl Iterator<Item = Incarnation> {
        let (used, transfers) = match self {
            Self::On(queue) => (Some(*queue), [].as_slice()),
            Self::Transfers(via, transfers) => (*via, transfers.as_slice()),
        };
        used.into_iter().chain(destinations(transfers))
    }
}

impl Turn<'_> {
    pub(super) fn transact(&mut self, parts: Vec<TransactionPart>) -> Decision {
        self.do_due_for(parts.iter().flat_map(TransactionPart::queues));
        let result = self.check_parts(&parts).map(|checked| {
            let used: Vec<_> = checked.iter().flat_map(Checked::uses).collect();
            for (part, checked) in parts.into_iter().zip(checked) {
                self.do_part(checked, part.work);
            }
            self.note_uses(&used);
            BusOutcome::Transacted
        });
        Decision {
            result,
            scope: Scope::Everything,
        }
    }

    /// Carries out due things in each queue first: they may end a queue.
    pub(super) fn do_due_for<'a>(&mut self, queues: impl Iterator<Item = &'a EntityName>) {
        if self.0.is_due_done() {
            return;
        }
        let queues: BTreeSet<&EntityName> = queues.collect();
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

    /// What is known of each part, or the part that cannot be carried out and why.
    fn check_parts(&mut self, parts: &[TransactionPart]) -> Result<Vec<Checked>, BusRefusal> {
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
        &mut self,
        plan: &mut Plan,
        part: &TransactionPart,
    ) -> Result<Checked, PartRefusal> {
        if let TransactionWork::Transfer(via, messages) = &part.work {
            let via = self.find_addressable(via);
            let to = (via, &part.queue, part.incarnation);
            let transfers = self.check_transfers(plan, to, messages);
            let transfers = transfers.map_err(PartRefusal::Refused)?;
            return Ok(Checked::Transfers(None, transfers));
        }
        let found = self.find_addressable(&part.queue);
        let found = found.filter(|queue| part.incarnation.is_none_or(|meant| meant == *queue));
        let queue = found.ok_or_else(|| {
            PartRefusal::Refused(BusRefusal::QueueNotFound {
                queue: part.queue.name.clone(),
            })
        })?;
        let size_bytes = match &part.work {
            TransactionWork::Send(messages) | TransactionWork::Transfer(_, messages) => self
                .check_sent(plan, queue, messages)
                .map_err(PartRefusal::Refused)?,
            TransactionWork::SendVia(to, messages) => {
                let transfers = self.check_via(plan, queue, to, messages);
                let transfers = transfers.map_err(PartRefusal::Refused)?;
                return Ok(Checked::Transfers(Some(queue), transfers));
            }
            TransactionWork::Settle(lock, disposition) => self
                .check_settled(plan, queue, *lock, disposition)
                .map_err(PartRefusal::Unsettled)?,
            TransactionWork::CancelScheduled(numbers) => self
                .check_cancelled(plan, queue, numbers)
                .map_err(PartRefusal::Refused)?,
        };
        if !is_planted(Bug::BusTransactionOverfills) {
            plan.size_bytes.insert(self.charged(queue), size_bytes);
        }
        Ok(Checked::On(queue))
    }

    /// Returns the size of the queue or topic after a settlement, or why that cannot be done.
    fn check_settled(
        &mut self,
        plan: &mut Plan,
        queue: Incarnation,
        lock: Token,
        disposition: &Disposition,
    ) -> Result<u64, Verdict> {
        let number = self.held_message(queue, lock)?;
        if !plan.ended.insert((queue, number)) {
            return Err(Verdict::LockLost);
        }
        let first = self.charged(queue);
        let is_full = |verdict: &Verdict| *verdict == Verdict::QuotaExceeded;
        self.fit(plan, first, is_full, |turn, size_bytes| {
            let refused = turn.refuse_settlement(queue, number, disposition, size_bytes);
            refused.map_or(Ok(()), Err)
        })?;
        let mut size_bytes = self.size_in(plan, first);
        if matches!(disposition, Disposition::Complete) {
            size_bytes = size_bytes.saturating_sub(self.freed_bytes(queue, number));
        }
        Ok(size_bytes.saturating_add(disposition.overlay_size_bytes()))
    }

    /// Returns the size of the queue or topic without these scheduled messages, or why they cannot be cancelled.
    fn check_cancelled(
        &self,
        plan: &mut Plan,
        queue: Incarnation,
        numbers: &[SequenceNumber],
    ) -> Result<u64, BusRefusal> {
        let mut size_bytes = self.size_in(plan, self.charged(queue));
        for number in numbers {
            let message = self.bus_backlog(queue).get(*number);
            let is_scheduled = message.is_some_and(|it| it.state == BusMessageState::Scheduled);
            if !is_scheduled || !plan.ended.insert((queue, *number)) {
                return Err(not_found(*number));
            }
            size_bytes = size_bytes.saturating_sub(self.freed_bytes(queue, *number));
        }
        Ok(size_bytes)
    }

    /// Carries out a part that was checked.
    fn do_part(&mut self, checked: Checked, work: TransactionWork) {
        let queue = match checked {
            Checked::On(queue) => queue,
            Checked::Transfers(_, transfers) => {
                self.transfer_all(work.into_messages(), transfers);
                return;
            }
        };
        match work {
            TransactionWork::Send(messages)
            | TransactionWork::SendVia(_, messages)
            | TransactionWork::Transfer(_, messages) => {
                self.send_tallied(queue, messages);
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

    /// Sends checked messages to a queue or topic. A topic counts what it has accepted.
    pub(super) fn send_tallied(
        &mut self,
        queue: Incarnation,
        messages: Vec<BusMessage>,
    ) -> Vec<Option<SequenceNumber>> {
        let numbers = self.send_checked(queue, messages);
        let tally = TopicTally {
            published: numbers.iter().flatten().count() as u64,
            ..TopicTally::default()
        };
        if self.bus(queue).topic.is_some() {
            self.0.tally_topic(queue, &tally);
        }
        numbers
    }

    /// The settlements of a sub-queue do not show that its queue was used, nor those of a subscription that its topic
    /// was.
    pub(super) fn note_uses(&mut self, queues: &[Incarnation]) {
        let firsts: BTreeSet<Incarnation> = queues.iter().map(|it| self.first_of(*it)).collect();
        if self.due_budget() > 0 {
            for queue in firsts {
                self.note_use(queue);
            }
        }
    }
}
