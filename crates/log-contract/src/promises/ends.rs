//! Ends of ownership, and epochs.

use kew_log::{Epoch, FollowError, Job, LogEnd, LogState, Need, ReserveError};

use super::Make;
use super::link::settle_later;
use crate::broken::{Broken, Checked, hold};
use crate::followed::{Follower, follow};
use crate::owner::Owner;

/// After an end was reported, there is no job, no room and no move of `durable`.
pub(super) fn nothing_follows_an_end(make: Make<'_>) -> Checked {
    let mut subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    owner.send(2)?;
    owner.settle()?;
    subject.end_owner();
    owner.send(1)?;
    let durable = owner.log.durable();
    let ended = owner.settle();
    hold!(ended.is_err(), "no job reports the end to an owner");
    let is_ended = matches!(owner.log.health().state, LogState::Ended(_));
    hold!(is_ended, "a log continues after its end");
    hold!(
        owner.log.next_job().is_none(),
        "there is a job after an end"
    );
    let room = owner.log.reserve(Need::free(0));
    hold!(
        matches!(room, Err(ReserveError::Ended(_))),
        "there is room after an end: {room:?}"
    );
    hold!(
        !owner.log.beat(0) && !owner.log.mark(),
        "something is staged after an end"
    );
    let again = owner.log.complete(Job::load(|| ()).run());
    hold!(again.is_err(), "an end is reported once");
    for job in std::mem::take(&mut owner.held) {
        let again = owner.log.complete(job.run());
        hold!(again.is_err(), "an end is reported once");
    }
    let now = owner.log.durable();
    hold!(
        now == durable,
        "durable moves from {durable} to {now} after an end"
    );
    hold!(
        owner.log.next_job().is_none(),
        "there is a job after an end"
    );
    Ok(())
}

/// A promotion that is not to a higher epoch is fenced, and changes nothing.
pub(super) fn old_epochs_are_fenced(make: Make<'_>) -> Checked {
    let subject = make();
    for _ in 0..2 {
        let mut owner = Owner::open(&*subject.source())?;
        owner.send(1)?;
        owner.settle()?;
    }
    let before = follow(&*subject.source())?;
    let newest = before.log.seen().epoch;
    hold!(
        newest > Epoch::new(1),
        "two owners have begun epoch {newest}"
    );
    for epoch in [newest, Epoch::new(1)] {
        let mut follower = follow(&*subject.source())?;
        let promoted = follower.promote(epoch)?;
        let Err(FollowError::Ended(LogEnd::Fenced(by))) = promoted else {
            let what = format!("a promotion to epoch {epoch} is not fenced by {newest}");
            return Err(Broken::new(what));
        };
        hold!(
            by == newest,
            "epoch {epoch} is fenced by {by}, and not by {newest}"
        );
        hold!(
            follower.log.next_job().is_none(),
            "there is a job after an end"
        );
        let again = follower.log.complete(Job::load(|| ()).run());
        hold!(again.is_err(), "an end is reported once");
    }
    let after = follow(&*subject.source())?;
    hold!(
        after.content == before.content,
        "a promotion that is fenced changes the log"
    );
    hold!(
        after.log.seen() == before.log.seen(),
        "a promotion that is fenced begins an epoch"
    );
    Ok(())
}

/// After a promotion lower epochs are fenced, and no member follows a later batch of theirs.
pub(super) fn former_owners_are_fenced(make: Make<'_>) -> Checked {
    let mut subject = make();
    let mut former = Owner::open(&*subject.source())?;
    former.send(2)?;
    former.settle()?;
    let mut along = Follower::new(&*subject.other());
    along.catch_up()?;
    // The follower reads this one only when it is promoted.
    former.send(1)?;
    former.settle()?;
    former.send(1)?;
    former.take_jobs();
    let epoch = along.log.seen().epoch.next();
    along.promote(epoch)??;
    let mut owner = Owner::of(along);
    former.check_followed(&owner.found, former.log.durable())?;
    let agreed = owner.found.history();
    let ended = former.settle();
    hold!(ended.is_err(), "a former owner continues");
    let health = former.log.health().state;
    let is_fenced = matches!(health, LogState::Ended(LogEnd::Fenced(by)) if by == epoch);
    hold!(is_fenced, "a former owner ends with {health:?}");
    drop(former);
    let content = follow(&*subject.source())?.content;
    hold!(
        content.history() == agreed,
        "a batch of a former owner is followed"
    );
    owner.send(2)?;
    settle_later(&mut *subject, &mut owner)?;
    subject.restart(9);
    let content = follow(&*subject.source())?.content;
    hold!(
        content.history() == owner.history(),
        "a batch of a former owner is followed"
    );
    Ok(())
}
