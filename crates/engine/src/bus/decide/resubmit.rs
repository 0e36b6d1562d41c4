//! Messages that an operator sends again: each leaves its entity and comes to another one, in one step.
//!
//! - To a queue, it comes as what a client sends.
//! - To a topic, too: it waits there for its copies, however many there are, and ticks make them. A message that nobody would
//!   get stays where it is, because the topic would drop it.
//! - A dead letter of a subscription goes back into that subscription alone, as a deposit does: no rule looks at it.
//!
//! Each message succeeds or fails by itself.

use super::super::message::Message;
use super::super::rules::{Evaluation, OutOfSteps, Seen, Topic, TopicTally};
use super::super::{
    BusMessage, BusMessageState, BusOutcome, BusRefusal, EntityKind, Resubmission, Resubmit,
    ResubmitVerdict,
};
use super::{Answer, Turn};
use crate::table::MESSAGE_OVERHEAD_BYTES;
use crate::vocabulary::{EntityName, Hold, Incarnation, SequenceNumber};

/// What an entity loses with a message.
#[derive(Clone, Copy)]
struct Leaves {
    /// Its full size.
    size_bytes: u64,
    /// The same without a body that another message counts.
    counted_bytes: u64,
}

/// Where a command sends messages again.
struct Destination {
    entity: Incarnation,
    kind: EntityKind,
    /// The entity whose limits count, and whose size grows.
    charged: Incarnation,
    /// Whether some subscription of a topic gets every message.
    takes_all: bool,
    /// What it took to compare the messages of the command with the rules of a topic.
    evaluation: Evaluation,
    /// Whether the command has looked for the largest subscriptions of the topic.
    has_looked: bool,
}

