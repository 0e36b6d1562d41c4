//! The bytes that effects take.

use super::*;
use crate::bus::DUE_SIZE_BYTES_MAX;
use crate::event::{Event, Fact};
use crate::storage::StorageFact;
use crate::storage::backlog::expiry::ENDED_COUNT_MAX;
use crate::table::{BodyEncoding, RunLength};
use crate::vocabulary::{Incarnation, SequenceNumber};

/// What a batch adds to an event of less than 16 KiB: a tag and a length.
const FRAME_SIZE_BYTES: usize = 3;

fn body_alone(sent: BodyLocation) -> Bodies {
    Bodies {
        sent,
        overlays: Vec::new(),
    }
}

fn size_bytes(at: Timestamp, effects: Effects) -> usize {
    let mut bytes = Vec::new();
    let fact = Fact::Storage(StorageFact::Messages { effects });
    Event { at, fact }.encode(&mut bytes);
    FRAME_SIZE_BYTES + bytes.len()
}

/// A tick makes room for this many bytes of each due thing. On a full disk there is no more.
#[test]
fn the_largest_event_of_a_tick_has_room() {
    let last = 1 << (SequenceNumber::BITS - 1);
    // As far apart as they are in one run.
    let step = RunLength::DEFAULT.as_u64() / ENDED_COUNT_MAX as u64;
    let number = |index: u64| SequenceNumber::new(last + index * step);
    let entity = Incarnation::new((1 << Incarnation::BITS) - 2);
    let was = Was {
        standing: message::until(Timestamp::from_ms(u64::MAX / 2)),
        session: 0,
    };
    let sent = BodyLocation::new(u64::MAX, BodyLocation::OFFSET_MAX, u32::MAX);
    let ended = (0..ENDED_COUNT_MAX as u64).map(|index| Effect::Ended {
        at: Place {
            entity,
            number: number(index),
        },
        was,
        bodies: body_alone(sent),
        source_length: None,
    });
    let size = size_bytes(Timestamp::from_ms(u64::MAX - 1), ended.collect());
    assert!(size as u64 <= DUE_SIZE_BYTES_MAX, "{size}");
    let range = Effect::Own(OwnEffect::RangeEnded {
        entity,
        from: number(0),
        until: number(15),
    });
    let size = size_bytes(Timestamp::from_ms(u64::MAX - 1), range.into());
    assert!(size as u64 <= DUE_SIZE_BYTES_MAX, "{size}");
}

/// A message is put, received and deleted: 66 bytes in the first version, without the frames.
#[test]
fn a_cycle_takes_few_bytes() {
    let now = Timestamp::from_ms(1_800_000_000_000);
    let at = Place {
        entity: Incarnation::new(100),
        number: SequenceNumber::new(10_000_000),
    };
    let location = BodyLocation::new(20_000_000_000, 3_000, 64);
    let body = Placed {
        encoding: BodyEncoding::Text,
        location,
    };
    let due_at = now.plus_seconds(30);
    let expires_at = now.plus_seconds(604_800);
    let arrived = Effect::Arrived {
        to: at,
        message: Message::arrived(now, expires_at, None, body).into(),
    };
    let lease = Lease {
        generation: LeaseGeneration::new(2),
        deliveries: 1,
        standing: message::until(due_at),
    };
    let leased = Effect::Leased {
        at,
        lease,
        body: None,
        was: Was::default(),
    };
    let ended = Effect::Ended {
        at,
        was: Was {
            standing: message::until(due_at),
            session: 0,
        },
        bodies: body_alone(location),
        source_length: None,
    };
    let size = |effect: Effect| size_bytes(now, effect.into()) - FRAME_SIZE_BYTES;
    assert_eq!([arrived, leased, ended].map(size), [28, 19, 25]);
}
