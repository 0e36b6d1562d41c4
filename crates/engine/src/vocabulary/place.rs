//! Where a message is, and how effects write it.
//!
//! Effects take most of the log. So an effect on the same entity as the one before it leaves the entity out and
//! writes its number as a difference, and times are differences to the event's time.

use super::codec::{DecodeError, Reader, put_varint, unzigzag, zigzag};
use super::elements::{held, incarnation, location_at, sequence_number};
use super::{BodyLocation, Incarnation, SequenceNumber, Timestamp};

/// Where a message is: an entity, and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The entity.
    pub entity: Incarnation,
    /// The message's order in it.
    pub number: SequenceNumber,
}

/// Where a body was, and where it is. Its length is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyMove {
    /// The old location.
    pub from: BodyLocation,
    /// The new location.
    pub to: BodyLocation,
}

/// The positions of the move before, to which those of the next one are differences.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MovesBefore {
    from: u64,
    to: u64,
}

impl MovesBefore {
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, body: BodyMove) {
        let BodyMove { from, to } = body;
        put_varint(out, zigzag(from.record.wrapping_sub(self.from)));
        put_varint(out, u64::from(from.place()));
        put_varint(out, u64::from(from.length));
        put_varint(out, zigzag(to.record.wrapping_sub(self.to)));
        put_varint(out, u64::from(to.place()));
        self.from = from.record;
        self.to = to.record;
    }

    pub(crate) fn read(&mut self, r: &mut Reader<'_>) -> Result<BodyMove, DecodeError> {
        self.from = self.from.wrapping_add(unzigzag(r.varint()?));
        let from = location_at(r, self.from)?;
        self.to = self.to.wrapping_add(unzigzag(r.varint()?));
        let place = r.varint_u32()?;
        let to = held(r, self.to, place, from.length)?;
        Ok(BodyMove { from, to })
    }
}

/// A message's place, or the first number of a range, as the next effect refers to it.
pub(crate) type Before = Option<(Incarnation, u64)>;

/// Writes the first byte, with the flag if the entity is that of the effect before, and the place.
pub(crate) fn put_start(
    out: &mut Vec<u8>,
    kind_and_flags: u8,
    same_entity: u8,
    at: Place,
    before: &mut Before,
) {
    out.push(kind_and_flags | same_entity_flag(at, *before, same_entity));
    put_place(out, at, before);
}

/// The flag, if the entity is that of the effect before.
pub(crate) fn same_entity_flag(at: Place, before: Before, flag: u8) -> u8 {
    match before {
        Some((entity, _)) if entity == at.entity => flag,
        Some(_) | None => 0,
    }
}

/// Writes the place behind the first byte.
pub(crate) fn put_place(out: &mut Vec<u8>, at: Place, before: &mut Before) {
    let number = at.number.as_u64();
    match *before {
        Some((entity, before)) if entity == at.entity => {
            put_varint(out, zigzag(number.wrapping_sub(before)));
        }
        Some(_) | None => {
            put_varint(out, at.entity.as_u64());
            put_varint(out, number);
        }
    }
    *before = Some((at.entity, number));
}

/// Writes a place behind a first byte as differences to the place before: to its entity, unless that is the same, and to
/// its number. Entities that follow each other have messages with numbers that are near.
pub(crate) fn put_difference_to(out: &mut Vec<u8>, at: Place, before: &mut Before) {
    let (entity, number) = before.map_or((0, 0), |(entity, number)| (entity.as_u64(), number));
    if entity != at.entity.as_u64() {
        put_varint(out, zigzag(at.entity.as_u64().wrapping_sub(entity)));
    }
    put_varint(out, zigzag(at.number.as_u64().wrapping_sub(number)));
    *before = Some((at.entity, at.number.as_u64()));
}

/// Reads what [`put_difference_to`] wrote of a place in another entity.
pub(crate) fn difference_to(r: &mut Reader<'_>, before: &mut Before) -> Result<Place, DecodeError> {
    let (entity, number) = before.map_or((0, 0), |(entity, number)| (entity.as_u64(), number));
    let entity = entity.wrapping_add(unzigzag(r.varint()?));
    if entity >= 1 << Incarnation::BITS {
        return Err(r.error("incarnation out of range"));
    }
    *before = Some((Incarnation::new(entity), number));
    place_near(r, before)
}

/// Reads a place in the entity of the place before.
pub(crate) fn place_near(r: &mut Reader<'_>, before: &mut Before) -> Result<Place, DecodeError> {
    place(r, true, before)
}

/// Writes a time that its flag says is there, as a difference to the event's time.
pub(crate) fn put_time_from(out: &mut Vec<u8>, now: Timestamp, time: Option<Timestamp>) {
    if let Some(time) = time {
        put_varint(out, zigzag(time.as_ms().wrapping_sub(now.as_ms())));
    }
}

/// Reads a place after the first byte.
pub(crate) fn place(
    r: &mut Reader<'_>,
    is_same_entity: bool,
    before: &mut Before,
) -> Result<Place, DecodeError> {
    let (entity, number) = match (is_same_entity, *before) {
        (false, _) => (incarnation(r)?, sequence_number(r)?),
        (true, Some((entity, before))) => {
            let number = before.wrapping_add(unzigzag(r.varint()?));
            // As elsewhere, the next number must be one, too.
            if number >= (1 << SequenceNumber::BITS) - 1 {
                return Err(r.error("sequence number out of range"));
            }
            (entity, SequenceNumber::new(number))
        }
        (true, None) => return Err(r.error("effect on the entity of no effect before it")),
    };
    *before = Some((entity, number.as_u64()));
    Ok(Place { entity, number })
}

pub(crate) fn time_from(
    r: &mut Reader<'_>,
    now: Timestamp,
    flag: u8,
) -> Result<Option<Timestamp>, DecodeError> {
    match flag {
        0 => Ok(None),
        _ => difference(r, now).map(Some),
    }
}

pub(crate) fn difference(r: &mut Reader<'_>, now: Timestamp) -> Result<Timestamp, DecodeError> {
    let difference = unzigzag(r.varint()?);
    Ok(Timestamp::from_ms(now.as_ms().wrapping_add(difference)))
}
