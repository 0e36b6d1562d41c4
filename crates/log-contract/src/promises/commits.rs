//! What becomes durable, and when.

use kew_log::{BatchBuilder, LogPosition, LogState, Need};

use super::Make;
use crate::Subject;
use crate::broken::{Broken, Checked, hold};
use crate::followed::follow;
use crate::owner::{Live, Owner};

/// How many batches a story has.
const BATCHES: usize = 8;

/// Sends batches and writes a snapshot, and runs no more than so many jobs.
fn story(owner: &mut Owner, mut jobs: usize) -> Checked {
    for nth in 0..BATCHES {
        owner.send(3)?;
        if nth == BATCHES / 2 {
            owner.begin_snapshot(&Live::default())?;
        }
        // Some batches go together.
        if nth % 3 != 0 {
            while jobs > 0 && owner.step()? {
                jobs -= 1;
            }
        }
    }
    Ok(())
}

/// Whatever job was the last, each batch is followed whole or not at all.
pub(super) fn batches_are_whole(make: Make<'_>) -> Checked {
    for jobs in 0..2 * BATCHES {
        for seed in 0..4 {
            let mut subject = make();
            let mut owner = Owner::open(&*subject.source())?;
            story(&mut owner, jobs)?;
            check_after_restart(&mut *subject, &owner, seed)?;
        }
    }
    // The same if the machine fails within a job: then the log ends for its owner.
    for steps in 0..150 {
        let mut subject = make();
        let mut owner = Owner::open(&*subject.source())?;
        subject.cut_after(steps);
        let outcome = story(&mut owner, usize::MAX);
        let is_ended = matches!(owner.log.health().state, LogState::Ended(_));
        hold!(
            outcome.is_ok() || is_ended,
            "an owner that has not ended cannot continue: {outcome:?}"
        );
        check_after_restart(&mut *subject, &owner, steps)?;
    }
    Ok(())
}

fn check_after_restart(subject: &mut dyn Subject, owner: &Owner, seed: u64) -> Checked {
    let durable = owner.log.durable();
    subject.restart(seed);
    let mut next = Owner::open(&*subject.source())?;
    owner.check_followed(&next.found, durable)?;
    // What was followed once stays.
    next.send(2)?;
    next.settle()?;
    subject.restart(seed + 1);
    let content = follow(&*subject.source())?.content;
    next.check_followed(&content, next.log.durable())
}

/// What `durable` has passed is followed, at the same positions.
pub(super) fn durable_is_followed(make: Make<'_>) -> Checked {
    for seed in 0..8 {
        let mut subject = make();
        let mut owner = Owner::open(&*subject.source())?;
        owner.send(2)?;
        owner.settle()?;
        owner.send(1)?;
        owner.take_jobs();
        // It is staged while the commit of the one before is out.
        owner.send(3)?;
        let commit = owner.held.iter().position(|job| job.kind().is_commit());
        let commit = commit.ok_or_else(|| Broken::new("nothing commits a batch"))?;
        owner.run(commit)?;
        let durable = owner.log.durable();
        hold!(
            durable >= owner.sent[1].end,
            "a commit is done, and durable is {durable}"
        );
        subject.restart(seed);
        let content = follow(&*subject.source())?.content;
        owner.check_followed(&content, durable)?;
    }
    Ok(())
}

/// `durable` moves only in `complete`, never back.
pub(super) fn only_complete_moves_durable(make: Make<'_>) -> Checked {
    let subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    for nth in 0..BATCHES {
        let before = owner.log.durable();
        owner.send(2)?;
        owner.log.mark();
        owner.begin_snapshot(&Live::default()).ok();
        owner.take_jobs();
        owner.run_others()?;
        let after = owner.log.durable();
        hold!(
            after == before,
            "batch {nth} moves durable from {before} to {after} before its commit"
        );
        let mut last = before;
        while owner.step()? {
            let now = owner.log.durable();
            hold!(now >= last, "durable moves back from {last} to {now}");
            last = now;
        }
        owner.log.beat(0);
        let staged = owner.log.durable();
        hold!(
            staged < owner.log.end(),
            "a beat is durable before its commit"
        );
        owner.settle()?;
        let all = owner.log.durable();
        hold!(
            all == owner.log.end(),
            "all commits are done, and durable is {all}"
        );
    }
    Ok(())
}

