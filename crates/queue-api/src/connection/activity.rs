//! The activity of a connection, and its deadlines.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use kew_listen::Place;
use tokio::time::Instant;

use super::heads::{Heads, Restores};
use crate::api::Answered;
use crate::body::Connection;
use crate::limits::Limits;
use crate::metrics::Overdue;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waiting for the rest of a head.
    Head,
    /// Reading a body, working, or writing the answer. Each has limits of its own.
    Answering,
    /// Waiting for the next request, and maybe still writing the last answer.
    Idle,
}

/// The phase of a connection, and when it began. Only the connection's own task reads and writes it, so no
/// lock is ever contended.
pub(super) struct Activity {
    start: Instant,
    /// Milliseconds from `start`, times four, plus the phase.
    state: AtomicU64,
    /// Requests since others had their turn.
    pub(super) turn_requests: AtomicU32,
    /// Whether an answer is not completely written yet.
    pub(super) is_writing: AtomicBool,
    /// Whether some request was authentic.
    pub(super) is_proven: AtomicBool,
    /// Whether the client may still be sending when the connection ends.
    pub(super) is_cut: AtomicBool,
    /// Whether there was no room for a head, so that the client gets that answer.
    pub(super) is_crowded: AtomicBool,
    pub(super) heads: Heads,
    pub(super) restores: Restores,
    /// The connection's place among all connections.
    place: Place,
}

impl Activity {
    pub(super) fn new(place: Place) -> Self {
        Self {
            start: Instant::now(),
            state: AtomicU64::new(0),
            turn_requests: AtomicU32::new(0),
            is_writing: AtomicBool::new(false),
            is_proven: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            is_crowded: AtomicBool::new(false),
            heads: Heads::default(),
            restores: Restores::default(),
            place,
        }
    }

    /// Notes that a request was authentic.
    pub(super) fn prove(&self) {
        self.is_proven.store(true, Ordering::Relaxed);
        self.place.prove();
    }

    /// Counts a request of this turn. Returns its number in the turn.
    pub(super) fn count_request(&self) -> u32 {
        self.turn_requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that an answer is about to be written.
    pub(super) fn answered(&self, answered: &Answered) {
        self.is_writing.store(true, Ordering::Relaxed);
        if answered.connection == Connection::Spent {
            self.is_cut.store(true, Ordering::Relaxed);
        }
        self.enter(Phase::Idle);
    }

    pub(super) fn enter(&self, phase: Phase) {
        let since_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let code = match phase {
            Phase::Head => 0,
            Phase::Answering => 1,
            Phase::Idle => 2,
        };
        self.state
            .store(since_ms.saturating_mul(4) | code, Ordering::Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        match self.state.load(Ordering::Relaxed) & 3 {
            0 => Phase::Head,
            1 => Phase::Answering,
            _ => Phase::Idle,
        }
    }

    /// The reason for a timeout.
    pub(super) fn overdue(&self) -> Overdue {
        match self.phase() {
            Phase::Head => Overdue::Head,
            Phase::Answering => Overdue::Answer,
            Phase::Idle if self.is_writing.load(Ordering::Relaxed) => Overdue::Answer,
            Phase::Idle => Overdue::Idle,
        }
    }

    /// When to look at the connection again, and to close it if nothing has changed.
    pub(super) fn deadline(&self, limits: &Limits) -> Instant {
        let since = self.start + Duration::from_millis(self.state.load(Ordering::Relaxed) / 4);
        match self.phase() {
            Phase::Head => since + limits.head_timeout,
            Phase::Answering => Instant::now() + limits.head_timeout,
            Phase::Idle if self.is_writing.load(Ordering::Relaxed) => since + limits.body_timeout,
            Phase::Idle if self.is_proven.load(Ordering::Relaxed) => since + limits.keep_alive,
            Phase::Idle => since + limits.unproven_keep_alive,
        }
    }
}
