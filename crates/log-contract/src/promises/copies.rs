//! Copies that differ from what was agreed.

use kew_log::{FollowError, Job, LogEnd, LogPosition, LogSource, LogState};

use super::Make;
use super::link::settle_later;
use crate::broken::{Broken, Checked, hold};
use crate::followed::{Follower, follow};
use crate::owner::{Live, Owner};
use crate::{Difference, Subject};

/// A copy that differs is reported, and gets nothing behind that place.
pub(super) fn a_copy_that_differs_is_reported(make: Make<'_>) -> Checked {
    for how in [Difference::Changed, Difference::Longer] {
        for has_snapshot in [false, true] {
            let mut subject = make();
            let mut owner = Owner::open(&*subject.source())?;
            for _ in 0..4 {
                owner.send(2)?;
                owner.settle()?;
            }
            if has_snapshot {
                owner.snapshot(&Live::default())?;
            }
            let history = owner.history();
            let at = differ(&mut *subject, how)?;
            drop(owner);
            let end = follow_to_the_end(&*subject.source(), at)?;
            // It does not differ less the next time, so it is set aside.
            let mut anew = Follower::after(&*subject.source(), Some(&end));
            anew.catch_up()?;
            hold!(
                anew.content.history() == history,
                "another log is copied anew"
            );
            check_owner(&mut *subject, how)?;
        }
    }
    Ok(())
}

fn differ(subject: &mut dyn Subject, how: Difference) -> Checked<LogPosition> {
    let at = subject.differ(how);
    at.ok_or_else(|| Broken::new("no copy differs"))
}

/// Follows a copy that differs from a place on, and returns how that ends.
fn follow_to_the_end(source: &dyn LogSource, at: LogPosition) -> Checked<LogEnd> {
    let mut follower = Follower::new(source);
    let outcome = follower.catch_up_or_end()?;
    let content = &follower.content;
    let handed_out = content.batches.iter().map(|batch| batch.record);
    let handed_out = handed_out.chain(content.snapshot).max();
    hold!(
        handed_out.is_none_or(|last| last < at),
        "{handed_out:?} is handed out, and its copy differs from {at} on"
    );
    let Err(FollowError::Ended(end)) = outcome else {
        let what = format!("a copy differs from {at} on, and {outcome:?} is reported");
        return Err(Broken::new(what));
    };
    let is_reported = matches!(end, LogEnd::Diverged(from) if from == at);
    hold!(
        is_reported,
        "a copy differs from {at} on, and {end} is reported"
    );
    hold!(
        follower.log.next_job().is_none(),
        "there is a job after an end"
    );
    let again = follower.log.complete(Job::load(|| ()).run());
    hold!(again.is_err(), "an end is reported once");
    Ok(end)
}

/// If the copy of an owner differs, that is reported too, and the owner adds nothing.
fn check_owner(subject: &mut dyn Subject, how: Difference) -> Checked {
    let mut owner = Owner::open(&*subject.source())?;
    owner.send(1)?;
    owner.send(1)?;
    settle_later(subject, &mut owner)?;
    let durable = owner.log.durable();
    let agreed = owner.history();
    let at = differ(subject, how)?;
    owner.send(1)?;
    let outcome = owner.settle();
    let state = owner.log.health().state;
    let is_reported = matches!(state, LogState::Ended(LogEnd::Diverged(from)) if from == at);
    hold!(
        is_reported,
        "the copy of an owner differs from {at} on: {outcome:?}, and it is {state:?}"
    );
    let now = owner.log.durable();
    hold!(
        now == durable,
        "durable moves from {durable} to {now} in a copy that differs"
    );
    let content = follow(&*subject.other())?.content;
    hold!(
        content.history() == agreed,
        "a batch of a copy that differs is followed"
    );
    Ok(())
}
