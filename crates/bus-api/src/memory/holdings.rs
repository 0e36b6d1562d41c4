//! The memory of all connections, and its common limit.
//!
//! A connection has limits of its own, but ten thousand times those is more memory than a machine
//! has. So each connection reports its memory after every turn. The sum is a metric, and when it
//! reaches the limit, connections hold back ([`Room`]). It can exceed the limit by the input of one
//! turn of each connection, and by no more.

use std::sync::Arc;

use kew_metrics::Gauge;

use crate::metrics::{HELD, Held, Observer};

/// How much room there is for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// Enough.
    Much,
    /// None for connections with more than [`MODEST_SIZE_BYTES`]: they receive no messages, and
    /// parts of messages and requests are refused. Others get one message at a time.
    None,
    /// So little that connections with more than [`MODEST_SIZE_BYTES`] are closed.
    Gone,
}

/// What each connection may use, regardless of the others.
pub(crate) const MODEST_SIZE_BYTES: usize = 64 << 10;
/// The same for one without a token.
pub(crate) const UNPROVEN_SIZE_BYTES: usize = 8 << 10;

/// How many halves of the limit may be used before connections are closed.
const GONE_HALVES: u64 = 3;

/// The largest part of the limit for connections without a token: a quarter.
const UNPROVEN_SHARE: u64 = 4;

/// The memory of all connections together, and its limit.
#[derive(Debug)]
pub(crate) struct Memory {
    observer: Arc<Observer>,
    held_size_bytes_max: usize,
}

impl Memory {
    pub(crate) fn new(observer: Arc<Observer>, held_size_bytes_max: usize) -> Self {
        Self {
            observer,
            held_size_bytes_max,
        }
    }

    /// How much room there is for a client, by whether it is authenticated.
    pub(crate) fn room(&self, is_proven: bool) -> Room {
        let held = self.observer.instruments.held.get(Held::Bytes as usize);
        let held = held.map_or(0, Gauge::value);
        let bound = self.held_size_bytes_max as u64;
        if held / GONE_HALVES > bound / 2 {
            Room::Gone
        } else if held > bound || (!is_proven && held > bound / UNPROVEN_SHARE) {
            Room::None
        } else {
            Room::Much
        }
    }
}

/// The memory of one connection, as last reported.
pub(crate) struct Holdings {
    observer: Arc<Observer>,
    told: [u64; HELD],
}

impl Holdings {
    pub(crate) fn new(observer: Arc<Observer>) -> Self {
        Self {
            observer,
            told: [0; HELD],
        }
    }

    /// Reports the current memory.
    pub(crate) fn tell(&mut self, now: [u64; HELD]) {
        let gauges = &self.observer.instruments.held;
        for ((gauge, before), now) in gauges.iter().zip(&mut self.told).zip(now) {
            gauge.change(*before, now);
            *before = now;
        }
    }
}

impl Drop for Holdings {
    fn drop(&mut self) {
        self.tell([0; HELD]);
    }
}
