//! A partition as a step machine: commands in, answers out, jobs for the disk in between.
//!
//! It owns the state and the log. A driver feeds it commands ([`Partition::turn`]), carries out its jobs
//! ([`Partition::next_job`], [`Partition::complete`]) on any thread, and sends the answers that become due.
//! It knows no thread, no socket and no clock, so the simulator runs the code that ships.
//!
//! Invariants: a turn's events are one batch of the log. An answer is handed out only when the log is
//! durable up to the last event that the answer rests on. After a failed write or sync, no command succeeds
//! any more.

mod batch;
mod bodies;
mod evacuation;
mod eviction;
mod lanes;
mod loads;
mod maintenance;
mod opening;
mod options;
mod replaying;
mod reply;
mod reservation;
mod rests;
mod scrub;
mod snapshots;
mod space;
mod stirred;
mod upkeep;

use std::collections::HashMap;

use kew_engine::{BodyLocation, Incarnation, Overview, State, Timestamp, Turn, Waste};
use kew_log::{
    BackupPlan, BeginBackupError, BootTime, Job, JobOutcome, Log, LogFailed, LogPosition, PinId,
    Reservation,
};
use kew_planted::{Bug, is_planted};

use self::batch::{Batch, Writing};
use self::eviction::Eviction;
use self::lanes::{Candidate, Lanes};
use self::loads::{Loaded, Loads, left_alone};
use self::maintenance::Maintenance;
pub use self::opening::OpenPartitionError;
pub use self::options::PartitionOptions;
pub(crate) use self::replaying::{Rebuild, Replayed, decode, to_engine};
use self::reply::Decided;
pub use self::reply::{Answered, Rejection, Reply};
use self::reservation::WaitForJob;
use self::scrub::Scrubbing;
pub use self::scrub::{DamagedBody, ScrubJob, ScrubOutcome, ScrubReport};
pub(crate) use self::snapshots::Content;
use self::snapshots::EffectCounts;
use self::space::{SETTLEMENT_TICK_BUDGET, Space};
use self::stirred::{PassedOver, Stirred, Taking};
use self::upkeep::SPACE_RETRY_INTERVAL_MS;
use crate::waiters::Waiters;
use crate::{Cost, Moment, Source, Waiting};

/// How many messages, sessions or queues the commands of one turn look at, at most, unless the first one looks
/// at more: about a millisecond. What a turn copies because a snapshot has it counts too.
const TURN_STEPS_MAX: u64 = 50_000;

/// How many of these are for commands, whatever the tick of the turn took.
const COMMAND_STEPS_MIN: u64 = TURN_STEPS_MAX / 2;

/// How many commands a turn decides at most. New commands wait for the turns before them.
const TURN_COMMANDS_MAX: usize = 4096;

/// One partition: its state, its log, and the answers that wait.
///
/// `T` is the driver's ticket for a command. It comes back with the answer.
pub struct Partition<T> {
    state: State,
    log: Log,
    waiters: Waiters<(T, Reply)>,
    /// Changes since the last [`Partition::take_wakes`] that may concern waiting receivers.
    stirred: Vec<Stirred>,
    /// Things that receivers wait for and that expired messages may hide.
    passed_over: PassedOver,
    /// The record with the last event of each entity, and of the catalogue, until it is durable.
    last_record_of: HashMap<Incarnation, LogPosition>,
    catalogue_record: Option<LogPosition>,
    /// The record with the last event of all, until it is durable.
    last_record: Option<LogPosition>,
    options: PartitionOptions,
    /// What the last snapshot has written.
    last_snapshot_bytes: u64,
    effects: EffectCounts,
    /// The most bytes of the snapshot that is being written, computed in tests alone.
    snapshot_bound_bytes: u64,
    /// An upper bound of a snapshot's size when it was last computed, and an upper bound of its growth since
    /// then.
    state_size_bytes: u64,
    growth_bytes: u64,
    /// What a snapshot had to look at when that was computed.
    measured_pieces: u64,
    /// When the last snapshot was begun, and until when those rest that are due by effects.
    snapshot_begun_at: BootTime,
    snapshots_rest_until: BootTime,
    /// The last time that the log had when it was opened.
    opened_at: Timestamp,
    /// When the latest turn was.
    now: Moment,
    /// When a command was last decided.
    active_at: BootTime,
    /// Whether the log's end was marked since then.
    is_marked: bool,
    /// Set while the disk is full: when to try it again.
    space_retry_at: Option<BootTime>,
    /// Before this time, no snapshot is written that would only free space on a full disk.
    make_space_at: BootTime,
    /// Whether there was no room even for commands that free messages.
    is_without_room: bool,
    scrub: Scrubbing,
    /// No snapshot is tried before this time: the disk was too full for the last one.
    snapshot_retry_at: BootTime,
    /// When jobs are tried again that had no file descriptor.
    opening_retry_at: Option<BootTime>,
    maintenance: Maintenance,
    eviction: Eviction,
    /// The commands that wait until something is read, and what is read.
    lanes: Lanes<T>,
    loads: Loads,
    /// Whether somebody still waits for an answer.
    is_awaited: fn(&T) -> bool,
    stopped: bool,
}

