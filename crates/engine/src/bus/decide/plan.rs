//! What the checked parts of a command have done to the sizes of queues and topics, before any of them is carried out.

use std::collections::{BTreeMap, BTreeSet};

use super::super::rules::Topic;
use super::super::{BusMessage, BusRefusal, EntityKind, Known};
use super::Turn;
use super::numbers::Duplicate;
use crate::vocabulary::{Incarnation, SequenceNumber};

/// The effects of the checked parts, as far as they matter to the parts that follow.
#[derive(Default)]
pub(super) struct Plan {
    /// Messages whose lock or schedule ends.
    pub(super) ended: BTreeSet<(Incarnation, SequenceNumber)>,
    /// The size of each queue or topic after these parts, with all that counts against its limit.
    pub(super) size_bytes: BTreeMap<Incarnation, u64>,
    /// The hashes of ids that queues and topics are going to remember.
    ids: BTreeSet<(Incarnation, u128)>,
}

impl Turn<'_> {
    /// The size of a queue or topic after the parts so far.
    pub(super) fn size_in(&self, plan: &mut Plan, first: Incarnation) -> u64 {
        let size = plan.size_bytes.entry(first);
        *size.or_insert_with(|| self.size_bytes_at_most(first))
    }

    /// Checks something against the size of a queue or topic. If that is too large for it, the largest subscription may have
    /// become smaller.
    pub(super) fn fit<T, Why>(
        &mut self,
        plan: &mut Plan,
        first: Incarnation,
        is_full: impl FnOnce(&Why) -> bool,
        check: impl Fn(&Self, u64) -> Result<T, Why>,
    ) -> Result<T, Why> {
        let size_bytes = self.size_in(plan, first);
        match check(self, size_bytes) {
            Err(why) if is_full(&why) => {
                let size_bytes = size_bytes.saturating_sub(self.lower_largest(first));
                plan.size_bytes.insert(first, size_bytes);
                check(self, size_bytes)
            }
            checked => checked,
        }
    }

    /// Finds the largest subscription of a topic, if it is not known. Returns how much smaller the topic is than what was
    /// known.
    fn lower_largest(&mut self, first: Incarnation) -> u64 {
        let before_bytes = self.size_bytes_at_most(first);
        let looked_at = self.0.keep_largest_family(first);
        self.0.note_steps(looked_at);
        before_bytes.saturating_sub(self.size_bytes_at_most(first))
    }

    /// Returns the size of a queue or topic with these messages, or why it does not accept them.
    ///
    /// A topic stores what transactions send, and due work makes the copies. So all that a publish is refused for is
    /// checked here.
    pub(super) fn check_sent(
        &mut self,
        plan: &mut Plan,
        queue: Incarnation,
        messages: &[BusMessage],
    ) -> Result<u64, BusRefusal> {
        let first = self.charged(queue);
        let with_these = self.fit(plan, first, is_full, |turn, size_bytes| {
            turn.check_sendable(queue, messages, size_bytes)
        })?;
        let is_topic = self.bus(queue).role.kind() == Some(EntityKind::Topic);
        let looks = is_topic && self.rules_of(queue).is_some_and(Topic::looks);
        let format = self.0.format();
        let is_one = |it: &BusMessage| format.view(&it.body, &[], Known::default()).is_some();
        if looks && !messages.iter().all(is_one) {
            return Err(BusRefusal::NotAMessage);
        }
        let ids = messages.iter().map(|it| it.message_id.as_deref());
        let hashes = ids.filter_map(|id| self.id_hash(queue, id).ok().flatten());
        plan.ids.extend(hashes.map(|hash| (queue, hash)));
        Ok(with_these)
    }

    /// Whether a queue or topic is going to drop a message with this id, because it has one, or an earlier part sends one.
    pub(super) fn is_duplicate(&self, plan: &Plan, queue: Incarnation, id: Option<&str>) -> bool {
        match self.id_hash(queue, id) {
            Ok(hash) => hash.is_some_and(|hash| plan.ids.contains(&(queue, hash))),
            Err(Duplicate) => true,
        }
    }

    /// How much smaller a queue or topic is when a message ends. A topic is not for one that ends in a subscription: others
    /// may still have its body.
    pub(super) fn freed_bytes(&self, queue: Incarnation, number: SequenceNumber) -> u64 {
        let message = self.bus_backlog(queue).get(number);
        match self.first_of(queue) == self.charged(queue) {
            true => message.map_or(0, |message| message.size_bytes()),
            false => 0,
        }
    }
}

/// Whether a refusal says that a queue or topic is too large.
pub(super) fn is_full(refusal: &BusRefusal) -> bool {
    matches!(refusal, BusRefusal::QuotaExceeded { .. })
}
