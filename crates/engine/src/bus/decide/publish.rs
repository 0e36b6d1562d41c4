//! Messages that are sent to a topic: which copies of each there will be, and the copies.
//!
//! All copies of a message have one body, which one of them counts. The topic keeps nothing of it but its number and its
//! id. Where rules look at messages, all messages of a command are compared before the first copy is made
//! ([`select`](super::select)): so all are sent, or none.

use std::sync::Arc;

use bytes::Bytes;

use super::super::room::COPY_STEPS;
use super::super::rules::Topic;
use super::super::{BusMessage, BusRefusal, COPIES_MAX, DeadLetterCause, Made, message};
use super::Turn;
use super::effects::place;
use crate::effect::{Arrival, Effect, Rest};
use crate::table::{Record, Side};
use crate::vocabulary::{BodyLocation, Hold, Incarnation, SequenceNumber, Timestamp};

/// The end of the year 9999: the latest time that SDKs can read. What ends later does not end.
const LAST: Timestamp = Timestamp::from_ms(253_402_300_799_999);

/// A subscription that may get a copy of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipient {
    pub(super) subscription: Incarnation,
    /// Whether it gets a plain copy of each message.
    pub(super) takes_all: bool,
    /// How many messages it had before.
    backlog: u64,
}

/// The holds of the copies of one message, given who gets them. The one that counts the body is the first copy of the
/// subscription with the most messages, and of the oldest one of equals: it is likely to be the last to end.
fn holds<'a>(
    recipients: impl ExactSizeIterator<Item = &'a Recipient>,
) -> impl Iterator<Item = Hold> {
    let count = recipients.len();
    let mut longest = (0, 0);
    for (index, recipient) in recipients.enumerate() {
        if recipient.backlog > longest.1 {
            longest = (index, recipient.backlog);
        }
    }
    (0..count).map(move |index| match index == longest.0 {
        true if count == 1 => Hold::Alone,
        true => Hold::Lends,
        false => Hold::Borrows,
    })
}

/// What a subscription gets of a message.
#[derive(Clone, Debug)]
pub(super) enum Copy {
    /// The message as it was sent.
    Plain,
    /// The message with the changes of an action.
    Changed(Box<Made>),
    /// A dead letter with this change, because a rule failed.
    Failed(Bytes),
}

impl Copy {
    /// The changes to the properties.
    pub(super) fn overlay(&self) -> Option<&Bytes> {
        match self {
            Self::Plain => None,
            Self::Changed(made) => Some(&made.overlay),
            Self::Failed(description) => Some(description),
        }
    }

    /// The session that the copy belongs to.
    pub(super) fn session<'a>(&'a self, message: &'a BusMessage) -> Option<&'a str> {
        match self {
            Self::Changed(made) => match &made.session {
                Some(changed) => changed.as_deref(),
                None => message.session.as_deref(),
            },
            Self::Plain | Self::Failed(_) => message.session.as_deref(),
        }
    }

    fn time_to_live_ms(&self, message: &BusMessage) -> Option<u64> {
        match self {
            Self::Changed(made) => made.time_to_live_ms.unwrap_or(message.time_to_live_ms),
            Self::Plain | Self::Failed(_) => message.time_to_live_ms,
        }
    }
}

