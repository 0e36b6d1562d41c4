//! Bodies and snapshots: what can be read, and what goes.

use kew_log::{Body, BodyError, BodyLocation};

use super::Make;
use crate::broken::{Broken, Checked, hold};
use crate::followed::follow;
use crate::owner::{Live, Owner};

/// Enough batches with bodies that the first ones lie in files that the owner has left.
const BATCHES: u8 = 24;

/// A body with its own number in it.
fn body_of(number: u8) -> Vec<u8> {
    vec![number; 900]
}

/// Whether a body is there, and what was written.
fn check_body(owner: &Owner, at: BodyLocation, number: u8, when: &str) -> Checked {
    let body = owner.log.body(at);
    let read = body.as_ref().map(Body::read).transpose()?;
    let is_whole = read.as_deref() == Some(&body_of(number));
    hold!(is_whole, "body {number} cannot be read {when}: {body:?}");
    Ok(())
}

/// A body is read after its append, its commit, a move and a restart.
pub(super) fn bodies_are_read(make: Make<'_>) -> Checked {
    let mut subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    let mut bodies = Vec::new();
    for number in 0..BATCHES {
        let at = owner.send_body(&body_of(number))?;
        check_body(&owner, at, number, "after its append")?;
        owner.settle()?;
        check_body(&owner, at, number, "after its commit")?;
        bodies.push(at);
    }
    for (number, at) in (0..).zip(&bodies) {
        check_body(&owner, *at, number, "after others")?;
    }
    // The first ones move.
    for number in 0..4 {
        let at = &mut bodies[usize::from(number)];
        *at = owner.send_body(&body_of(number))?;
        check_body(&owner, *at, number, "after its move")?;
    }
    let live = Live(bodies.clone());
    for _ in 0..3 {
        owner.snapshot(&live)?;
        owner.send(1)?;
    }
    owner.settle()?;
    for (number, at) in (0..).zip(&bodies) {
        check_body(&owner, *at, number, "after snapshots")?;
    }
    subject.restart(5);
    let owner = Owner::open(&*subject.source())?;
    for (number, at) in (0..).zip(&bodies) {
        check_body(&owner, *at, number, "after a restart")?;
    }
    Ok(())
}

/// A handle from before an opening reads its bytes, or fails as gone.
pub(super) fn old_handles_read_or_are_gone(make: Make<'_>) -> Checked {
    let subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    let mut bodies = Vec::new();
    for number in 0..BATCHES {
        bodies.push((number, owner.send_body(&body_of(number))?));
        owner.settle()?;
    }
    let handles = bodies
        .iter()
        .map(|(number, at)| (*number, owner.log.body(*at)));
    let handles: Vec<_> = handles.collect();
    drop(owner);
    // In the same process, so there are readers of the former owner.
    let mut next = Owner::open(&*subject.source())?;
    for number in 0..2 * BATCHES {
        next.send_body(&body_of(100 + number))?;
        next.snapshot(&Live::default())?;
    }
    for (number, body) in handles {
        match body.map(|body| body.read()) {
            Some(Ok(bytes)) => {
                hold!(
                    bytes == body_of(number),
                    "a handle of body {number} reads another one"
                );
            }
            Some(Err(BodyError::Gone(_))) => {}
            other => {
                let what = format!("a handle of body {number} reads {other:?}");
                return Err(Broken::new(what));
            }
        }
    }
    Ok(())
}

/// A snapshot counts only when `durable` has reached it.
pub(super) fn snapshots_wait_for_durable(make: Make<'_>) -> Checked {
    for is_committed in [false, true] {
        let mut subject = make();
        let mut owner = Owner::open(&*subject.source())?;
        owner.send(3)?;
        owner.settle()?;
        let durable = owner.log.durable();
        owner.send(2)?;
        let at = owner.log.end();
        hold!(
            owner.begin_snapshot(&Live::default())?,
            "no snapshot is begun"
        );
        owner.run_others()?;
        let status = owner.log.snapshots();
        hold!(
            status.last.is_none(),
            "a snapshot counts before durable has reached it"
        );
        hold!(
            status.is_under_way,
            "a snapshot that waits is not under way"
        );
        if is_committed {
            owner.settle()?;
            let last = owner.log.snapshots().last;
            hold!(last == Some(at), "the snapshot at {at} counts as {last:?}");
            let more = owner.begin_snapshot(&Live::default())?;
            hold!(!more, "there is a second snapshot at one position");
        }
        subject.restart(6);
        let content = follow(&*subject.source())?.content;
        hold!(
            content.has_snapshot() == is_committed,
            "a snapshot is followed: {content:?}"
        );
        owner.check_followed(&content, durable)?;
    }
    Ok(())
}

/// What is live stays; the rest goes once two snapshots lie behind it, but not for those who read it.
pub(super) fn what_is_live_stays(make: Make<'_>) -> Checked {
    let mut subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    let mut bodies = Vec::new();
    for number in 0..BATCHES {
        bodies.push(owner.send_body(&body_of(number))?);
    }
    owner.settle()?;
    let (dead, live) = bodies.split_at(bodies.len() / 2);
    let live = Live(live.to_vec());
    let handed_out = owner.log.body(dead[0]);
    owner.snapshot(&live)?;
    for (number, at) in (0..).zip(&bodies) {
        check_body(&owner, *at, number, "behind one snapshot")?;
    }
    owner.send(1)?;
    owner.snapshot(&live)?;
    let is_gone = |at: &&BodyLocation| owner.log.body(**at).is_none();
    hold!(
        dead.iter().any(|at| is_gone(&at)),
        "nothing goes behind two snapshots"
    );
    let read = handed_out.map(|body| body.read());
    hold!(
        matches!(&read, Some(Ok(bytes)) if *bytes == body_of(0)),
        "what was handed out is gone: {read:?}"
    );
    subject.restart(7);
    let owner = Owner::open(&*subject.source())?;
    for (number, at) in (0..).zip(&bodies).skip(dead.len()) {
        check_body(&owner, *at, number, "behind two snapshots")?;
    }
    Ok(())
}
