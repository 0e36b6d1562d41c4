//! The bytes that effects take.

mod copies;

use super::*;
use crate::bus::message::OVERLAYS_MAX;
use crate::bus::room::{
    DUE_SIZE_BYTES_MAX, ENDED_SIZE_BYTES_MAX, LEASED_SIZE_BYTES, RELEASED_SIZE_BYTES,
};
use crate::bus::{BusFact, DeadLetterCause, SESSION_ID_SIZE_BYTES_MAX, sent};
use crate::effect::{Bodies, BusSession, Lease, Rest};
use crate::event::{Event, Fact};
use crate::table::Side;
use crate::vocabulary::{Hold, SequenceNumber};

/// What a batch adds to an event of less than 16 KiB: a tag and a length.
const FRAME_SIZE_BYTES: usize = 3;

fn size_bytes(at: Timestamp, fact: Fact) -> usize {
    let mut bytes = Vec::new();
    Event { at, fact }.encode(&mut bytes);
    FRAME_SIZE_BYTES + bytes.len()
}

fn effects_size_bytes(at: Timestamp, effects: Vec<Effect>) -> u64 {
    let effects = effects.into();
    size_bytes(at, Fact::Bus(BusFact::Messages { effects })) as u64
}

/// Values as large as they can be. No log is larger than 2^49 bytes, and no year later than 10889.
mod largest {
    use super::*;

    pub(super) const NOW: Timestamp = Timestamp::from_ms(1 << 48);

    pub(super) fn at(entity: u64, number: u64) -> Place {
        Place {
            entity: Incarnation::new((1 << Incarnation::BITS) - entity),
            number: SequenceNumber::new((1 << SequenceNumber::BITS) - number),
        }
    }

    pub(super) fn location(record: u64) -> BodyLocation {
        BodyLocation::new(record, 8 << 20, 1 << 20)
    }

    /// Changes have 64 KiB together, and each lies behind the one before.
    pub(super) fn bodies() -> Bodies {
        let overlay = |index: u64| {
            let length = 2 * 1024;
            let at = location(((1 << 49) / OVERLAYS_MAX as u64) * (index + 1) - 1);
            BodyLocation { length, ..at }
        };
        Bodies {
            sent: location(1).with(Hold::Borrows),
            overlays: (0..OVERLAYS_MAX as u64).map(overlay).collect(),
        }
    }

    pub(super) fn was() -> Was {
        Was {
            standing: Standing {
                state: BusMessageState::Locked { deferred: true },
                until: Timestamp::from_ms(1 << 47),
            },
            session: u32::MAX,
        }
    }

    pub(super) fn leased(at: Place, overlay: Option<BodyLocation>) -> Effect {
        Effect::Leased {
            at,
            lease: Lease {
                generation: LeaseGeneration::new(u32::MAX),
                deliveries: u32::MAX,
                standing: Standing::ready(Timestamp::from_ms(1 << 47)),
            },
            body: overlay.map(|overlay| Box::new(NewBody::Change(overlay))),
            was: was(),
        }
    }

    pub(super) fn ended(at: Place, bodies: Bodies) -> Effect {
        Effect::Ended {
            at,
            was: was(),
            bodies,
            source_length: Some(260),
        }
    }

    pub(super) fn session() -> BusSession {
        BusSession {
            number: u32::MAX,
            id: "s".repeat(SESSION_ID_SIZE_BYTES_MAX).into(),
        }
    }
}

#[test]
fn the_largest_effects_have_room() {
    let at = largest::at(2, 3);
    let ended = largest::ended(at, largest::bodies());
    let size = effects_size_bytes(largest::NOW, vec![ended]);
    assert!(size <= ENDED_SIZE_BYTES_MAX, "{size}");

    let leased = largest::leased(at, None);
    let size = effects_size_bytes(largest::NOW, vec![leased.clone()]);
    assert!(size <= LEASED_SIZE_BYTES, "{size}");
    let both = effects_size_bytes(largest::NOW, vec![leased.clone(), leased]);
    assert!(both - size <= RELEASED_SIZE_BYTES, "{both}");
}

