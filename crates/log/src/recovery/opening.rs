//! An opening, from the first look at the directory to the segment that is appended to.

use super::reading::Reading;
use super::{OpenError, Recovered, adopt};
use crate::piece::Room;
use crate::replay::Replay;
use crate::segment::Salts;
use crate::storage::{self, Storage};
use crate::survey::Survey;
use crate::{Epoch, LogId, LogOptions, LogPosition, Seen, snapshot};

/// A log that is being opened, as far as it was read. It has the directory as it was at the beginning: nothing writes
/// there meanwhile, and neither does this before it adopts the log.
pub(crate) struct Opening {
    survey: Survey,
    log: LogId,
    salts: Salts,
    /// Where a log begins that is new.
    first: LogPosition,
    reading: Reading,
}

impl Opening {
    /// Looks at the directory.
    pub(crate) fn begin(
        storage: &dyn Storage,
        salts: Salts,
        first: LogPosition,
    ) -> Result<Self, OpenError> {
        // The previous process may have been killed between a rename and the sync after it. The rest of recovery
        // relies on every name it sees.
        storage::sync_dir(storage)?;
        let mut survey = Survey::of(storage)?;
        if !survey.damage.is_empty() {
            return Err(survey.damage.swap_remove(0));
        }
        // A log that is new gets a number of its own.
        let known = match survey.log() {
            Some(log) => Some(log),
            None => log_of_snapshots(storage, &survey)?,
        };
        let log = known.unwrap_or_else(|| salts.new_log());
        let reading = Reading::of(&survey);
        Ok(Self {
            survey,
            log,
            salts,
            first,
            reading,
        })
    }

    /// Passes on what there is room for, or the rest. Returns whether it was the rest.
    pub(crate) fn read(
        &mut self,
        storage: &dyn Storage,
        replay: &mut dyn Replay,
        room: &mut Room,
    ) -> Result<bool, OpenError> {
        self.reading.step(storage, &self.survey, replay, room)?;
        Ok(self.reading.is_whole())
    }

    /// What was passed on.
    pub(crate) fn seen(&self) -> Seen {
        let (durable, end, time_ms) = self.reading.passed();
        Seen {
            epoch: self.survey.epoch_max(),
            time_ms,
            durable,
            end,
        }
    }

    /// Passes everything on, and begins the next epoch.
    pub(crate) fn finish(
        mut self,
        storage: &dyn Storage,
        options: &LogOptions,
        replay: &mut dyn Replay,
    ) -> Result<Recovered, OpenError> {
        self.reading.read_all(storage, &self.survey, replay)?;
        let epoch = self.survey.epoch_max().next();
        self.adopt(storage, options, epoch)
    }

    /// Makes the segment that an epoch appends to. Everything must have been read. The epoch must be above all others.
    pub(crate) fn adopt(
        self,
        storage: &dyn Storage,
        options: &LogOptions,
        epoch: Epoch,
    ) -> Result<Recovered, OpenError> {
        assert!(
            epoch > self.survey.epoch_max(),
            "the epoch has begun before"
        );
        let (found, mut end) = self.reading.into_found();
        if self.survey.is_new() {
            (end.position, end.durable) = (self.first, self.first);
        }
        let identity = (self.log, self.salts, epoch);
        adopt(storage, options, identity, self.survey, (found, end))
    }
}

/// The log of the newest snapshot whose header can be read.
fn log_of_snapshots(storage: &dyn Storage, survey: &Survey) -> Result<Option<LogId>, OpenError> {
    for position in survey.snapshots.iter().rev() {
        match snapshot::header_of(storage, *position) {
            Ok(Some(header)) => return Ok(Some(header.log)),
            Ok(None) => {}
            Err(failure) if failure.is_bad_sector() => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(None)
}
