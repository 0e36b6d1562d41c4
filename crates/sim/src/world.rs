//! A world: clients, a partition, a disk and the clocks, advanced one step at a time.

mod answers;
mod cold;
mod drain;
mod recovery;
mod report;
mod strikes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kew_broker::{
    Admission, Admitted, Clock, ClockReading, Cost, Partition, PartitionOptions, Rejection, Reply,
    Rotation, Source, Target, TurnEnd, Waiting,
};
use kew_engine::{Command, Incarnation, Timestamp};
use kew_log::{BootTime, FaultyStorage, Job, JobKind};
use kew_planted::Seam;

use crate::bus::{self, BusSwarm};
use crate::checker::{Checker, Operation, Seen, Timekeeping, Turns, Violation, promise};
use crate::faults::{Crash, Faults};
use crate::random::Stream;
use crate::rare::Rare;
use crate::seam::{self, Disk, altered, files_of};
use crate::swarm::Swarm;
use crate::trace::Trace;
use crate::workload::{Workload, create_queue};

pub use report::{Moment, Report, Watch};

/// Runs one seed: at least `operations` under faults, then until everything is drained.
pub fn run(seed: u64, operations: u64, keep_trace: bool) -> Report {
    run_swarm(seed, Swarm::draw(seed), operations, keep_trace, None)
}

/// Runs one seed as [`run`] does, and shows every step to `watch`.
pub fn replay(seed: u64, operations: u64, watch: Watch) -> Report {
    run_swarm(seed, Swarm::draw(seed), operations, true, Some(watch))
}

/// Runs one seed in a world of that kind.
pub(crate) fn run_swarm(
    seed: u64,
    swarm: Swarm,
    operations: u64,
    keep_trace: bool,
    watch: Option<Watch>,
) -> Report {
    let mut world = World::with_swarm(seed, swarm, keep_trace);
    world.watch = watch;
    let lived = catch_unwind(AssertUnwindSafe(|| world.live(operations)));
    let violation = match lived {
        Ok(lived) => lived.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
            Some(Violation {
                promise: promise::NO_PANIC,
                seen: text.unwrap_or_default(),
            })
        }
    };
    world.report(violation)
}

pub(crate) struct World {
    swarm: Swarm,
    options: PartitionOptions,
    schedule: Stream,
    sources: Stream,
    disk: Stream,
    cold: Stream,
    cold_rot: Stream,
    faults: Faults,
    workload: Workload,
    storage: Arc<FaultyStorage>,
    /// The same, as the partition of this life sees it.
    device: Arc<Disk>,
    /// The process or the machine dies, or is dead, after this number of storage calls.
    dies_after: Option<(u64, Crash)>,
    /// A call was made to fail, and may have failed.
    call_may_fail: bool,
    /// Reads of records may fail.
    reads_fail: bool,
    /// The entities of which something could not be read, since the partition was opened.
    unread: BTreeSet<Incarnation>,
    /// The disk has a limit now.
    is_full: bool,
    /// The disk does nothing before this step.
    slow_until: u64,
    /// Snapshots that were damaged on purpose.
    damaged_snapshots: Vec<String>,
    /// Pairs of page files with damage, and the number of the file that has it.
    damaged_pages: BTreeMap<u64, u64>,
    partition: Partition<u64>,
    admission: Admission,
    clock: Clock,
    timekeeping: Timekeeping,
    reading: ClockReading,
    now: Timestamp,
    /// By the same reading. It begins anew with each power cut, and no jump of the wall clock moves it.
    boot: BootTime,
    /// Admitted, not decided.
    commands: Rotation<u64>,
    turns: Turns,
    /// Handed out by the partition, not carried out.
    jobs: VecDeque<Job>,
    /// Operations that the checker has not looked at yet.
    history: BTreeMap<u64, Asked>,
    /// Their order, as far as it is known: that of the decisions.
    order: VecDeque<u64>,
    next_operation: u64,
    refused_at_the_door: u64,
    in_flight: usize,
    recycled_segments: usize,
    was_out_of_space: bool,
    checker: Checker,
    bus: Option<Bus>,
    trace: Trace,
    report: Report,
    watch: Option<Watch>,
}

