//! Sessions and remembered ids of a bus queue as pages: columns of what they are.

use std::sync::Arc;

use super::duplicates::{Ids, ReadBlock};
use super::queue::BusQueue;
use super::session::Session;
use super::snapshot::add_session;
use crate::shared::Numbered;
use crate::table::Live;
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::column::{
    column, column_u32, optional_column, put_column, put_optional_column,
};
use crate::vocabulary::elements::held;
use crate::vocabulary::{LeaseGeneration, Timestamp};

/// A page has at most so many sessions, or ids.
const COUNT_MAX: u64 = 1024;

fn count(r: &mut Reader<'_>) -> Result<usize, DecodeError> {
    let count = Some(r.varint()?).filter(|count| *count <= COUNT_MAX);
    let count = count.and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| r.error("more sessions or ids than a page has"))
}

/// Writes sessions, in the order of their numbers.
pub(crate) fn put_sessions(out: &mut Vec<u8>, sessions: &Numbered<Session>) {
    let all = || sessions.iter().map(|(_, session)| session);
    let states = || all().filter_map(|it| it.state);
    let column_of = |out: &mut Vec<u8>, values: &mut dyn Iterator<Item = u64>| {
        put_column(out, &values.collect::<Vec<_>>());
    };
    put_varint(out, sessions.len() as u64);
    column_of(out, &mut sessions.iter().map(|(number, _)| *number));
    column_of(out, &mut all().map(|it| it.generation.as_u32().into()));
    column_of(out, &mut all().map(|it| it.state_set_at.as_ms()));
    let locks =
        all().map(|it| (it.locked_until > Timestamp::ZERO).then(|| it.locked_until.as_ms()));
    put_optional_column(out, &locks.collect::<Vec<_>>());
    let positions = all().map(|it| it.state.map(|state| state.record));
    put_optional_column(out, &positions.collect::<Vec<_>>());
    column_of(out, &mut states().map(|it| it.place().into()));
    column_of(out, &mut states().map(|it| it.length.into()));
    column_of(out, &mut all().map(|it| it.id.len() as u64));
    all().for_each(|it| out.extend_from_slice(it.id.as_bytes()));
}

/// Adds the sessions of a page to a queue that is being restored. Returns the number of one of them, if the page has all
/// that its chunk has.
pub(crate) fn restore_sessions(
    queue: &mut BusQueue,
    r: &mut Reader<'_>,
    live: &mut Live,
) -> Result<Option<u32>, DecodeError> {
    let count = count(r)?;
    let numbers = column_u32(r, count)?;
    let ends = numbers.iter().min().zip(numbers.iter().max());
    let sessions = &queue.backlog.sessions;
    let is_whole = ends.is_some_and(|(first, last)| sessions.is_new_chunk(*first, *last));
    let generations = column_u32(r, count)?;
    let set_at = column(r, count)?;
    let locks = optional_column(r, count)?;
    let positions = optional_column(r, count)?;
    let state_count = positions.iter().flatten().count();
    let mut offsets = column_u32(r, state_count)?.into_iter();
    let mut lengths = column_u32(r, state_count)?.into_iter();
    let id_lengths = column(r, count)?;
    let times = set_at.into_iter().zip(locks);
    let all = numbers.iter().zip(generations).zip(times);
    for (((number, generation), (set_at, lock)), (position, length)) in
        all.zip(positions.into_iter().zip(id_lengths))
    {
        let length = usize::try_from(length).map_err(|_| r.error("length out of range"))?;
        let id = std::str::from_utf8(r.take(length)?);
        let id: Arc<str> = id.map_err(|_| r.error("text that is not UTF-8"))?.into();
        let state = position.map(|record| {
            let place = offsets.next().unwrap_or_default();
            held(r, record, place, lengths.next().unwrap_or_default())
        });
        let state = state.transpose()?;
        let session = Session {
            id,
            generation: LeaseGeneration::new(generation),
            locked_until: lock.map_or(Timestamp::ZERO, Timestamp::from_ms),
            state,
            state_set_at: Timestamp::from_ms(set_at),
        };
        add_session(queue, *number, session, live).map_err(|what| r.error(what))?;
    }
    Ok(numbers.first().copied().filter(|_| is_whole))
}

/// Makes the numbers of the sessions of a page ones that were given out: a queue that is lost has lost its last number.
pub(crate) fn use_session_numbers(
    queue: &mut BusQueue,
    r: &mut Reader<'_>,
) -> Result<(), DecodeError> {
    let count = count(r)?;
    let last = column_u32(r, count)?.into_iter().max().unwrap_or_default();
    let sessions = &mut queue.backlog.sessions;
    sessions.set_last_number(sessions.last_number().max(last));
    Ok(())
}

/// Writes remembered ids, in the order of their times.
pub(crate) fn put_ids(out: &mut Vec<u8>, ids: &Ids) {
    assert!(!ids.is_cold(), "a page has its ids");
    put_varint(out, ids.len() as u64);
    let times: Vec<u64> = ids.iter().map(|(at, _)| at.as_ms()).collect();
    put_column(out, &times);
    for (_, hash) in ids.iter() {
        out.extend_from_slice(&hash.to_be_bytes());
    }
}

/// Reads the ids of a page, in the order of their times.
pub(crate) fn ids(r: &mut Reader<'_>) -> Result<Vec<(Timestamp, u128)>, DecodeError> {
    let count = count(r)?;
    let times = column(r, count)?;
    if !times.is_sorted() {
        return Err(r.error("ids that are not in the order of their times"));
    }
    let times = times.into_iter().map(Timestamp::from_ms);
    times
        .map(|at| Ok((at, u128::from_be_bytes(r.array()?))))
        .collect()
}

/// Reads a page of ids, and prepares what follows from it alone.
pub(crate) fn id_block(r: &mut Reader<'_>) -> Result<ReadBlock, DecodeError> {
    let block = Ids::of(&ids(r)?);
    let block = block.ok_or_else(|| r.error("ids of more than 49 days in one page"))?;
    Ok(ReadBlock::of(block))
}
