//! A partition as a step machine: commands in, answers out, jobs for the disk in between.
//!
//! It owns the state and the log. A driver feeds it commands ([`Partition::turn`]), carries out its
//! jobs ([`Partition::next_job`], [`Partition::complete`]) on whatever thread it likes, and hands
//! out the answers that fall due. It knows no thread, no socket and no clock, so the simulator runs
//! the very code that ships.
//!
//! Invariants: a turn's events are one batch of the log; an answer is handed out only when the log
//! is durable up to the last event of what it rests on; after a failed write or sync nothing is
//! answered with success any more.

mod batch;
mod space;
mod stirred;

use std::collections::{BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use kew_engine::bus::{Awaited, DUE_SIZE_BYTES_MAX};
use kew_engine::{
    BodyLocation, Command, Decision, Event, Incarnation, Outcome, Overview, Refusal, Scope, State,
    Timestamp, Turn,
};
use kew_log::{
    AppendError, Body, BoxError, Job, JobOutcome, Log, LogFailed, LogOptions, LogPosition,
    OpenError, Recovery, Replay, Reservation, ReserveError, Storage,
};
use kew_planted::{Bug, is_planted};
use thiserror::Error;

use self::batch::{Batch, Writing};
use self::space::{SETTLEMENT_TICK_BUDGET, Space, writes_nothing};
use self::stirred::{Stirred, Taking};
use crate::unread::has_locks;
use crate::waiters::Waiters;
use crate::{Unread, Wake};

/// How a partition is run.
#[derive(Clone, Debug)]
pub struct PartitionOptions {
    /// The log's own options.
    pub log: LogOptions,
    /// The largest command, with its events, in bytes of a batch: a batch with less room is closed.
    pub command_size_bytes_max: u64,
    /// A snapshot is due after this many bytes of log, or after four times the last snapshot's
    /// size if that is more.
    pub snapshot_after_bytes: u64,
    /// How many due events one turn may add before commands get theirs.
    pub tick_budget: u32,
}

impl Default for PartitionOptions {
    fn default() -> Self {
        Self {
            log: LogOptions::default(),
            command_size_bytes_max: 128 * 1024,
            snapshot_after_bytes: 64 * 1024 * 1024,
            tick_budget: 256,
        }
    }
}

/// A successful answer.
#[derive(Debug)]
pub struct Answered {
    /// What the engine answered.
    pub outcome: Outcome,
    /// The bodies of its messages, in the order of the messages.
    pub bodies: Vec<Body>,
    /// Messages that have a lock are to be deleted once they were read: see [`crate::Broker::read`].
    pub unread: Option<Unread>,
}

/// Why there is no successful answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Rejection {
    /// The engine refused; nothing has changed.
    #[error(transparent)]
    Refused(Refusal),
    /// Too much is under way; nothing has changed.
    #[error("the partition is busy: too many requests are under way")]
    Busy,
    /// The disk is full; nothing has changed. What frees messages is carried out.
    #[error("the disk is full")]
    Full,
    /// The partition has stopped: whether the command was carried out is unknown.
    #[error("the partition has stopped")]
    Stopped,
    /// A message that was to be received and deleted is damaged on the disk, and was left there.
    #[error("the message is damaged on the disk, and was not deleted")]
    Unreadable,
}