impl<T> Partition<T> {
    /// Decides commands in the order of `commands` until there are no more or the turn is full: by its batch, by
    /// the number of commands, or by what they look at.
    ///
    /// Answers that do not depend on unwritten records go to `replies` at once. The others follow from
    /// [`Partition::complete`]. Commands that are left need another turn, after the jobs that this turn
    /// created.
    pub fn turn(
        &mut self,
        moment: Moment,
        commands: &mut impl Waiting<T>,
        replies: &mut Vec<(T, Reply)>,
    ) -> TurnEnd {
        let now = moment.time.max(self.recorded_at());
        if self.stopped {
            while let Some((ticket, _)) = commands.take(Cost::default()) {
                replies.push((ticket, Err(Rejection::Stopped)));
            }
            self.reject_waiting(replies);
            return TurnEnd::Done;
        }
        let boot = moment.boot;
        self.now = Moment { time: now, boot };
        self.loads.begin_turn(boot);
        self.keep_up(boot, commands.is_empty() && !self.lanes.has_ready());
        self.gather(self.options.gather_steps);
        self.evict();
        self.keep_for_draining();
        let (reservation, space) = match self.reserve(boot, commands) {
            Ok(reserved) => reserved,
            Err(WaitForJob) => return TurnEnd::WaitForJob,
        };
        let mut batch = Batch::at(reservation.position, now);
        let room = reservation.room_bytes;
        let room_left = |batch: &Batch| room.saturating_sub(batch.builder.len_bytes() as u64);
        self.let_rest(space);
        let mut journal = Writing {
            batch: &mut batch,
            log: &self.log,
            bodies: Some(&self.loads.bodies),
        };
        let mut turn =
            Turn::new(&mut self.state, now, &mut journal).with_format(&*self.options.format);
        if !matches!(space, Space::Plenty { .. }) {
            turn = turn.draining();
        }
        let tick_budget = match space {
            Space::Plenty { .. } => self.options.tick_budget,
            // Expired messages are removed on a full disk too: nothing else would make room for them.
            Space::SettlementOnly { .. } => self.options.tick_budget.min(SETTLEMENT_TICK_BUDGET),
            Space::None => 0,
        };
        let ticked = turn.tick(tick_budget);
        let is_more_due = ticked.more_is_due;
        // What rules looked at is not part of an answer.
        batch.pinned.clear();
        self.note_ticked(ticked, replies);
        let room_bytes = room_left(&batch);
        self.move_bodies(now, &mut batch, space, room_bytes);
        let (may_hold, owed_max) = (self.may_hold(space), self.options.copies_owed_max);
        let mut decided = Vec::new();
        let mut count_left = TURN_COMMANDS_MAX;
        let ticked_steps = self.state.take_copied();
        let mut steps_left = TURN_STEPS_MAX
            .saturating_sub(ticked_steps)
            .max(COMMAND_STEPS_MIN);
        while count_left > 0
            && (steps_left > 0 || count_left == TURN_COMMANDS_MAX)
            && let has_waited = self.lanes.has_ready()
            && let Some(command) = self.lanes.front_mut().or_else(|| commands.front_mut())
        {
            space.trim(command, &self.state);
            let description = command.describe();
            if may_hold && !has_waited && description.owed_copies(&self.state) > owed_max {
                let size_bytes = description.body_size_bytes;
                if !commands.hold(size_bytes)
                    && let Some((ticket, _)) = commands.take(Cost::default())
                {
                    count_left -= 1;
                    replies.push((ticket, Err(Rejection::Busy)));
                }
                continue;
            }
            // The first command comes in any case: a tick of expensive rules would hold all of them up for as long as it
            // has work.
            if description.looks_at > steps_left && count_left < TURN_COMMANDS_MAX {
                break;
            }
            let needed = space.needed_bytes(&description, &self.state);
            let cost = Cost {
                size_bytes: description.writes.size_bytes_max(&self.state),
                steps: description.looks_at,
            };
            let mut is_admitted = cost.size_bytes == 0 || space.admits(&description, needed);
            if is_admitted && room_left(&batch) < needed {
                if needed <= space.turn_bytes() {
                    break;
                }
                // No turn has this much room while the disk is full.
                is_admitted = false;
            }
            count_left -= 1;
            steps_left = steps_left.saturating_sub(cost.steps);
            let taking = Taking::of(&description);
            let has_bodies = description.needs_bodies;
            let Some((mut candidate, source)) = self.take_next(commands, cost, has_bodies) else {
                break;
            };
            let rejection = match is_admitted {
                false => Some(Rejection::Full),
                // Messages would be removed that nobody gets. Nor does anybody get this answer.
                true if has_bodies && self.is_abandoned(&candidate) => Some(Rejection::Busy),
                true => None,
            };
            if let Some(rejection) = rejection {
                self.leave(&mut candidate, replies);
                replies.push((candidate.ticket, Err(rejection)));
                continue;
            }
            let mut journal = Writing {
                batch: &mut batch,
                log: &self.log,
                bodies: Some(&self.loads.bodies),
            };
            let mut turn = Turn::new(&mut self.state, now, &mut journal)
                .with_due_budget(space.due_budget())
                .with_copies_at_once(self.options.copies_at_once)
                .with_format(&*self.options.format);
            if !self.lanes.is_empty() && self.lanes.hold_back(source, &candidate) {
                let missing = turn.look_ahead(&candidate.command);
                self.wait_behind(candidate, source, missing);
                continue;
            }
            let Candidate { command, tries, .. } = &mut candidate;
            let missing = self.loads.prepare(&mut turn, command, tries);
            if !missing.is_empty() {
                let behind = self
                    .loads
                    .look_behind(&mut turn, &candidate.command, &missing);
                steps_left = steps_left.saturating_sub(behind.looks);
                self.wait_for(candidate, source, missing, behind.bodies, replies);
                continue;
            }
            let left = self.lanes.leave(&mut candidate);
            let Candidate {
                ticket,
                command,
                tries,
                ..
            } = candidate;
            let left_alone = left_alone(&command, &tries);
            let decision = turn.decide(command);
            self.loads.note_left_alone(left_alone, &tries);
            if let Some(id) = left {
                self.release(id, replies);
            }
            steps_left = steps_left.saturating_sub(self.state.take_copied());
            if let Some(taking) = taking {
                let (left, passed_over) = taking.look_back(&decision.result, &self.state);
                batch.stirred.extend(left);
                if let Some((entity, awaited)) = passed_over {
                    self.passed_over.add(entity, awaited);
                    batch.looked.push(entity);
                }
            }
            decided.push(Decided {
                ticket,
                has_bodies,
                decision,
            });
        }
        let is_any_held = commands.is_any_held();
        let is_anything_left = !commands.is_empty() || self.lanes.has_ready();
        commands.end_turn();
        self.loads.end_turn();
        let pinned = std::mem::take(&mut batch.pinned);
        self.note(&reservation, &mut batch);
        self.uncover(&batch, now);
        let is_any_written = !batch.builder.is_empty();
        self.append(&reservation, batch);
        for decided in decided {
            self.answer(decided, &pinned, replies);
        }
        // If a turn writes nothing, the next one would do the same.
        let goes_on = is_any_written && (is_more_due || is_any_held);
        match (is_anything_left, goes_on) {
            (true, _) => TurnEnd::MoreToDecide,
            (false, true) => TurnEnd::MoreIsDue,
            (false, false) => TurnEnd::Done,
        }
    }

