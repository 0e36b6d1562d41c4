//! Messages that wait in a topic and whose bytes are damaged.
//!
//! If a rule may look at such a message, it cannot be decided which subscriptions get a copy. It moves to the failed
//! transfers of its topic, and no copy of it is made. The checker follows copies in subscriptions, and not failed
//! transfers: a client that receives one of those tells it of the message ([`Checker::bury`]).

use kew_engine::Timestamp;

use super::life::{Fate, Life, Part, Stage};
use super::message::Message;
use super::{Checker, NO_LOSS, number_of};
use crate::bus::topics;
use crate::checker::{Violation, violated};

impl Checker {
    /// A message with this body was shown among the failed transfers of a topic, because its bytes are damaged. Returns
    /// whether that is news.
    pub(crate) fn bury(
        &mut self,
        topic: usize,
        body: &[u8],
        now: Timestamp,
    ) -> Result<bool, Violation> {
        let number = number_of(body);
        if self.buried.contains(&number) {
            return Ok(false);
        }
        self.pass_time(now);
        let copies = topics::subscriptions_of(topic).map(|it| topics::number_in(it, number));
        let copies: Vec<u64> = copies.collect();
        let waits = |life: &Life| {
            let is_time = match life.stage {
                Stage::Waiting { .. } => true,
                Stage::Scheduled { due } => due.has_passed(now),
                Stage::Ready | Stage::Locked(_) | Stage::Deferred => false,
            };
            life.entity.part == Part::Topic && is_time && *life.content.body == *body
        };
        // Nothing is known any more of a message that no rule selects.
        let was_sent =
            |copy: &u64| self.over.contains(copy) || self.place_in(topic, number).is_some();
        let may_wait = |copy: &u64| match self.messages.get(copy) {
            Some(known) => known.may(waits),
            None => was_sent(copy),
        };
        if !copies.iter().any(may_wait) {
            let known: Vec<Option<&Message>> =
                copies.iter().map(|it| self.messages.get(it)).collect();
            return violated!(
                NO_LOSS,
                "message {number}, {known:?}, waits no more in its topic"
            );
        }
        self.buried.insert(number);
        for copy in copies {
            let Some(message) = self.messages.get_mut(&copy) else {
                continue;
            };
            message.follow(|fate| match fate.life() {
                Some(life) if life.entity.part == Part::Topic => vec![Fate::Gone],
                Some(_) | None => vec![fate.clone()],
            });
            if message.is_over() {
                self.end(copy);
            }
        }
        Ok(true)
    }
}
