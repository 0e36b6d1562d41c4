//! When the agent looks next.

use std::time::Duration;

use tokio::time::Instant;

use crate::observe::Woken;

/// However much is announced, looks are no more frequent than this.
const PAUSE_LEAST: Duration = Duration::from_secs(1);

/// Looks come each `every`, and at once when something wakes the agent.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// The longest time from one look to the next one.
    every: Duration,
    looked_at: Option<Instant>,
    woken: Option<Woken>,
}

impl Agenda {
    /// The first look is now.
    pub(crate) fn new(every: Duration) -> Self {
        Self {
            every,
            looked_at: None,
            woken: None,
        }
    }

    pub(crate) fn wake(&mut self, woken: Woken) {
        self.woken = self.woken.max(Some(woken));
    }

    /// Whether work was announced since the last look.
    pub(crate) fn is_announced(&self) -> bool {
        self.woken == Some(Woken::Announced)
    }

    pub(crate) fn next(&self) -> Instant {
        let Some(looked_at) = self.looked_at else {
            return Instant::now();
        };
        match self.woken {
            None => looked_at + self.every,
            // That comes after a connection was made, so it is seldom.
            Some(Woken::Listening) => looked_at,
            Some(Woken::Announced) => looked_at + PAUSE_LEAST,
        }
    }

    /// It looks now. Returns whether that is because work was announced.
    pub(crate) fn look(&mut self) -> bool {
        self.looked_at = Some(Instant::now());
        self.woken.take() == Some(Woken::Announced)
    }
}
