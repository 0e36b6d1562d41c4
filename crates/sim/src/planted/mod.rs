//! Bugs planted on purpose: the suites must catch each, or they prove nothing.
//!
//! A bug is a function on what passes a [`Seam`]: events and effects, answers and commands, the history behind a
//! snapshot, files of the disk. It drops, doubles or alters them, and keeps what it must know in a closure that
//! begins anew each time it is planted. A bug that no value shows is a line in the code under test.

mod backups;
mod bus;
mod damaged;
mod directories;
mod disk;
mod door;
mod forwards;
mod history;
mod hooks;
mod lists;
mod loaded;
mod lost;
mod members;
mod pages;
mod scheduled;
mod storage;
mod topics;
mod waiting;

use kew_planted::{Bug, Hook};

pub use lists::{
    CONTROLS, OF_ACTIVE_ROT, OF_BACKUP, OF_BACKUP_ROT, OF_BUS, OF_BUS_QUARANTINE,
    OF_DAMAGED_TOPICS, OF_FAILING_CALLS, OF_MEMBERS, OF_MIGRATION, OF_POWER_CUTS, OF_PROOF,
    OF_QUARANTINE, OF_SCRUB, OF_STORAGE, OF_TOPICS,
};

/// A realistic bug.
#[derive(Clone, Copy)]
pub struct Planted {
    /// Its name.
    pub name: &'static str,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Line(Bug),
    Seams(fn() -> Hook),
}

impl Planted {
    const fn line(name: &'static str, bug: Bug) -> Self {
        let place = Place::Line(bug);
        Self { name, place }
    }

    const fn seams(name: &'static str, hook: fn() -> Hook) -> Self {
        let place = Place::Seams(hook);
        Self { name, place }
    }

    /// Runs `work` with this bug on this thread.
    pub fn plant<T>(&self, work: impl FnOnce() -> T) -> T {
        match self.place {
            Place::Line(bug) => kew_planted::with(bug, work),
            Place::Seams(hook) => kew_planted::with_hook(hook(), work),
        }
    }
}