    /// Whether those who send to a topic wait until it has made the copies that it owes, if these are many: its backlog would
    /// grow without end if it took more than it passes on. A topic that cannot make copies now takes what comes.
    fn may_hold(&self, space: Space) -> bool {
        matches!(space, Space::Plenty { .. }) && self.loads.rests.retry_at().is_none()
    }

    /// Takes the next command: one that has waited before new ones.
    fn take_next(
        &mut self,
        commands: &mut impl Waiting<T>,
        cost: Cost,
        needs_bodies: bool,
    ) -> Option<(Candidate<T>, Source)> {
        if let Some(candidate) = self.lanes.take_front() {
            // It has its lanes.
            return Some((candidate, Source::ALONE));
        }
        // Nobody asks where a command comes from that cannot wait: to find out costs as much as to take it.
        let may_wait = needs_bodies || !self.lanes.is_empty() || self.state.may_be_cold();
        let source = match may_wait {
            true => commands.front_source(),
            false => Source::ALONE,
        };
        let (ticket, command) = commands.take(cost)?;
        Some((Candidate::new(ticket, command), source))
    }

    /// Whether nobody waits any more for a command that has waited.
    fn is_abandoned(&self, candidate: &Candidate<T>) -> bool {
        candidate.has_waited() && !(self.is_awaited)(&candidate.ticket)
    }

