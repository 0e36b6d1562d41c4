//! The activity of a connection, and its deadlines.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::CONNECTION;
use kew_listen::Place;
use tokio::time::Instant;

use crate::heads::{Heads, Restores};
use crate::limits::Limits;
use crate::service::Answer;
use crate::spelling::Spelling;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for the rest of a head.
    Head,
    /// Reading a body, working, or writing the answer. Each has limits of its own.
    Answering,
    /// Waiting for the next request, and maybe still writing the last answer.
    Idle,
}

/// Why a connection was closed at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The rest of a head did not arrive.
    Head,
    /// The client did not read its answer.
    Answer,
    /// The client sent no further request.
    Idle,
}

/// The phase of a connection, and when it began. Only the connection's own task reads and writes it, so no lock is
/// ever contended.
#[derive(Debug)]
pub struct Activity<'a, S> {
    start: Instant,
    /// Milliseconds from `start`, times four, plus the phase.
    state: AtomicU64,
    /// Requests since other connections had their turn.
    turn_requests: AtomicU32,
    /// Whether an answer is not completely written yet.
    is_writing: AtomicBool,
    /// Whether some request was authentic.
    is_proven: AtomicBool,
    /// Whether there was no room for a head, so that the client gets that answer.
    is_crowded: AtomicBool,
    /// Whether an answer has ended HTTP on the connection.
    is_switched: AtomicBool,
    /// Whether the server ends the connection after the current request.
    is_stopping: AtomicBool,
    /// Whether an answer says that the connection is closed, which the client may not expect.
    is_cut: AtomicBool,
    pub(crate) heads: Heads<S>,
    pub(crate) restores: Restores<S>,
    place: &'a Place,
}

impl<'a, S: Spelling> Activity<'a, S> {
    pub(crate) fn new(place: &'a Place) -> Self {
        Self {
            start: Instant::now(),
            state: AtomicU64::new(0),
            turn_requests: AtomicU32::new(0),
            is_writing: AtomicBool::new(false),
            is_proven: AtomicBool::new(false),
            is_crowded: AtomicBool::new(false),
            is_switched: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            heads: Heads::default(),
            restores: Restores::default(),
            place,
        }
    }

    /// Notes that a request was authentic: the connection keeps its place, and has longer deadlines and the room
    /// of known clients.
    pub fn prove(&self) {
        self.is_proven.store(true, Ordering::Relaxed);
        self.place.prove();
    }

    /// Spells names like this in the next answer.
    pub fn spell(&self, spelling: S) {
        self.restores.add(spelling);
    }

    pub(crate) fn begin_turn(&self) {
        self.turn_requests.store(0, Ordering::Relaxed);
    }

    /// Counts a request of this turn. Returns its number in the turn.
    pub(crate) fn count_request(&self) -> u32 {
        self.turn_requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that an answer is about to be written.
    pub(crate) fn answered(&self, answer: &Answer) {
        self.is_writing.store(true, Ordering::Relaxed);
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.is_switched.store(true, Ordering::Relaxed);
        }
        let connection = answer.headers().get(CONNECTION);
        let is_last = connection.is_some_and(|value| value.as_bytes() == b"close");
        if is_last || self.is_stopping.load(Ordering::Relaxed) {
            self.is_cut.store(true, Ordering::Relaxed);
        }
        self.enter(Phase::Idle);
    }

    /// Notes that the answer that is being made or written is the last one.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        if self.is_writing() {
            self.is_cut.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that every answer is completely written.
    pub(crate) fn written(&self) {
        self.is_writing.store(false, Ordering::Relaxed);
    }

    /// Notes that there is no room for a head. The client gets that answer, unless another one is being sent.
    pub(crate) fn crowded(&self) {
        let can_tell = self.phase() == Phase::Head && !self.is_writing();
        self.is_crowded.store(can_tell, Ordering::Relaxed);
    }

    pub(crate) fn enter(&self, phase: Phase) {
        let since_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let code = match phase {
            Phase::Head => 0,
            Phase::Answering => 1,
            Phase::Idle => 2,
        };
        self.state
            .store(since_ms.saturating_mul(4) | code, Ordering::Relaxed);
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.state.load(Ordering::Relaxed) & 3 {
            0 => Phase::Head,
            1 => Phase::Answering,
            _ => Phase::Idle,
        }
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.is_writing.load(Ordering::Relaxed)
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven.load(Ordering::Relaxed)
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    pub(crate) fn is_switched(&self) -> bool {
        self.is_switched.load(Ordering::Relaxed)
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// The reason for a timeout.
    pub(crate) fn overdue(&self) -> Overdue {
        match self.phase() {
            Phase::Head => Overdue::Head,
            Phase::Answering => Overdue::Answer,
            Phase::Idle if self.is_writing() => Overdue::Answer,
            Phase::Idle => Overdue::Idle,
        }
    }

    /// When to look at the connection again, and to close it if nothing has changed.
    pub(crate) fn deadline(&self, limits: &Limits) -> Instant {
        let since = self.start + Duration::from_millis(self.state.load(Ordering::Relaxed) / 4);
        match self.phase() {
            Phase::Head => since + limits.head_timeout,
            Phase::Answering => Instant::now() + limits.head_timeout,
            Phase::Idle if self.is_writing() => since + limits.write_timeout,
            Phase::Idle if self.is_proven() => since + limits.keep_alive,
            Phase::Idle => since + limits.unproven_keep_alive,
        }
    }
}
