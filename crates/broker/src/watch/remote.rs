//! What the process of a partition hears about the receivers of this one.
//!
//! That process wakes one of those who wait there: its own receivers, and other processes with some. So a process says
//! when receivers begin to wait here, and is woken once for that. It passes a wake-up on that finds nobody.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use kew_engine::Incarnation;
use kew_engine::bus::Awaited;
use kew_engine::wire::{Interest, Watched};

use crate::broker::lock;

/// Says to the process of a partition what it is to hear: what is watched, what is new, and the number of the last wake-up
/// that has come for it.
pub type Tell = Arc<dyn Fn(Watched, Interest, u64) + Send + Sync>;

/// The process of a partition.
pub(super) struct Remote {
    tell: Tell,
    lists: Mutex<HashMap<Watched, Known>>,
}

/// What that process knows about a list of receivers.
#[derive(Debug, Default)]
struct Known {
    /// That somebody waits. It has not woken anybody since.
    is_asked: bool,
    /// The number of its last wake-up that has come.
    last: u64,
}

impl Remote {
    pub(super) fn new(tell: Tell) -> Self {
        Self {
            tell,
            lists: Mutex::default(),
        }
    }

    fn tell(&self, watched: Watched, interest: Interest, known: &Known) {
        (self.tell)(watched, interest, known.last);
    }

    /// The first receiver begins.
    pub(super) fn begins(&self, entity: Incarnation, awaited: &Awaited) {
        let watched = watched(entity, awaited);
        let known = Known::default();
        self.tell(watched.clone(), Interest::Begins, &known);
        lock(&self.lists).insert(watched, known);
    }

    /// A receiver waits.
    pub(super) fn waits(&self, entity: Incarnation, awaited: &Awaited) {
        let watched = watched(entity, awaited);
        if let Some(known) = lock(&self.lists).get_mut(&watched)
            && !known.is_asked
        {
            known.is_asked = true;
            self.tell(watched, Interest::Waits, known);
        }
    }

    /// A wake-up has come.
    pub(super) fn was_woken(&self, entity: Incarnation, awaited: &Awaited, number: u64) {
        if let Some(known) = lock(&self.lists).get_mut(&watched(entity, awaited)) {
            *known = Known {
                is_asked: false,
                last: number,
            };
        }
    }

    /// A wake-up is for another process.
    pub(super) fn passes_on(&self, entity: Incarnation, awaited: &Awaited) {
        self.tell(
            watched(entity, awaited),
            Interest::PassesOn,
            &Known::default(),
        );
    }

    /// The last receiver has gone.
    pub(super) fn ends(&self, entity: Incarnation, awaited: &Awaited) {
        let watched = watched(entity, awaited);
        if let Some(known) = lock(&self.lists).remove(&watched) {
            self.tell(watched, Interest::Ends, &known);
        }
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
            .field("lists", &self.lists)
            .finish_non_exhaustive()
    }
}
