//! What connections hold, and the one bound on all of it together.
//!
//! A connection has bounds of its own, but ten thousand times those is more than a machine has. So
//! each tells after every turn what it holds, whatever that is: the sum is a metric, and where it
//! reaches the bound, connections hold back ([`Room`]). It can be passed by what one turn of each
//! connection takes in, and by no more.

use std::sync::Arc;

use kew_metrics::Gauge;

use crate::metrics::{HELD, Held, Observer};

/// How much room there is for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// Enough.
    Much,
    /// None for those who hold more than [`MODEST_SIZE_BYTES`]: nothing is received for them, and parts
    /// of messages and requests are refused. Others get one message at a time.
    None,
    /// So little that they are closed.
    Gone,
}

/// What each connection may hold whatever the others do.
pub(crate) const MODEST_SIZE_BYTES: usize = 64 << 10;
/// The same for one without a token.
pub(crate) const UNPROVEN_SIZE_BYTES: usize = 8 << 10;

/// What a connection holds may be this many times the bound before connections are closed.
const GONE_HALVES: u64 = 3;

/// How much of the bound is used by those who have not shown who they are, at most: a quarter.
const UNPROVEN_SHARE: u64 = 4;

/// What all connections hold together, and the bound on it.
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

    /// How much room there is, for a client that has shown who it is or has not.
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

/// What one connection holds, as far as the others have been told.
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

    /// Tells what it is now.
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
