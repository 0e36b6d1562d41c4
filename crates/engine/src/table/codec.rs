//! The bytes of what the table's records have.

use super::{BodyEncoding, Placed, RunLength};
use crate::vocabulary::BodyLocation;
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::elements::{location, put_location};

pub(crate) fn run_length(r: &mut Reader<'_>) -> Result<RunLength, DecodeError> {
    let length = RunLength::new(r.varint()?);
    length.ok_or_else(|| r.error("length of runs that is not a power of two up to 1024"))
}

pub(crate) fn put_body(out: &mut Vec<u8>, encoding: BodyEncoding, body: BodyLocation) {
    put_encoding(out, encoding);
    put_location(out, body);
}

pub(crate) fn placed(r: &mut Reader<'_>) -> Result<Placed, DecodeError> {
    Ok(Placed {
        encoding: encoding(r)?,
        location: location(r)?,
    })
}

pub(crate) fn put_encoding(out: &mut Vec<u8>, encoding: BodyEncoding) {
    out.push(match encoding {
        BodyEncoding::Text => 1,
        BodyEncoding::Raw => 2,
    });
}

pub(crate) fn encoding(r: &mut Reader<'_>) -> Result<BodyEncoding, DecodeError> {
    match r.u8()? {
        1 => Ok(BodyEncoding::Text),
        2 => Ok(BodyEncoding::Raw),
        _ => Err(r.error("body encoding that is not known")),
    }
}
