//! Transactions: work in several queues that is carried out as a whole or not at all.
//!
//! Every part is checked before the first one is carried out, with the effects of the parts before it. The
//! events are the same as without a transaction: all events of one command are in one batch of the log,
//! which is durable as a whole or not at all.
//!
//! Source: AMQP 1.0, part 4; Service Bus, *Overview of transaction processing*.

use std::collections::{BTreeMap, BTreeSet};

use kew_planted::{Bug, is_planted};

use super::super::queue::ENTITIES_PER_BUS_QUEUE;
use super::super::rules::{Topic, TopicTally};
use super::super::{
    BusMessage, BusMessageState, BusOutcome, BusRefusal, Disposition, EntityKind, Known,
    PartRefusal, TransactionPart, TransactionWork, Verdict,
};
use super::messages::not_found;
use super::transfer::Transfer;
use super::{Decision, Turn};
use crate::catalogue::Scope;
use crate::vocabulary::{EntityName, Incarnation, SequenceNumber};

/// The effects of the checked parts, as far as they matter to the parts that follow.
#[derive(Default)]
pub(super) struct Plan {
    /// Messages whose lock or schedule ends.
    ended: BTreeSet<(Incarnation, SequenceNumber)>,
    /// The size of each queue or topic after these parts, with all that counts against its limit.
    pub(super) size_bytes: BTreeMap<Incarnation, u64>,
    /// How many subscriptions of each topic may get copies of what these parts send.
    recipients: BTreeMap<Incarnation, u64>,
    /// How many subscriptions were looked at for this, with their sub-queues.
    pub(super) looks: u64,
}

/// A part that can be carried out.
struct Checked {
    queue: Incarnation,
    /// What becomes of each message that is sent via the queue.
    transfers: Vec<Transfer>,
}

impl Turn<'_> {
    pub(super) fn transact(&mut self, parts: Vec<TransactionPart>) -> Decision {
        self.do_due_for(parts.iter().flat_map(TransactionPart::queues));
        let mut plan = Plan::default();
        let checked = self.check_parts(&mut plan, &parts);
        self.0.note_steps(plan.looks);
        let result = checked.map(|checked| {
            let queues: Vec<_> = checked.iter().map(|it| it.queue).collect();
            for (part, checked) in parts.into_iter().zip(checked) {
                self.do_part(checked, part.work);
            }
            self.note_uses(&queues);
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
                self.do_due(queue, budget);
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
    fn check_parts(
        &self,
        plan: &mut Plan,
        parts: &[TransactionPart],
    ) -> Result<Vec<Checked>, BusRefusal> {
        let checked = parts.iter().enumerate().map(|(index, part)| {
            let checked = self.check_part(plan, part);
            checked.map_err(|why| BusRefusal::Transaction {
                part: index as u64 + 1,
                queue: part.queue.name.clone(),
                why: Box::new(why),
            })
        });
        checked.collect()
    }

    fn check_part(&self, plan: &mut Plan, part: &TransactionPart) -> Result<Checked, PartRefusal> {
        let found = self.catalogue().find(&part.queue);
        let found = found.filter(|queue| self.is_addressable(*queue));
        let found = found.filter(|queue| part.incarnation.is_none_or(|meant| meant == *queue));
        let queue = found.ok_or_else(|| {
            PartRefusal::Refused(BusRefusal::QueueNotFound {
                queue: part.queue.name.clone(),
            })
        })?;
        let first = self.charged(queue);
        let mut size_bytes = self.size_in(plan, first);
        match &part.work {
            TransactionWork::Send(messages) => {
                let with_these = self.check_sent(plan, queue, messages, size_bytes);
                size_bytes = with_these.map_err(PartRefusal::Refused)?;
            }
            TransactionWork::SendVia(to, messages) => {
                let transfers = self.check_transfers(plan, queue, to, messages);
                let transfers = transfers.map_err(PartRefusal::Refused)?;
                return Ok(Checked { queue, transfers });
            }
            TransactionWork::Settle(lock, disposition) => {
                let number = self
                    .held_message(queue, *lock)
                    .map_err(PartRefusal::Unsettled)?;
                if !plan.ended.insert((queue, number)) {
                    return Err(PartRefusal::Unsettled(Verdict::LockLost));
                }
                let refused = self.refuse_settlement(queue, number, disposition, Some(size_bytes));
                if let Some(verdict) = refused {
                    return Err(PartRefusal::Unsettled(verdict));
                }
                if matches!(disposition, Disposition::Complete) {
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
        let transfers = Vec::new();
        Ok(Checked { queue, transfers })
    }

    /// The size of a queue or topic after the parts so far.
    pub(super) fn size_in(&self, plan: &mut Plan, first: Incarnation) -> u64 {
        *plan.size_bytes.entry(first).or_insert_with(|| {
            plan.looks += self.steps_of_topic(first);
            self.size_bytes(first)
        })
    }

    /// Returns the size of a queue or topic with these messages, or why it does not accept them.
    ///
    /// A topic stores what transactions send, and due work makes the copies. So all that a publish is refused for is
    /// checked here.
    pub(super) fn check_sent(
        &self,
        plan: &mut Plan,
        queue: Incarnation,
        messages: &[BusMessage],
        size_bytes: u64,
    ) -> Result<u64, BusRefusal> {
        if self.bus(queue).role.kind() != Some(EntityKind::Topic) {
            return self.check_sendable(queue, messages, size_bytes, None);
        }
        let recipients = *plan.recipients.entry(queue).or_insert_with(|| {
            plan.looks += self.steps_of_topic(queue);
            self.recipients(queue).len() as u64
        });
        // Until it is copied, it takes room once in any case.
        let copies = Some(recipients.max(1));
        let with_these = self.check_sendable(queue, messages, size_bytes, copies)?;
        let looks = self.rules_of(queue).is_some_and(Topic::looks);
        let format = self.0.format();
        let is_one = |it: &BusMessage| format.view(&it.body, &[], Known::default()).is_some();
        match looks && !messages.iter().all(is_one) {
            true => Err(BusRefusal::NotAMessage),
            false => Ok(with_these),
        }
    }

    /// How many steps it takes to look at all subscriptions of a topic with their sub-queues.
    fn steps_of_topic(&self, topic: Incarnation) -> u64 {
        let subscriptions = self.catalogue().subscriptions_of(topic).count();
        (subscriptions * ENTITIES_PER_BUS_QUEUE) as u64
    }

    fn message_size(&self, queue: Incarnation, number: SequenceNumber) -> u64 {
        let message = self.bus_backlog(queue).get(number);
        message.map_or(0, |message| message.size_bytes())
    }

    /// Carries out a part that was checked.
    fn do_part(&mut self, Checked { queue, transfers }: Checked, work: TransactionWork) {
        match work {
            TransactionWork::Send(messages) => {
                self.send_tallied(queue, messages);
            }
            TransactionWork::SendVia(_, messages) => {
                self.transfer_all(queue, messages, transfers);
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
