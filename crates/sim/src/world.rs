//! A world: clients, a partition, a disk and the clocks, moved one step at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use kew_broker::{Answered, Clock, ClockReading, Partition, PartitionOptions, Reply, TurnEnd};
use kew_engine::{Command, Outcome, Timestamp, Token, VisibilityTimeout};
use kew_log::{FaultyStorage, Job, JobKind};

use crate::checker::{Checker, Operation, Seen, Violation};
use crate::random::Stream;
use crate::swarm::Swarm;
use crate::trace::Trace;
use crate::workload::{Workload, create_queue, queue_name};

/// What a run of one seed came to.
#[derive(Debug, Default)]
pub struct Report {
    /// Operations that clients asked for.
    pub operations: u64,
    /// Of these, how many had an outcome that the client never learned.
    pub unknown: u64,
    /// Processes killed, with what they had written kept.
    pub kills: u64,
    /// Power cuts, with any of what was not synced lost.
    pub power_cuts: u64,
    /// Jumps of the wall clock.
    pub clock_jumps: u64,
    /// Snapshots that were written.
    pub snapshots: u64,
    /// A number that is the same if and only if the same happened.
    pub trace_hash: u64,
    /// What happened, step by step, if it was asked for.
    pub trace: Vec<String>,
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
}

/// Runs one seed: at least `operations` under faults, then until everything is drained.
pub fn run(seed: u64, operations: u64, keep_trace: bool) -> Report {
    let mut world = World::new(seed, keep_trace);
    let violation = world.live(operations).err();
    world.report(violation)
}

/// More steps than any drain needs: past it something waits for ever.
const DRAIN_STEPS_MAX: u32 = 20_000;

pub(crate) struct World {
    swarm: Swarm,
    options: PartitionOptions,
    schedule: Stream,
    faults: Stream,
    disk: Stream,
    workload: Workload,
    storage: Arc<FaultyStorage>,
    /// The power goes off, or is off, when the storage has been called more often than this.
    off_after: Option<u64>,
    partition: Partition<u64>,
    clock: Clock,
    reading: ClockReading,
    now: Timestamp,
    /// Admitted, not decided.
    commands: VecDeque<(u64, Command)>,
    /// Handed out by the partition, not carried out.
    jobs: VecDeque<Job>,
    /// Asked and not yet looked at by the checker, in the order of asking.
    history: BTreeMap<u64, (Operation, bool)>,
    next_operation: u64,
    in_flight: usize,
    checker: Checker,
    trace: Trace,
    report: Report,
}

impl World {
    fn new(seed: u64, keep_trace: bool) -> Self {
        Self::with_swarm(seed, Swarm::draw(seed), keep_trace)
    }

    pub(crate) fn with_swarm(seed: u64, swarm: Swarm, keep_trace: bool) -> Self {
        let options = swarm.partition_options();
        let storage = Arc::new(FaultyStorage::new());
        let reading = ClockReading {
            wall_us: 1_700_000_000_000_000,
            boot_us: 0,
        };
        let now = Timestamp::from_ms(reading.wall_us / 1000);
        let (partition, _) = Partition::open(&*storage, options.clone(), seed, secret(seed), now)
            .expect("an empty disk without faults can be opened");
        Self {
            clock: Clock::start(reading, now),
            schedule: Stream::new(seed, "schedule"),
            faults: Stream::new(seed, "faults"),
            disk: Stream::new(seed, "disk"),
            workload: Workload::new(seed),
            storage,
            off_after: None,
            partition,
            reading,
            now,
            commands: VecDeque::new(),
            jobs: VecDeque::new(),
            history: BTreeMap::new(),
            next_operation: 0,
            in_flight: 0,
            checker: Checker::new(),
            trace: Trace::new(keep_trace),
            report: Report::default(),
            options,
            swarm,
        }
    }

    fn live(&mut self, operations: u64) -> Result<(), Violation> {
        for queue in 0..self.swarm.queues {
            self.ask(queue, create_queue(queue));
        }
        while self.next_operation < operations {
            self.step()?;
            self.strike()?;
        }
        self.drain()
    }

    /// One thing that can happen next.
    fn step(&mut self) -> Result<(), Violation> {
        if self.is_off() {
            return self.crash(Crash::PowerCut);
        }
        self.pass_time();
        let disk = self.schedule.happens(self.swarm.disk_speed_per_mille);
        if !self.jobs.is_empty() && disk {
            return self.carry_out_job();
        }
        if self.in_flight < self.swarm.clients && self.schedule.happens(600) {
            let (queue, command) = self.workload.next(&self.swarm);
            self.ask(queue, command);
            return Ok(());
        }
        self.turn()
    }

