//! The possible states of one message: all that the history leaves open.

use std::sync::Arc;

use bytes::Bytes;
use kew_engine::bus::{BusMessageState, BusQueueOptions, DeadLetterCause};
use kew_engine::{Timestamp, Token};

use super::number_of;
use crate::bus::topics;

/// After this many hops a message becomes a dead letter.
///
/// Source: Service Bus, *Moving messages to the dead-letter queue*.
const HOPS_MAX: u8 = 4;

/// One of the three entities of a queue, or where its messages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Queue,
    DeadLetters,
    FailedTransfers,
    /// The topic of a subscription, where a message waits that is to be copied into that.
    Topic,
}

/// A queue, by its number, or one of its sub-queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entity {
    pub(crate) queue: usize,
    pub(crate) part: Part,
}

/// A moment that is known only within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Span {
    pub(crate) fn new(from: Timestamp, to: Timestamp) -> Self {
        Self { from, to }
    }

    pub(crate) fn at(at: Timestamp) -> Self {
        Self::new(at, at)
    }

    pub(crate) fn plus_ms(self, ms: u64) -> Self {
        Self::new(self.from.plus_ms(ms), self.to.plus_ms(ms))
    }

    pub(crate) fn has(self, at: Timestamp) -> bool {
        self.from <= at && at <= self.to
    }

    /// Whether it may have passed by then.
    pub(crate) fn may_have_passed(self, now: Timestamp) -> bool {
        self.from.has_passed(now)
    }

    /// Whether it must have passed by then.
    pub(crate) fn has_passed(self, now: Timestamp) -> bool {
        self.to.has_passed(now)
    }

    pub(crate) fn hull(self, other: Self) -> Self {
        Self::new(self.from.min(other.from), self.to.max(other.to))
    }
}

/// The state of a message that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Ready,
    Locked(Lock),
    Scheduled {
        due: Timestamp,
    },
    Deferred,
    /// Only in [`Part::Topic`]: a copy of it is made at any time since then.
    Waiting {
        since: Timestamp,
    },
}

/// The lock of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// `None` if the answer with the token was lost.
    pub(crate) token: Option<Token>,
    /// [`Timestamp::NEVER`] if the lock of its session decides.
    pub(crate) until: Span,
    pub(crate) was_deferred: bool,
}

impl Lock {
    pub(crate) fn is_of_session(&self) -> bool {
        self.until.from == Timestamp::NEVER
    }
}

/// A sender's content. Resubmitting a message may change its bytes and its session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) body: Bytes,
    pub(crate) session: Option<Box<str>>,
}

/// A message that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) entity: Entity,
    /// Its number, if a client learned it.
    pub(crate) number: Option<u64>,
    /// Its number where it was sent first, likewise.
    pub(crate) first_number: Option<u64>,
    pub(crate) stage: Stage,
    /// Deliveries that failed.
    pub(crate) failures: u32,
    pub(crate) cause: Option<DeadLetterCause>,
    pub(crate) hops: u8,
    /// Whether it came through the gathering topic.
    pub(crate) was_gathered: bool,
    pub(crate) expires: Span,
    /// The changes to its properties, by number.
    pub(crate) overlays: Vec<u64>,
    pub(crate) content: Arc<Content>,
}

/// A possible fate of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It never arrived in the queue.
    NeverSent,
    /// It is a copy of a message that has not come to the gathering topic, and perhaps never will.
    NotGathered,
    /// It was in the queue, and does not exist any more.
    Gone,
    /// The same of a message that came through the gathering topic.
    GoneGathered,
    /// It was deleted with this queue.
    GoneWith(usize),
    Here(Life),
}

impl Fate {
    pub(crate) fn life(&self) -> Option<&Life> {
        match self {
            Self::Here(life) => Some(life),
            _ => None,
        }
    }

    /// Whether it can never be seen again.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Gone | Self::GoneGathered | Self::NeverSent)
    }

    /// Whether it came through the gathering topic, if that is known.
    pub(crate) fn was_gathered(&self) -> Option<bool> {
        match self {
            Self::NeverSent | Self::NotGathered | Self::Gone => Some(false),
            Self::GoneGathered => Some(true),
            Self::GoneWith(_) => None,
            Self::Here(life) => Some(life.was_gathered),
        }
    }

    /// What became of a message, given what it was.
    pub(super) fn after(self, before: Option<&Life>) -> Self {
        match self {
            Self::Gone if before.is_some_and(|it| it.was_gathered) => Self::GoneGathered,
            fate => fate,
        }
    }

    pub(crate) fn is_of(&self, queue: usize) -> bool {
        self.life().is_some_and(|life| life.ends_with(queue))
    }
}

