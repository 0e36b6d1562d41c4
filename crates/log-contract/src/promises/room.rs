//! Room for batches.

use kew_log::{BATCH_SIZE_BYTES_MAX, BatchBuilder, Need, ReserveError};

use super::Make;
use crate::broken::{Broken, Checked, hold};
use crate::followed::follow;
use crate::owner::Owner;

/// A reservation serves one append; a used or small one changes nothing.
pub(super) fn reservations_serve_once(make: Make<'_>) -> Checked {
    let mut subject = make();
    let mut former = Owner::open(&*subject.source())?;
    let of_former = former.room(Need::grow(0))?;
    drop(former);
    let mut owner = Owner::open(&*subject.source())?;
    let at = owner.room(Need::grow(0))?;
    let of_former_too = owner
        .log
        .append(of_former, owner.batch(at.position, b"former"));
    hold!(
        of_former_too.is_err(),
        "a reservation of a former opening serves"
    );
    // One that is too small is refused, and holds on.
    let large = vec![b'.'; usize::try_from(at.room_bytes).unwrap_or(usize::MAX)];
    let above = owner.log.append(at, owner.batch(at.position, &large));
    hold!(above.is_err(), "a batch above its reservation is accepted");
    let elsewhere = owner
        .log
        .append(at, owner.batch(at.position.plus(8), b"elsewhere"));
    hold!(
        elsewhere.is_err(),
        "a batch for another position is accepted"
    );
    hold!(
        owner.log.end() == at.position,
        "a batch that was refused moves the end"
    );
    // An empty batch uses it, too.
    let end = owner.log.append(at, BatchBuilder::at(at.position))?;
    hold!(end == at.position, "an empty batch moves the end");
    let again = owner.log.append(at, owner.batch(end, b"again"));
    hold!(
        again.is_err(),
        "a reservation serves again behind an empty batch"
    );
    owner.send(2)?;
    let end = owner.log.end();
    for position in [at.position, end] {
        let again = owner.log.append(at, owner.batch(position, b"again"));
        hold!(again.is_err(), "a reservation serves twice");
    }
    let mut used = at;
    used.position = end;
    let again = owner.log.append(used, owner.batch(end, b"again"));
    hold!(again.is_err(), "a reservation serves at another position");
    hold!(
        owner.log.end() == end,
        "a batch that was refused moves the end"
    );
    owner.settle()?;
    subject.restart(3);
    let content = follow(&*subject.source())?.content;
    owner.check_followed(&content, end)
}

/// No batch above `limits` is accepted; the limit never changes.
pub(super) fn no_batch_is_above_the_limit(make: Make<'_>) -> Checked {
    let mut subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    let limit = owner.log.limits().batch_size_bytes_max;
    hold!(limit <= BATCH_SIZE_BYTES_MAX, "the limit is {limit}");
    owner.send(2)?;
    let now = owner.log.limits().batch_size_bytes_max;
    hold!(now == limit, "the limit was {limit}, and is {now}");
    let at = owner.room(Need::grow(limit + 1))?;
    let room_bytes = at.room_bytes;
    hold!(
        room_bytes == limit,
        "there is room for {room_bytes} bytes, and the limit is {limit}"
    );
    let size = usize::try_from(limit).unwrap_or(usize::MAX);
    let overhead = owner.batch(at.position, &vec![0; size / 2]).len_bytes() - size / 2;
    let above = owner.log.append(
        at,
        owner.batch(at.position, &vec![b'a'; size - overhead + 1]),
    );
    hold!(above.is_err(), "a batch above the limit is accepted");
    // The largest one is accepted.
    let largest = owner.batch(at.position, &vec![b'l'; size - overhead]);
    hold!(
        largest.len_bytes() == size,
        "the largest batch has {} bytes",
        largest.len_bytes()
    );
    owner.log.append(at, largest)?;
    owner.settle()?;
    let now = owner.log.limits().batch_size_bytes_max;
    hold!(now == limit, "the limit was {limit}, and is {now}");
    subject.restart(4);
    let owner = Owner::open(&*subject.source())?;
    let last = owner
        .found
        .batches
        .last()
        .map(|batch| batch.events[0].len());
    hold!(
        last == Some(size - overhead),
        "the largest batch is followed as {last:?} bytes"
    );
    let now = owner.log.limits().batch_size_bytes_max;
    hold!(
        now == limit,
        "the limit was {limit}, and is {now} behind a restart"
    );
    Ok(())
}

/// After *not prepared* all jobs lead to room, or to *no space*.
pub(super) fn jobs_lead_to_room(make: Make<'_>) -> Checked {
    let mut subject = make();
    let mut owner = Owner::open(&*subject.source())?;
    for size_bytes in [0, 900, 7 << 10, 100, 70 << 10, 3 << 10, 9 << 10] {
        for urgency in [Need::grow, Need::free] {
            let is_room = leads_to_room(&mut owner, urgency(size_bytes))?;
            hold!(is_room, "there is no space for {size_bytes} bytes");
            owner.send_with(1, 700, None)?;
        }
    }
    let is_full = subject.fill();
    for _ in 0..200 {
        if !leads_to_room(&mut owner, Need::grow(900))? {
            hold!(is_full, "there is no space, and no disk that is full");
            return drain(&mut owner);
        }
        owner.send_with(1, 800, None)?;
    }
    hold!(!is_full, "a full disk takes all batches");
    Ok(())
}

/// What frees space has room for a while.
fn drain(owner: &mut Owner) -> Checked {
    let full = owner.log.limits().full;
    hold!(
        full.is_some(),
        "a log without space does not say what it takes"
    );
    let mut count = 0;
    while count < 100 && leads_to_room(owner, Need::free(900))? {
        let at = owner.log.reserve(Need::free(900))?;
        let batch = owner.batch(at.position, &[b'.'; 800]);
        owner.log.append(at, batch)?;
        count += 1;
    }
    hold!(count > 0, "what frees space has no room on a full disk");
    Ok(())
}

/// Whether there is room at last. Otherwise there is no space.
fn leads_to_room(owner: &mut Owner, need: Need) -> Checked<bool> {
    for _ in 0..50 {
        match owner.log.reserve(need) {
            Ok(_) => return Ok(true),
            Err(ReserveError::NoSpace) => return Ok(false),
            Err(ReserveError::NotPrepared) => owner.settle()?,
            Err(error) => return Err(error.into()),
        }
    }
    let what = format!("{need:?} has no room after all jobs, and there is space");
    Err(Broken::new(what))
}
