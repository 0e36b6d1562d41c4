//! Makes a log of the present format of one of the format before.
//!
//! The old log is replayed and changes in nothing. Every body that is still needed is copied into a new log, with
//! the event that a move of it has, and two snapshots of the state close it. So numbers, receipts and locks stay
//! valid, and nothing else knows the old format. If anything fails, the new log is worth nothing, and the next
//! attempt begins anew.
//!
//! Positions of the new log lie behind all of the old one, so a place means one thing.

use std::ops::Range;
use std::sync::Arc;

use kew_engine::{
    BodyCursor, BodyLocation, BodyToMove, Command, CountUnit, Event, FoundBody, Journal,
    MovedBodies, Source, State, Timestamp, Turn,
};
use kew_log::{
    AppendError, BatchBuilder, BeginSnapshotError, FirstFormatBody, FirstFormatLog, LogEnd,
    LogOptions, LogPosition, Need, OpenError, ReserveError, SegmentLog, Storage, ToDrain, replay,
};
use thiserror::Error;

use crate::PartitionOptions;
use crate::follower::Replayed;
use crate::partition::{Content, Live, to_log};

/// How many entities, runs, messages and sessions a search for bodies looks at before what it has found is written.
const SEARCH_STEPS: u32 = 1 << 16;
/// What a batch takes beside the moves: a header, and the events around them.
const BATCH_OVERHEAD_BYTES: u64 = 512;
/// What a segment takes beside its batches, and what files take that have no messages.
const OTHER_BYTES: u64 = 16 << 10;

/// What was brought to the present format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// How many queues there are.
    pub queues: usize,
    /// How many messages.
    pub messages: u64,
    /// How many bodies were copied.
    pub bodies: u64,
    /// How many of them do not match their checksums. They are copied as they are, and reading one fails.
    pub damaged: u64,
}