/// Why a partition could not be opened.
#[derive(Debug, Error)]
pub enum OpenPartitionError {
    /// What the storage holds is no log that this version can go on with.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// A new partition's secret could not be kept.
    #[error("a new partition could not be initialized")]
    Reserve(#[from] ReserveError),
    /// Likewise.
    #[error("a new partition could not be initialized")]
    Append(#[from] AppendError),
    /// Likewise.
    #[error("a new partition could not be initialized")]
    Commit(#[from] LogFailed),
}

/// What a command comes to.
pub type Reply = Result<Answered, Rejection>;

/// One partition: its state, its log, and the answers that wait.
///
/// `T` is the driver's ticket for a command; it comes back with the answer.
pub struct Partition<T> {
    state: State,
    log: Log,
    waiters: Waiters<(T, Reply)>,
    /// What there may be to receive since this was last taken.
    stirred: Vec<Stirred>,
    /// What receivers wait for that may be hidden behind messages that have expired.
    passed_over: BTreeSet<(Incarnation, Awaited)>,
    /// The record with the last event of each entity, and of the catalogue, while not yet durable.
    last_record_of: HashMap<Incarnation, LogPosition>,
    catalogue_record: Option<LogPosition>,
    /// The last record with an event, likewise.
    last_record: Option<LogPosition>,
    options: PartitionOptions,
    last_snapshot_bytes: u64,
    /// What a snapshot took at most when that was counted last, and by how much it has grown since at most.
    state_size_bytes: u64,
    growth_bytes: u64,
    /// The time of the latest turn.
    now: Timestamp,
    /// When a command was last decided.
    active_at: Timestamp,
    /// Whether the log's end was marked since then.
    is_marked: bool,
    /// Set while the disk is full: when to try it again.
    space_retry_at: Option<Timestamp>,
    /// When everything that is kept is walked again, to see what can be freed on a full disk.
    make_space_at: Timestamp,
    /// Whether something could be freed at the last time.
    is_space_made: bool,
    /// Whether there was no room even for what frees messages.
    is_without_room: bool,
    /// No snapshot is tried before: the disk was too full for the last one.
    snapshot_retry_at: Timestamp,
    stopped: bool,
}

/// After this long without a command, the log's end is marked as durable.
const IDLE_BEFORE_MARK_MS: u64 = 100;

/// How often a full disk is tried again.
const SPACE_RETRY_INTERVAL_MS: u64 = 1000;

/// The same while there is something that two snapshots would free.
const SPACE_FREED_INTERVAL_MS: u64 = 250;

/// All that is kept is walked to see what can be freed, and copied into a snapshot: some 4 ms for each MB of it, and a
/// tenth of the time at most.
const MAKE_SPACE_BYTES_PER_MS: u64 = 25_000;

impl<T> Partition<T> {
    /// Opens the log, replays it, and makes a new partition of an empty one.
    ///
    /// `entropy` makes segment salts; `secret` becomes the secret of a new partition and is not
    /// used otherwise. Everything that was replayed is durable when this returns.
    pub fn open(
        storage: &dyn Storage,
        options: PartitionOptions,
        entropy: u64,
        secret: [u8; 16],
        wall: Timestamp,
    ) -> Result<(Self, Recovery), OpenPartitionError> {
        let mut replayed = Replayed(State::new());
        let (log, recovery) = Log::open(storage, options.log, entropy, &mut replayed)?;
        let mut partition = Self {
            state: replayed.0,
            log,
            waiters: Waiters::new(),
            stirred: Vec::new(),
            passed_over: BTreeSet::new(),
            last_record_of: HashMap::new(),
            catalogue_record: None,
            last_record: None,
            options,
            last_snapshot_bytes: 0,
            state_size_bytes: 0,
            growth_bytes: u64::MAX,
            now: Timestamp::ZERO,
            active_at: Timestamp::ZERO,
            is_marked: false,
            space_retry_at: None,
            make_space_at: Timestamp::ZERO,
            is_space_made: false,
            is_without_room: false,
            snapshot_retry_at: Timestamp::ZERO,
            stopped: false,
        };
        if !partition.state.is_initialized() {
            partition.initialize(secret, wall)?;
        }
        Ok((partition, recovery))
    }

    /// Opens a partition whose log was repaired, and leaves it as an ordinary stop would: with a
    /// second snapshot behind the one that the repair has made.
    pub(crate) fn open_repaired(
        storage: &dyn Storage,
        options: PartitionOptions,
        entropy: u64,
        secret: [u8; 16],
        wall: Timestamp,
    ) -> Result<(), OpenPartitionError> {
        let (mut partition, _) = Self::open(storage, options, entropy, secret, wall)?;
        partition.log.force_mark();
        partition.log.run_commit()?;
        partition.snapshot();
        while let Some(job) = partition.log.next_job() {
            partition.log.complete(job.run(storage))?;
        }
        Ok(())
    }

    fn initialize(&mut self, secret: [u8; 16], wall: Timestamp) -> Result<(), OpenPartitionError> {
        let reservation = self.log.reserve()?;
        let mut batch = Batch::at(reservation.position);
        let mut journal = Writing {
            batch: &mut batch,
            log: &self.log,
        };
        let decision =
            Turn::new(&mut self.state, wall, &mut journal).decide(Command::Initialize { secret });
        assert!(decision.result.is_ok(), "the partition had no secret");
        self.log
            .append(reservation.epoch, reservation.position, batch.builder)?;
        Ok(self.log.run_commit()?)
    }

    /// Decides commands from the front of `commands` until they or the batch's room are used up.
    ///
    /// Answers that rest on nothing that is still to be written go to `replies` at once; the others
    /// follow from [`Partition::complete`]. Commands that are left want another turn, after the
    /// jobs that this one made.
    pub fn turn(
        &mut self,
        now: Timestamp,
        commands: &mut VecDeque<(T, Command)>,
        replies: &mut Vec<(T, Reply)>,
    ) -> TurnEnd {
        let now = now.max(self.state.last_event_at());
        if self.stopped {
            replies.extend(
                commands
                    .drain(..)
                    .map(|(t, _)| (t, Err(Rejection::Stopped))),
            );
            return TurnEnd::Done;
        }
        self.now = now;
        self.keep_up(now, commands.is_empty());
        self.keep_for_draining();
        let (reservation, space) = match self.reserve(now, commands) {
            Ok(reserved) => reserved,
            Err(WaitForJob) => return TurnEnd::WaitForJob,
        };
        let mut batch = Batch::at(reservation.position);
        let room = reservation.room_bytes;
        let room_left = |batch: &Batch| room.saturating_sub(batch.builder.len_bytes() as u64);
        let mut journal = Writing {
            batch: &mut batch,
            log: &self.log,
        };
        let mut turn = Turn::new(&mut self.state, now, &mut journal);
        match space {
            Space::Plenty => turn.tick(self.options.tick_budget),
            // Expired messages go on a full disk, too, or nothing would ever make room for them.
            Space::SettlementOnly { .. } => {
                turn.tick(self.options.tick_budget.min(SETTLEMENT_TICK_BUDGET))
            }
            Space::None => turn.tick(0),
        };
        let mut decided = Vec::with_capacity(commands.len());
        while let Some((_, command)) = commands.front_mut() {
            space.trim(command);
            let writes_nothing = writes_nothing(&self.state, command);
            let needed = match space {
                Space::None if writes_nothing => 0,
                space => space.needed_bytes(command, &self.options),
            };
            let mut is_admitted = writes_nothing || space.admits(command, needed);
            if is_admitted && room_left(&batch) < needed {
                if needed <= space.turn_bytes() {
                    break;
                }
                // No turn has so much room while the disk is full.
                is_admitted = false;
            }
            let Some((ticket, command)) = commands.pop_front() else {
                break;
            };
            if !is_admitted {
                replies.push((ticket, Err(Rejection::Full)));
                continue;
            }
            let taking = Taking::of(&command);
            let unread = Unread::of(&command);
            let mut journal = Writing {
                batch: &mut batch,
                log: &self.log,
            };
            let turn = Turn::new(&mut self.state, now, &mut journal);
            let decision = turn.with_due_budget(space.due_budget()).decide(command);
            if let Some(taking) = taking {
                let (left, passed_over) = taking.look_back(&decision.result, &self.state);
                batch.stirred.extend(left);
                self.passed_over.extend(passed_over);
            }
            decided.push((ticket, decision, unread));
        }
        let pinned = std::mem::take(&mut batch.pinned);
        self.note(&reservation, &mut batch);
        self.uncover(now);
        self.append(&reservation, batch);
        for (ticket, decision, unread) in decided {
            self.answer((ticket, unread), decision, &pinned, replies);
        }
        if commands.is_empty() {
            TurnEnd::Done
        } else {
            TurnEnd::MoreToDecide
        }
    }

    /// What is done at its time, whether or not anybody asks for something.
    fn keep_up(&mut self, now: Timestamp, is_idle: bool) {
        if self.space_retry_at.is_some_and(|at| at.has_passed(now)) {
            self.log.retry_prepare();
            let interval_ms = self.state_size_bytes / MAKE_SPACE_BYTES_PER_MS;
            // What was drained meanwhile need not be waited for.
            self.make_space_at = self.make_space_at.min(now.plus_ms(interval_ms));
            // Without any room nothing else can go on.
            if self.is_without_room || self.make_space_at.has_passed(now) {
                self.is_space_made = self.make_space();
                self.make_space_at = now.plus_ms(interval_ms);
            }
            let retry_ms = match self.is_space_made {
                true => SPACE_FREED_INTERVAL_MS,
                false => SPACE_RETRY_INTERVAL_MS,
            };
            self.space_retry_at = Some(now.plus_ms(retry_ms));
        }
        if !is_idle {
            self.active_at = now;
            self.is_marked = false;
        } else if !self.is_marked && self.mark_at().has_passed(now) {
            self.log.mark();
            self.is_marked = true;
        }
    }

    /// What was drained becomes space when two snapshots lie behind it. The mark makes the second
    /// differ from the first. Says whether there is something to be freed.
    fn make_space(&mut self) -> bool {
        let live = self.live_segments();
        let can_free = self.log.can_free_segments(&live);
        if (can_free || self.log.snapshot_error().is_some()) && self.is_snapshot_possible() {
            self.snapshot_with(live);
        }
        if can_free {
            self.log.force_mark();
        }
        can_free
    }

    /// Has the log keep what it takes to drain the state as it is, and as the next batch makes it.
    fn keep_for_draining(&mut self) {
        if self.growth_bytes > self.options.log.segment_size_first_bytes / 4 {
            self.state_size_bytes = self.state.snapshot_size_bytes_max();
            self.growth_bytes = 0;
        }
        let batch_bytes = self.options.log.batch_size_max_bytes;
        let state_bytes = self.state_size_bytes + self.growth_bytes + batch_bytes;
        self.log.keep_for_draining(state_bytes);
    }

    fn mark_at(&self) -> Timestamp {
        self.active_at.plus_ms(IDLE_BEFORE_MARK_MS)
    }

    /// Room for what is due and for the first command at least.
    fn reserve(
        &mut self,
        now: Timestamp,
        commands: &mut VecDeque<(T, Command)>,
    ) -> Result<(Reservation, Space), WaitForJob> {
        let first = commands.front().map_or(0, |(_, command)| {
            Space::Plenty.needed_bytes(command, &self.options)
        });
        // Only bus commands can be larger than what a turn always has room for.
        let reserved = if first > self.options.command_size_bytes_max {
            let due_bytes = u64::from(self.options.tick_budget) * DUE_SIZE_BYTES_MAX;
            self.log.reserve_room(first + due_bytes)
        } else {
            self.log.reserve()
        };
        match reserved {
            Ok(reservation) => {
                self.space_retry_at = None;
                self.is_without_room = false;
                return Ok((reservation, Space::Plenty));
            }
            Err(ReserveError::NotPrepared) => return Err(WaitForJob),
            Err(ReserveError::NoSpace) => {}
            Err(ReserveError::Failed(_)) => {
                self.stopped = true;
                return Err(WaitForJob);
            }
        }
        // At once for the first time: there may be something to be freed.
        self.space_retry_at.get_or_insert(now);
        self.reserve_for_settlement(commands)
    }

    /// Room on a full disk for what is due and for the first command, if it is one that frees messages.
    fn reserve_for_settlement(
        &mut self,
        commands: &mut VecDeque<(T, Command)>,
    ) -> Result<(Reservation, Space), WaitForJob> {
        let interval_bytes = self.log.drain_interval_bytes();
        if self.log.is_snapshotting() && self.log.bytes_since_snapshot() >= interval_bytes {
            // Faster than the snapshots that free what settlements take, they would use up all there is.
            return Err(WaitForJob);
        }
        let due_bytes = u64::from(SETTLEMENT_TICK_BUDGET) * DUE_SIZE_BYTES_MAX;
        let size_bytes_max = self.log.settlement_size_bytes_max();
        let settlement_only = |log: &Log| Space::SettlementOnly {
            size_bytes_max: size_bytes_max.saturating_sub(due_bytes),
            takes_bodies: log.takes_bodies(),
        };
        let first = commands.front_mut().map_or(0, |(_, command)| {
            let space = settlement_only(&self.log);
            space.trim(command);
            let needed = space.needed_bytes(command, &self.options);
            if space.admits(command, needed) {
                needed
            } else {
                0
            }
        });
        let reserved = self.log.reserve_for_settlement(first + due_bytes);
        self.is_without_room = matches!(reserved, Err(ReserveError::NoSpace));
        match reserved {
            Ok(reservation) => Ok((reservation, settlement_only(&self.log))),
            Err(ReserveError::NotPrepared) => Err(WaitForJob),
            Err(ReserveError::NoSpace) => Ok((self.nothing_reserved(), Space::None)),
            Err(ReserveError::Failed(_)) => {
                self.stopped = true;
                Err(WaitForJob)
            }
        }
    }

    /// What a turn works with that must not write anything.
    fn nothing_reserved(&self) -> Reservation {
        Reservation {
            epoch: self.log.epoch(),
            position: self.log.end(),
            room_bytes: 0,
        }
    }

    /// Remembers what the batch's events touched, for the answers that rest on it.
    fn note(&mut self, reservation: &Reservation, batch: &mut Batch) {
        for entity in &batch.entities {
            self.last_record_of.insert(*entity, reservation.position);
        }
        self.stirred.append(&mut batch.stirred);
        self.growth_bytes = self.growth_bytes.saturating_add(batch.growth_bytes);
        if batch.touches_catalogue {
            self.catalogue_record = Some(reservation.position);
        }
        if batch.touches_catalogue || !batch.entities.is_empty() {
            self.last_record = Some(reservation.position);
        }
    }

    /// What expired messages have hidden may be seen when all of them are gone.
    fn uncover(&mut self, now: Timestamp) {
        let state = &self.state;
        let uncovered = self
            .passed_over
            .extract_if(.., |(entity, _)| !state.has_expired(*entity, now));
        let left = uncovered.map(|(entity, awaited)| Stirred::Left(entity, awaited));
        self.stirred.extend(left);
    }

    /// Who is to be woken because of what was decided since this was last asked. To drop this forgets
    /// them.
    pub fn take_wakes(&mut self) -> impl Iterator<Item = Wake> + '_ {
        let state = &self.state;
        let stirred = self.stirred.drain(..);
        stirred.flat_map(move |stirred| stirred.wakes(state))
    }

    fn append(&mut self, reservation: &Reservation, batch: Batch) {
        let appended = self
            .log
            .append(reservation.epoch, reservation.position, batch.builder);
        if let Err(error) = appended {
            // The state has moved on without the log: a bug, and nothing may be answered.
            panic!("a batch was refused that was built for its reservation: {error}");
        }
    }

    fn answer(
        &mut self,
        (ticket, unread): (T, Option<Unread>),
        decision: Decision,
        pinned: &HashMap<BodyLocation, Body>,
        replies: &mut Vec<(T, Reply)>,
    ) {
        let record = match decision.scope {
            Scope::Entity(entity) => self.last_record_of.get(&entity).copied(),
            Scope::BusQueue(queue) => queue
                .with_sub_queues()
                .into_iter()
                .filter_map(|entity| self.last_record_of.get(&entity).copied())
                .chain(self.catalogue_record)
                .max(),
            Scope::Catalogue => self.catalogue_record,
            Scope::Everything => self.last_record,
        };
        let reply = match decision.result {
            Ok(outcome) => Ok(self.with_bodies(outcome, unread, pinned)),
            Err(refusal) => Err(Rejection::Refused(refusal)),
        };
        match record {
            Some(record)
                if record >= self.log.durable() && !is_planted(Bug::AnsweredBeforeDurable) =>
            {
                self.waiters.wait(record, (ticket, reply));
            }
            _ => replies.push((ticket, reply)),
        }
    }

    /// Finds the bodies now: the segments that hold them stay readable as long as the answer lives.
    fn with_bodies(
        &self,
        outcome: Outcome,
        unread: Option<Unread>,
        pinned: &HashMap<BodyLocation, Body>,
    ) -> Answered {
        let bodies = outcome
            .bodies()
            .map(|location| {
                let pinned = pinned.get(&location).cloned();
                pinned
                    .or_else(|| self.log.body(to_log(location)))
                    .expect("a body that the state refers to is in the log")
            })
            .collect();
        let unread = unread.filter(|_| has_locks(&outcome));
        Answered {
            outcome,
            bodies,
            unread,
        }
    }

    /// Work for the disk, if there is some. Jobs may run at the same time and on any thread.
    pub fn next_job(&mut self) -> Option<Job> {
        if self.stopped {
            return None;
        }
        self.log.next_job()
    }

    /// Takes what became of a job, and hands out the answers that are due now.
    pub fn complete(
        &mut self,
        outcome: JobOutcome,
        replies: &mut Vec<(T, Reply)>,
    ) -> Result<(), LogFailed> {
        let durable_before = self.log.durable();
        let was_snapshotting = self.log.is_snapshotting();
        let completed = self.log.complete(outcome);
        if was_snapshotting && !self.log.is_snapshotting() && self.log.snapshot_error().is_some() {
            self.snapshot_retry_at = self.now.plus_ms(SPACE_RETRY_INTERVAL_MS);
        }
        if completed.is_err() {
            self.stopped = !is_planted(Bug::FailureIgnored);
            let mut unknown = Vec::new();
            self.waiters.abandon(&mut unknown);
            replies.extend(
                unknown
                    .into_iter()
                    .map(|(t, _)| (t, Err(Rejection::Stopped))),
            );
            return completed;
        }
        self.waiters.release(self.log.durable(), replies);
        if self.log.durable() == self.log.end() {
            assert!(self.waiters.is_empty(), "an answer waits for nothing");
            self.last_record_of.clear();
            self.catalogue_record = None;
            self.last_record = None;
            // Here and not when the partition rests: under load it never does.
            if self.log.durable() != durable_before {
                self.snapshot_if_due();
            }
        }
        Ok(())
    }

    /// Stops for good. Whether what waits was carried out is unknown.
    pub fn stop(&mut self, replies: &mut Vec<(T, Reply)>) {
        self.stopped = true;
        let mut unknown = Vec::new();
        self.waiters.abandon(&mut unknown);
        replies.extend(
            unknown
                .into_iter()
                .map(|(ticket, _)| (ticket, Err(Rejection::Stopped))),
        );
    }

    /// Makes a snapshot if one is due and nothing is on its way to the disk. The partition does so by
    /// itself when a commit is complete.
    pub fn snapshot_if_due(&mut self) {
        let after = self.last_snapshot_bytes.saturating_mul(4);
        let after = if self.log.is_draining() {
            self.log.drain_interval_bytes()
        } else {
            after.max(self.options.snapshot_after_bytes)
        };
        if self.log.bytes_since_snapshot() >= after && self.snapshot_retry_at.has_passed(self.now) {
            self.snapshot();
        }
    }

    /// Makes a snapshot if anything happened since the last and nothing is on its way to the disk.
    pub fn snapshot(&mut self) {
        if self.is_snapshot_possible() {
            self.snapshot_with(self.live_segments());
        }
    }

    fn is_snapshot_possible(&self) -> bool {
        let is_quiet = self.log.durable() == self.log.end() && !self.log.is_snapshotting();
        !self.stopped && is_quiet && self.log.bytes_since_snapshot() > 0
    }

    fn snapshot_with(&mut self, live: BTreeSet<LogPosition>) {
        let mut parts = Vec::new();
        self.state
            .snapshot(|part| parts.push(Bytes::copy_from_slice(part)));
        self.last_snapshot_bytes = parts.iter().map(|part| part.len() as u64).sum();
        debug_assert!(
            self.last_snapshot_bytes <= self.state.snapshot_size_bytes_max(),
            "what is kept for draining bounds a snapshot"
        );
        if let Err(error) = self.log.snapshot(parts, live) {
            panic!("a snapshot was refused by a quiet log: {error}");
        }
    }

    /// The bases of the segments that hold bodies which are still needed.
    fn live_segments(&self) -> BTreeSet<LogPosition> {
        let segments: Vec<_> = self.log.segments().collect();
        let mut is_live = vec![false; segments.len()];
        if is_planted(Bug::LiveSegmentRetired) {
            return BTreeSet::new();
        }
        for body in self.state.bodies() {
            let record = LogPosition::new(body.record);
            let after = segments.partition_point(|segment| segment.first <= record);
            let index = after
                .checked_sub(1)
                .expect("a body that the state refers to is in the log");
            if let Some(live) = is_live.get_mut(index) {
                *live = true;
            }
        }
        let live = segments.iter().zip(is_live).filter(|(_, live)| *live);
        live.map(|(segment, _)| segment.base).collect()
    }

    /// Marks the log's end as durable, so that later damage there is told from a torn tail.
    pub fn mark(&mut self) {
        if !self.stopped {
            self.log.mark();
        }
    }

    /// When a turn is due though nobody asks for one.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let mark = (!self.is_marked).then(|| self.mark_at());
        // Without any room what is due has to wait until there is space.
        let due = self.state.next_deadline();
        let due = due.filter(|_| !self.is_without_room);
        [mark, due, self.space_retry_at].into_iter().flatten().min()
    }

    /// Whether the disk was full at the last turn.
    pub fn is_out_of_space(&self) -> bool {
        self.space_retry_at.is_some()
    }

    /// Whether there was no room even for what frees messages at the last turn.
    pub fn is_without_room(&self) -> bool {
        self.is_without_room
    }

    /// Whether the partition has stopped for good.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The state, for checkers and counts.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Reads queues for metrics, in at most `steps` steps: see [`State::overview`].
    pub fn overview(&mut self, from: Option<Incarnation>, now: Timestamp, steps: u32) -> Overview {
        self.state.overview(from, now, steps)
    }

    /// How many answers wait for the log.
    pub fn answers_waiting(&self) -> usize {
        self.waiters.count()
    }

    /// The log, for counts.
    pub fn log(&self) -> &Log {
        &self.log
    }
}

/// What a turn left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// Every command was decided.
    Done,
    /// The batch is full: commands are left.
    MoreToDecide,
    /// Nothing could be decided before a job is done: the next segment is being prepared.
    WaitForJob,
}

struct WaitForJob;

pub(crate) fn to_log(body: BodyLocation) -> kew_log::BodyLocation {
    kew_log::BodyLocation {
        record: LogPosition::new(body.record),
        offset: body.offset,
        length: body.length,
    }
}

/// Takes what the log remembers.
struct Replayed(State);

impl Replay for Replayed {
    fn begin(&mut self) {
        self.0 = State::new();
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        Ok(self.0.restore(part)?)
    }

    fn event(&mut self, _record: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        self.0.apply(Event::decode(event)?);
        Ok(())
    }
}
