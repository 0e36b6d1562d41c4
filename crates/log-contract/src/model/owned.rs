//! What a member asks while it owns the log: that its batches are agreed, and for a lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kew_log::{BootTime, Epoch, LogEnd};

use super::Member;
use super::copy::place;
use super::engine::{Engine, Found, Place, Refused, in_common, place_before, place_behind};
use super::link::{Purpose, Tries};
use crate::memory::{Agreed, Mistake, Placed, Renewed, Shared};

/// What has become of records.
struct Step {
    /// So many of them are agreed: the first ones.
    agreed: usize,
    then: Then,
}

enum Then {
    Continue,
    /// The log has ended for this owner. The others are not agreed, and will not be.
    Ended(LogEnd),
    /// The lease of another member lasts for so long, in microseconds.
    Hold(u64),
}

impl Member {
    /// Makes batches agreed, a few of them with each request. `None` if the owner is stopped, or its machine fails,
    /// before the end of all of them is known.
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
        while let Some(next) = batches.first()
            && ended.is_none()
        {
            if place(&copy.kept()) != place_before(next) {
                // The copy was changed behind the back of its owner, so what is agreed cannot go into it.
                ended = Some(self.diverged(copy)?);
                break;
            }
            let count = self.world.link.some_of(batches.len());
            let Some(step) = self.append(copy, epoch, &batches, count) else {
                self.gives_up(Some(agreed_end) > first);
                return None;
            };
            if step.agreed > 0 {
                let agreed = batches.drain(..step.agreed).collect();
                agreed_end = copy.kept().put(agreed);
            }
            match step.then {
                Then::Continue => {}
                Then::Ended(end) => ended = Some(end),
                Then::Hold(remaining_us) => {
                    let until = self.now().as_us() + remaining_us;
                    self.lease().held_until = BootTime::from_us(until);
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

    fn gives_up(&self, is_agreed_in_part: bool) {
        let has_failed = self.world.link.has_failed(self.opening);
        let mut net = self.world.link.net();
        let counts = &mut net.counts;
        match has_failed {
            true => {
                counts.cut += 1;
                counts.cut_in_part += usize::from(is_agreed_in_part);
            }
            false => counts.stopped += 1,
        }
    }

    /// Sends the first few of some batches until it is known what has become of them. After each answer that is lost it
    /// reads.
    fn append(
        &self,
        copy: &Shared,
        epoch: Epoch,
        batches: &[Placed],
        count: usize,
    ) -> Option<Step> {
        let step = |agreed, then| Some(Step { agreed, then });
        let mut records = batches[..count].to_vec();
        let mut tries = Tries::default();
        loop {
            let after = place_before(&records[0]);
            match self.try_append(&mut tries, epoch, after, &records) {
                Some(Ok(())) => return step(records.len(), Then::Continue),
                Some(Err(Refused::Leased(us))) => return step(0, Then::Hold(us)),
                // An earlier try may have taken effect, so nothing is known yet.
                Some(Err(Refused::Fenced(_) | Refused::Elsewhere)) => {}
                None if self.is_stopped.load(Ordering::Relaxed) => return None,
                None => {}
            }
            let (found, _) = self.ask(Purpose::Other, move |engine| engine.read(after))?;
            if self.makes(Mistake::LostCountsAsFailed) && found.epoch != epoch {
                return step(0, Then::Ended(LogEnd::Fenced(found.epoch)));
            }
            let may_retry = found.has_place && found.epoch == epoch;
            if self.makes(Mistake::RetriedAtNewerPosition) && may_retry {
                records = moved(found.end(after), &records);
                continue;
            }
            if let Some(agreed) = agreed_of(epoch, &found, batches) {
                return Some(Step {
                    agreed,
                    then: self.then(copy, epoch, &found, agreed)?,
                });
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
        let names_place = !self.makes(Mistake::PlaceLeftOut);
        let append = move |engine: &mut Engine| match names_place || engine.end() == after {
            true => engine.append(opening, epoch, after, &records),
            false => engine.append(opening, epoch, engine.end(), &moved(engine.end(), &records)),
        };
        let link = &self.world.link;
        link.try_append(tries, opening, epoch, &Arc::new(append))
    }

    /// What an owner does next that has read that so many of its batches are agreed. `None` if its machine has failed.
    ///
    /// What is agreed does not say that this member owns the log now, so the end comes with it: an answer that only
    /// reads must not rest on such a commit.
    fn then(&self, copy: &Shared, epoch: Epoch, found: &Found, agreed: usize) -> Option<Then> {
        if found.epoch != epoch {
            return Some(Then::Ended(LogEnd::Fenced(found.epoch)));
        }
        match agreed > 0 {
            true => Some(Then::Continue),
            false => self.diverged(copy).map(Then::Ended),
        }
    }

    /// Renews the lease. It is trusted from the moment on at which the request was sent.
    pub(super) fn renew(&self, epoch: Epoch) -> Result<Renewed, LogEnd> {
        let options = self.world.options;
        let opening = self.opening;
        let renew = move |engine: &mut Engine| engine.renew(opening, epoch, options.lease_ms);
        let Some((granted, sent)) = self.ask(Purpose::Renew(epoch), renew) else {
            // The machine has failed.
            return Ok(Renewed {
                until: None,
                again_at: BootTime::NEVER,
            });
        };
        let from = match self.makes(Mistake::LeaseFromAnswer) {
            true => self.now(),
            false => sent,
        };
        let margin_ms = match self.makes(Mistake::MarginLeftOut) {
            true => 0,
            false => options.margin_ms,
        };
        let trusted_ms = options.lease_ms.saturating_sub(margin_ms);
        let (until, again_at) = match granted {
            Ok(()) => (
                Some(from.plus_ms(trusted_ms)),
                sent.plus_ms(options.lease_ms / 3),
            ),
            Err(Refused::Leased(us)) => (None, BootTime::from_us(self.now().as_us() + us)),
            Err(Refused::Fenced(by)) => return Err(LogEnd::Fenced(by)),
            Err(Refused::Elsewhere) => unreachable!("a lease has no place"),
        };
        Ok(Renewed { until, again_at })
    }
}

/// How many batches are agreed, as a read of their place shows. `None` if they are to be sent again: the log still ends
/// where they go, and no request of another owner was applied.
///
/// An earlier request may have brought fewer of them than the last one, or more: a commit that had to wait is not sent
/// again in the same parts. A request that is under way is refused in a later epoch.
fn agreed_of(epoch: Epoch, found: &Found, batches: &[Placed]) -> Option<usize> {
    let is_open = found.epoch == epoch && found.has_place && found.records.is_empty();
    (!is_open).then(|| in_common(&found.records, batches))
}

/// Records at another place: for a mistake.
fn moved(to: Place, records: &[Placed]) -> Vec<Placed> {
    let mut last = to;
    let moved = records.iter().map(|(_, stored)| {
        let at = last.at;
        let stored = stored.with_events(at, &stored.events(), last.content);
        let moved = (at, stored);
        last = place_behind(std::slice::from_ref(&moved));
        moved
    });
    moved.collect()
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

    /// When a renewal is due, or commits that wait can continue.
    pub(super) fn next_wake(&self, now: BootTime) -> Option<BootTime> {
        let renewal = (!self.is_renewing).then_some(self.renew_at);
        let held = self.holds_commits(now).then_some(self.held_until);
        renewal.into_iter().chain(held).min()
    }
}