/// The additional parts of a world with bus queues.
struct Bus {
    swarm: BusSwarm,
    workload: bus::workload::Workload,
    checker: bus::checker::Checker,
}

/// An operation under way.
struct Asked {
    operation: Operation,
    source: Source,
    admitted: Option<Admitted>,
    /// The client does not wait any more.
    given_up: bool,
    /// Whether its outcome is settled, so that the checker may look at it.
    done: bool,
}

impl World {
    pub(crate) fn with_swarm(seed: u64, swarm: Swarm, keep_trace: bool) -> Self {
        let options = swarm.partition_options();
        let storage = Arc::new(FaultyStorage::new());
        let reading = ClockReading {
            wall_us: 1_700_000_000_000_000,
            boot_us: 0,
        };
        let wall = Timestamp::from_ms(reading.wall_us / 1000);
        let device = Arc::new(Disk::new(&storage));
        let opened = seam::open(device.clone(), options.clone(), seed, secret(seed), wall);
        let (partition, _) = opened.expect("an empty disk without faults can be opened");
        let mut clock = Clock::start(altered(Seam::Reading, reading), wall);
        let now = clock.now(altered(Seam::Reading, reading));
        Self {
            clock,
            timekeeping: Timekeeping::start(reading, now.time),
            schedule: Stream::new(seed, "schedule"),
            sources: Stream::new(seed, "sources"),
            disk: Stream::new(seed, "disk"),
            cold: Stream::new(seed, "cold"),
            cold_rot: Stream::new(seed, "cold rot"),
            faults: Faults::new(seed, swarm.faults.clone()),
            workload: Workload::new(seed),
            storage,
            device,
            dies_after: None,
            call_may_fail: false,
            reads_fail: true,
            unread: BTreeSet::new(),
            is_full: false,
            slow_until: 0,
            damaged_snapshots: Vec::new(),
            damaged_pages: BTreeMap::new(),
            partition,
            admission: Admission::new(swarm.admission_limits()),
            reading,
            now: now.time,
            boot: now.boot,
            commands: Rotation::new(altered(Seam::Share, swarm.share.clone())),
            turns: Turns::with(swarm.share.clone()),
            jobs: VecDeque::new(),
            history: BTreeMap::new(),
            order: VecDeque::new(),
            next_operation: 0,
            refused_at_the_door: 0,
            in_flight: 0,
            recycled_segments: 0,
            was_out_of_space: false,
            checker: Checker::new(),
            bus: swarm.bus.clone().map(|of_bus| Bus {
                swarm: of_bus,
                workload: bus::workload::Workload::new(seed),
                checker: bus::checker::Checker::new(swarm.copies_at_once()),
            }),
            trace: Trace::new(keep_trace),
            report: Report::default(),
            watch: None,
            options,
            swarm,
        }
    }

    fn live(&mut self, operations: u64) -> Result<(), Violation> {
        for queue in 0..self.swarm.queues {
            self.ask(queue, create_queue(queue));
        }
        let bus = self.bus.as_mut();
        for command in bus.map_or_else(Vec::new, |bus| bus.workload.create_all(&bus.swarm)) {
            self.ask(0, Command::Bus(command));
        }
        while self.next_operation - self.refused_at_the_door < operations {
            self.step()?;
            for strike in self.faults.strike() {
                self.strike(strike)?;
            }
            self.end_step();
        }
        self.drain()
    }

