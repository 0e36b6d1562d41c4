//! Old events about bus queues, as old logs have them; and a model of what they meant.

mod model;

use super::super::bus::{OldArrival, OldFact, kind};
use super::*;
use crate::bus::event::codec::{put_cause, put_options};
use crate::bus::{BusFact, BusQueueOptions, DeadLetterCause, Release};
use crate::event::codec::VERSION;
use crate::state::State;
use crate::vocabulary::Service;
use crate::vocabulary::codec::{put_optional, put_str, put_varint};
use crate::vocabulary::elements::{put_location, put_time};

fn put_place(out: &mut Vec<u8>, at: Place) {
    put_varint(out, at.entity.as_u64());
    put_varint(out, at.number.as_u64());
}

fn put_rest(out: &mut Vec<u8>, arrival: &OldArrival) {
    put_optional(out, arrival.session.as_deref(), put_str);
    put_optional(out, arrival.id_hash, |out, hash| {
        out.extend(hash.to_be_bytes());
    });
    put_location(out, arrival.body);
}

impl OldFact {
    fn kind(&self) -> u8 {
        match self {
            Self::QueueUpdated { .. } => kind::QUEUE_UPDATED,
            Self::Sent(_) => kind::SENT,
            Self::Activated { .. } => kind::ACTIVATED,
            Self::Locked { .. } => kind::LOCKED,
            Self::LockRenewed { .. } => kind::LOCK_RENEWED,
            Self::Released { .. } => kind::RELEASED,
            Self::Removed { .. } => kind::REMOVED,
            Self::Moved { .. } => kind::MOVED,
            Self::SessionLocked { .. } => kind::SESSION_LOCKED,
            Self::SessionReleased { .. } => kind::SESSION_RELEASED,
            Self::SessionStateSet { .. } => kind::SESSION_STATE_SET,
            Self::Resubmitted { .. } => kind::RESUBMITTED,
        }
    }

    /// The bytes that earlier versions wrote.
    fn encode(&self, now: Timestamp) -> Vec<u8> {
        let mut out = vec![self.kind(), VERSION];
        put_time(&mut out, now);
        let out_of = &mut out;
        match self {
            Self::QueueUpdated { queue, options } => {
                put_varint(out_of, queue.as_u64());
                put_options(out_of, options);
            }
            Self::Sent(arrival) => {
                put_place(out_of, arrival.to);
                put_time(out_of, arrival.expires_at);
                put_time(out_of, arrival.scheduled_at);
                put_rest(out_of, arrival);
            }
            Self::Activated {
                at,
                number,
                expires_at,
            } => {
                put_place(out_of, *at);
                put_varint(out_of, number.as_u64());
                put_time(out_of, *expires_at);
            }
            Self::Locked { at, until } | Self::LockRenewed { at, until } => {
                put_place(out_of, *at);
                put_time(out_of, *until);
            }
            Self::Released {
                at,
                release,
                overlay,
            } => {
                put_place(out_of, *at);
                out_of.push(match release {
                    Release::Failed => 1,
                    Release::Unseen => 2,
                    Release::Deferred => 3,
                });
                put_optional(out_of, *overlay, put_location);
            }
            Self::Removed { at } => put_place(out_of, *at),
            Self::Moved {
                at,
                to,
                cause,
                overlay,
            } => {
                put_place(out_of, *at);
                put_place(out_of, *to);
                put_optional(out_of, *cause, put_cause);
                put_optional(out_of, *overlay, put_location);
            }
            Self::SessionLocked {
                queue,
                session,
                until,
            } => {
                put_varint(out_of, queue.as_u64());
                put_str(out_of, session);
                put_time(out_of, *until);
            }
            Self::SessionReleased { queue, session } => {
                put_varint(out_of, queue.as_u64());
                put_str(out_of, session);
            }
            Self::SessionStateSet {
                queue,
                session,
                state,
            } => {
                put_varint(out_of, queue.as_u64());
                put_str(out_of, session);
                put_optional(out_of, *state, put_location);
            }
            Self::Resubmitted { at, arrival } => {
                put_place(out_of, *at);
                put_place(out_of, arrival.to);
                put_time(out_of, arrival.expires_at);
                put_rest(out_of, arrival);
            }
        }
        out
    }
}

