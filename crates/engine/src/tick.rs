//! Turns due things into events.

use crate::backlog::expiry::ENDED_COUNT_MAX;
use crate::bus::decide::DueStep;
use crate::{Fact, Incarnation, Turn};

/// The result of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticked {
    /// Whether the budget ran out before everything that is due was done.
    pub more_is_due: bool,
}

/// A due thing.
enum Due {
    /// Messages of a run of a storage queue expire.
    Run(Incarnation, u64),
    /// A bus queue has something due.
    Bus(Incarnation),
}

impl Turn<'_> {
    /// Turns due things into events. The budget is their number, but a message that moves with many bytes
    /// besides its body counts twice: it must be at least 2.
    ///
    /// Decisions do not wait for a tick: a deadline at or before `now` has passed in any case. A tick frees
    /// memory that no command needs any more.
    pub fn tick(&mut self, budget: u32) -> Ticked {
        let ticked = self.do_all_due(budget);
        self.record_effects();
        ticked
    }

    fn do_all_due(&mut self, budget: u32) -> Ticked {
        let mut left = budget;
        while left > 0 {
            let cost = match self.due() {
                Some(Due::Run(queue, run)) => {
                    self.expire_run(queue, run);
                    1
                }
                Some(Due::Bus(queue)) => match self.do_next_due(queue, left) {
                    DueStep::Done(cost) => cost,
                    DueStep::Nothing => 1,
                    DueStep::TooLarge => break,
                },
                None => return Ticked { more_is_due: false },
            };
            left = left.saturating_sub(cost);
        }
        Ticked {
            more_is_due: self.due().is_some(),
        }
    }

    /// Removes messages of a run that have expired, as many as one event takes, and corrects the run's hint.
    fn expire_run(&mut self, queue: Incarnation, run: u64) {
        let backlog = self.state().entities.get(&queue).map(|it| &it.backlog);
        let expired = backlog.and_then(|backlog| backlog.expired(queue, run, self.now()));
        let mut is_more_left = false;
        if let Some((effects, count)) = expired {
            is_more_left = effects.len() == ENDED_COUNT_MAX;
            self.emit(Fact::Messages { effects });
            self.count_expired(count);
        }
        if !is_more_left {
            self.raise_expiry(queue, run);
        }
    }

    fn due(&self) -> Option<Due> {
        let (at, queue) = *self.state().deadlines.first()?;
        if let Some(entity) = self.state().entities.get(&queue) {
            return Some(Due::Run(queue, entity.backlog.run_to_expire(self.now())?));
        }
        at.has_passed(self.now()).then_some(Due::Bus(queue))
    }
}
