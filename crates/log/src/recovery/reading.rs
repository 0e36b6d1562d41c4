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
        self.stage = match mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Snapshot(loading) => match loading.step(storage, survey, replay, room)? {
                ControlFlow::Continue(loading) => Stage::Snapshot(Box::new(loading)),
                ControlFlow::Break((found, start)) => match Walker::begin(survey, start)? {
                    ControlFlow::Continue(walker) => walk(found, walker, replay, room)?,
                    ControlFlow::Break(end) => Stage::Whole(found, end),
                },
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