impl Turn<'_> {
    pub(super) fn resubmit(&mut self, queue: Incarnation, resubmit: Resubmit) -> Answer {
        let from = self.bus(queue);
        if !from.role.is_received_from() {
            // A message of a topic may have some of its copies already.
            return Err(BusRefusal::NotReceivable {
                queue: from.name.name.clone(),
            });
        }
        let to = self.check_destination(queue, resubmit.to.as_deref())?;
        let kind = self.kind_of(to);
        let mut to = Destination {
            entity: to,
            kind,
            charged: self.charged(to),
            takes_all: kind == EntityKind::Topic && self.has_recipient_of_all(to),
            evaluation: Evaluation::new(),
            has_looked: false,
        };
        let messages = resubmit.messages.into_iter();
        let verdicts = messages.map(|it| self.resubmit_one(queue, &mut to, it));
        let verdicts = verdicts.collect();
        self.0.note_steps(to.evaluation.steps());
        Ok(BusOutcome::Resubmitted(verdicts))
    }

    /// The destination of messages that are sent again, if it is there. Without a name, the queue, topic or subscription
    /// that the entity belongs to.
    pub(super) fn destination(&self, queue: Incarnation, to: Option<&str>) -> Option<Incarnation> {
        let found = match to {
            None => Some(self.first_of(queue)),
            Some(to) => self.catalogue().find(&EntityName {
                name: to.into(),
                ..self.bus(queue).name.clone()
            }),
        };
        found.filter(|to| *to != queue && self.queues().contains_key(to))
    }

    /// The same, if it takes them.
    fn check_destination(
        &self,
        queue: Incarnation,
        to: Option<&str>,
    ) -> Result<Incarnation, BusRefusal> {
        let own = self.first_of(queue);
        let Some(to) = self.destination(queue, to) else {
            let queue = to.unwrap_or(&self.bus(queue).name.name).into();
            return Err(BusRefusal::DestinationNotFound { queue });
        };
        let is_back = to == own && self.kind_of(to) == EntityKind::Subscription;
        if !is_back {
            self.check_takes_sends(to)?;
        }
        // A subscription gets messages whatever its own status is.
        let charged = self.bus(self.charged(to));
        if !charged.options.status.allows_send() && (!is_back || charged.role.topic().is_none()) {
            let queue = charged.name.name.clone();
            return Err(BusRefusal::Disabled { queue });
        }
        Ok(to)
    }

    fn resubmit_one(
        &mut self,
        queue: Incarnation,
        to: &mut Destination,
        message: Resubmission,
    ) -> ResubmitVerdict {
        if let Some(verdict) = self.refuse_resubmission(queue, to, &message) {
            return verdict;
        }
        let number = message.sequence_number;
        let sent = BusMessage {
            body: message.body,
            message_id: message.message_id,
            session: message.session,
            time_to_live_ms: message.time_to_live_ms,
            scheduled_at: None,
        };
        let new = match to.kind {
            EntityKind::Queue => self.send_checked(to.entity, vec![sent]).pop().flatten(),
            EntityKind::Topic => self.store_in_topic(to, sent),
            EntityKind::Subscription => Some(self.deposit_one(to.entity, to.charged, sent).0),
        };
        match new {
            Some(new) => {
                self.remove(queue, number);
                ResubmitVerdict::Resubmitted(new)
            }
            None => ResubmitVerdict::Duplicate,
        }
    }

    /// `None` if it is a duplicate.
    fn store_in_topic(&mut self, to: &Destination, message: BusMessage) -> Option<SequenceNumber> {
        let number = self
            .send_checked(to.entity, vec![message])
            .pop()
            .flatten()?;
        let tally = TopicTally {
            published: 1,
            ..TopicTally::default()
        };
        self.0.tally_topic(to.entity, &tally);
        Some(number)
    }

    fn refuse_resubmission(
        &mut self,
        queue: Incarnation,
        to: &mut Destination,
        message: &Resubmission,
    ) -> Option<ResubmitVerdict> {
        let Some(known) = self.bus_backlog(queue).get(message.sequence_number) else {
            return Some(ResubmitVerdict::NotFound);
        };
        if matches!(known.state, BusMessageState::Locked { .. }) {
            return Some(ResubmitVerdict::Locked);
        }
        if known.overlays().len() != message.overlay_count as usize {
            return Some(ResubmitVerdict::Changed);
        }
        let leaves = Leaves {
            size_bytes: known.size_bytes(),
            counted_bytes: counted_bytes(&known),
        };
        let size_bytes = message.body.len() as u64;
        if size_bytes > self.bus(to.charged).options.message_size_bytes_max {
            return Some(ResubmitVerdict::TooLarge);
        }
        if self.bus(to.entity).requires_session() && message.session.is_none() {
            return Some(ResubmitVerdict::SessionRequired);
        }
        if to.kind == EntityKind::Topic {
            if self
                .id_hash(to.entity, message.message_id.as_deref())
                .is_err()
            {
                return Some(ResubmitVerdict::Duplicate);
            }
            if let Some(verdict) = self.check_is_selected(to, message) {
                return Some(verdict);
            }
        }
        let id_bytes = match to.kind {
            EntityKind::Subscription => 0,
            EntityKind::Queue | EntityKind::Topic => self
                .bus(to.entity)
                .remembered_size_bytes(message.message_id.as_deref()),
        };
        let added_bytes = size_bytes + MESSAGE_OVERHEAD_BYTES + id_bytes;
        (!self.has_room_again(queue, to, leaves, added_bytes)).then_some(ResubmitVerdict::Full)
    }

    /// Whether there is room for a message that leaves an entity. One from the same queue or topic frees the room that it
    /// takes.
    fn has_room_again(
        &mut self,
        queue: Incarnation,
        to: &mut Destination,
        leaves: Leaves,
        added_bytes: u64,
    ) -> bool {
        let is_same = self.charged(queue) == to.charged;
        let freed_bytes = if is_same { leaves.counted_bytes } else { 0 };
        let own_limit_bytes = self.bus(to.charged).options.size_bytes_max;
        let limit_bytes = own_limit_bytes.saturating_add(freed_bytes);
        let room = limit_bytes.saturating_sub(added_bytes);
        let (size_bytes, _) = self.size_bytes_above(to.charged, room);
        if size_bytes.saturating_add(added_bytes) <= limit_bytes {
            return true;
        }
        let family = self.first_of(queue);
        let Some(topic) = self.bus(family).role.topic().filter(|_| is_same) else {
            return false;
        };
        // Another subscription counted its body, and may have completed it: then the topic counts little of it, but the
        // subscription all. To find the next largest one takes a look at all of them, once.
        for may_look in [true, false] {
            if self.size_bytes_after(topic, to, (family, leaves), added_bytes) <= own_limit_bytes {
                return true;
            }
            if may_look && !std::mem::replace(&mut to.has_looked, true) {
                let looked_at = self.0.find_largest_families(topic);
                self.0.note_steps(looked_at);
            }
        }
        false
    }

    /// A bound of a topic's size once a message has gone from one of its subscriptions to the topic, or back into the
    /// subscription.
    fn size_bytes_after(
        &self,
        topic: Incarnation,
        to: &Destination,
        (family, leaves): (Incarnation, Leaves),
        added_bytes: u64,
    ) -> u64 {
        let (in_topic, in_family) = match to.kind {
            EntityKind::Subscription => (0, added_bytes),
            EntityKind::Queue | EntityKind::Topic => (added_bytes, 0),
        };
        let families = &self.catalogue().families;
        let size_bytes = families.size_bytes_of(family) + in_family;
        let left = size_bytes.saturating_sub(leaves.size_bytes);
        let largest = families.largest_at_most_with(topic, (family, left));
        let charged = families.charge_bytes(topic) + in_family;
        let of_families = charged.saturating_sub(leaves.counted_bytes).max(largest);
        self.own_size_bytes(topic) + in_topic + of_families
    }

    /// Whether some subscription of a topic gets all messages that come now.
    fn has_recipient_of_all(&mut self, topic: Incarnation) -> bool {
        let number = self.bus_backlog(topic).next();
        let mut looked_at = 0;
        let mut takers = self.may_take_all_from(topic, Incarnation::default());
        let is_any = takers.any(|subscription| {
            let found = self.look_at(topic, subscription, number);
            looked_at += found.rules;
            found.takes_all && self.recipient(topic, subscription).is_some()
        });
        drop(takers);
        self.0.note_steps(looked_at);
        is_any
    }

    /// Why a message stays: no subscription of a topic gets it, or the steps of the command are not enough to know that. The
    /// rules that count later are those of its number, and so those of now.
    fn check_is_selected(
        &self,
        to: &mut Destination,
        message: &Resubmission,
    ) -> Option<ResubmitVerdict> {
        let topic = to.entity;
        if to.takes_all {
            return None;
        }
        let Some(rules) = self.rules_of(topic).filter(|it| it.looks()) else {
            return Some(ResubmitVerdict::Unselected);
        };
        // What was found for a message that was cut off is no message's any more: no other one is compared.
        if to.evaluation.check().is_err() {
            return Some(ResubmitVerdict::NotCompared);
        }
        let format = self.0.format();
        let known = self.known_in(topic, message.time_to_live_ms);
        // What is no message becomes a failed transfer of the topic.
        let view = format.view(&message.body, &[], known)?;
        to.evaluation.note_message();
        let seen = Seen {
            message: &*view,
            format,
            number: self.bus_backlog(topic).next(),
            ids: &|_, _, _| [0; 16],
        };
        let is_selected = self.is_selected(topic, rules, &seen, &mut to.evaluation);
        Topic::note_read(seen.message, &mut to.evaluation);
        match is_selected {
            Ok(true) => None,
            Ok(false) => Some(ResubmitVerdict::Unselected),
            Err(OutOfSteps) => Some(ResubmitVerdict::NotCompared),
        }
    }

    /// Whether some subscription gets a copy, be it a dead letter. An action that fails makes none.
    fn is_selected(
        &self,
        topic: Incarnation,
        rules: &Topic,
        seen: &Seen<'_>,
        evaluation: &mut Evaluation,
    ) -> Result<bool, OutOfSteps> {
        let all = rules.select(seen, evaluation)?;
        for (subscription, mut found) in all {
            if self.recipient(topic, subscription).is_none() {
                continue;
            }
            if found.is_plain {
                return Ok(true);
            }
            for id in std::mem::take(&mut found.actions) {
                evaluation.check()?;
                match rules.act(seen, id, evaluation) {
                    Ok(_) => return Ok(true),
                    Err(why) => found.fail(id, why),
                }
            }
            if self.failed(subscription, &found).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What a queue or topic loses with a message. A body that another message counts is not freed.
fn counted_bytes(message: &Message<'_>) -> u64 {
    match message.body.hold() {
        Hold::Borrows => message.size_bytes() - u64::from(message.body.length),
        Hold::Alone | Hold::Lends => message.size_bytes(),
    }
}
