//! Purges: they must delete exactly the right messages, and count them.

use kew_engine::bus::{Purge, Purged};
use kew_engine::{SequenceNumber, Timestamp};

use super::life::{Entity, Fate, Life, Span, Stage};
use super::receive::COUNT_ON_FULL_DISK;
use super::{COUNTS, Checker, NO_LOSS};
use crate::checker::{Violation, violated};

/// Which messages a purge looked at.
struct Extent<'a> {
    entity: Entity,
    purge: &'a Purge,
    /// The first number that it did not reach.
    end: u64,
    /// It got to everything.
    is_whole: bool,
    at: Timestamp,
}

impl Extent<'_> {
    /// Whether it may have looked at a message.
    fn may_have(&self, life: &Life) -> bool {
        let is_early = |before: Timestamp| before > Timestamp::ZERO;
        life.entity == self.entity
            && self.purge.before.is_none_or(is_early)
            && life.number.is_none_or(|number| self.spans(number))
    }

    /// Whether it must have.
    fn must_have(&self, life: &Life) -> bool {
        // If it was to end at a time, its end is unknown. But every existing message came before
        // now.
        self.may_have(life)
            && self.purge.before.is_none_or(|before| before > self.at)
            && (self.is_whole || life.number.is_some())
    }

    fn spans(&self, number: u64) -> bool {
        self.purge.from.as_u64() <= number && number < self.end
    }

    fn takes(&self, life: &Life) -> bool {
        self.purge.with_locked || life.lock().is_none()
    }
}

impl Checker {
    pub(super) fn purged(
        &mut self,
        entity: Entity,
        purge: &Purge,
        purged: &Purged,
        at: Timestamp,
    ) -> Result<(), Violation> {
        self.check_extent(entity, purge, purged)?;
        let extent = Extent {
            entity,
            purge,
            end: purged.next.unwrap_or(purged.until).as_u64(),
            is_whole: purge.from.as_u64() <= 1 && purge.until.is_none() && purged.next.is_none(),
            at,
        };
        let mut gone = self.bounds(|life| u64::from(extent.may_have(life) && extent.takes(life)));
        gone.least = self
            .bounds(|life| u64::from(extent.must_have(life) && extent.takes(life)))
            .least;
        let mut locked =
            self.bounds(|life| u64::from(extent.may_have(life) && !extent.takes(life)));
        locked.least = self
            .bounds(|life| u64::from(extent.must_have(life) && !extent.takes(life)))
            .least;
        let fits = gone.has(purged.count.into()) && locked.has(purged.locked_count.into());
        if !fits || purged.count > purge.count {
            return violated!(
                COUNTS,
                "{purge:?} of {entity:?} had {gone:?}, and {locked:?} locked: {purged:?}"
            );
        }
        let is_all = extent.is_whole && purge.with_locked && purge.before.is_none();
        if is_all && !purge.is_dry_run {
            self.lost_are_purged(entity);
        }
        if purged.count == 0 {
            let what = ("purged", entity, purge);
            return self.not_shown(COUNTS, &what, &Default::default(), |life| {
                extent.must_have(life) && extent.takes(life)
            });
        }
        if purge.is_dry_run {
            self.note("what a purge would take was counted");
            return Ok(());
        }
        self.note("a queue was purged");
        self.take_purged(&extent);
        Ok(())
    }

    /// A purge reports its end, and does not end early.
    fn check_extent(
        &mut self,
        entity: Entity,
        purge: &Purge,
        purged: &Purged,
    ) -> Result<(), Violation> {
        let numbers = &self.queues.get(entity.queue).numbers;
        let of_part = numbers.range((entity.part, 0)..=(entity.part, u64::MAX));
        let last = of_part.last().map_or(0, |((_, number), _)| *number);
        let until = purged.until.as_u64();
        let is_right_end = match purge.until {
            Some(asked) => asked == purged.until,
            None => until > last,
        };
        let goes_on = purged.next.is_none_or(|next| {
            let is_full = purged.count >= purge.count.min(COUNT_ON_FULL_DISK);
            purge.from <= next && next < purged.until && is_full
        });
        if !is_right_end || !goes_on {
            return violated!(NO_LOSS, "{entity:?} has {last}: {purge:?}: {purged:?}");
        }
        Ok(())
    }

    fn take_purged(&mut self, extent: &Extent<'_>) {
        let mut over = Vec::new();
        let mut taken = [false; 3];
        let is_taken = |life: &&Life| extent.may_have(life) && extent.takes(life);
        for (number, message) in &mut self.messages {
            for life in message.lives().filter(is_taken) {
                match life.stage {
                    Stage::Scheduled { .. } => taken[0] = true,
                    Stage::Deferred => taken[1] = true,
                    Stage::Locked(_) => taken[2] = true,
                    Stage::Ready | Stage::Waiting { .. } => {}
                }
            }
            message.follow(|fate| match fate.life().filter(is_taken) {
                Some(life) if extent.must_have(life) => vec![Fate::Gone],
                Some(_) => vec![fate.clone(), Fate::Gone],
                None => vec![fate.clone()],
            });
            if message.is_over() {
                over.push(*number);
            }
        }
        over.into_iter().for_each(|number| self.end(number));
        let kinds = [
            "a scheduled message was purged",
            "a deferred message was purged",
            "a locked message was purged",
        ];
        for (what, _) in kinds.into_iter().zip(taken).filter(|(_, was)| *was) {
            self.note(what);
        }
    }

    pub(super) fn perhaps_purged(&mut self, entity: Entity, purge: &Purge, when: Span) {
        let extent = Extent {
            entity,
            purge,
            end: purge.until.map_or(u64::MAX, SequenceNumber::as_u64),
            is_whole: false,
            at: when.to,
        };
        self.perhaps_gone(entity, |life| extent.may_have(life) && extent.takes(life));
    }
}