    /// One of the next possible events.
    fn step(&mut self) -> Result<(), Violation> {
        if let Some(crash) = self.death() {
            return self.crash(crash);
        }
        self.pass_time(|schedule| match schedule.below(100) {
            0 => schedule.below(20_000_000),
            1..10 => schedule.below(1_000_000),
            _ => schedule.below(1_000),
        })?;
        let is_slow = self.report.steps < self.slow_until;
        let has_job = !self.jobs.is_empty() && !is_slow;
        if has_job && self.schedule.happens(self.swarm.disk_speed_per_mille) {
            return self.carry_out_job();
        }
        if self.in_flight < self.swarm.clients && self.schedule.happens(600) {
            let (queue, command) = self.next_command();
            self.ask(queue, command);
            return Ok(());
        }
        if self.commands.is_empty() && has_job && self.schedule.happens(900) {
            return self.carry_out_job();
        }
        self.turn()
    }

    /// The next command of a client, and its storage queue.
    fn next_command(&mut self) -> (usize, Command) {
        if let Some(bus) = &mut self.bus
            && self.schedule.happens(bus.swarm.share_per_mille)
        {
            return (0, Command::Bus(bus.workload.next(&bus.swarm, self.now)));
        }
        self.workload.next(&self.swarm)
    }

    pub(crate) fn end_step(&mut self) {
        self.report.steps += 1;
        if let Some(mut watch) = self.watch.take() {
            let from = self.trace.take_seen();
            watch(&Moment {
                step: self.report.steps,
                lines: self.trace.lines().get(from..).unwrap_or_default(),
                world: self,
            });
            self.watch = Some(watch);
        }
    }

    fn pass_time(&mut self, us: impl FnOnce(&mut Stream) -> u64) -> Result<(), Violation> {
        let us = us(&mut self.schedule);
        self.reading.boot_us += us;
        self.reading.wall_us += us;
        self.read_clock()
    }

    fn read_clock(&mut self) -> Result<(), Violation> {
        let now = self.clock.now(altered(Seam::Reading, self.reading));
        (self.now, self.boot) = (now.time, now.boot);
        self.timekeeping.check(self.reading, self.now)?;
        let ahead = self.now.as_ms() > self.reading.wall_us / 1000 + 1;
        self.report.rare.note_if(ahead, Rare::ClockSlewedBack);
        Ok(())
    }

    pub(crate) fn ask(&mut self, queue: usize, command: Command) {
        let id = self.next_operation;
        self.next_operation += 1;
        self.trace.ask(id, &command);
        let mut asked = Asked {
            source: Source::ALONE,
            operation: Operation {
                queue,
                command: command.clone(),
                from: self.now,
                until: Timestamp::NEVER,
                had_room: false,
                could_read_due: false,
                seen: Seen::Unknown,
            },
            admitted: None,
            given_up: false,
            done: false,
        };
        match self.admission.admit(&command) {
            Ok(admitted) => {
                asked.admitted = Some(admitted);
                self.in_flight += 1;
                let source = self.draw_source();
                asked.source = source;
                self.turns.asked(id, source, Target::of(&command));
                let (id, command) = altered(Seam::Asked, (id, command));
                self.commands.push(source, id, command);
            }
            Err(_) => {
                asked.operation.until = self.now;
                asked.operation.seen = Seen::Answered(Err(Rejection::Busy));
                asked.done = true;
                self.order.push_back(id);
                self.refused_at_the_door += 1;
                self.report.busy += 1;
                self.report.rare.note(Rare::RefusedAtTheDoor);
            }
        }
        self.history.insert(id, asked);
    }

    /// Where a command comes from. Some are sources of their own, unless all come from one source.
    fn draw_source(&mut self) -> Source {
        match self.swarm.sources {
            1 => Source::numbered(1),
            count => Source::numbered(self.sources.below(count + 1)),
        }
    }

    fn turn(&mut self) -> Result<(), Violation> {
        let mut replies = Vec::new();
        let end = self.decide(&mut replies)?;
        if end == TurnEnd::Done && self.schedule.happens(100) {
            self.partition.mark();
        }
        self.take_jobs();
        self.take_in(replies)
    }

