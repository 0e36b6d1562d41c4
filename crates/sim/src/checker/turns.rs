//! F1: sources are served in turn.

use std::collections::BTreeMap;

use kew_broker::{Share, Source};

use super::{Violation, promise, violated};

/// A source with commands that wait. A command that is a source of its own has its number too.
type Waits = (Source, Option<u64>);

/// What was decided while a source waited.
#[derive(Debug, Default)]
struct Passed {
    /// How many of its commands wait.
    waiting: u64,
    /// How many commands of each other source were decided since one of its own was, or came.
    by: BTreeMap<Waits, u64>,
}

/// Follows which sources wait, and which are served.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    share: Share,
    waits: BTreeMap<Waits, Passed>,
    source_of: BTreeMap<u64, Waits>,
}

impl Turns {
    pub(crate) fn with(share: Share) -> Self {
        Self {
            share,
            ..Self::default()
        }
    }

    /// A command waits.
    pub(crate) fn asked(&mut self, operation: u64, source: Source) {
        let waits = (source, (source == Source::ALONE).then_some(operation));
        self.source_of.insert(operation, waits);
        self.waits.entry(waits).or_default().waiting += 1;
    }

    /// A command was decided: no other source has waited for more than a share.
    pub(crate) fn decided(&mut self, operation: u64) -> Result<(), Violation> {
        let Some(served) = self.source_of.remove(&operation) else {
            return Ok(());
        };
        for (other, passed) in self.waits.iter_mut().filter(|(it, _)| **it != served) {
            let count = passed.by.entry(served).or_default();
            *count += 1;
            if *count > self.share.commands {
                return violated!(
                    promise::FAIR_TURNS,
                    "{count} commands of {served:?} were decided while {other:?} waited"
                );
            }
        }
        if let Some(own) = self.waits.get_mut(&served) {
            own.waiting -= 1;
            own.by.clear();
            if own.waiting == 0 {
                self.waits.remove(&served);
            }
        }
        Ok(())
    }

    /// No command waits any more: the process has ended.
    pub(crate) fn forget(&mut self) {
        *self = Self::with(self.share.clone());
    }
}