    fn pass_time(&mut self) {
        let us = match self.schedule.below(100) {
            0 => self.schedule.below(20_000_000),
            1..10 => self.schedule.below(1_000_000),
            _ => self.schedule.below(1_000),
        };
        self.reading.boot_us += us;
        self.reading.wall_us += us;
        self.now = self.clock.now(self.reading);
    }

    pub(crate) fn ask(&mut self, queue: usize, command: Command) {
        let id = self.next_operation;
        self.next_operation += 1;
        self.in_flight += 1;
        self.trace.add("ask", &(id, &command));
        let operation = Operation {
            queue,
            command: command.clone(),
            from: self.now,
            until: Timestamp::NEVER,
            seen: Seen::Unknown,
        };
        self.history.insert(id, (operation, false));
        self.commands.push_back((id, command));
    }

    fn turn(&mut self) -> Result<(), Violation> {
        let waiting: Vec<u64> = self.commands.iter().map(|(id, _)| *id).collect();
        let mut replies = Vec::new();
        let end = self
            .partition
            .turn(self.now, &mut self.commands, &mut replies);
        let decided = waiting.len() - self.commands.len();
        for id in waiting.iter().take(decided) {
            if let Some((operation, _)) = self.history.get_mut(id) {
                (operation.from, operation.until) = (self.now, self.now);
            }
        }
        self.trace.add("turn", &(self.now, decided, end));
        if end == TurnEnd::Done && self.schedule.happens(100) {
            self.partition.mark();
        }
        self.partition.snapshot_if_due();
        while let Some(job) = self.partition.next_job() {
            self.report.snapshots += u64::from(job.kind() == JobKind::Snapshot);
            self.jobs.push_back(job);
        }
        self.take_in(replies)
    }

    fn carry_out_job(&mut self) -> Result<(), Violation> {
        let index = self.schedule.index(self.jobs.len());
        let Some(job) = self.jobs.remove(index) else {
            return Ok(());
        };
        let outcome = job.run(self.storage.as_ref());
        let mut replies = Vec::new();
        let completed = self.partition.complete(outcome, &mut replies);
        self.trace
            .add("job", &(index, completed.is_ok(), replies.len()));
        while let Some(job) = self.partition.next_job() {
            self.jobs.push_back(job);
        }
        self.take_in(replies)?;
        if completed.is_err() {
            // The power went off in the middle of it.
            self.crash(Crash::PowerCut)?;
        }
        Ok(())
    }

    fn take_in(&mut self, replies: Vec<(u64, Reply)>) -> Result<(), Violation> {
        for (id, reply) in replies {
            let answered = reply.map(|answered| read(&answered));
            if self.is_off() {
                // The power went off before the answer was sent: nobody ever sees it.
                continue;
            }
            self.in_flight -= 1;
            let Some((operation, done)) = self.history.get_mut(&id) else {
                continue;
            };
            self.trace.add("answer", &(id, &answered));
            if let Ok((outcome, _)) = &answered {
                self.workload
                    .learn(operation.queue, &operation.command, outcome);
            }
            operation.until = operation.until.min(self.now);
            operation.seen = Seen::Answered(answered);
            *done = true;
        }
        self.check()
    }

    /// Looks at the history as far as its outcome is settled.
    fn check(&mut self) -> Result<(), Violation> {
        while let Some(entry) = self.history.first_entry() {
            if !entry.get().1 {
                break;
            }
            let (operation, _) = entry.remove();
            self.checker.check(&operation)?;
        }
        Ok(())
    }

    /// Lets a fault happen, or not.
    fn strike(&mut self) -> Result<(), Violation> {
        if self.faults.happens(self.swarm.clock_jump_per_mille) {
            let hour = 3_600_000_000;
            let ahead = self.faults.happens(500);
            let wall = self.reading.wall_us;
            self.reading.wall_us = if ahead { wall + hour } else { wall - hour };
            self.report.clock_jumps += 1;
            self.trace.add("clock jump", &ahead);
        }
        if self.faults.happens(self.swarm.kill_per_mille) {
            return self.crash(Crash::Kill);
        }
        if self.faults.happens(self.swarm.power_cut_per_mille) {
            if self.faults.happens(300) {
                return self.crash(Crash::PowerCut);
            }
            // Some storage calls from now, in the middle of whatever that is.
            let calls = self.faults.below(12);
            self.arm(calls);
        }
        Ok(())
    }