/// Batches and beats move `end`; marks, rolls and empty batches do not.
pub(super) fn batches_and_beats_move_end(make: Make<'_>) -> Checked {
    let subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    for _ in 0..BATCHES {
        let before = owner.log.end();
        // Now and then the log continues in another file for that.
        let at = owner.room(Need::grow(2 << 10))?;
        hold!(
            at.position == before && owner.log.end() == before,
            "a reservation moves the end"
        );
        owner.log.append(at, BatchBuilder::at(before))?;
        hold!(owner.log.end() == before, "an empty batch moves the end");
        owner.send_with(1, 2 << 10, None)?;
        let sent = owner.log.end();
        hold!(sent > before, "a batch does not move the end");
        owner.settle()?;
        hold!(owner.log.mark(), "a log at rest stages no mark");
        hold!(owner.log.end() == sent, "a mark moves the end");
        owner.settle()?;
        hold!(
            owner.log.end() == sent && owner.log.durable() == sent,
            "a mark moves durable"
        );
        owner.room(Need::grow(0))?;
        hold!(owner.log.beat(0), "a log at rest stages no beat");
        hold!(owner.log.end() > sent, "a beat does not move the end");
        owner.settle()?;
    }
    Ok(())
}

/// One commit is out; what is staged meanwhile goes with the next.
pub(super) fn one_commit_is_out(make: Make<'_>) -> Checked {
    let subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    owner.settle()?;
    owner.send(1)?;
    owner.take_jobs();
    for _ in 0..3 {
        owner.send(1)?;
        owner.run_others()?;
        hold!(commits(&owner) == 1, "{} commits are out", commits(&owner));
    }
    owner.run(0)?;
    hold!(
        owner.log.durable() == owner.sent[0].end,
        "the first commit has more than it began with"
    );
    owner.take_jobs();
    hold!(
        commits(&owner) == 1,
        "what was staged meanwhile does not go with the next commit"
    );
    owner.settle()?;
    hold!(
        owner.log.durable() == owner.log.end(),
        "something is left without a commit"
    );
    Ok(())
}

fn commits(owner: &Owner) -> usize {
    let held = owner.held.iter();
    held.filter(|job| job.kind().is_commit()).count()
}

/// Times never go back; `seen().time_ms` is that of the last batch or beat.
pub(super) fn times_never_go_back(make: Make<'_>) -> Checked {
    let mut subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    for time_ms in [100, 50, 200] {
        owner.time_ms = time_ms;
        owner.send(1)?;
    }
    owner.settle()?;
    for time_ms in [0, 300, 250] {
        owner.room(Need::grow(0))?;
        hold!(owner.log.beat(time_ms), "a log at rest stages no beat");
        owner.settle()?;
    }
    let end = owner.log.end();
    subject.restart(1);
    let expected = [100, 100, 200, 200, 300, 300, 300];
    let mut next = check_times(&*subject, &expected[..6], end)?;
    next.time_ms = 7;
    next.send(1)?;
    next.settle()?;
    let end = next.log.end();
    subject.restart(2);
    check_times(&*subject, &expected, end)?;
    Ok(())
}

fn check_times(subject: &dyn Subject, expected: &[u64], end: LogPosition) -> Checked<Owner> {
    let mut follower = follow(&*subject.source())?;
    let times = follower.content.batches.iter().map(|batch| batch.time_ms);
    let times: Vec<_> = times.collect();
    hold!(
        times == expected,
        "the times are {times:?}, and not {expected:?}"
    );
    let seen = follower.log.seen();
    hold!(
        seen.end == end,
        "the log is followed up to {}, and ended at {end}",
        seen.end
    );
    hold!(seen.time_ms == 300, "the last time is {}", seen.time_ms);
    follower.promote(seen.epoch.next())??;
    let owner = Owner::of(follower);
    let time_ms = owner.recovery.time_ms;
    hold!(time_ms == 300, "an owner begins at {time_ms}");
    Ok(owner)
}
