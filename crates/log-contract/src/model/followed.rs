//! What a member asks while it follows.

use kew_log::{Epoch, LogEnd};

use super::Member;
use super::copy::{checksums, place};
use super::engine::Engine;
use super::link::Purpose;
use crate::memory::{Mistake, Shared};

impl Member {
    /// Begins an epoch, which fences all others. Returns whether the copy ends where the log ends.
    pub(super) fn begin_epoch(&self, copy: &Shared, epoch: Epoch) -> Result<bool, LogEnd> {
        let opening = self.opening;
        self.world.link.net().asks_to_own(opening);
        let begin = move |engine: &mut Engine| engine.begin(opening, epoch);
        let Some((begun, _)) = self.ask(Purpose::Other, begin) else {
            // The machine has failed, and comes no further.
            return Ok(false);
        };
        let end = begun.map_err(LogEnd::Fenced)?;
        let mut kept = copy.kept();
        kept.epoch = epoch;
        Ok(place(&kept) == end)
    }

    /// Copies what comes next, or a part of it. Returns whether that was all.
    ///
    /// What the copy has is compared before any of it is handed out.
    pub(super) fn copy_next(&self, copy: &Shared) -> Result<bool, LogEnd> {
        let here = place(&copy.kept());
        let Some((found, _)) = self.ask(Purpose::Other, move |engine| engine.read(here)) else {
            return Ok(false);
        };
        if !found.has_place {
            return match self.makes(Mistake::NotCompared) {
                true => Ok(true),
                false => self.diverged(copy).map_or(Ok(false), Err),
            };
        }
        let mut records = found.records;
        let count = records.len();
        records.truncate(self.world.link.some_of(count));
        let is_all = records.len() == count;
        let mut kept = copy.kept();
        kept.epoch = kept.epoch.max(found.epoch);
        kept.put(records);
        Ok(is_all)
    }

    /// From where on the copy differs. `None` if the machine has failed.
    pub(super) fn diverged(&self, copy: &Shared) -> Option<LogEnd> {
        let (copied, end) = {
            let kept = copy.kept();
            (checksums(&kept), place(&kept))
        };
        let first = move |engine: &mut Engine| engine.first_difference(&copied, end);
        let (first, _) = self.ask(Purpose::Other, first)?;
        Some(LogEnd::Diverged(first))
    }
}
