//! A world: clients, a partition, a disk and the clocks, advanced one step at a time. Instead of the disk there can be two
//! members of a replicated log.

mod answers;
mod backups;
mod cold;
mod drain;
mod jobs;
mod life;
mod members;
mod recovery;
mod report;
mod scrub;
mod strikes;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kew_broker::{
    Admitted, ClockReading, Cost, PartitionOptions, Rejection, Reply, Rotation, Source, Target,
    TurnEnd, Waiting,
};
use kew_engine::{Command, Timestamp};
use kew_log::{FaultyStorage, JobKind};
use kew_planted::Seam;

use crate::bus::{self, BusSwarm};
use crate::checker::{Checker, Operation, Seen, Violation, promise};
use crate::faults::{Crash, Faults};
use crate::random::Stream;
use crate::rare::Rare;
use crate::seam::{self, Disk, altered};
use crate::swarm::Swarm;
use crate::trace::Trace;
use crate::workload::{Workload, create_queue};

use backups::Backups;
use life::Life;
pub use members::MUST_OCCUR_WITH_MEMBERS;
use members::Members;
pub use report::{Moment, Report, Watch};
use scrub::Flipped;

/// Runs one seed: at least `operations` under faults, then until everything is drained.
pub fn run(seed: u64, operations: u64, keep_trace: bool) -> Report {
    run_swarm(seed, Swarm::draw(seed), operations, keep_trace, None)
}

/// Runs one seed as [`run`] does, and shows every step to `watch`.
pub fn replay(seed: u64, operations: u64, watch: Watch) -> Report {
    run_swarm(seed, Swarm::draw(seed), operations, true, Some(watch))
}

/// Runs one seed in which two members own a replicated log in turn.
pub fn run_on_model(seed: u64, operations: u64, keep_trace: bool) -> Report {
    run_swarm(seed, Swarm::draw_model(seed), operations, keep_trace, None)
}

