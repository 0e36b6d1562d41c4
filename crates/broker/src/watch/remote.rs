//! What the process of a partition hears about the receivers of this one.
//!
//! That process wakes one of those who wait there: its own receivers, and other processes with some. So a process says
//! when receivers begin to wait here, and is woken once for that. It passes a wake-up on that finds nobody.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use kew_engine::Incarnation;
use kew_engine::bus::Awaited;
use kew_engine::wire::{Interest, Watched};

use crate::broker::lock;

/// Says to the process of a partition what it is to hear.
pub type Tell = Arc<dyn Fn(Watched, Interest) + Send + Sync>;

/// The process of a partition.
pub(super) struct Remote {
    tell: Tell,
    /// Those lists of which it knows that somebody waits, and which it has not woken since.
    asked: Mutex<HashSet<Watched>>,
}

impl Remote {
    pub(super) fn new(tell: Tell) -> Self {
        Self {
            tell,
            asked: Mutex::default(),
        }
    }

    pub(super) fn tell(&self, entity: Incarnation, awaited: &Awaited, interest: Interest) {
        (self.tell)(watched(entity, awaited), interest);
    }

    /// A receiver waits.
    pub(super) fn waits(&self, entity: Incarnation, awaited: &Awaited) {
        if lock(&self.asked).insert(watched(entity, awaited)) {
            self.tell(entity, awaited, Interest::Waits);
        }
    }

    /// A wake-up has come.
    pub(super) fn was_answered(&self, entity: Incarnation, awaited: &Awaited) {
        lock(&self.asked).remove(&watched(entity, awaited));
    }

    /// The last receiver has gone.
    pub(super) fn ends(&self, entity: Incarnation, awaited: &Awaited) {
        self.was_answered(entity, awaited);
        self.tell(entity, awaited, Interest::Ends);
    }
}

fn watched(entity: Incarnation, awaited: &Awaited) -> Watched {
    Watched {
        entity,
        awaited: Some(awaited.clone()),
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}
