//! What was done to a message whose record is on a page alone, and its bytes in a directory page.

use super::page::group::{encoding, encoding_code, state, state_code};
use super::record::{Leased, MessageState, Placed, Record, Side};
use crate::vocabulary::codec::{DecodeError, Reader, put_varint};
use crate::vocabulary::elements::{location, put_location, put_time, time};
use crate::vocabulary::{BodyLocation, BodyMove, LeaseGeneration, Timestamp};

/// What was done to a message whose record is not in memory: values, not differences.
#[derive(Clone, Debug, Default)]
pub(in crate::table) struct Patch {
    leased: Option<Leased>,
    /// When it expires, if it became ready meanwhile.
    expires_at: Option<Timestamp>,
    overlays: Vec<BodyLocation>,
    /// Moves of what the page has.
    moves: Vec<BodyMove>,
}

impl Patch {
    pub(super) fn lease(&mut self, leased: &Leased) {
        if leased.state == MessageState::Ready {
            self.expires_at = Some(leased.until);
        }
        let before = self.leased.and_then(|before| before.body);
        self.leased = Some(Leased {
            body: leased.body.or(before),
            ..*leased
        });
    }

    pub(super) fn add_overlay(&mut self, overlay: BodyLocation) {
        self.overlays.push(overlay);
    }

    /// The state that the message has since then, and until when. `None` if it has that of its record.
    pub(super) fn standing(&self) -> Option<(MessageState, Timestamp)> {
        self.leased.map(|leased| (leased.state, leased.until))
    }

    pub(super) fn move_body(&mut self, body: BodyMove) {
        let sent = self.leased.as_mut().and_then(|it| it.body.as_mut());
        let sent = sent.map(|body| &mut body.location).into_iter();
        match sent.chain(&mut self.overlays).find(|at| **at == body.from) {
            Some(at) => *at = body.to,
            None => self.moves.push(body),
        }
    }

    /// Lays it over a message of the page. If that has it already, nothing changes: a page of which both copies were lost is
    /// made again from memory, and its directory stays.
    pub(super) fn lay_over(self, record: &mut Record, side: &mut Side) {
        for body in self.moves {
            let sent = std::iter::once(&mut record.body);
            if let Some(at) = sent.chain(&mut side.overlays).find(|at| **at == body.from) {
                *at = body.to;
            }
        }
        if let Some(expires_at) = self.expires_at {
            record.expires_at = expires_at;
        }
        if let Some(leased) = &self.leased {
            record.lease(leased);
        }
        for overlay in self.overlays {
            if !side.overlays.contains(&overlay) {
                side.overlays.push(overlay);
            }
        }
    }
}

/// What a patch has.
mod has {
    pub(super) const LEASE: u8 = 1;
    pub(super) const BODY: u8 = 2;
    pub(super) const EXPIRY: u8 = 4;
    pub(super) const OVERLAYS: u8 = 8;
    pub(super) const MOVES: u8 = 16;
    pub(super) const ALL: u8 = 31;
}

/// Its bytes.
impl Patch {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let body = self.leased.and_then(|leased| leased.body);
        let parts = [
            (self.leased.is_some(), has::LEASE),
            (body.is_some(), has::BODY),
            (self.expires_at.is_some(), has::EXPIRY),
            (!self.overlays.is_empty(), has::OVERLAYS),
            (!self.moves.is_empty(), has::MOVES),
        ];
        let parts = parts.into_iter().filter(|(is_there, _)| *is_there);
        out.push(parts.fold(0, |flags, (_, flag)| flags | flag));
        if let Some(leased) = &self.leased {
            put_varint(out, leased.generation.as_u32().into());
            put_varint(out, leased.deliveries.into());
            out.push(state_code(leased.state));
            put_time(out, leased.until);
        }
        if let Some(body) = body {
            out.push(encoding_code(body.encoding));
            put_location(out, body.location);
        }
        if let Some(at) = self.expires_at {
            put_time(out, at);
        }
        if !self.overlays.is_empty() {
            put_varint(out, self.overlays.len() as u64);
            self.overlays.iter().for_each(|it| put_location(out, *it));
        }
        if !self.moves.is_empty() {
            put_varint(out, self.moves.len() as u64);
            for body in &self.moves {
                put_location(out, body.from);
                put_location(out, body.to);
            }
        }
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let flags = r.u8()?;
        let has = |flag: u8| flags & flag != 0;
        if flags & !has::ALL != 0 || has(has::BODY) && !has(has::LEASE) {
            return Err(r.error("flags of a patch that are not known"));
        }
        let mut patch = Self::default();
        if has(has::LEASE) {
            patch.leased = Some(lease(r, has(has::BODY))?);
        }
        if has(has::EXPIRY) {
            patch.expires_at = Some(time(r)?);
        }
        if has(has::OVERLAYS) {
            for _ in 0..r.varint()? {
                patch.overlays.push(location(r)?);
            }
        }
        if has(has::MOVES) {
            for _ in 0..r.varint()? {
                let (from, to) = (location(r)?, location(r)?);
                patch.moves.push(BodyMove { from, to });
            }
        }
        Ok(patch)
    }
}

fn lease(r: &mut Reader<'_>, has_body: bool) -> Result<Leased, DecodeError> {
    let generation = LeaseGeneration::new(r.varint_u32()?);
    let deliveries = r.varint_u32()?;
    let code = r.u8()?;
    let state = state(code.into()).ok_or_else(|| r.error("state that is not known"))?;
    let until = time(r)?;
    let body = match has_body {
        false => None,
        true => {
            let code = r.u8()?;
            let encoding = encoding(code.into());
            Some(Placed {
                encoding: encoding.ok_or_else(|| r.error("encoding that is not known"))?,
                location: location(r)?,
            })
        }
    };
    Ok(Leased {
        generation,
        deliveries,
        state,
        until,
        body,
    })
}