impl Life {
    pub(super) fn differs_in_moments_alone(&self, other: &Self) -> bool {
        let stages = match (self.stage, other.stage) {
            (Stage::Locked(one), Stage::Locked(other)) => {
                (one.token, one.was_deferred, one.is_of_session())
                    == (other.token, other.was_deferred, other.is_of_session())
            }
            (Stage::Waiting { .. }, Stage::Waiting { .. }) => true,
            (one, other) => one == other,
        };
        stages
            && (self.entity, self.number, self.first_number, self.failures)
                == (
                    other.entity,
                    other.number,
                    other.first_number,
                    other.failures,
                )
            && (self.cause, self.hops, self.was_gathered)
                == (other.cause, other.hops, other.was_gathered)
            && self.overlays == other.overlays
            && self.content == other.content
    }

    /// Merges the moments of another possibility; returns whether that changed something.
    pub(super) fn widen(&mut self, other: &Self) -> bool {
        let before = (self.expires, self.stage);
        self.expires = self.expires.hull(other.expires);
        if let (Stage::Locked(one), Stage::Locked(other)) = (&mut self.stage, other.stage) {
            one.until = one.until.hull(other.until);
        }
        if let (Stage::Waiting { since }, Stage::Waiting { since: other }) =
            (&mut self.stage, other.stage)
        {
            *since = other.min(*since);
        }
        before != (self.expires, self.stage)
    }

    pub(crate) fn session(&self) -> Option<&str> {
        self.content.session.as_deref()
    }

    /// Whether it waits in a topic for its time.
    pub(crate) fn is_scheduled_in(&self, topic: usize) -> bool {
        self.entity.part == Part::Topic
            && matches!(self.stage, Stage::Scheduled { .. })
            && topics::topic_of(self.entity.queue) == Some(topic)
    }

    /// Whether it ends if this queue does. What is scheduled in a topic is for the subscriptions of its time.
    pub(crate) fn ends_with(&self, queue: usize) -> bool {
        match topics::topic_of(self.entity.queue) {
            Some(topic) if self.is_scheduled_in(topic) => topic == queue,
            Some(_) | None => self.entity.queue == queue,
        }
    }

    /// Whether it belongs to this session, if one is given.
    pub(crate) fn is_of(&self, session: Option<&str>) -> bool {
        session.is_none() || self.session() == session
    }