/// Why a log was not brought to the present format. The old one is as it was.
#[derive(Debug, Error)]
pub enum MigrateError {
    /// The old log cannot be read, or the new one cannot be made.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// There is too little space for both.
    #[error(
        "the new log needs {} MiB beside the old one, and {} MiB are free",
        needed_bytes.div_ceil(1 << 20),
        free_bytes >> 20
    )]
    NoSpace {
        /// What the new log may take.
        needed_bytes: u64,
        /// What the disk has.
        free_bytes: u64,
    },
    /// The new log has no room.
    #[error("the new log has no room for the messages")]
    Reserve(#[from] ReserveError),
    /// The new log refused a batch.
    #[error("the new log cannot be written")]
    Append(#[from] AppendError),
    /// The new log cannot be written.
    #[error("the new log cannot be written")]
    Failed(#[from] LogEnd),
    /// The new log refused a snapshot.
    #[error("the new log cannot be written")]
    Snapshot(#[from] BeginSnapshotError),
    /// The new log is not what was written.
    #[error("the new log has {found} of {messages} messages")]
    NotWhole {
        /// How many messages there are.
        messages: u64,
        /// How many a start would find.
        found: u64,
    },
    /// A body was not found by the search for bodies.
    #[error("a body at log position {position} of the old log was not copied")]
    LeftBehind {
        /// Where it lies in the old log.
        position: LogPosition,
    },
}

/// A log of the format before, replayed.
pub struct OldPartition {
    log: FirstFormatLog,
    state: State,
}

impl OldPartition {
    /// Replays the log as the version did that wrote it. Changes nothing.
    pub fn read(old: &dyn Storage, options: &PartitionOptions) -> Result<Self, OpenError> {
        let unit = CountUnit::at_most(options.log.unit_bytes());
        let mut replayed = Replayed::whole(unit);
        let log = FirstFormatLog::read(old, &mut replayed)?;
        let state = replayed.state;
        Ok(Self { log, state })
    }

    /// The state.
    pub(crate) fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// The state.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Where the log ends.
    pub(crate) fn end(&self) -> LogPosition {
        self.log.end()
    }

    /// Writes the new log into a storage that is empty. When this returns, all of it is durable.
    ///
    /// `entropy` seeds the segment salts.
    pub fn write_to(
        self,
        new: Arc<dyn Storage>,
        options: &PartitionOptions,
        entropy: u64,
    ) -> Result<Migrated, MigrateError> {
        let needed_bytes = self.needed_bytes(options);
        if let Some(free_bytes) = new.free_bytes().filter(|free| *free < needed_bytes) {
            return Err(MigrateError::NoSpace {
                needed_bytes,
                free_bytes,
            });
        }
        if !self.state.is_initialized() {
            // The first start was interrupted. The next one makes a log of its own.
            return Ok(Migrated::default());
        }
        let unit = self.state.count_unit();
        let end = self.end();
        let first_bytes = unit.size_bytes().max(1 << 20);
        let first = LogPosition::new((end.as_u64() + 1).next_multiple_of(first_bytes));
        let log_options = LogOptions {
            // The next start reserves it, when the old log is gone.
            ballast_size_bytes: 0,
            ..options.log
        };
        let Self { log: old, state } = self;
        let now = state.last_event_at();
        let log = SegmentLog::create(Arc::clone(&new), log_options, entropy, first, now.as_ms())?;
        let mut copying = Copying {
            now,
            end,
            old,
            log,
            state,
            bodies: 0,
            damaged: 0,
        };
        copying.bodies(options.log.batch_size_max_bytes)?;
        let migrated = copying.close()?;
        check_whole(&*new, unit, migrated)?;
        Ok(migrated)
    }

    /// An upper bound of what the new log takes on the disk.
    fn needed_bytes(&self, options: &PartitionOptions) -> u64 {
        let mut piece_bytes_max = options.log.batch_size_max_bytes;
        let mut pieces = Pieces::before(self.end(), &self.state, piece_bytes_max);
        let mut moved_bytes = 0;
        while let Some(found) = pieces.next(&self.state) {
            let sizes = found.iter().map(FoundBody::moved_size_bytes);
            // Damaged ones come in a batch of their own.
            let piece_bytes = sizes.sum::<u64>() + 2 * BATCH_OVERHEAD_BYTES;
            moved_bytes += piece_bytes;
            piece_bytes_max = piece_bytes_max.max(piece_bytes);
        }
        let pages_bytes_max = self.state.size(false).pages_bytes_max;
        let first = ToDrain {
            pages_bytes_max,
            ..ToDrain::default()
        };
        // The second snapshot names the pages of the first one.
        let snapshots_bytes = first.first_size_bytes_max(&options.log.pages) + pages_bytes_max;
        segments_bytes(options, moved_bytes, piece_bytes_max) + snapshots_bytes + OTHER_BYTES
    }
}

/// Reads the new log as a start does: afterwards the old one is removed.
fn check_whole(new: &dyn Storage, unit: CountUnit, migrated: Migrated) -> Result<(), MigrateError> {
    let mut replayed = Replayed::whole(unit);
    replay(new, &mut replayed)?;
    let found = replayed.state.counts();
    match found == (migrated.queues, migrated.messages) {
        true => Ok(()),
        false => Err(MigrateError::NotWhole {
            messages: migrated.messages,
            found: found.1,
        }),
    }
}

/// The most that segments take which are filled with so many bytes, in pieces that do not exceed a size. With the one
/// that is prepared behind them.
fn segments_bytes(options: &PartitionOptions, bytes: u64, piece_bytes_max: u64) -> u64 {
    let unused_bytes = piece_bytes_max + OTHER_BYTES;
    let largest_bytes = (2 * unused_bytes).next_power_of_two();
    let largest_bytes = largest_bytes.max(options.log.segment_size_max_bytes);
    let mut size_bytes = options.log.segment_size_first_bytes;
    let (mut total_bytes, mut left_bytes) = (size_bytes, bytes);
    while left_bytes > size_bytes.saturating_sub(unused_bytes) {
        left_bytes -= size_bytes.saturating_sub(unused_bytes);
        size_bytes = (2 * size_bytes).min(largest_bytes);
        total_bytes += size_bytes;
    }
    total_bytes + (2 * size_bytes).min(largest_bytes)
}

/// A search for all bodies before the end of a log, in pieces.
struct Pieces {
    positions: Range<u64>,
    size_bytes_max: u64,
    cursor: Option<BodyCursor>,
}

impl Pieces {
    /// Each piece has about so many bytes: its last body may exceed them.
    fn before(end: LogPosition, state: &State, size_bytes_max: u64) -> Self {
        Self {
            positions: state.units_around(&(0..end.as_u64() + 1)),
            size_bytes_max,
            cursor: Some(BodyCursor::default()),
        }
    }

    fn next(&mut self, state: &State) -> Option<Vec<FoundBody>> {
        let at = self.cursor.take()?;
        let found = state.bodies_in(
            &self.positions,
            at,
            (SEARCH_STEPS, self.size_bytes_max),
            &MovedBodies::default(),
        );
        self.cursor = found.next;
        Some(found.bodies)
    }
}

struct Copying {
    now: Timestamp,
    /// Where the old log ends.
    end: LogPosition,
    old: FirstFormatLog,
    log: SegmentLog,
    state: State,
    bodies: u64,
    damaged: u64,
}

impl Copying {
    /// Copies all bodies.
    fn bodies(&mut self, piece_bytes: u64) -> Result<(), MigrateError> {
        let mut pieces = Pieces::before(self.end, &self.state, piece_bytes);
        while let Some(found) = pieces.next(&self.state) {
            self.copy(found)?;
        }
        let end = self.end.as_u64();
        let left = self.state.bodies().find(|it| it.record <= end);
        match left {
            Some(left) => Err(MigrateError::LeftBehind {
                position: LogPosition::new(left.record),
            }),
            None => Ok(()),
        }
    }

    fn copy(&mut self, found: Vec<FoundBody>) -> Result<(), MigrateError> {
        let (mut whole, mut damaged) = (Vec::new(), Vec::new());
        for found in found {
            let (bodies, body) = match self.old.body(to_log(found.at))? {
                FirstFormatBody::Whole(body) => (&mut whole, body),
                FirstFormatBody::Damaged(body) => (&mut damaged, body),
            };
            bodies.push(BodyToMove {
                holder: found.holder,
                from: found.at,
                source: Source::Bytes(body),
                event_size_bytes: found.event_size_bytes,
            });
        }
        self.bodies += (whole.len() + damaged.len()) as u64;
        self.damaged += damaged.len() as u64;
        self.write(whole, Condition::Whole)?;
        self.write(damaged, Condition::Damaged)
    }

    fn write(&mut self, bodies: Vec<BodyToMove>, condition: Condition) -> Result<(), MigrateError> {
        if bodies.is_empty() {
            return Ok(());
        }
        let command = Command::MoveBodies { bodies };
        let needed = command.describe().writes.size_bytes_max(&self.state);
        let reservation = loop {
            match self.log.reserve(Need::grow(needed)) {
                Ok(reservation) => break reservation,
                Err(ReserveError::NotPrepared) if self.run_jobs()? > 0 => {}
                Err(error) => return Err(error.into()),
            }
        };
        let mut batch = BatchBuilder::at(reservation.position);
        batch.set_time_ms(self.now.as_ms());
        let mut writing = Writing { batch, condition };
        let decision = Turn::new(&mut self.state, self.now, &mut writing).decide(command);
        assert!(decision.result.is_ok(), "a move is never refused");
        self.log.append(reservation, writing.batch)?;
        self.log.run_commit()?;
        self.run_jobs()?;
        Ok(())
    }

    /// Leaves the log as a stop does: with two snapshots of everything, and a mark.
    fn close(mut self) -> Result<Migrated, MigrateError> {
        self.snapshot()?;
        self.log.beat(self.now.as_ms());
        self.log.run_commit()?;
        self.snapshot()?;
        self.log.mark();
        self.log.run_commit()?;
        let (queues, messages) = self.state.counts();
        Ok(Migrated {
            queues,
            messages,
            bodies: self.bodies,
            damaged: self.damaged,
        })
    }

    /// Writes a snapshot. The second one has the pages of the first.
    fn snapshot(&mut self) -> Result<(), MigrateError> {
        self.state.begin_snapshot();
        let snapshot = self.state.gather(u64::MAX);
        let snapshot = snapshot.expect("so many steps gather all of a state");
        self.log
            .snapshot(Content::Shared(snapshot), &Live::of(&self.state))?;
        self.run_jobs()?;
        match self.log.snapshots().failed {
            Some(failure) => Err(LogEnd::Failed(failure.clone()).into()),
            None => Ok(()),
        }
    }

    /// Carries out all jobs. Returns how many.
    fn run_jobs(&mut self) -> Result<u64, LogEnd> {
        let mut count = 0;
        while let Some(job) = self.log.next_job() {
            self.log.complete(job.run())?;
            count += 1;
        }
        Ok(count)
    }
}

/// What is known of bodies that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Whole,
    Damaged,
}

struct Writing {
    batch: BatchBuilder,
    condition: Condition,
}

impl Journal for Writing {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        let location = match self.condition {
            Condition::Whole => self.batch.push_body(body),
            Condition::Damaged => self.batch.push_damaged_body(body),
        };
        BodyLocation::new(location.record.as_u64(), location.offset, location.length)
    }

    fn record(&mut self, event: &Event) {
        self.batch.push_event_with(|out| event.encode(out));
    }
}
