//! What is checked at the end of a world.

use std::collections::BTreeMap;

use kew_log::LogPosition;

use super::{Fate, World};
use crate::broken::{Broken, Checked, hold};
use crate::followed::{Content, FollowedBatch, Follower};
use crate::model::ModelSource;

impl World {
    /// All that is under way arrives. Then all members follow the same, and it is what is known.
    pub(super) fn finish(&mut self) -> Checked {
        for index in 0..self.members.len() {
            self.note(index, false)?;
            self.leave(index, true);
            if self.members[index].differs_from.is_some() {
                self.follow(index, false)?;
            }
        }
        self.model.let_all_arrive();
        // A member that was never there: it has no snapshot, so all batches come one by one.
        let whole = followed(&self.model.member(99))?;
        for member in &self.members {
            check_same(&followed(&member.source)?, &whole)?;
        }
        self.check_batches(&whole)?;
        self.check_epochs(&whole)?;
        self.trace_content(&whole);
        self.count_link();
        Ok(())
    }

    /// Each batch is followed as often as it must be, and where, with its epoch and time.
    fn check_batches(&mut self, whole: &Content) -> Checked {
        let mut found: BTreeMap<&[u8], Vec<&FollowedBatch>> = BTreeMap::new();
        let mut times: BTreeMap<LogPosition, u64> = BTreeMap::new();
        let mut time_ms = 0;
        for batch in &whole.batches {
            times.insert(batch.record, time_ms);
            hold!(time_ms <= batch.time_ms, "time goes back to {batch:?}");
            time_ms = batch.time_ms;
            if let Some(event) = batch.events.first() {
                found.entry(event).or_default().push(batch);
            }
        }
        for (event, known) in &self.batches {
            let batches = found.remove(event.as_slice()).unwrap_or_default();
            let records: Vec<_> = batches.iter().map(|batch| batch.record).collect();
            let (fate, sent_ms) = (known.fate, known.time_ms);
            let is_right = match fate {
                Fate::Acknowledged(at) => records == [at],
                Fate::Refused => records.is_empty(),
                Fate::Unknown(at) => records.is_empty() || records == [at],
            };
            let event = String::from_utf8_lossy(event);
            hold!(
                is_right,
                "the batch of {event} is {fate:?}, and followed at {records:?}"
            );
            if matches!(fate, Fate::Unknown(_)) {
                self.happened.unknown_and_followed += batches.len();
            }
            for batch in batches {
                let expected = (known.epoch, sent_ms.max(times[&batch.record]));
                let is_same = (batch.epoch, batch.time_ms) == expected;
                hold!(is_same, "{batch:?} was sent with {expected:?}");
            }
        }
        hold!(found.is_empty(), "no owner has sent {found:?}");
        Ok(())
    }

    /// Behind the place where an epoch began there is nothing of a lower one.
    fn check_epochs(&self, whole: &Content) -> Checked {
        for batch in &whole.batches {
            let (at, of) = (batch.record, batch.epoch);
            let mut later = self.began.range(of.next()..);
            let void = later.find(|(_, began)| **began <= at);
            hold!(
                void.is_none(),
                "a batch of {of} at {at} is followed behind {void:?}"
            );
        }
        Ok(())
    }

    fn trace_content(&mut self, whole: &Content) {
        for batch in &whole.batches {
            self.trace.add(batch.record.as_u64());
            self.trace.add(batch.epoch.as_u64());
            self.trace.add(batch.time_ms);
            for event in &batch.events {
                self.trace.add_bytes(event);
            }
        }
        self.happened.trace = self.trace.0;
    }

    fn count_link(&mut self) {
        let counts = self.model.counts();
        self.happened.late_commits = counts.late_commits;
        self.happened.late_renewals = counts.late_renewals;
        self.happened.stopped = counts.stopped;
        self.happened.cut = counts.cut;
        self.happened.cut_in_part = counts.cut_in_part;
    }
}

/// A member follows all events, and behind its snapshot the same batches.
fn check_same(content: &Content, whole: &Content) -> Checked {
    let behind = whole.batches.iter();
    let behind = behind.filter(|batch| content.snapshot <= Some(batch.record));
    hold!(
        content.history() == whole.history(),
        "members follow different logs"
    );
    hold!(
        content.batches.iter().eq(behind),
        "members follow the same events in different batches"
    );
    Ok(())
}

/// All of a log.
fn followed(source: &ModelSource) -> Checked<Content> {
    let mut follower = Follower::new(source);
    match follower.catch_up_or_end()? {
        Ok(()) => Ok(follower.content),
        Err(end) => Err(Broken::new(format!("a copy ends: {end}"))),
    }
}
