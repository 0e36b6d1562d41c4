//! Messages that are sent, and scheduled ones that are cancelled.

use std::collections::BTreeSet;
use std::sync::Arc;

use kew_engine::bus::{BusMessage, BusOutcome, BusQueueOptions};
use kew_engine::{EntityName, SequenceNumber, Timestamp};

use super::life::{Content, Entity, Fate, Life, Part, Span, Stage};
use super::message::Message;
use super::queues::size_of_all;
use super::{
    ANSWERS_FIT, Answered, Checker, DUPLICATES, NO_LOSS, NUMBERS, Owner, QUEUES, entity, number_of,
};
use crate::bus::topics::{self, Kind};
use crate::checker::{Violation, violated};

impl Checker {
    pub(super) fn sent(
        &mut self,
        answered: &Answered<'_>,
        name: &EntityName,
        messages: &[BusMessage],
    ) -> Result<(), Violation> {
        let BusOutcome::Sent(numbers) = answered.outcome else {
            return violated!(ANSWERS_FIT, "{:?}", answered.outcome);
        };
        let entity = entity(name);
        if topics::kind(entity.queue) == Kind::Topic {
            return self.published(entity, messages, numbers, answered.at);
        }
        self.takes_messages(entity)?;
        let bodies = messages.iter().map(|message| &message.body);
        self.check_room_was_there(entity.queue, (size_of_all(bodies), 0))?;
        for (message, number) in messages.iter().zip(numbers) {
            let queue = self.queues.get(entity.queue);
            let wants_session = queue.options().all(|it| it.requires_session);
            if wants_session && message.session.is_none() {
                return violated!(QUEUES, "{number:?} has no session");
            }
            self.one_sent(entity, message, *number, answered.at)?;
        }
        Ok(())
    }

    /// The queue accepted messages, so nothing prevents that.
    pub(super) fn takes_messages(&mut self, entity: Entity) -> Result<(), Violation> {
        let queue = self.queues.get(entity.queue);
        let takes = |possible: &Option<BusQueueOptions>| {
            let options = possible.as_ref();
            options.is_some_and(|options| options.status.allows_send())
        };
        queue.possible.retain(takes);
        if queue.possible.is_empty() || entity.part != Part::Queue {
            return violated!(QUEUES, "{entity:?} takes no messages, and took some");
        }
        Ok(())
    }

    fn one_sent(
        &mut self,
        entity: Entity,
        message: &BusMessage,
        number: Option<SequenceNumber>,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let body = number_of(&message.body);
        self.last_message = self.last_message.max(body);
        self.check_duplicate(entity, message.message_id.as_deref(), number.is_none(), at)?;
        let Some(number) = number else {
            self.over.insert(body);
            self.note("a duplicate was dropped");
            return Ok(());
        };
        let number = number.as_u64();
        let is_scheduled = message.scheduled_at.is_some_and(|due| !due.has_passed(at));
        let owner = Owner {
            message: body,
            is_scheduled,
        };
        self.is_given(entity, number, owner)?;
        let mut sent = self.attempt(entity, message, Span::at(at));
        sent.follow(|fate| {
            let numbered = fate.life().map(|life| Life {
                number: Some(number),
                first_number: (!is_scheduled).then_some(number),
                ..life.clone()
            });
            numbered.into_iter().map(Fate::Here).collect()
        });
        self.messages.insert(body, sent);
        Ok(())
    }

    /// A message that was accepted gets the next number.
    pub(super) fn is_given(
        &mut self,
        entity: Entity,
        number: u64,
        owner: Owner,
    ) -> Result<(), Violation> {
        let queue = self.queues.get(entity.queue);
        if number <= queue.last_number {
            return violated!(
                NUMBERS,
                "{number} of {entity:?} comes after {}",
                queue.last_number
            );
        }
        queue.last_number = number;
        self.learn_number(entity, number, owner)
    }

