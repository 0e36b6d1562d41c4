//! F1: entities are served in turn, and the sources of each entity.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kew_broker::{Share, Source, Target};

use super::{Violation, promise, violated};

/// A source with commands that wait. A command that is a source of its own has its number too.
type Waits = (Source, Option<u64>);

/// What was decided while a source waited.
#[derive(Debug, Default)]
struct Passed {
    /// The entities of its commands that wait. It waits for the first one.
    waiting: VecDeque<Target>,
    /// How many commands of each other source of this entity were decided since one of its own was, or came.
    by_sources: BTreeMap<Waits, u64>,
    /// How many commands of each other entity were decided since this entity was served, or the command came.
    by_entities: BTreeMap<Target, u64>,
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
    pub(crate) fn asked(&mut self, operation: u64, source: Source, target: Target) {
        let waits = (source, (source == Source::ALONE).then_some(operation));
        self.source_of.insert(operation, waits);
        let passed = self.waits.entry(waits).or_default();
        passed.waiting.push_back(target);
    }

    /// A command was decided: no other source has waited for more than a share of an entity, or of a source. Those in lines
    /// that were held in this turn wait for copies of a topic.
    pub(crate) fn decided(
        &mut self,
        operation: u64,
        held: &BTreeSet<Target>,
    ) -> Result<(), Violation> {
        let Some(served) = self.source_of.remove(&operation) else {
            return Ok(());
        };
        let Some(target) = self.decided_of(served) else {
            return Ok(());
        };
        for (other, passed) in self.waits.iter_mut().filter(|(it, _)| **it != served) {
            if passed.waiting.front().is_some_and(|it| held.contains(it)) {
                passed.by_entities.clear();
                passed.by_sources.clear();
                continue;
            }
            let waits_here = passed.waiting.front() == Some(&target);
            let count = if waits_here {
                passed.by_entities.clear();
                passed.by_sources.entry(served).or_default()
            } else {
                passed.by_entities.entry(target).or_default()
            };
            *count += 1;
            if *count > self.share.commands {
                let of = if waits_here { "the same" } else { "another" };
                return violated!(
                    promise::FAIR_TURNS,
                    "{count} commands were decided while {other:?} waited, the last one of {served:?} for {of} entity"
                );
            }
        }
        Ok(())
    }

    /// Takes away the first command of a source.
    fn decided_of(&mut self, served: Waits) -> Option<Target> {
        let own = self.waits.get_mut(&served)?;
        let target = own.waiting.pop_front();
        own.by_sources.clear();
        own.by_entities.clear();
        if own.waiting.is_empty() {
            self.waits.remove(&served);
        }
        target
    }
}