    /// Lets the power go off after some more storage calls.
    pub(crate) fn arm(&mut self, calls: u64) {
        self.storage.crash_after(calls);
        self.off_after = Some(self.storage.calls() + calls);
    }

    pub(crate) fn is_off(&self) -> bool {
        self.off_after
            .is_some_and(|calls| self.storage.calls() > calls)
    }

    fn crash(&mut self, crash: Crash) -> Result<(), Violation> {
        self.trace.add("crash", &crash);
        let disk = &mut self.disk;
        let next = match crash {
            Crash::Kill => self.storage.kill(),
            Crash::PowerCut => self.storage.crash(&mut |end| disk.below_u32(end.max(1))),
        };
        match crash {
            Crash::Kill => self.report.kills += 1,
            Crash::PowerCut => self.report.power_cuts += 1,
        }
        self.storage = Arc::new(next);
        self.off_after = None;
        self.jobs.clear();
        self.commands.clear();
        self.in_flight = 0;
        for (operation, done) in self.history.values_mut() {
            operation.until = operation.until.min(self.now);
            *done = true;
        }
        self.check()?;
        self.reopen()
    }

    /// Opens what is on the disk, sometimes with another power cut in the middle of that.
    fn reopen(&mut self) -> Result<(), Violation> {
        let wall = Timestamp::from_ms(self.reading.wall_us / 1000);
        loop {
            let again = self.faults.happens(200);
            if again {
                let calls = self.faults.below(40);
                self.arm(calls);
            }
            let salt = self.disk.next();
            let opened = Partition::open(
                &*self.storage,
                self.options.clone(),
                salt,
                secret(salt),
                wall,
            );
            match opened {
                Ok((partition, recovery)) => {
                    self.trace.add("reopened", &recovery.events_replayed);
                    self.partition = partition;
                    self.clock = Clock::start(self.reading, self.partition.state().last_event_at());
                    self.now = self.clock.now(self.reading);
                    return Ok(());
                }
                Err(_) if again && self.is_off() => {
                    let disk = &mut self.disk;
                    let next = self.storage.crash(&mut |end| disk.below_u32(end.max(1)));
                    self.storage = Arc::new(next);
                    self.off_after = None;
                    self.report.power_cuts += 1;
                }
                Err(error) => {
                    return Err(Violation {
                        promise: "recovery",
                        seen: format!("{error} ({error:?})"),
                    });
                }
            }
        }
    }

    /// No more faults: receives and deletes until every queue is empty for good.
    pub(crate) fn drain(&mut self) -> Result<(), Violation> {
        self.trace.add("drain", &());
        self.settle_down()?;
        for queue in 0..self.swarm.queues {
            self.drain_queue(queue)?;
        }
        self.checker.check_drained(self.now)
    }

    fn drain_queue(&mut self, queue: usize) -> Result<(), Violation> {
        let mut empty_rounds = 0;
        for _ in 0..DRAIN_STEPS_MAX {
            let receive = Command::Receive {
                queue: queue_name(queue),
                count: 32,
                visibility_timeout: VisibilityTimeout::from_seconds(30)
                    .expect("30 s is below seven days"),
            };
            let Some(Outcome::Received(messages)) = self.ask_and_wait(queue, receive)? else {
                return Ok(());
            };
            if messages.is_empty() {
                // Leases last at most half a minute here.
                self.reading.boot_us += 31_000_000;
                self.reading.wall_us += 31_000_000;
                self.now = self.clock.now(self.reading);
                empty_rounds += 1;
                if empty_rounds == 3 {
                    return self
                        .ask_and_wait(
                            queue,
                            Command::ReadQueue {
                                queue: queue_name(queue),
                            },
                        )
                        .map(|_| ());
                }
            } else {
                empty_rounds = 0;
            }
            for message in messages {
                let delete = Command::Delete {
                    queue: queue_name(queue),
                    message: message.message,
                    receipt: message.receipt,
                };
                self.ask_and_wait(queue, delete)?;
            }
        }
        Err(Violation {
            promise: "liveness",
            seen: format!("queue {queue} is not empty after {DRAIN_STEPS_MAX} receives"),
        })
    }

    pub(crate) fn ask_and_wait(
        &mut self,
        queue: usize,
        command: Command,
    ) -> Result<Option<Outcome>, Violation> {
        let id = self.next_operation;
        self.ask(queue, command);
        self.now = self.clock.now(self.reading);
        let mut outcome = None;
        for _ in 0..DRAIN_STEPS_MAX {
            if let Some((operation, true)) = self.history.get(&id) {
                outcome = Some(operation.seen.clone());
            }
            if !self.history.contains_key(&id) || outcome.is_some() {
                break;
            }
            self.turn_and_note(id, &mut outcome)?;
        }
        match outcome {
            Some(Seen::Answered(Ok((outcome, _)))) => Ok(Some(outcome)),
            Some(_) => Ok(None),
            None => Err(Violation {
                promise: "liveness",
                seen: format!("operation {id} was never answered"),
            }),
        }
    }

