//! How large the state is, and by how much its pages have grown: what the log reserves follows from both.

use kew_engine::{State, StateSize};
use kew_log::{LogOptions, ToDrain};

/// The size is computed again after this share of it has come.
const GROWN_SHARE: u64 = 64;

/// A sum that goes on, and what it was at the last snapshots.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SinceSnapshot {
    /// Since the snapshot that this start has used.
    pub(super) all: u64,
    /// Up to the last snapshot that is durable, and up to the one that is being written.
    in_last: u64,
    in_next: u64,
}

impl SinceSnapshot {
    pub(super) fn after_replay(all: u64) -> Self {
        Self {
            all,
            ..Self::default()
        }
    }

    /// Notes that a snapshot is begun.
    pub(super) fn begun(&mut self) {
        self.in_next = self.all;
    }

    /// Notes that it is durable.
    pub(super) fn written(&mut self) {
        self.in_last = self.in_next;
    }

    /// What came since the last snapshot that is durable.
    pub(super) fn since_snapshot(self) -> u64 {
        self.all - self.in_last
    }
}

/// The size of a state, as far as it was computed.
#[derive(Debug)]
pub(super) struct Measured {
    /// As it was when it was last computed.
    size: StateSize,
    /// How much the pages had grown then. `None` before the first time, and if it is to be computed again.
    at_growth: Option<u64>,
    /// By how much the pages have grown at most.
    growth: SinceSnapshot,
    /// What of that came from runs that have begun.
    begun_runs_bytes: u64,
}

impl Measured {
    /// Of a state that was rebuilt: by how much its pages grew because of the events behind the snapshot.
    pub(super) fn after_replay(state: &State, events_bytes: u64) -> Self {
        let begun_runs_bytes = state.begun_runs_bytes();
        Self {
            size: StateSize::default(),
            at_growth: None,
            growth: SinceSnapshot::after_replay(events_bytes + begun_runs_bytes),
            begun_runs_bytes,
        }
    }

    /// What a snapshot had to look at when that was computed.
    pub(super) fn pieces(&self) -> u64 {
        self.size.pieces
    }

    /// How many messages there were when that was computed.
    pub(super) fn messages(&self) -> u64 {
        self.size.messages
    }

    /// Notes by how much the pages have grown because of the events of a batch, which were applied.
    pub(super) fn grew(&mut self, state: &State, events_bytes: u64) {
        let begun_before = std::mem::replace(&mut self.begun_runs_bytes, state.begun_runs_bytes());
        self.growth.all += events_bytes + self.begun_runs_bytes - begun_before;
    }

    /// Notes that a snapshot is begun.
    pub(super) fn snapshot_begun(&mut self) {
        self.growth.begun();
    }

    /// Notes that it is durable.
    pub(super) fn snapshot_written(&mut self) {
        self.growth.written();
    }

    /// Computes the size anew the next time: the state has become smaller at once, or its messages count for more from now
    /// on, and no growth is a reason to do so.
    pub(super) fn forget(&mut self) {
        self.at_growth = None;
    }

    /// The size now. It is computed anew in a walk over entities, after growth that is a small part of it: so the walks
    /// are few for each message, however many entities there are.
    pub(super) fn measure(
        &mut self,
        state: &State,
        may_be_cold: bool,
        options: &LogOptions,
    ) -> ToDrain {
        let all = self.growth.all;
        let again_after_bytes =
            (options.segment_size_first_bytes / 4).max(self.size.pages_bytes_max / GROWN_SHARE);
        let is_near = |at: &u64| all - at <= again_after_bytes;
        let at_growth = self.at_growth.filter(is_near).unwrap_or_else(|| {
            self.size = state.size(may_be_cold);
            all
        });
        self.at_growth = Some(at_growth);
        let (size, grown_bytes) = (&self.size, all - at_growth);
        ToDrain {
            pages_bytes_max: size.pages_bytes_max + size.new_bytes_max + grown_bytes,
            grown_bytes_max: self.growth.since_snapshot(),
            consumed_bytes_max: size.consumed_bytes_max + size.consumed_share * grown_bytes,
            batch_bytes_max: options.batch_size_max_bytes,
        }
    }
}
