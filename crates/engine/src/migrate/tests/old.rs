//! What earlier versions did: how they wrote events, and a model of how they applied them.

use std::collections::BTreeMap;

use crate::event::codec::VERSION;
use crate::migrate::storage::{OLD_RUN_LENGTH, OldFact, kind};
use crate::storage::message::{self, Message};
use crate::table::Placed;
use crate::table::Record;
use crate::table::codec::put_body;
use crate::vocabulary::codec::{put_optional, put_varint};
use crate::vocabulary::elements::put_time;
use crate::vocabulary::{LeaseGeneration, Place, Timestamp};

impl OldFact {
    /// The bytes that earlier versions wrote.
    pub(super) fn encode(&self, now: Timestamp) -> Vec<u8> {
        let mut out = Vec::new();
        let start = |kind, out: &mut Vec<u8>| {
            out.extend_from_slice(&[kind, VERSION]);
            put_time(out, now);
        };
        let put_place = |out: &mut Vec<u8>, at: &Place| {
            put_varint(out, at.entity.as_u64());
            put_varint(out, at.number.as_u64());
        };
        match self {
            Self::MessageSent {
                at,
                expires_at,
                visible_at,
                body,
            } => {
                start(kind::MESSAGE_SENT, &mut out);
                put_place(&mut out, at);
                put_time(&mut out, *expires_at);
                put_time(&mut out, *visible_at);
                put_body(&mut out, body.encoding, body.location);
            }
            Self::MessageReceived { at, visible_at } => {
                start(kind::MESSAGE_RECEIVED, &mut out);
                put_place(&mut out, at);
                put_time(&mut out, *visible_at);
            }
            Self::MessageUpdated {
                at,
                visible_at,
                body,
            } => {
                start(kind::MESSAGE_UPDATED, &mut out);
                put_place(&mut out, at);
                put_time(&mut out, *visible_at);
                put_optional(&mut out, *body, |out, body| {
                    put_body(out, body.encoding, body.location);
                });
            }
            Self::MessageDeleted { at } => {
                start(kind::MESSAGE_DELETED, &mut out);
                put_place(&mut out, at);
            }
            Self::QueueCleared { queue, before } => {
                start(kind::QUEUE_CLEARED, &mut out);
                put_varint(&mut out, queue.as_u64());
                put_varint(&mut out, before.as_u64());
            }
            Self::RunExpired { queue, run } => {
                start(kind::RUN_EXPIRED, &mut out);
                put_varint(&mut out, queue.as_u64());
                put_varint(&mut out, *run);
            }
        }
        out
    }
}

/// A queue as old events made it: what earlier versions did, without runs and orders.
#[derive(Debug)]
pub(super) struct OldQueue {
    pub(super) messages: BTreeMap<u64, Message>,
    pub(super) next: u64,
}

impl Default for OldQueue {
    fn default() -> Self {
        Self {
            messages: BTreeMap::new(),
            next: 1,
        }
    }
}

impl OldQueue {
    pub(super) fn apply(&mut self, now: Timestamp, fact: &OldFact) {
        match *fact {
            OldFact::MessageSent {
                at,
                expires_at,
                visible_at,
                body,
            } => self.send(now, at.number.as_u64(), expires_at, visible_at, body),
            OldFact::MessageReceived { at, visible_at } => {
                self.lease(at, visible_at, |message| message.0.deliveries += 1);
            }
            OldFact::MessageUpdated {
                at,
                visible_at,
                body,
            } => self.lease(at, visible_at, |message| {
                if let Some(body) = body {
                    message.0.encoding = body.encoding;
                    message.0.body = body.location;
                }
            }),
            OldFact::MessageDeleted { at } => {
                self.messages.remove(&at.number.as_u64());
            }
            OldFact::QueueCleared { before, .. } => {
                let before = before.as_u64();
                self.next = self.next.max(before);
                self.messages.retain(|number, _| *number >= before);
            }
            OldFact::RunExpired { run, .. } => self.messages.retain(|number, message| {
                number / OLD_RUN_LENGTH != run || !message.expires_at.has_passed(now)
            }),
        }
    }

    fn send(
        &mut self,
        now: Timestamp,
        number: u64,
        expires_at: Timestamp,
        visible_at: Timestamp,
        body: Placed,
    ) {
        if number < self.next {
            return;
        }
        self.next = number + 1;
        let is_timed = !visible_at.has_passed(now);
        let message = Message(Record {
            expires_at,
            due_at: visible_at,
            generation: LeaseGeneration::FIRST,
            encoding: body.encoding,
            state: message::state(is_timed),
            ..Record::ready(now, body.location)
        });
        self.messages.insert(number, message);
    }

    fn lease(&mut self, at: Place, visible_at: Timestamp, change: impl FnOnce(&mut Message)) {
        if let Some(message) = self.messages.get_mut(&at.number.as_u64()) {
            message.0.state = message::state(true);
            message.0.due_at = visible_at;
            message.0.generation = message.generation.next();
            change(message);
        }
    }
}