const OPTIONS: &str = "e0d403 0a ffffffffffffffffff01 00 00 00 ffffffffffffffffff01 00 00 01 \
                       8080808004 808040 00";

/// The bytes never change: they are in logs.
#[test]
fn every_old_event_is_read() {
    let at = place(3, 200);
    let to = place(4, 1);
    let until = Timestamp::from_ms(1000);
    let body = body(300).location;
    let queue = at.entity;
    let session = || Box::<str>::from("s");
    let arrival = OldArrival {
        to: at,
        expires_at: Timestamp::NEVER,
        scheduled_at: until,
        session: Some("s".into()),
        id_hash: Some(1),
        body,
    };
    let resubmitted = OldArrival {
        to,
        scheduled_at: Timestamp::ZERO,
        id_hash: None,
        ..arrival.clone()
    };
    let options = BusQueueOptions::default();
    let updated = format!("41 01e90703 {OPTIONS}");
    for (fact, bytes) in [
        (OldFact::QueueUpdated { queue, options }, updated.as_str()),
        (
            OldFact::Sent(arrival),
            "43 01e90703 c801 00 e907 010173 0100000000000000000000000000000001 80200aac02",
        ),
        (
            OldFact::Activated {
                at,
                number: SequenceNumber::new(201),
                expires_at: Timestamp::NEVER,
            },
            "44 01e90703 c801 c901 00",
        ),
        (OldFact::Locked { at, until }, "45 01e90703 c801 e907"),
        (OldFact::LockRenewed { at, until }, "46 01e90703 c801 e907"),
        (
            OldFact::Released {
                at,
                release: Release::Failed,
                overlay: Some(body),
            },
            "47 01e90703 c801 01 0180200aac02",
        ),
        (
            OldFact::Released {
                at,
                release: Release::Deferred,
                overlay: None,
            },
            "47 01e90703 c801 03 00",
        ),
        (OldFact::Removed { at }, "48 01e90703 c801"),
        (
            OldFact::Moved {
                at,
                to,
                cause: Some(DeadLetterCause::ByReceiver),
                overlay: None,
            },
            "49 01e90703 c801 04 01 0105 00",
        ),
        (
            OldFact::SessionLocked {
                queue,
                session: session(),
                until,
            },
            "4a 01e90703 0173 e907",
        ),
        (
            OldFact::SessionReleased {
                queue,
                session: session(),
            },
            "4c 01e90703 0173",
        ),
        (
            OldFact::SessionStateSet {
                queue,
                session: session(),
                state: Some(body),
            },
            "4d 01e90703 0173 0180200aac02",
        ),
        (
            OldFact::Resubmitted {
                at,
                arrival: resubmitted,
            },
            "50 01e90703 c801 04 01 00 010173 00 80200aac02",
        ),
    ] {
        let mut bytes = hex(bytes);
        let now = Timestamp::from_ms(1000);
        assert_eq!(fact.encode(now), bytes);
        let mut r = Reader::new(&bytes);
        let (kind, at) = head(&mut r).unwrap();
        assert_eq!(OldFact::decode(kind, &mut r), Ok(fact));
        let state = State::new();
        let event = state.read_event(&bytes).unwrap();
        assert_eq!((at, event.at), (now, now));
        for cut in 0..bytes.len() {
            assert!(state.read_event(&bytes[..cut]).is_err());
        }
        // They are not written any more.
        assert!(Event::decode(&bytes).is_err());
        bytes.push(0);
        assert!(state.read_event(&bytes).is_err());
    }
}
