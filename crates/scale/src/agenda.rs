//! When the agent looks next.
//!
//! Work can come after its announcement, and an instance that was started for an announcement can find nothing to do.
//! The next regular look may be an hour away. So other looks follow soon, each after twice the time of the one before,
//! until that is the regular time: few of them, and each thing that happens is seen within as much time as it came after
//! the announcement.

use std::time::Duration;

use tokio::time::Instant;

use crate::observe::Woken;

/// However much is announced, looks are no more frequent than this. The look after one for an announcement comes then.
const PAUSE_LEAST: Duration = Duration::from_secs(1);

/// Looks come each `every`, at once when something wakes the agent, and more often after that.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// The longest time from one look to the next one.
    every: Duration,
    /// The time from the last look to the next one.
    pause: Duration,
    looked_at: Option<Instant>,
    woken: Option<Woken>,
}

impl Agenda {
    /// The first look is now.
    pub(crate) fn new(every: Duration) -> Self {
        Self {
            every,
            pause: every,
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
            None => looked_at + self.pause,
            // That comes after a connection was made, so it is seldom.
            Some(Woken::Listening) => looked_at,
            Some(Woken::Announced) => looked_at + PAUSE_LEAST,
        }
    }

    /// It looks now. Returns whether that is because work was announced.
    pub(crate) fn look(&mut self) -> bool {
        self.looked_at = Some(Instant::now());
        let woken = self.woken.take();
        self.pause = match woken {
            Some(_) => PAUSE_LEAST,
            None => (self.pause * 2).min(self.every),
        };
        woken == Some(Woken::Announced)
    }
}
