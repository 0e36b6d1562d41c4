//! What a follower gets.

use kew_log::Progress;

use super::Make;
use crate::broken::{Checked, hold};
use crate::followed::{Follower, follow};
use crate::owner::{Live, Owner};

/// A log with a snapshot, and several pieces behind it.
fn long(make: Make<'_>) -> Checked<(Box<dyn crate::Subject>, Owner)> {
    let subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    for _ in 0..3 {
        owner.send(4)?;
    }
    owner.snapshot(&Live::default())?;
    for _ in 0..8 {
        owner.send_with(1, 300 << 10, None)?;
    }
    owner.settle()?;
    Ok((subject, owner))
}

/// Pieces come in order and once. A beginning voids those before.
pub(super) fn pieces_come_in_order_and_once(make: Make<'_>) -> Checked {
    let (mut subject, owner) = long(make)?;
    subject.restart(10);
    let follower = follow(&*subject.source())?;
    hold!(
        follower.pieces > 2,
        "all comes in {} pieces, which shows nothing",
        follower.pieces
    );
    hold!(
        follower.content.has_snapshot(),
        "the snapshot is not followed"
    );
    let behind = owner.sent.iter().skip(3);
    let behind: Vec<_> = behind.map(|sent| (sent.record, &sent.events)).collect();
    let batches = follower.content.batches.iter();
    let batches: Vec<_> = batches.map(|batch| (batch.record, &batch.events)).collect();
    hold!(
        batches == behind,
        "other batches are followed than were sent"
    );
    hold!(
        follower.content.history() == owner.history(),
        "another state is followed"
    );
    let seen = follower.log.seen();
    let end = owner.log.end();
    hold!(
        seen.end == end && seen.durable <= end,
        "{seen:?} is seen, and the log ends at {end}"
    );
    Ok(())
}

/// *Current*: all that was durable at the call was handed out.
pub(super) fn current_has_all(make: Make<'_>) -> Checked {
    let (mut subject, owner) = long(make)?;
    subject.restart(11);
    let mut follower = Follower::new(&*subject.source());
    while follower.progress == Progress::Behind {
        hold!(follower.step()?, "a follower stays behind");
    }
    hold!(
        follower.content.history() == owner.history(),
        "a follower is current, and has {} of {} batches behind the snapshot",
        follower.content.batches.len(),
        owner.sent.len() - 3
    );
    Ok(())
}

/// A slow follower gets the same pieces, and a current one continues.
pub(super) fn a_slow_follower_gets_the_same(make: Make<'_>) -> Checked {
    let subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    for _ in 0..6 {
        owner.send_with(1, 700, None)?;
    }
    owner.settle()?;
    let mut slow = Follower::new(&*subject.other());
    hold!(slow.step()?, "a follower has no job");
    hold!(
        slow.progress == Progress::Behind,
        "all comes in one piece, which shows nothing"
    );
    // What it would read next goes.
    for _ in 0..3 {
        owner.send_with(1, 700, None)?;
        owner.snapshot(&Live::default())?;
    }
    for _ in 0..3 {
        while slow.step()? {}
        let same = slow.content.history() == owner.history();
        hold!(same, "a slow follower gets other batches");
        hold!(
            slow.progress == Progress::Current,
            "a slow follower stays behind"
        );
        owner.send(1)?;
        owner.settle()?;
    }
    Ok(())
}