    /// Whether it may have this number.
    pub(crate) fn may_have_number(&self, entity: Entity, number: u64) -> bool {
        self.entity == entity && self.number.is_none_or(|own| own == number)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// The lock, if a receiver has one.
    pub(crate) fn lock(&self) -> Option<Lock> {
        match self.stage {
            Stage::Locked(lock) => Some(lock),
            _ => None,
        }
    }

    pub(crate) fn is_locked_by(&self, token: Token) -> bool {
        self.lock().is_some_and(|lock| lock.token == Some(token))
    }

    /// Whether an answer shows it in this state.
    pub(crate) fn is_shown_as(&self, state: BusMessageState) -> bool {
        match (self.stage, state) {
            (Stage::Ready, BusMessageState::Ready)
            | (Stage::Scheduled { .. }, BusMessageState::Scheduled)
            | (Stage::Deferred, BusMessageState::Deferred) => true,
            (Stage::Locked(lock), BusMessageState::Locked { deferred }) => {
                lock.was_deferred == deferred
            }
            _ => false,
        }
    }

    /// It returns to where it was before a receiver took it.
    pub(crate) fn back(&self) -> Self {
        let was_deferred = self.lock().is_some_and(|lock| lock.was_deferred);
        let stage = if was_deferred {
            Stage::Deferred
        } else {
            Stage::Ready
        };
        Self {
            stage,
            ..self.clone()
        }
    }

    /// A delivery has failed.
    pub(crate) fn failed(&self, options: &BusQueueOptions) -> Self {
        let is_last = self.failures.saturating_add(1) >= options.max_delivery_count;
        let mut life = if is_last && self.entity.part == Part::Queue {
            self.buried(DeadLetterCause::MaxDeliveryCountExceeded)
        } else {
            self.back()
        };
        life.failures += 1;
        life
    }

    /// It becomes a dead letter, or a failed transfer if it was a dead letter before.
    pub(crate) fn buried(&self, cause: DeadLetterCause) -> Self {
        let part = match self.entity.part {
            Part::Queue => Part::DeadLetters,
            Part::DeadLetters | Part::FailedTransfers | Part::Topic => Part::FailedTransfers,
        };
        Self {
            entity: Entity {
                part,
                ..self.entity
            },
            number: None,
            stage: Stage::Ready,
            cause: Some(cause),
            expires: Span::at(Timestamp::NEVER),
            ..self.clone()
        }
    }

    fn forwarded(&self, queue: usize) -> Self {
        Self {
            entity: Entity {
                queue,
                part: Part::Queue,
            },
            number: None,
            stage: Stage::Ready,
            failures: 0,
            hops: self.hops + 1,
            ..self.clone()
        }
    }

    /// It came to a topic since the moment before, or comes now, after so many hops, and waits there for its copy in this subscription, if there
    /// is to be one.
    pub(super) fn gathered(
        &self,
        subscription: usize,
        hops: u8,
        now: Timestamp,
        around: &impl Surroundings,
    ) -> Vec<Fate> {
        let since = around.since();
        let mut fates = Vec::new();
        let topic = topics::topic_of(subscription).expect("it is a subscription");
        for options in around.options(topic) {
            let lives_ms = options.default_time_to_live_ms;
            let expires = Span::new(
                self.expires.from.min(since.plus_ms(lives_ms)),
                self.expires.to.min(now.plus_ms(lives_ms)),
            );
            let number = number_of(&self.content.body);
            for changes in around.copies(subscription, number) {
                fates.push(match changes {
                    None => Fate::GoneGathered,
                    Some(changes) => Fate::Here(Self {
                        entity: Entity {
                            queue: subscription,
                            part: Part::Topic,
                        },
                        stage: Stage::Waiting { since },
                        was_gathered: true,
                        expires,
                        overlays: [&self.overlays[..], &changes].concat(),
                        hops,
                        ..self.forwarded(subscription)
                    }),
                });
            }
        }
        fates
    }

    /// Whether it may go to the gathering topic now.
    pub(super) fn may_be_gathered(&self, around: &impl Surroundings) -> bool {
        let goes = |options: &BusQueueOptions| {
            let name = destination(options, self.entity.part);
            name.is_some_and(|name| around.destination(name) == topics::GATHERING)
        };
        self.is_ready()
            && self.hops < HOPS_MAX
            && around.options(self.entity.queue).any(goes)
            && around.options(topics::GATHERING).next().is_some()
    }

    /// Its copy comes into the subscription now, or came since then.
    fn copied(&self, since: Timestamp, now: Timestamp, options: &BusQueueOptions) -> Self {
        let lives_ms = options.default_time_to_live_ms;
        let in_topic = self.expires;
        let life = Self {
            entity: Entity {
                part: Part::Queue,
                ..self.entity
            },
            stage: Stage::Ready,
            expires: Span::new(
                in_topic.from.min(since.plus_ms(lives_ms)),
                in_topic.to.min(now.plus_ms(lives_ms)),
            ),
            ..self.clone()
        };
        match self.session() {
            None if options.requires_session => life.buried(DeadLetterCause::SessionIdIsNull),
            _ => life,
        }
    }

    /// Its schedule fell due between then and now.
    fn activated(&self, due: Timestamp, now: Timestamp) -> Self {
        let expires = if self.expires.from == Timestamp::NEVER {
            self.expires
        } else {
            let lives_ms = |end: Timestamp| end.as_ms().saturating_sub(due.as_ms());
            Span::new(
                due.plus_ms(lives_ms(self.expires.from)),
                now.plus_ms(lives_ms(self.expires.to)),
            )
        };
        Self {
            number: None,
            first_number: None,
            stage: Stage::Ready,
            expires,
            ..self.clone()
        }
    }

    /// Its schedule in its topic fell due between then and now: it waits for its copy in this subscription, if there is to
    /// be one.
    fn selected(&self, due: Timestamp, now: Timestamp, around: &impl Surroundings) -> Vec<Fate> {
        let number = number_of(&self.content.body);
        let copies = around.copies(self.entity.queue, number).into_iter();
        let fates = copies.map(|changes| match changes {
            None => Fate::Gone,
            Some(overlays) => Fate::Here(Self {
                stage: Stage::Waiting { since: due },
                overlays,
                ..self.activated(due, now)
            }),
        });
        fates.collect()
    }

    pub(crate) fn expired(&self, options: &BusQueueOptions) -> Fate {
        if options.dead_letters_expired && self.entity.part == Part::Queue {
            Fate::Here(self.buried(DeadLetterCause::Expired))
        } else {
            Fate::Gone
        }
    }
}

/// The possible surroundings of a message.
pub(crate) trait Surroundings {
    /// The possible settings of a queue.
    fn options(&self, queue: usize) -> impl Iterator<Item = &BusQueueOptions>;
    /// A moment since which nothing is known: whatever may happen now may have happened since then.
    fn since(&self) -> Timestamp;
    /// Whether a session's lock may have ended.
    fn may_be_free(&self, queue: usize, session: &str, now: Timestamp) -> bool;
    /// The queue of that name.
    fn destination(&self, name: &str) -> usize;
    /// Whether a queue may refuse a forwarded message.
    fn may_not_take(&self, queue: usize) -> bool;
    /// The possible changes in the copy of a message that a subscription gets now. `None` if it may get none.
    fn copies(&self, subscription: usize, number: u64) -> Vec<Option<Vec<u64>>>;
}

impl Life {
    /// The states that it may have reached by itself until now, in one step.
    pub(super) fn successors(&self, now: Timestamp, around: &impl Surroundings) -> Vec<Fate> {
        let queue = self.entity.queue;
        let mut next = Vec::new();
        match self.stage {
            Stage::Locked(lock) => {
                let may_end = if lock.is_of_session() {
                    around.may_be_free(queue, self.session().unwrap_or_default(), now)
                } else {
                    lock.until.may_have_passed(now)
                };
                if may_end {
                    next.extend(around.options(queue).map(|it| Fate::Here(self.failed(it))));
                }
            }
            Stage::Scheduled { due } if due.has_passed(now) => match self.entity.part {
                Part::Topic => next.extend(self.selected(due, now, around)),
                Part::Queue | Part::DeadLetters | Part::FailedTransfers => {
                    next.push(Fate::Here(self.activated(due, now)));
                }
            },
            Stage::Ready => {
                for options in around.options(queue) {
                    if self.expires.may_have_passed(now) {
                        next.push(self.expired(options));
                    }
                    if let Some(name) = destination(options, self.entity.part) {
                        self.forward(around.destination(name), now, around, &mut next);
                    }
                }
            }
            Stage::Waiting { since } => {
                let copies = around.options(queue);
                let copies = copies.map(|options| Fate::Here(self.copied(since, now, options)));
                next.extend(copies);
            }
            Stage::Scheduled { .. } | Stage::Deferred => {}
        }
        next
    }

    fn forward(&self, to: usize, now: Timestamp, around: &impl Surroundings, next: &mut Vec<Fate>) {
        if self.hops >= HOPS_MAX {
            let cause = DeadLetterCause::MaxTransferHopCountExceeded;
            next.push(Fate::Here(self.buried(cause)));
            return;
        }
        if around.may_not_take(to) {
            let cause = DeadLetterCause::DestinationUnavailable;
            next.push(Fate::Here(self.buried(cause)));
        }
        if let Some(first) = topics::subscriptions_of(to).next() {
            next.extend(self.gathered(first, self.hops + 1, now, around));
            return;
        }
        for options in around.options(to) {
            if options.requires_session && self.session().is_none() {
                next.push(Fate::Here(self.buried(DeadLetterCause::SessionIdIsNull)));
            } else {
                next.push(Fate::Here(self.forwarded(to)));
            }
        }
    }
}

/// Where the messages of an entity are forwarded to.
pub(crate) fn destination(options: &BusQueueOptions, part: Part) -> Option<&str> {
    match part {
        Part::Queue => options.forward_to.as_deref(),
        Part::DeadLetters => options.forward_dead_letters_to.as_deref(),
        Part::FailedTransfers | Part::Topic => None,
    }
}