/// The copies of one message.
#[derive(Clone, core::marker::Copy)]
enum Copies<'a> {
    /// A plain one for each.
    OfAll(&'a [Recipient]),
    /// What the rules select.
    Selected(&'a [(Recipient, Copy)]),
}

impl Turn<'_> {
    /// Sends all messages to a topic, or none, and returns their numbers in the topic. A duplicate is dropped, and has
    /// none.
    pub(super) fn publish(
        &mut self,
        topic: Incarnation,
        messages: &[BusMessage],
    ) -> Result<Vec<Option<SequenceNumber>>, BusRefusal> {
        let recipients = self.recipients(topic);
        let count = recipients.len() as u64;
        let looks = self.rules_of(topic).is_some_and(Topic::looks);
        if !looks {
            check_copies(messages.len() as u64 * count)?;
        }
        self.check_publishable(topic, messages)?;
        let selected = match looks {
            false => None,
            true => {
                let (selected, steps) = self.select(topic, &recipients, messages);
                self.0.note_steps(steps);
                Some(selected?.copies)
            }
        };
        let mut made = 0;
        let mut numbers = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            let number = self.pass(topic, message);
            numbers.push(number);
            let Some(number) = number else { continue };
            let copies = match &selected {
                None => Copies::OfAll(&recipients),
                Some(selected) => Copies::Selected(selected.get(index).map_or(&[], Vec::as_slice)),
            };
            made += self.copy_one(topic, message, number, copies);
        }
        self.0.note_steps(made * COPY_STEPS);
        Ok(numbers)
    }

    /// Why a topic does not accept these messages. It does not depend on rules: no message was compared yet.
    fn check_publishable(
        &mut self,
        topic: Incarnation,
        messages: &[BusMessage],
    ) -> Result<(), BusRefusal> {
        let at_most = self.size_bytes_at_most(topic);
        match self.check_sendable(topic, messages, at_most) {
            // The largest subscription may have become smaller.
            Err(BusRefusal::QuotaExceeded { .. }) => {
                self.0.keep_largest_family(topic);
                let size_bytes = self.size_bytes(topic);
                self.check_sendable(topic, messages, size_bytes).map(drop)
            }
            checked => checked.map(drop),
        }
    }

    /// Makes the copies of a message that has this number of its topic. Returns how many there are.
    fn copy_one(
        &mut self,
        topic: Incarnation,
        message: &BusMessage,
        number: SequenceNumber,
        copies: Copies<'_>,
    ) -> u64 {
        let count = match copies {
            Copies::OfAll(recipients) => recipients.len(),
            Copies::Selected(copies) => copies.len(),
        };
        if count == 0 {
            return 0;
        }
        let body = self.store_body(&message.body);
        let rest = Arc::new(of_all_copies(message, number));
        match copies {
            Copies::OfAll(recipients) => {
                let holds = holds(recipients.iter());
                for (recipient, hold) in recipients.iter().zip(holds) {
                    let to = recipient.subscription;
                    let body = body.with(hold);
                    self.copy(topic, to, message, (body, &rest), &Copy::Plain);
                }
            }
            Copies::Selected(copies) => {
                let holds = holds(copies.iter().map(|(recipient, _)| recipient));
                for ((recipient, copy), hold) in copies.iter().zip(holds) {
                    let to = recipient.subscription;
                    self.copy(topic, to, message, (body.with(hold), &rest), copy);
                }
            }
        }
        count as u64
    }

    /// The rules of a topic, as far as they are not the `$Default` of a subscription's creation.
    pub(super) fn rules_of(&self, topic: Incarnation) -> Option<&Topic> {
        self.bus(topic).topic.as_ref()
    }

    /// The subscriptions that may get something of what is sent now, in the order of their incarnations.
    fn recipients(&self, topic: Incarnation) -> Vec<Recipient> {
        let rules = self.rules_of(topic).filter(|rules| rules.has_rules());
        let number = self.bus_backlog(topic).next();
        let subscriptions = self.catalogue().subscriptions_of(topic);
        let recipients = subscriptions.filter_map(|subscription| {
            let entity = self.bus(subscription);
            let has_default = entity.rule.is_some();
            let selects_all = || rules.is_some_and(|it| it.selects_all(subscription, number));
            let takes_all = has_default || selects_all();
            let has_more = || rules.is_some_and(|it| it.looks() && it.has_rules_of(subscription));
            (takes_all || has_more()).then_some(Recipient {
                subscription,
                takes_all,
                backlog: entity.backlog.count(),
            })
        });
        recipients.collect()
    }

    /// Source: Service Bus, *Message expiration*; *Overview of dead-letter queues* (`Session id is null.`).
    fn copy(
        &mut self,
        topic: Incarnation,
        subscription: Incarnation,
        message: &BusMessage,
        (body, of_all): (BodyLocation, &Arc<Rest>),
        copy: &Copy,
    ) {
        let now = self.now();
        let entity = self.bus(subscription);
        let session = copy.session(message);
        let cause = match copy {
            Copy::Failed(_) => Some(DeadLetterCause::FilterFailed),
            Copy::Plain | Copy::Changed(_) => (entity.requires_session() && session.is_none())
                .then_some(DeadLetterCause::SessionIdIsNull),
        };
        let lives = [self.bus(topic), entity].map(|it| it.options.default_time_to_live_ms);
        let own_ms = copy.time_to_live_ms(message);
        let lives_ms = lives.into_iter().chain(own_ms).min();
        let (to, expires_at) = match cause {
            // A dead letter does not expire.
            Some(_) => (subscription.next(), Timestamp::NEVER),
            None => (subscription, now.plus_ms(lives_ms.unwrap_or(u64::MAX))),
        };
        let expires_at = match expires_at <= LAST {
            true => expires_at,
            false => Timestamp::NEVER,
        };
        let rest = match copy.overlay() {
            None => Arc::clone(of_all),
            Some(overlay) => {
                let mut rest = Rest::clone(of_all);
                rest.session = session.map(Into::into);
                rest.side.overlays.push(self.store_body(overlay));
                Arc::new(rest)
            }
        };
        let backlog = self.bus_backlog(to);
        let record = Record {
            session: session.map_or(0, |id| backlog.sessions.number_for(id)),
            cause,
            ..message::sent(now, expires_at, None, body)
        };
        let to = place(to, backlog.next());
        let message = Arrival {
            record,
            rest: Some(rest),
        };
        self.emit_bus_effect(Effect::Arrived { to, message });
    }
}

/// What all copies of a message have that took this number of its topic.
fn of_all_copies(message: &BusMessage, number: SequenceNumber) -> Rest {
    Rest {
        side: Side {
            first_number: Some(number),
            ..Side::default()
        },
        session: message.session.clone(),
        id_hash: None,
    }
}

/// Refuses more copies than one command may make.
pub(super) fn check_copies(copies: u64) -> Result<(), BusRefusal> {
    let limit = COPIES_MAX as u64;
    match copies > limit {
        true => Err(BusRefusal::TooManyCopies { copies, limit }),
        false => Ok(()),
    }
}