#[test]
fn the_largest_due_thing_has_room() {
    let mut bodies = largest::bodies();
    let last = bodies.overlays.pop();
    let known = bodies.clone();
    bodies.overlays.extend(last);
    let expires_at = Timestamp::from_ms(1 << 47);
    let record = Record {
        generation: LeaseGeneration::new(u32::MAX),
        deliveries: u32::MAX,
        cause: Some(DeadLetterCause::Expired),
        hops: 4,
        ..sent(largest::NOW, expires_at, None, bodies.sent)
    };
    let rest = Rest {
        side: Side {
            first_number: Some(largest::at(1, 3).number),
            source: Some("q".repeat(260).into()),
            overlays: bodies.overlays,
        },
        // A topic remembers it.
        id_hash: Some(u128::MAX),
        ..Rest::default()
    };
    let arrived = Effect::Arrived {
        to: largest::at(1, 3),
        message: Arrival::new(record, Some(largest::session()), rest),
    };
    let ended = largest::ended(largest::at(2, 3), known);
    let size = effects_size_bytes(largest::NOW, vec![arrived, ended]);
    assert!(size <= 2 * DUE_SIZE_BYTES_MAX, "{size}");

    let queue = largest::at(2, 3).entity;
    let freed = Effect::Own(OwnEffect::SessionFreed {
        queue,
        session: largest::session().id,
    });
    let size = effects_size_bytes(largest::NOW, vec![freed]);
    assert!(size <= DUE_SIZE_BYTES_MAX, "{size}");
    let set = BusFact::SessionStateSet {
        queue,
        session: largest::session(),
        was: Some(largest::location(1 << 48)),
        state: Some(largest::location(1 << 48)),
    };
    let size = size_bytes(largest::NOW, Fact::Bus(set)) as u64;
    assert!(size <= DUE_SIZE_BYTES_MAX, "{size}");
}

/// A message after ten million others, in a log of 20 GB.
mod usual {
    use super::*;

    pub(super) const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);

    pub(super) fn at(index: u32) -> Place {
        Place {
            entity: Incarnation::new(100),
            number: SequenceNumber::new(10_000_000 + u64::from(index)),
        }
    }

    pub(super) fn body(index: u32) -> BodyLocation {
        BodyLocation::new(20_000_000_000, 3_000 + 70 * index, 64)
    }

    pub(super) fn locked() -> Standing {
        Standing {
            state: BusMessageState::Locked { deferred: false },
            until: NOW.plus_seconds(60),
        }
    }

    pub(super) fn ended(index: u32) -> Effect {
        Effect::Ended {
            at: at(index),
            was: Was {
                standing: locked(),
                session: 0,
            },
            bodies: Bodies {
                sent: body(index),
                overlays: Vec::new(),
            },
            source_length: None,
        }
    }
}

/// A message is sent, locked and completed: 58 bytes in the first version, without the frames.
#[test]
fn a_cycle_takes_few_bytes() {
    let sent = Effect::Arrived {
        to: usual::at(0),
        message: sent(usual::NOW, Timestamp::NEVER, None, usual::body(0)).into(),
    };
    let locked = Effect::Leased {
        at: usual::at(0),
        lease: Lease {
            generation: LeaseGeneration::new(1),
            deliveries: 0,
            standing: usual::locked(),
        },
        body: None,
        was: Was::default(),
    };
    let size = |effect| effects_size_bytes(usual::NOW, vec![effect]) - FRAME_SIZE_BYTES as u64;
    assert_eq!([sent, locked, usual::ended(0)].map(size), [22, 20, 26]);
}

#[test]
fn completions_of_one_command_take_few_bytes() {
    let hundred = effects_size_bytes(usual::NOW, (0..100).map(usual::ended).collect());
    assert!(hundred <= 1_800, "{hundred}");
}