    /// One turn and its jobs, and what became of one operation in it.
    fn turn_and_note(&mut self, id: u64, outcome: &mut Option<Seen>) -> Result<(), Violation> {
        let waiting: Vec<u64> = self.commands.iter().map(|(id, _)| *id).collect();
        let mut replies = Vec::new();
        self.partition
            .turn(self.now, &mut self.commands, &mut replies);
        for id in waiting {
            if let Some((operation, _)) = self.history.get_mut(&id) {
                (operation.from, operation.until) = (self.now, self.now);
            }
        }
        while let Some(job) = self.jobs.pop_front().or_else(|| self.partition.next_job()) {
            let done = job.run(self.storage.as_ref());
            if let Err(error) = self.partition.complete(done, &mut replies) {
                return Err(Violation {
                    promise: "liveness",
                    seen: format!("the log failed without a fault: {error}"),
                });
            }
        }
        if let Some((_, reply)) = replies.iter().find(|(ticket, _)| *ticket == id) {
            let answered = match reply {
                Ok(answered) => Ok(read(answered)),
                Err(rejection) => Err(rejection.clone()),
            };
            *outcome = Some(Seen::Answered(answered));
        }
        self.take_in(replies)
    }

    /// The id and receipt that a client learned last.
    pub(crate) fn last_held(&self) -> Option<(Token, Token)> {
        self.workload.last_held()
    }

    /// How many operations were asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.next_operation
    }

    /// Turns and jobs until nothing is left to do or the power is off.
    pub(crate) fn run_to_rest(&mut self) -> Result<(), Violation> {
        while !self.commands.is_empty() && !self.is_off() {
            self.turn()?;
            self.run_jobs()?;
        }
        Ok(())
    }

    pub(crate) fn snapshot_now(&mut self) -> Result<(), Violation> {
        self.partition.snapshot();
        self.run_jobs()
    }

    pub(crate) fn mark_now(&mut self) -> Result<(), Violation> {
        self.partition.mark();
        self.run_jobs()
    }

    fn run_jobs(&mut self) -> Result<(), Violation> {
        while !self.is_off()
            && let Some(job) = self.jobs.pop_front().or_else(|| self.partition.next_job())
        {
            let outcome = job.run(self.storage.as_ref());
            let mut replies = Vec::new();
            // If it fails, the power is off, and whoever asked finds out.
            let _ = self.partition.complete(outcome, &mut replies);
            self.take_in(replies)?;
        }
        Ok(())
    }

    /// Lets everything that is under way come to its end.
    fn settle_down(&mut self) -> Result<(), Violation> {
        if self.off_after.is_some() {
            self.crash(Crash::PowerCut)?;
            self.off_after = None;
            self.storage.clear_faults();
        }
        let mut nothing = None;
        for _ in 0..DRAIN_STEPS_MAX {
            if self.commands.is_empty() && self.jobs.is_empty() && self.history.is_empty() {
                return Ok(());
            }
            self.turn_and_note(u64::MAX, &mut nothing)?;
        }
        Err(Violation {
            promise: "liveness",
            seen: format!("{} operations were never answered", self.history.len()),
        })
    }

    fn report(self, violation: Option<Violation>) -> Report {
        Report {
            operations: self.checker.operations,
            unknown: self.checker.unknown,
            trace_hash: self.trace.hash(),
            trace: self.trace.into_lines(),
            violation,
            ..self.report
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Crash {
    /// The process dies; the operating system keeps what was written.
    Kill,
    /// The machine dies; what was not synced may be lost, in part or in another order.
    PowerCut,
}

/// A new partition's secret, which must not be used when there is one on the disk.
fn secret(seed: u64) -> [u8; 16] {
    let mut secret = [7; 16];
    for (byte, of) in secret.iter_mut().zip(seed.to_le_bytes()) {
        *byte = of;
    }
    secret
}

fn read(answered: &Answered) -> (Outcome, Vec<Bytes>) {
    let bodies = answered.bodies.iter().map(|body| {
        // A damaged body is no body that was ever sent, so the checker will tell.
        body.read()
            .unwrap_or_else(|error| Bytes::from(error.to_string()))
    });
    (answered.outcome.clone(), bodies.collect())
}