    /// Sets how to find out whether somebody still waits for an answer. By default somebody does.
    pub fn ask_who_waits(&mut self, is_awaited: fn(&T) -> bool) {
        self.is_awaited = is_awaited;
    }

    /// Notes which entities the batch's events touched, for the answers that rest on them.
    fn note(&mut self, reservation: &Reservation, batch: &mut Batch) {
        for entity in &batch.entities {
            self.last_record_of.insert(*entity, reservation.position);
        }
        self.stirred.append(&mut batch.stirred);
        self.growth_bytes = self.growth_bytes.saturating_add(batch.growth_bytes);
        self.effects.all += batch.effect_count;
        if batch.touches_catalogue {
            self.catalogue_record = Some(reservation.position);
        }
        if batch.touches_catalogue || !batch.entities.is_empty() {
            self.last_record = Some(reservation.position);
        }
    }

    fn append(&mut self, reservation: &Reservation, batch: Batch) {
        if !batch.builder.is_empty() {
            let size_bytes = batch.builder.len_bytes() as u64;
            self.note_appended(size_bytes, batch.moved);
        }
        let appended = self
            .log
            .append(reservation.epoch, reservation.position, batch.builder);
        if let Err(error) = appended {
            // The state has moved on without the log. This is a bug, and no answer may leave the partition.
            panic!("a batch was refused that was built for its reservation: {error}");
        }
    }

    /// The next job for the disk, if there is one. Jobs may run concurrently and on any thread.
    pub fn next_job(&mut self) -> Option<Job> {
        if self.stopped {
            return None;
        }
        let job = self.log.next_job();
        let job = job.or_else(|| self.maintenance.evacuation.next_job());
        job.or_else(|| self.next_load())
    }