    pub(super) fn check_duplicate(
        &mut self,
        entity: Entity,
        id: Option<&str>,
        is_dropped: bool,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let queue = self.queues.get(entity.queue);
        let window_ms = queue.options().find_map(|it| it.duplicate_window_ms);
        let (Some(id), Some(window_ms)) = (id, window_ms) else {
            if is_dropped {
                return violated!(DUPLICATES, "{id:?} is none in {entity:?}, and was dropped");
            }
            return Ok(());
        };
        let times = queue.ids.entry(id.into()).or_insert_with(|| vec![None]);
        let before = times.clone();
        times.retain(|time| match time {
            None => !is_dropped,
            Some(time) if is_dropped => !time.plus_ms(window_ms).has_passed(at),
            Some(time) => time.plus_ms(window_ms).may_have_passed(at),
        });
        if times.is_empty() {
            return violated!(
                DUPLICATES,
                "id {id} at {at}, dropped: {is_dropped}; it was accepted at {before:?}"
            );
        }
        let was_known = times.iter().all(Option::is_some);
        if !is_dropped {
            *times = vec![Some(Span::at(at))];
            if before.iter().any(Option::is_some) {
                queue.again.insert(id.into());
            }
            if was_known {
                self.note("an id was accepted again after its window");
            }
        }
        Ok(())
    }

    /// The state of a message if it was sent then: one fate for each of the possible settings of
    /// its queue.
    pub(super) fn attempt(&mut self, entity: Entity, message: &BusMessage, sent: Span) -> Message {
        let content = Arc::new(Content {
            body: message.body.clone(),
            session: message.session.clone(),
        });
        let mut attempted = Message::default();
        if let Some(id) = &message.session {
            self.queues.get(entity.queue).session(id);
        }
        for options in self.queues.of(entity) {
            let lives_ms = message
                .time_to_live_ms
                .unwrap_or(u64::MAX)
                .min(options.default_time_to_live_ms);
            // Scheduled or not, if that is not known.
            let scheduled = message
                .scheduled_at
                .filter(|due| !due.has_passed(sent.from));
            let at_once = message
                .scheduled_at
                .is_none_or(|due| due.has_passed(sent.to));
            let mut life = Life {
                entity,
                number: None,
                first_number: None,
                stage: Stage::Ready,
                failures: 0,
                cause: None,
                hops: 0,
                was_gathered: false,
                expires: sent.plus_ms(lives_ms),
                overlays: Vec::new(),
                content: content.clone(),
            };
            if at_once {
                attempted.may_be(Fate::Here(life.clone()));
            }
            if let Some(due) = scheduled {
                life.stage = Stage::Scheduled { due };
                life.expires = Span::at(due).plus_ms(lives_ms);
                attempted.may_be(Fate::Here(life));
            }
        }
        attempted
    }

    pub(super) fn cancelled(
        &mut self,
        answered: &Answered<'_>,
        name: &EntityName,
        numbers: &[SequenceNumber],
    ) -> Result<(), Violation> {
        if *answered.outcome != BusOutcome::Cancelled {
            return violated!(ANSWERS_FIT, "{:?}", answered.outcome);
        }
        let entity = entity(name);
        for number in numbers.iter().collect::<BTreeSet<_>>() {
            self.one_cancelled(entity, number.as_u64())?;
        }
        Ok(())
    }

    pub(super) fn one_cancelled(&mut self, entity: Entity, number: u64) -> Result<(), Violation> {
        if topics::kind(entity.queue) == Kind::Topic {
            return self.cancelled_in_topic(entity, number);
        }
        // If the queue may have been replaced, the owner of the number may be unknown.
        let gone = |life: &Life| is_scheduled_as(life, entity, number).then(|| vec![Fate::Gone]);
        self.narrow_numbered(entity, number, &("cancelled", number), gone)?;
        self.note("a scheduled message was cancelled");
        Ok(())
    }

    /// The message with a number, if a client learned it.
    pub(super) fn owner_of(&mut self, entity: Entity, number: u64) -> Option<u64> {
        let numbers = &self.queues.get(entity.queue).numbers;
        let known = numbers.get(&(entity.part, number));
        known.map(|owner| owner.message)
    }

    /// A scheduled message was not found: it is not scheduled.
    pub(super) fn not_scheduled(&mut self, entity: Entity, number: u64) -> Result<(), Violation> {
        if topics::kind(entity.queue) == Kind::Topic {
            return self.not_scheduled_in_topic(entity, number);
        }
        self.not_shown(
            NO_LOSS,
            &("no scheduled message", number),
            &BTreeSet::new(),
            |life| {
                life.entity == entity
                    && life.number == Some(number)
                    && matches!(life.stage, Stage::Scheduled { .. })
            },
        )
    }
}

/// Whether it may be scheduled with that number.
pub(super) fn is_scheduled_as(life: &Life, entity: Entity, number: u64) -> bool {
    life.may_have_number(entity, number) && matches!(life.stage, Stage::Scheduled { .. })
}
