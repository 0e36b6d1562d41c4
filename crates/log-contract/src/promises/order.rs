//! The order of jobs.

use std::thread;

use super::Make;
use crate::broken::{Broken, Checked, hold};
use crate::followed::{Content, follow};
use crate::owner::{Live, Owner};

/// Jobs in any order, on any thread, give the same log.
pub(super) fn jobs_run_in_any_order(make: Make<'_>) -> Checked {
    let in_order = run(make, None)?;
    for seed in 0..16 {
        let content = run(make, Some(seed))?;
        hold!(
            content == in_order,
            "order {seed} of jobs gives another log: {content:?}, and not {in_order:?}"
        );
    }
    Ok(())
}

/// What a story leaves whose jobs run in an order, or as they come.
fn run(make: Make<'_>, seed: Option<usize>) -> Checked<Content> {
    let mut subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    for nth in 0..12 {
        owner.send_with(2, 400, None)?;
        // What the last snapshot has is not seen in batches, so some come behind it.
        if nth % 4 == 3 && nth < 11 {
            finish(&mut owner, seed)?;
            owner.begin_snapshot(&Live::default())?;
        }
        let Some(seed) = seed else {
            owner.settle()?;
            continue;
        };
        owner.take_jobs();
        for turn in 0..seed % 3 {
            run_one(&mut owner, seed * 5 + turn)?;
        }
    }
    finish(&mut owner, seed)?;
    subject.restart(8);
    let content = follow(&*subject.source())?.content;
    owner.check_followed(&content, owner.log.end())?;
    Ok(content)
}

/// Runs all jobs in an order.
fn finish(owner: &mut Owner, seed: Option<usize>) -> Checked {
    let Some(seed) = seed else {
        return owner.settle();
    };
    for turn in 0.. {
        owner.take_jobs();
        if owner.held.is_empty() {
            break;
        }
        run_one(owner, seed + turn)?;
    }
    Ok(())
}

/// Runs one of the jobs that are out: the last one first, or any, and on another thread.
fn run_one(owner: &mut Owner, pick: usize) -> Checked {
    let count = owner.held.len();
    if count == 0 {
        return Ok(());
    }
    let index = match pick % 2 {
        0 => count - 1,
        _ => pick % count,
    };
    let job = owner.held.remove(index);
    let outcome = thread::scope(|scope| scope.spawn(|| job.run()).join());
    let outcome = outcome.map_err(|_| Broken::new("a job panics"))?;
    owner.log.complete(outcome)?;
    Ok(())
}