    /// Lets the partition decide waiting commands, and notes the time.
    fn decide(&mut self, replies: &mut Vec<(u64, Reply)>) -> Result<TurnEnd, Violation> {
        seam::taken(None);
        self.take_out_of_memory();
        self.partition.check_cold_pages();
        let waited = self.waiting();
        let moment = self.moment();
        let mut noting = Noting {
            commands: &mut self.commands,
            taken: Vec::new(),
            held: BTreeSet::new(),
        };
        let moved_before = self.partition.moved_count();
        let without_due_before = self.partition.decided_without_due_count();
        let end = self.partition.turn(moment, &mut noting, replies);
        let has_moved = self.partition.moved_count() > moved_before;
        let has_left_due = self.partition.decided_without_due_count() > without_due_before;
        if has_left_due && let Some(bus) = &mut self.bus {
            let what = "a command was decided without due work that could not be read";
            bus.checker.note(what);
        }
        let Noting { taken, held, .. } = noting;
        self.check_left_alone()?;
        if !held.is_empty()
            && let Some(bus) = &mut self.bus
        {
            bus.checker
                .note("who sends to a topic waited for the copies that it owed");
        }
        self.pass(replies);
        for id in &taken {
            self.turns.decided(*id, &held)?;
        }
        let ids = self.decided(&waited, &taken, replies)?;
        self.check_tries()?;
        self.recount();
        let decided = ids.len();
        for id in &ids {
            self.order.push_back(*id);
            let command = self.history.get(id).map(|it| &it.operation.command);
            let could_read_due = command.is_some_and(|it| self.could_read_due(it));
            if let Some(asked) = self.history.get_mut(id) {
                let operation = &mut asked.operation;
                (operation.from, operation.until) = (self.now, self.now);
                operation.had_room =
                    !self.partition.is_out_of_space() && self.swarm.carries_out_all_due();
                operation.could_read_due = could_read_due;
            }
        }
        let rare = &mut self.report.rare;
        rare.note_if(end == TurnEnd::MoreToDecide, Rare::BatchFull);
        rare.note_if(end == TurnEnd::WaitForJob, Rare::WaitedForSegment);
        rare.note_if(end == TurnEnd::WaitForMemory, Rare::WaitedForMemory);
        rare.note_if(has_moved, Rare::BodiesMoved);
        rare.note_if(self.partition.warmed_count() > 0, Rare::RunWarmed);
        let is_full = self.partition.log().limits().full.is_some();
        rare.note_if(has_moved && is_full, Rare::BodiesMovedOnFullDisk);
        let is_snapshotting = self.jobs.iter().any(|job| job.kind() == JobKind::Snapshot);
        rare.note_if(is_snapshotting && decided > 0, Rare::DecidedDuringSnapshot);
        self.was_out_of_space |= self.partition.is_out_of_space();
        self.note_transactions(&ids);
        let numbers = [self.now.as_ms(), decided as u64, end as u64];
        self.trace.add("turn", &numbers, &(self.now, decided, end));
        Ok(end)
    }

    /// What is counted while copies come and go equals a recount, after each turn.
    fn recount(&self) {
        let swarm = self.bus.as_ref().map(|bus| &bus.swarm);
        if swarm.is_some_and(|swarm| swarm.topics.is_some()) {
            self.partition.state().check_live_bytes();
        }
    }

    fn moment(&self) -> kew_broker::Moment {
        kew_broker::Moment {
            time: self.now,
            boot: self.boot,
        }
    }

    /// Counts transactions that were decided together with other commands.
    fn note_transactions(&mut self, decided: &[u64]) {
        let is_transaction = |id: &&u64| {
            let asked = self.history.get(id);
            asked.is_some_and(|asked| asked.operation.transaction().is_some())
        };
        let transactions = decided.iter().filter(is_transaction).count();
        if let (Some(bus), 1.., 2..) = (&mut self.bus, transactions, decided.len()) {
            bus.checker
                .note("a transaction was decided among other commands");
        }
    }