/// Runs one seed as [`run_on_model`] does, and shows every step to `watch`.
pub fn replay_on_model(seed: u64, operations: u64, watch: Watch) -> Report {
    let swarm = Swarm::draw_model(seed);
    run_swarm(seed, swarm, operations, true, Some(watch))
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
    scrub: Stream,
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
    /// The disk has a limit now.
    is_full: bool,
    /// The disk does nothing before this step.
    slow_until: u64,
    /// Snapshots that were damaged on purpose.
    damaged_snapshots: Vec<String>,
    /// Every byte that was damaged, in snapshots and in pages.
    flipped: Vec<Flipped>,
    /// Pairs of page files with damage, and the number of the file that has it.
    damaged_pages: BTreeMap<u64, u64>,
    backups: Backups,
    /// The process that acts.
    life: Life,
    /// The members, if the log is replicated.
    members: Option<Members>,
    reading: ClockReading,
    /// Operations that the checker has not looked at yet.
    history: BTreeMap<u64, Asked>,
    next_operation: u64,
    refused_at_the_door: u64,
    in_flight: usize,
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
    /// The process that was asked, and the newest one that had answered before.
    life: u64,
    after: u64,
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
        let members = swarm.model.map(|model| Members::new(seed, model));
        let opened = match &members {
            Some(members) => members.open(&swarm, seed, wall),
            None => seam::open(device.clone(), options.clone(), seed, secret(seed), wall),
        };
        let (partition, _) = opened.expect("an empty log without faults can be opened");
        Self {
            life: Life::begin(0, partition, &swarm, reading),
            members,
            schedule: Stream::new(seed, "schedule"),
            sources: Stream::new(seed, "sources"),
            disk: Stream::new(seed, "disk"),
            cold: Stream::new(seed, "cold"),
            cold_rot: Stream::new(seed, "cold rot"),
            scrub: Stream::new(seed, "scrub"),
            faults: Faults::new(seed, swarm.faults.clone()),
            workload: Workload::new(seed),
            storage,
            device,
            dies_after: None,
            call_may_fail: false,
            reads_fail: swarm.model.is_none(),
            is_full: false,
            slow_until: 0,
            damaged_snapshots: Vec::new(),
            flipped: Vec::new(),
            damaged_pages: BTreeMap::new(),
            backups: Backups::new(seed),
            reading,
            history: BTreeMap::new(),
            next_operation: 0,
            refused_at_the_door: 0,
            in_flight: 0,
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
            self.back_up()?;
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
        match self.former_acts() {
            true => self.as_former(Self::act),
            false => self.act(),
        }
    }

    /// A process does something, or is asked for something.
    fn act(&mut self) -> Result<(), Violation> {
        let is_slow = self.report.steps < self.slow_until;
        let scrubs = !is_slow && self.scrub.happens(self.swarm.scrub_per_mille);
        if scrubs && self.scrub_piece()? {
            return Ok(());
        }
        let has_job = self.life.has_job() && !is_slow;
        if has_job && self.schedule.happens(self.swarm.disk_speed_per_mille) {
            return self.carry_out_job();
        }
        if self.in_flight < self.swarm.clients && self.schedule.happens(600) {
            let (queue, command) = self.next_command();
            self.ask(queue, command);
            return Ok(());
        }
        if self.life.commands.is_empty() && has_job && self.schedule.happens(900) {
            return self.carry_out_job();
        }
        self.turn()
    }

    /// The next command of a client, and its storage queue.
    fn next_command(&mut self) -> (usize, Command) {
        if let Some(bus) = &mut self.bus
            && self.schedule.happens(bus.swarm.share_per_mille)
        {
            return (
                0,
                Command::Bus(bus.workload.next(&bus.swarm, self.life.now)),
            );
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
        self.tell_time();
        self.read_clock()
    }

    fn read_clock(&mut self) -> Result<(), Violation> {
        let now = self.life.clock.now(altered(Seam::Reading, self.reading));
        (self.life.now, self.life.boot) = (now.time, now.boot);
        self.life.timekeeping.check(self.reading, self.life.now)?;
        let ahead = self.life.now.as_ms() > self.reading.wall_us / 1000 + 1;
        self.report.rare.note_if(ahead, Rare::ClockSlewedBack);
        Ok(())
    }

    pub(crate) fn ask(&mut self, queue: usize, command: Command) {
        let id = self.next_operation;
        self.next_operation += 1;
        self.trace.ask(id, &command);
        let mut asked = Asked {
            source: Source::ALONE,
            life: self.life.number,
            after: self.answered_life(),
            operation: Operation {
                queue,
                command: command.clone(),
                from: self.life.now,
                until: Timestamp::NEVER,
                had_room: false,
                could_read_due: false,
                seen: Seen::Unknown,
            },
            admitted: None,
            given_up: false,
            done: false,
        };
        match self.life.admission.admit(&command.describe()) {
            Ok(admitted) => {
                asked.admitted = Some(admitted);
                self.in_flight += 1;
                let source = self.draw_source();
                asked.source = source;
                self.life.turns.asked(id, source, Target::of(&command));
                let (id, command) = altered(Seam::Asked, (id, command));
                self.life.commands.push(source, id, command);
            }
            Err(_) => {
                asked.operation.until = self.life.now;
                asked.operation.seen = Seen::Answered(Err(Rejection::Busy));
                asked.done = true;
                self.life.order.push_back(id);
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
            self.life.partition.mark();
        }
        self.take_jobs();
        self.take_in(replies)
    }

    /// Lets the partition decide waiting commands, and notes the time.
    fn decide(&mut self, replies: &mut Vec<(u64, Reply)>) -> Result<TurnEnd, Violation> {
        seam::taken(None);
        self.take_out_of_memory();
        self.life.partition.check_cold_pages();
        let waited = self.waiting();
        let moment = self.moment();
        let mut noting = Noting {
            commands: &mut self.life.commands,
            taken: Vec::new(),
            held: BTreeSet::new(),
        };
        let moved_before = self.life.partition.moved_count();
        let without_due_before = self.life.partition.decided_without_due_count();
        let end = self.life.partition.turn(moment, &mut noting, replies);
        let has_moved = self.life.partition.moved_count() > moved_before;
        let has_left_due = self.life.partition.decided_without_due_count() > without_due_before;
        if has_left_due && let Some(bus) = &mut self.bus {
            let what = "a command was decided without due work that could not be read";
            bus.checker.note(what);
        }
        let Noting { taken, held, .. } = noting;
        self.confirm(replies);
        self.check_left_alone()?;
        if !held.is_empty()
            && let Some(bus) = &mut self.bus
        {
            bus.checker
                .note("who sends to a topic waited for the copies that it owed");
        }
        self.pass(replies);
        for id in &taken {
            self.life.turns.decided(*id, &held)?;
        }
        let ids = self.decided(&waited, &taken, replies)?;
        self.check_tries()?;
        self.recount();
        let decided = ids.len();
        for id in &ids {
            self.life.order.push_back(*id);
            let command = self.history.get(id).map(|it| &it.operation.command);
            let could_read_due = command.is_some_and(|it| self.could_read_due(it));
            if let Some(asked) = self.history.get_mut(id) {
                let operation = &mut asked.operation;
                (operation.from, operation.until) = (self.life.now, self.life.now);
                operation.had_room =
                    !self.life.partition.is_out_of_space() && self.swarm.carries_out_all_due();
                operation.could_read_due = could_read_due;
            }
        }
        let rare = &mut self.report.rare;
        rare.note_if(end == TurnEnd::MoreToDecide, Rare::BatchFull);
        rare.note_if(end == TurnEnd::WaitForJob, Rare::WaitedForSegment);
        rare.note_if(end == TurnEnd::WaitForMemory, Rare::WaitedForMemory);
        rare.note_if(has_moved, Rare::BodiesMoved);
        rare.note_if(self.life.partition.warmed_count() > 0, Rare::RunWarmed);
        let is_full = self.life.partition.log().limits().full.is_some();
        rare.note_if(has_moved && is_full, Rare::BodiesMovedOnFullDisk);
        let is_snapshotting = self
            .life
            .jobs
            .iter()
            .any(|job| job.kind() == JobKind::Snapshot);
        rare.note_if(is_snapshotting && decided > 0, Rare::DecidedDuringSnapshot);
        self.life.was_out_of_space |= self.life.partition.is_out_of_space();
        self.note_transactions(&ids);
        let numbers = [self.life.now.as_ms(), decided as u64, end as u64];
        self.trace
            .add("turn", &numbers, &(self.life.now, decided, end));
        Ok(end)
    }

    /// What is counted while copies come and go equals a recount, after each turn.
    fn recount(&self) {
        let swarm = self.bus.as_ref().map(|bus| &bus.swarm);
        if swarm.is_some_and(|swarm| swarm.topics.is_some()) {
            self.life.partition.state().check_live_bytes();
        }
    }

    fn moment(&self) -> kew_broker::Moment {
        kew_broker::Moment {
            time: self.life.now,
            boot: self.life.boot,
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
