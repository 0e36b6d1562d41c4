//! What a log promises that asks other machines: they are slow, and lose and repeat what it asks.

use kew_log::{BootTime, LogEnd, LogState};

use super::Make;
use crate::broken::{Broken, Checked, hold};
use crate::followed::{Content, follow};
use crate::owner::Owner;
use crate::{Lost, Subject};

const LOSSES: [Lost; 3] = [Lost::Answer, Lost::Request, Lost::RequestForGood];

/// No lease lasts for longer than so many steps of time.
const STEPS_MAX: u32 = 100;
const STEP_MS: u64 = 100;
/// Shorter than what a clock loses during a lease.
const SHORT_STEP_MS: u64 = 5;

/// Lets time pass until everything is durable. Returns when that is.
pub(super) fn settle_later(subject: &mut dyn Subject, owner: &mut Owner) -> Checked<BootTime> {
    for _ in 0..STEPS_MAX {
        owner.settle()?;
        if owner.log.durable() == owner.log.end() {
            return Ok(subject.advance_ms(0));
        }
        subject.advance_ms(STEP_MS);
    }
    Err(Broken::new("time passes, and a commit is not agreed"))
}

/// A commit whose answer was lost succeeds exactly if it is followed.
pub(super) fn a_lost_answer_is_settled(make: Make<'_>) -> Checked {
    for lost in LOSSES {
        for is_fenced in [false, true] {
            let mut subject = make();
            let mut owner = Owner::open(&*subject.source())?;
            owner.send(2)?;
            owner.settle()?;
            subject.lose_next(lost, is_fenced);
            owner.send(1)?;
            owner.send(2)?;
            let outcome = owner.settle();
            hold!(
                outcome.is_err() == is_fenced,
                "another process owns the log: {is_fenced}, and a commit ends with {outcome:?}"
            );
            let state = owner.log.health().state;
            let is_ended = matches!(state, LogState::Ended(LogEnd::Fenced(_)));
            hold!(is_ended == is_fenced, "an owner is {state:?}");
            let all_are_durable = owner.log.durable() == owner.log.end();
            hold!(
                all_are_durable || is_fenced,
                "a commit succeeds in part, and no end is reported"
            );
            check_exactly(&*subject, &owner)?;
            subject.let_all_arrive();
            check_exactly(&*subject, &owner)?;
        }
    }
    Ok(())
}

/// Whether exactly those batches are followed that are durable.
fn check_exactly(subject: &dyn Subject, owner: &Owner) -> Checked {
    let content = follow(&*subject.other())?.content;
    let durable = owner.log.durable();
    for sent in &owner.sent {
        let is_followed = times(&content, &sent.events[0]) > 0;
        let (at, end) = (sent.record, sent.end);
        hold!(
            !is_followed || end <= durable,
            "the batch at {at} is followed, and durable is {durable}"
        );
        hold!(
            is_followed || end > durable,
            "the batch at {at} is not followed, and durable is {durable}"
        );
    }
    Ok(())
}

/// How often an event is followed.
fn times(content: &Content, event: &[u8]) -> usize {
    let history = content.history();
    history.iter().filter(|followed| *followed == event).count()
}

/// A late duplicate changes nothing, also one of a former owner.
pub(super) fn a_late_duplicate_changes_nothing(make: Make<'_>) -> Checked {
    for lost in LOSSES {
        let mut subject = make();
        let mut former = Owner::open(&*subject.source())?;
        former.send(1)?;
        former.settle()?;
        subject.lose_next(lost, false);
        former.send(2)?;
        former.settle()?;
        check_once(&*subject, &former)?;
        former.send(1)?;
        former.settle()?;
        subject.let_all_arrive();
        check_nothing_late(&*subject, &former)?;
        // What is under way now arrives when another process owns the log.
        subject.lose_next(lost, false);
        former.send(1)?;
        former.settle()?;
        let mut owner = Owner::open(&*subject.other())?;
        hold!(
            owner.found.history() == former.history(),
            "another owner begins with another log"
        );
        owner.send(1)?;
        subject.let_all_arrive();
        settle_later(&mut *subject, &mut owner)?;
        subject.let_all_arrive();
        owner.send(1)?;
        settle_later(&mut *subject, &mut owner)?;
        let content = follow(&*subject.source())?.content;
        hold!(
            content.history() == owner.history(),
            "a late request changes the log"
        );
    }
    Ok(())
}

/// Whether each event is followed once, in order.
fn check_once(subject: &dyn Subject, owner: &Owner) -> Checked {
    let content = follow(&*subject.other())?.content;
    for event in owner.sent.iter().flat_map(|sent| &sent.events) {
        let times = times(&content, event);
        hold!(times == 1, "a batch is followed {times} times");
    }
    hold!(
        content.history() == owner.history(),
        "a lost answer changes the log"
    );
    Ok(())
}

/// Whether late requests have changed nothing: each event was followed once before.
fn check_nothing_late(subject: &dyn Subject, owner: &Owner) -> Checked {
    let content = follow(&*subject.other())?.content;
    for event in owner.sent.iter().flat_map(|sent| &sent.events) {
        let times = times(&content, event);
        hold!(
            times < 2,
            "a late request repeats a batch: it is followed {times} times"
        );
    }
    hold!(
        content.history() == owner.history(),
        "a late request changes the log"
    );
    Ok(())
}

/// `owned_until` lies before the next owner's first commit.
pub(super) fn owners_do_not_overlap(make: Make<'_>) -> Checked {
    // Not so slow that a second renewal makes up for it.
    for slow_ms in [0, 600, 900] {
        let mut subject = make();
        let mut former = Owner::open(&*subject.source())?;
        subject.advance_ms(5_000);
        subject.delay_next_ms(slow_ms);
        // With nothing to commit, the next job renews the lease.
        former.settle()?;
        let now = subject.advance_ms(0);
        former.send(1)?;
        former.settle()?;
        let until = former.log.owned_until();
        hold!(
            until > now && until != BootTime::NEVER,
            "an owner that has asked owns the log until {until:?}, and it is {now:?}"
        );
        let mut next = Owner::open(&*subject.other())?;
        next.send(1)?;
        next.settle()?;
        while next.log.durable() < next.log.end() {
            let now = subject.advance_ms(0);
            // Each machine has a clock of its own.
            let others = subject.now_of_other();
            let too_early = next.log.owned_until() > others && now < until;
            hold!(!too_early, "two processes own the log at {now:?}");
            let wake = next.log.next_wake();
            let wake = wake.ok_or_else(|| Broken::new("a commit waits, and for no moment"))?;
            hold!(wake > others, "a commit waits, and could go on at {now:?}");
            subject.advance_ms(SHORT_STEP_MS);
            next.settle()?;
        }
        // The last request was sent at this moment, or later.
        let now = subject.advance_ms(0);
        hold!(
            until <= now,
            "another owner commits at {now:?}, while the log is owned until {until:?}"
        );
        former.send(1)?;
        hold!(former.settle().is_err(), "a former owner continues");
    }
    Ok(())
}
