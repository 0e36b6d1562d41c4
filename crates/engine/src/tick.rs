//! What is due turns into events.

use crate::{Fact, Turn};

/// What a tick did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticked {
    /// Whether the budget ran out before everything that is due was done.
    pub more_is_due: bool,
}

impl Turn<'_> {
    /// Turns at most `budget` of what is due into events.
    ///
    /// Decisions do not wait for it: a deadline at or before `now` has passed whether or not a tick
    /// ran. A tick frees what nobody will ask for again.
    pub fn tick(&mut self, budget: u32) -> Ticked {
        for _ in 0..budget {
            let Some((queue, run)) = self.run_to_expire() else {
                return Ticked { more_is_due: false };
            };
            self.emit(Fact::RunExpired { queue, run });
        }
        Ticked {
            more_is_due: self.run_to_expire().is_some(),
        }
    }

    fn run_to_expire(&self) -> Option<(crate::Incarnation, u64)> {
        let (_, queue) = *self.state().deadlines.first()?;
        let entity = self.state().entities.get(&queue)?;
        Some((queue, entity.backlog.run_to_expire(self.now())?))
    }
}
