//! Messages of a run as columns: a group of a page, or the changes since a page was written.
//!
//! Decoding never panics, and takes memory for no more messages than a run has slots.

use std::sync::Arc;

use super::super::length::SLOTS_MAX;
use super::super::record::{BodyEncoding, DeadLetterCause, MessageState, Record, Side};
use super::Paged;
use crate::vocabulary::codec::{
    DecodeError, Reader, optional, put_optional, put_str, put_varint, unzigzag, zigzag,
};
use crate::vocabulary::column::{
    column, column_u32, optional_column, put_column, put_optional_column,
};
use crate::vocabulary::elements::{location, put_location};
use crate::vocabulary::{BodyLocation, Hold, LeaseGeneration, SequenceNumber, Timestamp};

/// A message that is to be written.
#[derive(Clone, Copy)]
pub(in crate::table) struct ToPage<'a> {
    pub(in crate::table) slot: usize,
    pub(in crate::table) record: &'a Record,
    pub(in crate::table) first_number: Option<SequenceNumber>,
    /// What else few messages have.
    pub(in crate::table) side: Option<&'a Side>,
}

/// Writes messages, in the order of their slots.
pub(in crate::table) fn put_messages(out: &mut Vec<u8>, messages: &[ToPage<'_>]) {
    put_varint(out, messages.len() as u64);
    if messages.is_empty() {
        return;
    }
    let mut values = Vec::with_capacity(messages.len());
    let mut put = |out: &mut Vec<u8>, value: &dyn Fn(&Record) -> u64| {
        values.clear();
        values.extend(messages.iter().map(|it| value(it.record)));
        put_column(out, &values);
    };
    put(out, &|it| it.enqueued_at.as_ms());
    put(out, &|it| it.body.record);
    put(out, &|it| it.body.offset().into());
    put(out, &|it| it.body.length.into());
    put(out, &|it| it.generation.as_u32().into());
    put(out, &|it| it.deliveries.into());
    put(out, &|it| it.session.into());
    put(out, &|it| it.hops.into());
    put(out, &|it| tags(it).into());
    let slots: Vec<u64> = messages.iter().map(|it| it.slot as u64).collect();
    put_column(out, &slots);
    put_optional_column(out, &lifetimes(messages));
    put_optional_column(out, &ends(messages));
    put_sides(out, messages);
}

/// How long each message lives, unless for ever.
fn lifetimes(messages: &[ToPage<'_>]) -> Vec<Option<u64>> {
    let records = messages.iter().map(|it| it.record);
    let lives = records.map(|record| {
        let (from, until) = (record.enqueued_at.as_ms(), record.expires_at);
        (until != Timestamp::NEVER).then(|| zigzag(until.as_ms().wrapping_sub(from)))
    });
    lives.collect()
}

/// When each message's state ends, if ever.
fn ends(messages: &[ToPage<'_>]) -> Vec<Option<u64>> {
    let ends = messages.iter().map(|it| it.record.due_at);
    ends.map(|at| (at != Timestamp::NEVER).then(|| at.as_ms()))
        .collect()
}

/// Reads what [`put_messages`] wrote: messages with rising slots of a run.
pub(in crate::table) fn messages(r: &mut Reader<'_>) -> Result<Vec<Paged>, DecodeError> {
    let mut messages = Vec::new();
    read_messages(r, &mut messages)?;
    Ok(messages)
}

/// The same, behind others.
pub(in crate::table) fn read_messages(
    r: &mut Reader<'_>,
    all: &mut Vec<Paged>,
) -> Result<(), DecodeError> {
    let count = usize::try_from(r.varint()?).ok();
    let count = count.filter(|count| *count <= SLOTS_MAX);
    let count = count.ok_or_else(|| r.error("more messages than a run has"))?;
    if count == 0 {
        return Ok(());
    }
    let columns = Columns::read(r, count)?;
    let before = all.len();
    all.reserve(count);
    for (index, slot) in slots(r, count)?.into_iter().enumerate() {
        let record = columns.record(index);
        let record = record.ok_or_else(|| r.error("tags of a message that are not known"))?;
        all.push((slot, record, None));
    }
    let messages = all.get_mut(before..).unwrap_or_default();
    let lifetimes = optional_column(r, count)?;
    let ends = optional_column(r, count)?;
    for ((_, record, _), (lifetime, end)) in messages.iter_mut().zip(lifetimes.iter().zip(ends)) {
        if let Some(lifetime) = lifetime {
            let from = record.enqueued_at.as_ms();
            record.expires_at = Timestamp::from_ms(from.wrapping_add(unzigzag(*lifetime)));
        }
        record.due_at = end.map_or(Timestamp::NEVER, Timestamp::from_ms);
    }
    read_sides(r, messages)
}

/// Columns that each message has a value in.
struct Columns {
    enqueued_at: Vec<u64>,
    position: Vec<u64>,
    offset: Vec<u32>,
    length: Vec<u32>,
    generation: Vec<u32>,
    deliveries: Vec<u32>,
    session: Vec<u32>,
    hops: Vec<u32>,
    tags: Vec<u32>,
}

impl Columns {
    fn read(r: &mut Reader<'_>, count: usize) -> Result<Self, DecodeError> {
        Ok(Self {
            enqueued_at: column(r, count)?,
            position: column(r, count)?,
            offset: column_u32(r, count)?,
            length: column_u32(r, count)?,
            generation: column_u32(r, count)?,
            deliveries: column_u32(r, count)?,
            session: column_u32(r, count)?,
            hops: column_u32(r, count)?,
            tags: column_u32(r, count)?,
        })
    }

    /// A message, but for its times. `None` if its tags are none.
    fn record(&self, index: usize) -> Option<Record> {
        let of = |column: &[u32]| column.get(index).copied();
        let (state, cause, encoding, hold) = untagged(of(&self.tags)?)?;
        let (position, length) = (*self.position.get(index)?, of(&self.length)?);
        let body = BodyLocation::of_place(position, of(&self.offset)?, length)?.with(hold);
        let enqueued_at = Timestamp::from_ms(*self.enqueued_at.get(index)?);
        Some(Record {
            generation: LeaseGeneration::new(of(&self.generation)?),
            deliveries: of(&self.deliveries)?,
            session: of(&self.session)?,
            hops: u8::try_from(of(&self.hops)?).ok()?,
            state,
            cause,
            encoding,
            ..Record::ready(enqueued_at, body)
        })
    }
}

fn slots(r: &mut Reader<'_>, count: usize) -> Result<Vec<usize>, DecodeError> {
    let slots = column(r, count)?;
    let rises = slots.is_sorted_by(|one, next| one < next);
    let is_within = slots.last().is_none_or(|last| *last < SLOTS_MAX as u64);
    if !rises || !is_within {
        return Err(r.error("slots that do not rise, or are not those of a run"));
    }
    let slots = slots.into_iter().map(usize::try_from);
    let slots = slots.collect::<Result<_, _>>();
    slots.map_err(|_| r.error("slot out of range"))
}

/// A message's state, cause, encoding and hold: three bits, three bits, and one. Behind them are the fourth bit of the
/// cause, and two bits of the hold.
fn tags(record: &Record) -> u16 {
    let cause = match record.cause {
        None => 0,
        Some(DeadLetterCause::MaxDeliveryCountExceeded) => 1,
        Some(DeadLetterCause::Expired) => 2,
        Some(DeadLetterCause::MaxTransferHopCountExceeded) => 3,
        Some(DeadLetterCause::SessionIdIsNull) => 4,
        Some(DeadLetterCause::DestinationUnavailable) => 5,
        Some(DeadLetterCause::ByReceiver) => 6,
        Some(DeadLetterCause::FilterFailed) => 7,
        Some(DeadLetterCause::BodyDamaged) => 8,
        Some(DeadLetterCause::TransferFailed) => 9,
        Some(DeadLetterCause::TransferNeedsSession) => 10,
    };
    let hold = match record.body.hold() {
        Hold::Alone => 0,
        Hold::Lends => 1,
        Hold::Borrows => 2,
    };
    let (state, encoding) = (state_code(record.state), encoding_code(record.encoding));
    let low = state | (cause & 7) << 3 | encoding << 6 | (cause >> 3) << 7;
    u16::from(low) | hold << 8
}

type Tags = (MessageState, Option<DeadLetterCause>, BodyEncoding, Hold);

fn untagged(tags: u32) -> Option<Tags> {
    let cause = match tags >> 3 & 7 | (tags >> 7 & 1) << 3 {
        0 => None,
        1 => Some(DeadLetterCause::MaxDeliveryCountExceeded),
        2 => Some(DeadLetterCause::Expired),
        3 => Some(DeadLetterCause::MaxTransferHopCountExceeded),
        4 => Some(DeadLetterCause::SessionIdIsNull),
        5 => Some(DeadLetterCause::DestinationUnavailable),
        6 => Some(DeadLetterCause::ByReceiver),
        7 => Some(DeadLetterCause::FilterFailed),
        8 => Some(DeadLetterCause::BodyDamaged),
        9 => Some(DeadLetterCause::TransferFailed),
        10 => Some(DeadLetterCause::TransferNeedsSession),
        _ => return None,
    };
    let hold = match tags >> 8 {
        0 => Hold::Alone,
        1 => Hold::Lends,
        2 => Hold::Borrows,
        _ => return None,
    };
    Some((state(tags & 7)?, cause, encoding(tags >> 6 & 1)?, hold))
}

pub(in crate::table) fn state_code(state: MessageState) -> u8 {
    match state {
        MessageState::Ready => 0,
        MessageState::Locked { deferred: false } => 1,
        MessageState::Locked { deferred: true } => 2,
        MessageState::Scheduled => 3,
        MessageState::Deferred => 4,
    }
}

pub(in crate::table) fn state(code: u32) -> Option<MessageState> {
    Some(match code {
        0 => MessageState::Ready,
        1 => MessageState::Locked { deferred: false },
        2 => MessageState::Locked { deferred: true },
        3 => MessageState::Scheduled,
        4 => MessageState::Deferred,
        _ => return None,
    })
}

pub(in crate::table) fn encoding_code(encoding: BodyEncoding) -> u8 {
    match encoding {
        BodyEncoding::Text => 0,
        BodyEncoding::Raw => 1,
    }
}

pub(in crate::table) fn encoding(code: u32) -> Option<BodyEncoding> {
    Some(match code {
        0 => BodyEncoding::Text,
        1 => BodyEncoding::Raw,
        _ => return None,
    })
}

/// The flag of a column of first numbers, beside the count of messages that have more than that.
const FIRST_NUMBERS: u64 = 1;

/// Writes what few messages have: first numbers, as a column if one has one, and the rest of each message with its place
/// among the messages.
fn put_sides(out: &mut Vec<u8>, messages: &[ToPage<'_>]) {
    let has_more = |side: &&Side| side.source.is_some() || !side.overlays.is_empty();
    let sides = messages.iter().enumerate();
    let sides: Vec<(usize, &Side)> = sides
        .filter_map(|(index, it)| Some((index, it.side.filter(has_more)?)))
        .collect();
    let firsts = messages.iter().map(|it| it.first_number);
    let firsts: Vec<_> = firsts.map(|it| it.map(SequenceNumber::as_u64)).collect();
    let has_firsts = firsts.iter().any(Option::is_some);
    let flag = if has_firsts { FIRST_NUMBERS } else { 0 };
    put_varint(out, (sides.len() as u64) << 1 | flag);
    if has_firsts {
        put_optional_column(out, &firsts);
    }
    for (index, side) in sides {
        put_varint(out, index as u64);
        put_optional(out, side.source.as_deref(), put_str);
        put_varint(out, side.overlays.len() as u64);
        for overlay in &side.overlays {
            put_location(out, *overlay);
        }
    }
}

fn read_sides(r: &mut Reader<'_>, messages: &mut [Paged]) -> Result<(), DecodeError> {
    let head = r.varint()?;
    if head & FIRST_NUMBERS != 0 {
        let firsts = optional_column(r, messages.len())?;
        for ((.., side), first) in messages.iter_mut().zip(firsts) {
            if first.is_some_and(|first| first >= 1 << SequenceNumber::BITS) {
                return Err(r.error("first number out of range"));
            }
            *side = first.map(|first| {
                Box::new(Side {
                    first_number: Some(SequenceNumber::new(first)),
                    ..Side::default()
                })
            });
        }
    }
    // Dead letters of one queue share its name.
    let mut source_before: Option<Arc<str>> = None;
    for _ in 0..head >> 1 {
        let index = usize::try_from(r.varint()?).ok();
        let source = optional(r, |r| r.str())?;
        let source = source.map(|name| match &source_before {
            Some(before) if **before == *name => Arc::clone(before),
            Some(_) | None => name.into(),
        });
        let mut overlays = Vec::new();
        for _ in 0..r.varint()? {
            overlays.push(location(r)?);
        }
        let message = index.and_then(|index| messages.get_mut(index));
        let Some((.., side)) = message else {
            return Err(r.error("more of a message that is not there"));
        };
        source_before = source.clone().or(source_before);
        let side = side.get_or_insert_default();
        side.source = source;
        side.overlays = overlays;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pages of earlier versions are read.
    #[test]
    fn the_tags_of_causes_stay_as_they_are() {
        for (cause, expected) in [
            (DeadLetterCause::MaxDeliveryCountExceeded, 0x08),
            (DeadLetterCause::Expired, 0x10),
            (DeadLetterCause::MaxTransferHopCountExceeded, 0x18),
            (DeadLetterCause::SessionIdIsNull, 0x20),
            (DeadLetterCause::DestinationUnavailable, 0x28),
            (DeadLetterCause::ByReceiver, 0x30),
            (DeadLetterCause::FilterFailed, 0x38),
            (DeadLetterCause::BodyDamaged, 0x80),
            (DeadLetterCause::TransferFailed, 0x88),
            (DeadLetterCause::TransferNeedsSession, 0x90),
        ] {
            let body = BodyLocation::new(1, 2, 3);
            let record = Record {
                cause: Some(cause),
                ..Record::ready(Timestamp::from_ms(1), body)
            };
            assert_eq!(tags(&record), expected, "{cause:?}");
            let read = untagged(expected.into()).unwrap();
            assert_eq!(read.1, Some(cause));
        }
    }

    fn at() -> impl Strategy<Value = BodyLocation> {
        let offset = 0..=BodyLocation::OFFSET_MAX;
        (any::<u64>(), offset, any::<u32>())
            .prop_map(|(record, offset, length)| BodyLocation::new(record, offset, length))
    }

    fn time() -> impl Strategy<Value = Timestamp> {
        prop_oneof![
            2 => Just(u64::MAX),
            3 => 1_700_000_000_000_u64..1_700_000_100_000,
            1 => any::<u64>(),
        ]
        .prop_map(Timestamp::from_ms)
    }

    fn record() -> impl Strategy<Value = Record> {
        let numbers = (any::<u32>(), 0_u32..4, 0_u32..9, any::<u8>(), 0_u32..768);
        (time(), time(), time(), at(), numbers).prop_filter_map(
            "tags that are none",
            |(enqueued_at, expires_at, due_at, body, numbers)| {
                let (generation, deliveries, session, hops, tags) = numbers;
                let (state, cause, encoding, hold) = untagged(tags)?;
                Some(Record {
                    expires_at,
                    due_at,
                    generation: LeaseGeneration::new(generation),
                    deliveries,
                    session,
                    state,
                    cause,
                    encoding,
                    hops,
                    ..Record::ready(enqueued_at, body.with(hold))
                })
            },
        )
    }

    fn side() -> impl Strategy<Value = Option<Box<Side>>> {
        let source = prop_oneof![Just(None), Just(Some("a")), Just(Some("queue"))];
        let rare = (
            prop::option::of(0_u64..1 << 40),
            source,
            prop::collection::vec(at(), 0..3),
        );
        let rare = rare.prop_map(|(first, source, overlays)| Side {
            first_number: first.map(SequenceNumber::new),
            source: source.map(Arc::from),
            overlays,
        });
        let some = rare.prop_filter("empty", |it| !it.is_empty());
        prop_oneof![3 => Just(None), 1 => some.prop_map(|it| Some(Box::new(it)))]
    }

    fn to_page<'a>((slot, record, side): &'a Paged) -> ToPage<'a> {
        let side = side.as_deref();
        ToPage {
            slot: *slot,
            record,
            first_number: side.and_then(|side| side.first_number),
            side,
        }
    }

    /// Copies of a topic's messages, one of which became a dead letter and was forwarded.
    #[test]
    fn first_numbers_are_a_column() {
        let body = BodyLocation::new(4, 5, 6);
        let record = Record::ready(Timestamp::from_ms(9), body);
        let copy = |slot: usize| {
            let side = Side {
                first_number: Some(SequenceNumber::new(1000 + slot as u64)),
                source: (slot == 2).then(|| "q".into()),
                overlays: Vec::new(),
            };
            (slot, record, (slot > 0).then(|| Box::new(side)))
        };
        let all: Vec<Paged> = (0..4).map(copy).collect();
        let mut out = Vec::new();
        put_messages(&mut out, &all.iter().map(to_page).collect::<Vec<_>>());
        let bytes: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes, FIRST_NUMBERS_GOLDEN);
        assert_eq!(messages(&mut Reader::new(&out)), Ok(all));
        // 128 copies whose numbers rise by one take hardly more than others.
        let size_bytes = |copies: &[Paged]| {
            let mut out = Vec::new();
            put_messages(&mut out, &copies.iter().map(to_page).collect::<Vec<_>>());
            out.len()
        };
        let copies: Vec<Paged> = (1..129).map(copy).filter(|it| it.0 != 2).collect();
        let plain: Vec<Paged> = copies.iter().map(|it| (it.0, it.1, None)).collect();
        let more = size_bytes(&copies) - size_bytes(&plain);
        assert!(more <= 16, "{more}");
    }

    const FIRST_NUMBERS_GOLDEN: &str = "04000900000400000500000600000000000000000000000000000000040000e4\
                                        000000000000030400005404e90700240201017100";

    proptest! {
        #[test]
        fn messages_are_read_as_they_were_written(
            slots in prop::collection::btree_map(0..SLOTS_MAX, (record(), side()), 0..80),
        ) {
            let all: Vec<Paged> = slots.into_iter().map(|(slot, (record, side))| (slot, record, side)).collect();
            let mut out = Vec::new();
            put_messages(&mut out, &all.iter().map(to_page).collect::<Vec<_>>());
            let mut r = Reader::new(&out);
            prop_assert_eq!(messages(&mut r)?, all);
            prop_assert!(r.is_empty());
            for cut in 0..out.len() {
                prop_assert!(messages(&mut Reader::new(&out[..cut])).is_err());
            }
        }

        #[test]
        fn altered_bytes_are_messages_or_an_error(
            count in 1_usize..40,
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let record = Record::ready(Timestamp::from_ms(9), BodyLocation::new(4, 5, 6));
            let first_number = Some(SequenceNumber::new(7));
            let side = Side { overlays: vec![record.body], first_number, source: None };
            let all: Vec<Paged> = (0..count).map(|slot| (2 * slot, record, Some(Box::new(side.clone())))).collect();
            let mut out = Vec::new();
            put_messages(&mut out, &all.iter().map(to_page).collect::<Vec<_>>());
            for (at, byte) in flips {
                let at = at.index(out.len());
                out[at] = byte;
            }
            if let Ok(found) = messages(&mut Reader::new(&out)) {
                prop_assert!(found.len() <= SLOTS_MAX);
                prop_assert!(found.is_sorted_by(|one, next| one.0 < next.0));
            }
        }

        #[test]
        fn garbage_is_messages_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = messages(&mut Reader::new(&bytes));
        }
    }

    #[test]
    fn every_state_cause_encoding_and_hold_has_tags() {
        let known = (0..1024).filter_map(|tags| Some((tags, untagged(tags)?)));
        let mut count = 0;
        for (expected, (state, cause, encoding, hold)) in known {
            let body = BodyLocation::new(0, 0, 0).with(hold);
            let record = Record {
                state,
                cause,
                encoding,
                ..Record::ready(Timestamp::ZERO, body)
            };
            assert_eq!(u32::from(tags(&record)), expected);
            count += 1;
        }
        assert_eq!(count, 5 * 11 * 2 * 3);
    }
}