    /// Takes the outcome of a job and hands out the answers that are now due.
    pub fn complete(
        &mut self,
        mut outcome: JobOutcome,
        replies: &mut Vec<(T, Reply)>,
    ) -> Result<(), LogFailed> {
        if let Some(bodies) = outcome.take_bodies() {
            self.take_bodies(bodies);
            return Ok(());
        }
        if let Some(loaded) = outcome.take_loaded::<Loaded>() {
            self.take_read(loaded, replies);
            return Ok(());
        }
        let durable_before = self.log.durable();
        let was_snapshotting = self.log.is_snapshotting();
        let completed = self.log.complete(outcome);
        self.note_descriptors();
        if was_snapshotting && !self.log.is_snapshotting() {
            if self.log.snapshot_error().is_some() {
                self.snapshot_retry_at = self.now.boot.plus_ms(SPACE_RETRY_INTERVAL_MS);
            } else if completed.is_ok() {
                self.snapshot_written();
            }
        }
        if completed.is_err() {
            self.stopped = !is_planted(Bug::FailureIgnored);
            self.abandon(replies);
            return completed;
        }
        if self.log.durable() == durable_before {
            // Files have come or gone.
            self.maintenance.look_soon(self.now.boot);
        }
        self.waiters.release(self.log.durable(), replies);
        if self.log.durable() == self.log.end() {
            assert!(self.waiters.is_empty(), "an answer waits for nothing");
            self.last_record_of.clear();
            self.catalogue_record = None;
            self.last_record = None;
            // Checked here, not when the partition is idle: under load it never is.
            if self.log.durable() != durable_before {
                self.snapshot_if_due();
            }
            self.avoid_damage();
        }
        Ok(())
    }

    /// Stops for good. Whether waiting commands were carried out is unknown.
    pub fn stop(&mut self, replies: &mut Vec<(T, Reply)>) {
        self.stopped = true;
        self.abandon(replies);
    }

    /// Rejects every waiting answer: the log will not become durable up to them.
    fn abandon(&mut self, replies: &mut Vec<(T, Reply)>) {
        let mut unknown = Vec::new();
        self.waiters.abandon(&mut unknown);
        let unknown = unknown.into_iter();
        replies.extend(unknown.map(|(ticket, _)| (ticket, Err(Rejection::Stopped))));
        self.reject_waiting(replies);
    }

    /// Marks the log's end as durable, so that recovery can distinguish later damage there from a torn tail.
    pub fn mark(&mut self) {
        if !self.stopped {
            self.log.mark();
        }
    }

    /// Begins a backup of everything that is durable now: see [`Log::begin_backup`].
    pub fn begin_backup(&mut self) -> Result<(PinId, BackupPlan), BeginBackupError> {
        self.log.begin_backup()
    }

    /// Ends a backup. The files that were kept for it are removed in the background.
    pub fn end_backup(&mut self, id: PinId) {
        self.log.end_backup(id);
    }

    /// Whether the disk was full at the last turn.
    pub fn is_out_of_space(&self) -> bool {
        self.space_retry_at.is_some()
    }

    /// Whether the last turn had no room even for commands that free messages.
    pub fn is_without_room(&self) -> bool {
        self.is_without_room
    }

    /// Whether the partition has stopped for good.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// When the latest turn was.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// The last time in the log: a clock begins there.
    pub fn recorded_at(&self) -> Timestamp {
        self.opened_at.max(self.state.last_event_at())
    }

    /// The state, for checkers and counts.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Reads queues for metrics, in at most `steps` steps: see [`State::overview`].
    pub fn overview(&mut self, from: Option<Incarnation>, now: Timestamp, steps: u32) -> Overview {
        self.state.overview(from, now, steps)
    }

    /// What has left the state and takes long to free: for another thread.
    pub fn take_waste(&mut self) -> Option<Waste> {
        self.state.take_waste()
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

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// Every command was decided.
    Done,
    /// The turn is full. Commands are left.
    MoreToDecide,
    /// Every command was decided, but those that wait for copies of a topic. More is due already.
    MoreIsDue,
    /// Nothing can be decided before a job is done: the next segment is being prepared.
    WaitForJob,
}

pub(crate) fn to_log(body: BodyLocation) -> kew_log::BodyLocation {
    kew_log::BodyLocation {
        record: LogPosition::new(body.record),
        offset: body.offset(),
        length: body.length,
    }
}
