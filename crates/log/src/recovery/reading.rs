//! The half of a recovery that reads: the newest snapshot that is whole, then the records behind it.

use std::mem;
use std::ops::ControlFlow;

use super::OpenError;
use super::snapshots::{FoundSnapshots, Loading};
use crate::LogPosition;
use crate::piece::Room;
use crate::replay::Replay;
use crate::storage::Storage;
use crate::survey::Survey;
use crate::walk::{End, Walker};

/// A log, as far as it was read.
pub(super) struct Reading {
    stage: Stage,
    /// The number of damaged snapshots, if the log is read from its beginning because none is whole. If it is not whole
    /// either, what is left of a snapshot may be enough.
    instead_of: usize,
    /// What is wrong with the log from its beginning, if that was to take the place of the only snapshot.
    refused: Option<OpenError>,
}

enum Stage {
    Snapshot(Box<Loading>),
    Records(FoundSnapshots, Box<Walker>),
    Whole(FoundSnapshots, End),
    /// Nothing can be read after an error.
    Failed,
}

/// Replays everything, from the newest snapshot that is whole.
pub(crate) fn replay_log(
    storage: &dyn Storage,
    survey: &Survey,
    replay: &mut dyn Replay,
) -> Result<(FoundSnapshots, End), OpenError> {
    let mut reading = Reading::of(survey);
    reading.read_all(storage, survey, replay)?;
    Ok(reading.into_found())
}

impl Reading {
    pub(super) fn of(survey: &Survey) -> Self {
        Self {
            stage: Stage::Snapshot(Box::new(Loading::of(survey))),
            instead_of: 0,
            refused: None,
        }
    }

    /// Passes on what there is room for, or the rest.
    pub(super) fn step(
        &mut self,
        storage: &dyn Storage,
        survey: &Survey,
        replay: &mut dyn Replay,
        room: &mut Room,
    ) -> Result<(), OpenError> {
        let Err(error) = self.try_step(storage, survey, replay, room) else {
            return Ok(());
        };
        match (mem::take(&mut self.instead_of), error.is_damage()) {
            (count @ 1.., true) => {
                self.refused = (count == 1).then_some(error);
                let loading = Loading::of(survey).with_losses();
                self.stage = Stage::Snapshot(Box::new(loading));
                self.step(storage, survey, replay, room)
            }
            // No snapshot is enough either.
            (_, true) => Err(self.refused.take().unwrap_or(error)),
            (_, false) => Err(error),
        }
    }

    fn try_step(
        &mut self,
        storage: &dyn Storage,
        survey: &Survey,
        replay: &mut dyn Replay,
        room: &mut Room,
    ) -> Result<(), OpenError> {
        self.stage = match mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Snapshot(loading) => match loading.step(storage, survey, replay, room)? {
                ControlFlow::Continue(loading) => Stage::Snapshot(Box::new(loading)),
                ControlFlow::Break((found, start)) => {
                    // A snapshot is used, or this is the first look at the log.
                    self.refused = None;
                    self.instead_of = match found.used {
                        Some(_) => 0,
                        None => found.damaged.len(),
                    };
                    match Walker::begin(survey, start)? {
                        ControlFlow::Continue(walker) => walk(found, walker, replay, room)?,
                        ControlFlow::Break(end) => Stage::Whole(found, end),
                    }
                }
            },
            Stage::Records(found, walker) => walk(found, *walker, replay, room)?,
            stage @ Stage::Whole(..) => stage,
            Stage::Failed => panic!("the log is read on after an error"),
        };
        Ok(())
    }

    /// Passes everything on.
    pub(super) fn read_all(
        &mut self,
        storage: &dyn Storage,
        survey: &Survey,
        replay: &mut dyn Replay,
    ) -> Result<(), OpenError> {
        self.step(storage, survey, replay, &mut Room::unlimited())
    }

    pub(super) fn is_whole(&self) -> bool {
        matches!(self.stage, Stage::Whole(..))
    }

    /// What [`Walker::passed`] says, or would say at the end.
    pub(super) fn passed(&self) -> (LogPosition, LogPosition, u64) {
        match &self.stage {
            Stage::Records(_, walker) => walker.passed(),
            Stage::Whole(_, end) => (end.durable, end.position, end.time_ms),
            Stage::Snapshot(_) | Stage::Failed => Default::default(),
        }
    }

    /// What was found. Everything must have been read.
    pub(super) fn into_found(self) -> (FoundSnapshots, End) {
        match self.stage {
            Stage::Whole(found, end) => (found, end),
            Stage::Snapshot(_) | Stage::Records(..) | Stage::Failed => {
                panic!("not all of the log was read")
            }
        }
    }
}

fn walk(
    found: FoundSnapshots,
    walker: Walker,
    replay: &mut dyn Replay,
    room: &mut Room,
) -> Result<Stage, OpenError> {
    Ok(match walker.step(replay, room)? {
        ControlFlow::Continue(walker) => Stage::Records(found, Box::new(walker)),
        ControlFlow::Break(end) => Stage::Whole(found, end),
    })
}

#[cfg(test)]
#[path = "reading_tests.rs"]
mod tests;