    /// Takes over the partition's jobs.
    fn take_jobs(&mut self) {
        while let Some(job) = self.partition.next_job() {
            if job.kind() == JobKind::Snapshot {
                self.report.snapshots += 1;
                self.partition.state().check_live_bytes();
            }
            if job.kind() == JobKind::Prepare {
                let recycled = files_of(self.partition.log()).space().recycled;
                let taken = recycled < self.recycled_segments;
                self.report.rare.note_if(taken, Rare::SegmentRecycled);
                self.recycled_segments = recycled;
            }
            self.jobs.push_back(job);
        }
        drop(self.partition.take_waste());
    }

    fn carry_out_job(&mut self) -> Result<(), Violation> {
        let index = self.schedule.index(self.jobs.len());
        let Some(job) = self.jobs.remove(index) else {
            return Ok(());
        };
        let kind = job.kind();
        self.rot_before_load(kind);
        let fails = self.fails_to_load(kind);
        let before = self.before_load(kind);
        self.device.set_unreadable(fails);
        let outcome = seam::carry_out(job);
        self.device.set_unreadable(false);
        let mut replies = Vec::new();
        let was_snapshotting = self.partition.log().snapshots().is_under_way;
        let was_due_by_memory = self.partition.is_due_by_memory();
        let completed = self.partition.complete(outcome, &mut replies);
        self.note_load(before, fails);
        let log = self.partition.log();
        let is_begun = log.snapshots().is_under_way && !was_snapshotting;
        let is_ahead = is_begun && log.durable() < log.end();
        self.report.rare.note_if(is_ahead, Rare::SnapshotAhead);
        let is_by_memory = is_begun && was_due_by_memory;
        self.report
            .rare
            .note_if(is_by_memory, Rare::SnapshotDueByMemory);
        self.pass(&mut replies);
        self.trace.add(
            "job",
            &[
                index as u64,
                u64::from(completed.is_ok()),
                replies.len() as u64,
            ],
            &(kind, completed.is_ok(), replies.len()),
        );
        let recycled = files_of(self.partition.log()).space().recycled;
        let retired = kind == JobKind::Retire && recycled > self.recycled_segments;
        self.report.rare.note_if(retired, Rare::SegmentRetired);
        self.recycled_segments = recycled;
        self.take_jobs();
        self.take_in(replies)?;
        match completed {
            Ok(()) => Ok(()),
            Err(end) => self.log_ended(&end),
        }
    }
}
/// Waiting commands that note the order in which a turn takes them.
struct Noting<'a> {
    commands: &'a mut Rotation<u64>,
    taken: Vec<u64>,
    /// The lines that wait for copies of a topic.
    held: BTreeSet<Target>,
}

impl Waiting<u64> for Noting<'_> {
    fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    fn front_mut(&mut self) -> Option<&mut Command> {
        self.commands.front_mut()
    }

    fn front_source(&self) -> Source {
        self.commands.front_source()
    }

    fn take(&mut self, cost: Cost) -> Option<(u64, Command)> {
        let taken = self.commands.take(cost)?;
        seam::taken(Some(&taken.1));
        self.taken.push(taken.0);
        Some(taken)
    }

    fn hold(&mut self, body_size_bytes: u64) -> bool {
        let target = self.commands.front_mut().map(|front| Target::of(front));
        let is_held = self.commands.hold(body_size_bytes);
        self.held.extend(target.filter(|_| is_held));
        is_held
    }

    fn is_any_held(&self) -> bool {
        self.commands.is_any_held()
    }

    fn end_turn(&mut self) {
        self.commands.end_turn();
    }
}

impl Asked {
    fn waits(&self) -> bool {
        !self.done && !self.given_up
    }
}

/// A new partition's secret, which must not be used if there is one on the disk.
fn secret(seed: u64) -> [u8; 16] {
    let mut secret = [7; 16];
    for (byte, of) in secret.iter_mut().zip(seed.to_le_bytes()) {
        *byte = of;
    }
    secret
}
