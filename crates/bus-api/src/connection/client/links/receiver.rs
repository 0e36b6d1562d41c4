//! A link over which a client receives messages.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use kew_amqp::DeliveryId;
use kew_amqp::codec::Text;
use kew_amqp::performative::Tag;
use kew_engine::bus::{DeliveredMessage, ReceiveMode, SessionLock};
use kew_engine::{Timestamp, Token};

use super::attached::Attached;
use super::cancel::Cancel;
use crate::memory::account::{Account, Part, Sum};
use crate::messages::batch::Batch;
use crate::messages::outbound::{Facts, encode, tag};

/// How many messages are received at once, at the beginning and at most.
const COUNT_FIRST: u32 = 8;
const COUNT_MAX: u32 = 256;
/// About how many bytes to receive at once, estimated by the sizes of earlier messages.
const SIZE_BYTES_WANTED: usize = 1 << 20;

/// A link over which a client receives.
pub(crate) struct Receiver {
    /// The link's.
    pub(crate) name: Text,
    pub(crate) attached: Attached,
    pub(crate) mode: ReceiveMode,
    pub(crate) session: Option<SessionLock>,
    /// When to check whether the session is still locked, as noted in `Stirred`.
    pub(crate) session_ends_at: Option<Timestamp>,
    /// Messages that wait for credit or room.
    pub(crate) ready: Queue,
    pub(crate) held: HeldLocks,
    pub(crate) credit: Part,
    /// The one task's.
    pub(crate) receiving: Option<Arc<Cancel>>,
    /// The key of the last command that has looked without a task.
    pub(crate) looked_as: Option<u64>,
    pub(crate) is_drain: bool,
    pub(crate) count: u32,
    /// The size of the largest message of the last batch.
    pub(crate) largest_size_bytes: usize,
}

/// The assumed size of a message if nothing is known.
const UNKNOWN_SIZE_BYTES: usize = 256 << 10;

/// Messages that wait to be sent, counted by their bytes.
pub(crate) struct Queue {
    pub(crate) messages: VecDeque<Ready>,
    pub(crate) size_bytes: usize,
    pub(crate) part: Part,
}

impl Queue {
    pub(crate) fn extend(&mut self, more: impl Iterator<Item = Ready>) {
        for ready in more {
            self.size_bytes += ready.size_bytes();
            self.messages.push_back(ready);
        }
        self.part.set(self.size_bytes);
    }

    pub(crate) fn pop(&mut self) {
        if let Some(ready) = self.messages.pop_front() {
            self.size_bytes -= ready.size_bytes();
            self.part.set(self.size_bytes);
        }
    }

    pub(crate) fn take(&mut self) -> VecDeque<Ready> {
        self.size_bytes = 0;
        self.part.set(0);
        std::mem::take(&mut self.messages)
    }
}

/// The locks of deliveries that the client has not settled.
pub(crate) struct HeldLocks {
    locks: HashMap<DeliveryId, Token>,
    part: Part,
}

impl HeldLocks {
    pub(crate) fn insert(&mut self, delivery: DeliveryId, lock: Token) {
        self.locks.insert(delivery, lock);
        self.part.set(self.locks.len());
    }

    pub(crate) fn take(&mut self, delivery: DeliveryId) -> Option<Token> {
        let lock = self.locks.remove(&delivery);
        self.part.set(self.locks.len());
        lock
    }
}

/// A message that is ready to be sent. It is encoded only then, so that some of a batch can be on
/// their way while others are encoded.
pub(crate) struct Ready {
    pub(crate) message: DeliveredMessage,
    /// The stored message, then the changes to its properties.
    pub(crate) bytes: Vec<Bytes>,
}

impl Ready {
    pub(crate) fn size_bytes(&self) -> usize {
        size_of(&self.bytes)
    }

    pub(crate) fn tag(&self) -> Tag {
        match self.message.lock {
            Some(lock) => tag(lock),
            None => number_tag(self.message.sequence_number.as_u64()),
        }
    }

    pub(crate) fn encode(&self) -> Option<[Bytes; 2]> {
        let (stored, overlays) = self.bytes.split_first()?;
        encode(&Facts::from(&self.message), stored.clone(), overlays)
    }
}

impl Receiver {
    pub(crate) fn new(
        name: Text,
        attached: Attached,
        mode: ReceiveMode,
        session: Option<SessionLock>,
        account: &Account,
    ) -> Self {
        Self {
            name,
            attached,
            mode,
            session,
            session_ends_at: None,
            ready: Queue {
                messages: VecDeque::new(),
                size_bytes: 0,
                part: account.part(Sum::ReadyBytes),
            },
            held: HeldLocks {
                locks: HashMap::new(),
                part: account.part(Sum::Deliveries),
            },
            credit: account.part(Sum::Credit),
            receiving: None,
            looked_as: None,
            is_drain: false,
            count: COUNT_FIRST,
            largest_size_bytes: UNKNOWN_SIZE_BYTES,
        }
    }

    /// Adjusts the number of messages for the next receive to the sizes in this batch.
    pub(crate) fn learn_sizes(&mut self, batch: &Batch) {
        if let Some(largest) = batch.iter().map(|(_, bytes)| size_of(bytes)).max() {
            let count = SIZE_BYTES_WANTED / largest.max(1);
            self.count = u32::try_from(count)
                .unwrap_or(COUNT_MAX)
                .clamp(1, COUNT_MAX);
            self.largest_size_bytes = largest;
        }
    }
}

pub(crate) fn size_of(bytes: &[Bytes]) -> usize {
    bytes.iter().map(Bytes::len).sum()
}

pub(crate) fn ready((message, bytes): (DeliveredMessage, Vec<Bytes>)) -> Ready {
    Ready { message, bytes }
}

/// The tag of a message without a lock. It only has to be unique.
fn number_tag(number: u64) -> Tag {
    let mut bytes = [0; 16];
    for (place, byte) in bytes.iter_mut().zip(number.to_be_bytes()) {
        *place = byte;
    }
    bytes.into()
}
