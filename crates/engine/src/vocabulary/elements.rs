//! The bytes of what events and snapshots have in common. `EVENTS.md` lists them.

use std::sync::Arc;

use super::codec::{DecodeError, Reader, put_str, put_varint};
use super::{BodyLocation, EntityName, Incarnation, SequenceNumber, Service, Timestamp};

/// A time, with [`Timestamp::NEVER`] as 0, because it is the most frequent of the large ones.
pub(crate) fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    put_varint(out, time.as_ms().wrapping_add(1));
}

pub(crate) fn time(r: &mut Reader<'_>) -> Result<Timestamp, DecodeError> {
    Ok(Timestamp::from_ms(r.varint()?.wrapping_sub(1)))
}

pub(crate) fn incarnation(r: &mut Reader<'_>) -> Result<Incarnation, DecodeError> {
    r.varint_bits(Incarnation::BITS).map(Incarnation::new)
}

pub(crate) fn sequence_number(r: &mut Reader<'_>) -> Result<SequenceNumber, DecodeError> {
    r.varint_bits(SequenceNumber::BITS).map(SequenceNumber::new)
}

pub(crate) fn put_name(out: &mut Vec<u8>, name: &EntityName) {
    put_service(out, name.service);
    put_str(out, &name.account);
    put_str(out, &name.name);
}

pub(crate) fn put_service(out: &mut Vec<u8>, service: Service) {
    out.push(match service {
        Service::QueueStorage => 1,
        Service::ServiceBus => 2,
    });
}

pub(crate) fn service(r: &mut Reader<'_>) -> Result<Service, DecodeError> {
    match r.u8()? {
        1 => Ok(Service::QueueStorage),
        2 => Ok(Service::ServiceBus),
        _ => Err(r.error("service that is not known")),
    }
}

pub(crate) fn name(r: &mut Reader<'_>) -> Result<EntityName, DecodeError> {
    let service = service(r)?;
    let account: Arc<str> = r.str()?.into();
    let name: Box<str> = r.str()?.into();
    Ok(EntityName {
        service,
        account,
        name,
    })
}

pub(crate) fn put_location(out: &mut Vec<u8>, location: BodyLocation) {
    put_varint(out, location.record);
    put_varint(out, u64::from(location.place()));
    put_varint(out, u64::from(location.length));
}

pub(crate) fn location(r: &mut Reader<'_>) -> Result<BodyLocation, DecodeError> {
    let record = r.varint()?;
    location_at(r, record)
}

/// Reads what of a location is behind its position.
pub(crate) fn location_at(r: &mut Reader<'_>, record: u64) -> Result<BodyLocation, DecodeError> {
    let (place, length) = (r.varint_u32()?, r.varint_u32()?);
    held(r, record, place, length)
}

/// A location, if its hold is known.
pub(crate) fn held(
    r: &Reader<'_>,
    record: u64,
    place: u32,
    length: u32,
) -> Result<BodyLocation, DecodeError> {
    let location = BodyLocation::of_place(record, place, length);
    location.ok_or_else(|| r.error("hold of a body that is not known"))
}
