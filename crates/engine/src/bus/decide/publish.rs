//! Messages that are sent to a topic: which copies of each there will be, and the copies.
//!
//! All copies of a message have one body. The topic keeps nothing of it. Where rules look at messages, all messages of a
//! command are compared before the first copy is made ([`select`](super::select)): so all are sent, or none.

use bytes::Bytes;

use super::super::room::COPY_STEPS;
use super::super::rules::Topic;
use super::super::{BusMessage, BusRefusal, COPIES_MAX, DeadLetterCause, Made, message};
use super::Turn;
use super::effects::place;
use crate::effect::{Arrival, Effect, Rest};
use crate::vocabulary::{BodyLocation, Incarnation, SequenceNumber, Timestamp};

/// The end of the year 9999: the latest time that SDKs can read. What ends later does not end.
const LAST: Timestamp = Timestamp::from_ms(253_402_300_799_999);

/// A subscription that may get a copy of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipient {
    pub(super) subscription: Incarnation,
    /// Whether it gets a plain copy of each message.
    pub(super) takes_all: bool,
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

impl Turn<'_> {
    /// Sends all messages to a topic, or none. `size_bytes` is the size of the topic before.
    ///
    /// They have no numbers in the topic.
    pub(super) fn publish(
        &mut self,
        topic: Incarnation,
        messages: &[BusMessage],
        size_bytes: u64,
    ) -> Result<Vec<Option<SequenceNumber>>, BusRefusal> {
        let recipients = self.recipients(topic);
        let count = recipients.len() as u64;
        let looks = self.rules_of(topic).is_some_and(Topic::looks);
        if !looks {
            check_copies(messages.len() as u64 * count)?;
        }
        self.check_sendable(topic, messages, size_bytes, Some(count))?;
        let made = match looks {
            false => {
                for message in messages.iter().filter(|_| count > 0) {
                    let body = self.store_body(&message.body);
                    for recipient in &recipients {
                        self.copy(topic, recipient.subscription, message, body, &Copy::Plain);
                    }
                }
                messages.len() as u64 * count
            }
            true => {
                let (selected, steps) = self.select(topic, &recipients, messages);
                self.0.note_steps(steps);
                let selected = selected?;
                selected.check_room(self.bus(topic), size_bytes)?;
                let mut made = 0;
                for (message, copies) in messages.iter().zip(&selected.copies) {
                    made += copies.len() as u64;
                    let body = match copies.is_empty() {
                        true => continue,
                        false => self.store_body(&message.body),
                    };
                    for (subscription, copy) in copies {
                        self.copy(topic, *subscription, message, body, copy);
                    }
                }
                made
            }
        };
        self.0.note_steps(made * COPY_STEPS);
        Ok(vec![None; messages.len()])
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
            let has_default = self.bus(subscription).rule.is_some();
            let selects_all = || rules.is_some_and(|it| it.selects_all(subscription, number));
            let takes_all = has_default || selects_all();
            let has_more = || rules.is_some_and(|it| it.looks() && it.has_rules_of(subscription));
            (takes_all || has_more()).then_some(Recipient {
                subscription,
                takes_all,
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
        body: BodyLocation,
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
        let mut rest = Rest {
            session: session.map(|id| self.session_named(to, id)),
            ..Rest::default()
        };
        if let Some(overlay) = copy.overlay() {
            rest.side.overlays.push(self.store_body(overlay));
        }
        let mut record = message::sent(now, expires_at, None, body);
        record.cause = cause;
        let to = place(to, self.bus_backlog(to).next());
        self.emit_bus_effect(Effect::Arrived {
            to,
            message: Arrival::new(record, rest),
        });
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
