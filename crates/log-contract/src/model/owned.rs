//! What a member asks while it owns the log: that its batches are agreed, and for a lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kew_log::{BootTime, Epoch, LogEnd};

use super::Member;
use super::copy::place;
use super::engine::{Engine, Found, Place, Refused, in_common, place_behind};
use super::link::Tries;
use crate::memory::{Agreed, Mistake, Placed, Renewed, Shared};

/// What has become of records.
struct Step {
    /// So many of them are agreed: the first ones.
    agreed: usize,
    then: Then,
}

enum Then {
    GoOn,
    /// The log has ended for this owner. No more of them will ever be agreed.
    Ended(LogEnd),
    /// The lease of another member lasts until then.
    Hold(BootTime),
}

impl Member {
    /// Makes batches agreed, a few of them with each request. `None` if the owner stopped before that was known.
    pub(super) fn append_all(
        &self,
        copy: &Shared,
        epoch: Epoch,
        mut batches: Vec<Placed>,
    ) -> Option<Agreed> {
        // What the copy has is no proof: it may differ from what is agreed.
        let first = batches.first().map(|(record, _)| *record);
        let mut agreed_end = first.unwrap_or_default();
        let mut ended = None;
        while !batches.is_empty() && ended.is_none() {
            let count = self.world.link.some_of(batches.len());
            let step = self.append(copy, epoch, &batches, count)?;
            if step.agreed > 0 {
                let agreed = batches.drain(..step.agreed).collect();
                agreed_end = copy.kept().put(agreed);
            }
            match step.then {
                Then::GoOn => {}
                Then::Ended(end) => ended = Some(end),
                Then::Hold(until) => {
                    self.lease().held_until = until;
                    break;
                }
            }
        }
        Some(Agreed {
            end: agreed_end,
            left: batches,
            ended,
        })
    }

    /// Asks for the first few of some batches until it is known what has become of them. After each answer that is lost it
    /// reads.
    fn append(
        &self,
        copy: &Shared,
        epoch: Epoch,
        batches: &[Placed],
        count: usize,
    ) -> Option<Step> {
        let step = |agreed, then| Some(Step { agreed, then });
        let mut after = place(&copy.kept());
        let mut records = batches[..count].to_vec();
        let mut tries = Tries::default();
        loop {
            match self.try_append(&mut tries, epoch, after, &records) {
                Some(Ok(())) => return step(records.len(), Then::GoOn),
                Some(Err(Refused::Leased(until))) => return step(0, Then::Hold(until)),
                // An earlier try may have taken effect, so nothing is known yet.
                Some(Err(Refused::Fenced(_) | Refused::Elsewhere)) => {}
                None if self.is_stopped.load(Ordering::Relaxed) => return None,
                None => {}
            }
            let (found, _) = self.world.link.ask(move |engine| engine.read(after));
            if self.makes(Mistake::LostCountsAsFailed) && found.epoch != epoch {
                return step(0, Then::Ended(LogEnd::Fenced(found.epoch)));
            }
            let may_retry = found.has_place && found.epoch == epoch;
            if self.makes(Mistake::RetriedAtNewerPosition) && may_retry {
                (after, records) = moved(after, &found, &records);
                continue;
            }
            let settled = self.settle(copy, epoch, &found, batches);
            if settled.is_some() {
                return settled;
            }
        }
    }

    fn try_append(
        &self,
        tries: &mut Tries,
        epoch: Epoch,
        after: Place,
        records: &[Placed],
    ) -> Option<Result<(), Refused>> {
        let (opening, records) = (self.opening, records.to_vec());
        let append = move |engine: &mut Engine| engine.append(opening, epoch, after, &records);
        self.world.link.try_append(tries, &Arc::new(append))
    }

    /// What has become of batches, as a read of their place shows. `None` if they are to be asked for again: the log still
    /// ends where they go.
    ///
    /// An earlier request may have brought fewer of them than the last one asked for, or more: a commit that had to wait is
    /// not asked for again in the same parts.
    fn settle(
        &self,
        copy: &Shared,
        epoch: Epoch,
        found: &Found,
        batches: &[Placed],
    ) -> Option<Step> {
        let agreed = in_common(&found.records, batches);
        // A request that is still under way is refused from now on. What is agreed does not say that this member owns the
        // log now, so the end comes with it: what only reads must not rest on such a commit.
        let end = match found.epoch == epoch {
            false => Some(LogEnd::Fenced(found.epoch)),
            true if agreed > 0 => None,
            true if found.has_place && found.records.is_empty() => return None,
            true => Some(self.diverged(copy)),
        };
        let then = end.map_or(Then::GoOn, Then::Ended);
        Some(Step { agreed, then })
    }

    /// Renews the lease. It is trusted from the moment on at which it was asked for.
    pub(super) fn renew(&self, epoch: Epoch) -> Result<Renewed, LogEnd> {
        let options = self.world.options;
        let opening = self.opening;
        let ask = move |engine: &mut Engine| engine.renew(opening, epoch, options.lease_ms);
        let (granted, sent) = self.world.link.ask(ask);
        let from = match self.makes(Mistake::LeaseFromAnswer) {
            true => self.now(),
            false => sent,
        };
        let trusted_ms = options.lease_ms.saturating_sub(options.margin_ms);
        let (until, again_at) = match granted {
            Ok(()) => (
                Some(from.plus_ms(trusted_ms)),
                sent.plus_ms(options.lease_ms / 3),
            ),
            Err(Refused::Leased(until)) => (None, until),
            Err(Refused::Fenced(by)) => return Err(LogEnd::Fenced(by)),
            Err(Refused::Elsewhere) => unreachable!("a lease has no place"),
        };
        Ok(Renewed { until, again_at })
    }
}

/// Records behind all that was found: for a mistake.
fn moved(after: Place, found: &Found, records: &[Placed]) -> (Place, Vec<Placed>) {
    let end = match found.records.is_empty() {
        true => after,
        false => place_behind(&found.records),
    };
    let mut last = end;
    let moved = records.iter().map(|(_, stored)| {
        let at = last.at;
        let stored = stored.with_events(at, &stored.events(), last.content);
        last = Place {
            at: stored.sealed.end,
            content: stored.sealed.content,
        };
        (at, stored)
    });
    (end, moved.collect())
}

/// An owner's lease, and what waits for that of another one.
#[derive(Debug, Default)]
pub(super) struct Lease {
    until: BootTime,
    renew_at: BootTime,
    is_renewing: bool,
    /// Commits wait until then.
    held_until: BootTime,
}

impl Lease {
    pub(super) fn until(&self) -> BootTime {
        self.until
    }

    pub(super) fn holds_commits(&self, now: BootTime) -> bool {
        !self.held_until.has_passed(now)
    }

    /// Whether a renewal is due, which begins then.
    pub(super) fn begin_renewal(&mut self, now: BootTime) -> bool {
        let is_due = !self.is_renewing && self.renew_at.has_passed(now);
        self.is_renewing |= is_due;
        is_due
    }

    pub(super) fn renewed(&mut self, renewed: Renewed) {
        self.is_renewing = false;
        self.renew_at = renewed.again_at;
        self.until = self.until.max(renewed.until.unwrap_or_default());
    }

    /// When a renewal is due, or commits need not wait any more.
    pub(super) fn next_wake(&self, now: BootTime) -> Option<BootTime> {
        let renewal = (!self.is_renewing).then_some(self.renew_at);
        let held = self.holds_commits(now).then_some(self.held_until);
        renewal.into_iter().chain(held).min()
    }
}
