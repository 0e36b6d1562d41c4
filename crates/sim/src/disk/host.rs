//! The machine of a partition: it carries out the partition's jobs on a disk, passes answers to the
//! clients, and forks the disk with the clients' knowledge.

use std::collections::VecDeque;
use std::sync::Arc;

use kew_broker::{
    DamagedBody, Moment, OpenPartitionError, Partition, QuarantinedRun, Reply, TurnEnd,
};
use kew_engine::storage::StorageCommand;
use kew_engine::{Command, SequenceNumber, Timestamp, Token};
use kew_log::{BootTime, FaultyStorage, Job, JobKind, Recovery, ScrubDamage};

use super::bus;
use super::clients::Clients;
use super::setting::{Background, Setting, Traffic};
use super::step::{Step, create_queue, queue_name, receive, send};
use super::tape::Tape;
use crate::checker::Violation;
use crate::seam;

/// A running partition.
pub(super) struct Host {
    pub(super) clients: Clients,
    partition: Partition<u64>,
    tape: Tape,
    setting: Setting,
    now: Timestamp,
    /// When this life of the process began.
    opened_at: Timestamp,
    commands: VecDeque<(u64, Command)>,
    /// Slow jobs that wait for the next step.
    later: VecDeque<Job>,
    recovery: Recovery,
    points: Vec<Point>,
    damage: Damage,
    first_aside: Option<FirstAside>,
}

/// The disk after a job, with the messages that were set aside by then. If they are the first ones, mostly only the log has
/// them, because the snapshots without them follow.
pub(super) struct FirstAside {
    pub(super) disk: FaultyStorage,
    pub(super) runs: Vec<QuarantinedRun>,
}

/// What a pass of the scrub has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) places: Vec<ScrubDamage>,
    pub(super) bodies: Vec<DamagedBody>,
}

/// Whether the disk may have changed stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Forbidden,
    Allowed,
}

/// A point where the power could have gone off: pending writes, and the clients' knowledge.
#[derive(Clone)]
pub(super) struct Point {
    pub(super) call: usize,
    pub(super) disk: FaultyStorage,
    pub(super) clients: Arc<Clients>,
    pub(super) now: Timestamp,
}

/// A partition that could not be opened, with the clients that wait for it.
pub(super) struct NotOpened {
    pub(super) error: OpenPartitionError,
    pub(super) clients: Clients,
}

/// More turns than any step needs: above it something waits forever.
const TURNS_MAX: u32 = 1000;

/// How often jobs are tried that have no file descriptor, and how long the partition waits in between.
const OPENINGS_MAX: u32 = 5;
/// How long a scrub that has nothing to read waits.
const SCRUB_REST_MS: u64 = 10;

/// An idle partition looks at its space four times a second, from its second second on. So it has emptied a few segments,
/// with a look for each.
const TIDY_ROUNDS: u64 = 30;
const TIDY_MS: u64 = 100;

const OPENING_PAUSE_MS: u64 = 100;

/// How long a machine takes before it starts the process.
const BOOT_MS: u64 = 3000;

/// Of messages whose records are lost.
pub(super) const SET_ASIDE: &str = "what is set aside is listed, and no more than what is lost";

/// When every world begins.
pub(super) const BEGINNING: Timestamp = Timestamp::from_ms(1_700_000_000_000);

impl Host {
    /// Opens the content of the disk.
    pub(super) fn open(
        tape: Tape,
        setting: Setting,
        clients: Clients,
        now: Timestamp,
        entropy: u64,
    ) -> Result<Self, Box<NotOpened>> {
        let mut secret = [7; 16];
        secret[..8].copy_from_slice(&entropy.to_le_bytes());
        match seam::open(
            Arc::new(tape.clone()),
            setting.options(),
            entropy,
            secret,
            now,
        ) {
            Ok((_, recovery)) if recovery.void > 0 => panic!("{recovery:?}: nothing cuts this log"),
            Ok((partition, recovery)) => Ok(Self {
                now: now.max(partition.recorded_at()),
                opened_at: now.max(partition.recorded_at()),
                clients,
                partition,
                tape,
                setting,
                commands: VecDeque::new(),
                later: VecDeque::new(),
                recovery,
                points: Vec::new(),
                damage: Damage::Forbidden,
                first_aside: None,
            }),
            Err(error) => Err(Box::new(NotOpened { error, clients })),
        }
    }

    /// Plays one step to its end.
    pub(super) fn play(&mut self, step: Step) -> Result<(), Violation> {
        self.now = self.now.plus_ms(7);
        match step.command(&mut self.clients, self.now) {
            Some(command) => self.ask(command),
            None => self.by_itself(step),
        }
    }

    fn by_itself(&mut self, step: Step) -> Result<(), Violation> {
        self.carry_out_later()?;
        match step {
            Step::Snapshot => self.partition.snapshot(),
            Step::Tidy => return self.tidy(),
            _ => self.partition.mark(),
        }
        self.run_jobs()?;
        Ok(())
    }

    fn tidy(&mut self) -> Result<(), Violation> {
        for _ in 0..TIDY_ROUNDS {
            if self.partition.is_stopped() {
                return Ok(());
            }
            self.pass_time(TIDY_MS);
            self.settle()?;
        }
        Ok(())
    }

    /// Submits one command, with the other commands of the same time.
    pub(super) fn ask(&mut self, command: Command) -> Result<(), Violation> {
        self.carry_out_later()?;
        match self.setting.traffic {
            Traffic::OneByOne => {
                self.push(command);
                self.serve()
            }
            Traffic::OneCommit => {
                self.push(self.of_another());
                self.turn()?;
                self.push(command);
                self.serve()
            }
            Traffic::Overlapped => {
                self.push(self.of_another());
                self.turn()?;
                let commit = self.partition.next_job();
                self.push(command);
                self.turn()?;
                if let Some(job) = commit {
                    self.carry_out(job)?;
                }
                self.serve()
            }
        }
    }

    /// Asks for several things in one turn.
    pub(super) fn ask_all(&mut self, commands: Vec<Command>) -> Result<(), Violation> {
        self.carry_out_later()?;
        for command in commands {
            self.push(command);
        }
        self.serve()
    }

    fn of_another(&self) -> Command {
        send(&self.clients, "of another", None, 0)
    }

    fn push(&mut self, command: Command) {
        let ticket = self.clients.ask(command.clone(), self.now);
        self.commands.push_back((ticket, command));
    }

    /// Runs turns and jobs until every command is decided and durable.
    fn serve(&mut self) -> Result<(), Violation> {
        let mut openings_left = OPENINGS_MAX;
        for _ in 0..TURNS_MAX {
            let end = self.turn()?;
            let has_worked = self.run_jobs()? || !self.later.is_empty();
            let waits = matches!(end, TurnEnd::WaitForJob | TurnEnd::WaitForMemory);
            let is_short = waits && self.partition.log().health().is_short_of_descriptors;
            let reads = self.partition.waiting().next().is_some();
            if waits || reads && self.commands.is_empty() {
                self.carry_out_later()?;
            }
            if is_short || reads && !has_worked {
                self.now = self.now.plus_ms(OPENING_PAUSE_MS);
                self.clients.wait_until(self.now);
                openings_left = openings_left.saturating_sub(1);
                if openings_left == 0 {
                    // Something else has closed its files.
                    self.tape.disk().clear_faults();
                }
            }
            let is_served = self.commands.is_empty() && self.partition.waiting().next().is_none();
            if is_served || self.partition.is_stopped() {
                return Ok(());
            }
        }
        Err(Violation {
            promise: "liveness",
            seen: format!(
                "{:?} waits forever, or {:?}",
                self.commands.front(),
                self.partition.waiting().next()
            ),
        })
    }

    fn turn(&mut self) -> Result<TurnEnd, Violation> {
        let mut replies = Vec::new();
        let end = self
            .partition
            .turn(self.moment(), &mut self.commands, &mut replies);
        self.take_in(replies)?;
        Ok(end)
    }

    /// Now. Each process begins soon after its machine, so the machine's time begins anew with each life.
    fn moment(&self) -> Moment {
        let since_ms = self.now.as_ms() - self.opened_at.as_ms();
        Moment {
            time: self.now,
            boot: BootTime::ZERO.plus_ms(BOOT_MS + since_ms),
        }
    }

    /// Returns whether there were any.
    fn run_jobs(&mut self) -> Result<bool, Violation> {
        let mut has_worked = false;
        while let Some(job) = self.partition.next_job() {
            has_worked = true;
            if self.setting.background == Background::Later && job.kind() != JobKind::Commit {
                self.later.push_back(job);
            } else {
                self.carry_out(job)?;
            }
        }
        Ok(has_worked)
    }

    /// Lets so much time pass that every lock and schedule of a bus entity ends, and what follows from that be done.
    pub(super) fn rest(&mut self) -> Result<(), Violation> {
        self.pass_time(bus::REST_MS);
        self.settle()
    }

    /// Lets the partition do all that is due now.
    pub(super) fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..TURNS_MAX {
            self.carry_out_later()?;
            let end = self.turn()?;
            if let Some(job) = self.partition.next_job() {
                self.carry_out(job)?;
                self.run_jobs()?;
            } else if end == TurnEnd::Done && !self.partition.is_gathering() {
                return Ok(());
            }
        }
        Err(Violation {
            promise: "liveness",
            seen: format!("due work goes on after {TURNS_MAX} turns"),
        })
    }

    /// Reads everything once, as a scrub does, and lets the partition do what follows from that. Returns the bytes
    /// that the scrub could not read when it came there, with file and offset.
    pub(super) fn scrub(&mut self) -> Result<Vec<(String, u64)>, Violation> {
        let found = self.scrub_while(|_| Ok(()))?;
        let bodies = found.bodies.into_iter();
        Ok(bodies.map(|it| (it.file, it.offset)).collect())
    }

    /// The same, with something that happens between its pieces. Returns all that it has found.
    pub(super) fn scrub_while(
        &mut self,
        mut meanwhile: impl FnMut(&mut Self) -> Result<(), Violation>,
    ) -> Result<Found, Violation> {
        let mut found = Found::default();
        for _ in 0..TURNS_MAX {
            self.carry_out_later()?;
            self.turn()?;
            self.run_jobs()?;
            if let Some(mut job) = self.partition.next_scrub() {
                while job.step().is_some() {
                    meanwhile(self)?;
                }
                let outcome = job.finish();
                found.places.extend_from_slice(outcome.places());
                found.bodies.extend_from_slice(outcome.bodies());
                self.partition.scrubbed(outcome);
            } else if self.partition.scrub_report().passes > 0 {
                return Ok(found);
            } else {
                // A search that had to read records rests before its next step.
                self.pass_time(SCRUB_REST_MS);
            }
        }
        Err(Violation {
            promise: "a scrub ends",
            seen: format!("it goes on after {TURNS_MAX} turns"),
        })
    }

    /// Carries out the postponed slow jobs, and everything that follows from them.
    pub(super) fn carry_out_later(&mut self) -> Result<(), Violation> {
        while let Some(job) = self.later.pop_front() {
            self.carry_out(job)?;
            self.run_jobs()?;
        }
        Ok(())
    }

    fn carry_out(&mut self, job: Job) -> Result<(), Violation> {
        let outcome = seam::carry_out(job);
        self.keep_points()?;
        let mut replies = Vec::new();
        // The fault suites check whether it has stopped.
        let _ = self.partition.complete(outcome, &mut replies);
        self.keep_first_aside();
        self.take_in(replies)
    }

    fn keep_first_aside(&mut self) {
        let is_any = self.partition.quarantined_count() > 0;
        if is_any && self.first_aside.is_none() && !self.partition.has_undurable() {
            self.first_aside = Some(FirstAside {
                disk: self.tape.disk().kill(),
                runs: self.partition.quarantined_runs(),
            });
        }
    }

    /// Takes the disk with the first messages that were set aside.
    pub(super) fn take_first_aside(&mut self) -> Option<FirstAside> {
        self.first_aside.take()
    }

    fn take_in(&mut self, replies: Vec<(u64, Reply)>) -> Result<(), Violation> {
        self.tell_set_aside()?;
        replies
            .into_iter()
            .try_for_each(|(ticket, reply)| self.clients.answer(ticket, reply))
    }

    /// Tells the clients which messages were set aside, before an answer leaves them out.
    fn tell_set_aside(&mut self) -> Result<(), Violation> {
        if self.damage == Damage::Forbidden {
            return Ok(());
        }
        let messages = self.set_aside();
        let run_length = self.setting.options().run_length.as_u64();
        self.clients.are_set_aside(&messages, run_length, self.now)
    }

    /// The ids of all messages that were set aside.
    pub(super) fn set_aside(&self) -> Vec<Token> {
        let runs = self.partition.quarantined_runs().into_iter();
        runs.flat_map(|run| self.set_aside_of(&run)).collect()
    }

    /// The ids of a run's messages that were set aside.
    fn set_aside_of(&self, run: &QuarantinedRun) -> Vec<Token> {
        let state = self.partition.state();
        let Some(queue) = state.incarnations_of(&run.queue).first().copied() else {
            return Vec::new();
        };
        let first = run.first.as_u64();
        let length = self.setting.options().run_length.as_u64();
        let end = (first / length + 1) * length;
        let numbers = (first..end).map(SequenceNumber::named);
        let aside = numbers.filter(|number| state.is_quarantined(queue, *number));
        aside
            .filter_map(|number| state.id_of(queue, number))
            .collect()
    }

    /// As many messages are listed and counted as were set aside, and none of them was gone before. Returns how many.
    pub(super) fn check_set_aside(&self) -> Result<u64, Violation> {
        let runs = self.partition.quarantined_runs();
        let violation = |seen: String| Violation {
            promise: SET_ASIDE,
            seen,
        };
        for run in &runs {
            let messages = self.set_aside_of(run);
            let may_exist = |it: &&Token| self.clients.may_exist(**it);
            if messages.iter().filter(may_exist).count() as u64 != run.count {
                return Err(violation(format!("{run:?}, and they are {messages:?}")));
            }
        }
        if !self.clients.are_all_lost(&self.set_aside()) {
            return Err(violation(format!("{runs:?} do not list all")));
        }
        let count = runs.iter().map(|run| run.count).sum();
        match self.partition.quarantined_count() == count {
            true => Ok(count),
            false => Err(violation(format!("{count} are listed"))),
        }
    }

    /// Pairs the tape's forks with the clients' current knowledge.
    fn keep_points(&mut self) -> Result<(), Violation> {
        let forks = self.tape.take_forks();
        if forks.is_empty() {
            return Ok(());
        }
        let clients = Arc::new(self.known()?);
        let now = self.now;
        self.points.extend(forks.into_iter().map(|fork| Point {
            call: fork.call,
            disk: fork.disk,
            clients: Arc::clone(&clients),
            now,
        }));
        Ok(())
    }

    /// The clients' knowledge if there are no more answers.
    pub(super) fn known(&self) -> Result<Clients, Violation> {
        let mut clients = self.clients.clone();
        clients.give_up()?;
        Ok(clients)
    }

    /// Points from now on.
    pub(super) fn record(&mut self) {
        self.tape.record();
    }

    /// All points, and the one after everything has finished.
    pub(super) fn into_points(mut self) -> Result<Vec<Point>, Violation> {
        self.carry_out_later()?;
        self.tape.fork_now();
        self.keep_points()?;
        Ok(self.points)
    }

    /// Receives and deletes until the queue stays empty, and checks that every message was shown.
    ///
    /// Messages were last hidden for 20 seconds at most.
    pub(super) fn drain(&mut self) -> Result<(), Violation> {
        for _ in 0..3 {
            let peek = Command::Storage(StorageCommand::Peek {
                queue: queue_name(),
                count: 32,
            });
            let read = Command::Storage(StorageCommand::ReadQueue {
                queue: queue_name(),
            });
            self.ask_all(vec![Command::ListAccounts, read, peek, receive(32, 20)])?;
            let mut deletes = Vec::new();
            while let Some((message, receipt)) = self.clients.take_held() {
                deletes.push(Command::Storage(StorageCommand::Delete {
                    queue: queue_name(),
                    message,
                    receipt,
                }));
            }
            self.ask_all(deletes)?;
            self.now = self.now.plus_ms(21_000);
        }
        if self.partition.is_stopped() {
            return Err(Violation {
                promise: "liveness",
                seen: format!(
                    "stopped without a fault: {:?}",
                    self.partition.log().health().state
                ),
            });
        }
        self.clients.check_drained(self.now)?;
        if self.setting.has_bus {
            bus::drain(self)?;
        }
        if let (Damage::Forbidden, Some(place)) = (self.damage, self.clients.damage().first()) {
            return Err(Violation {
                promise: "no damage without a cause",
                seen: format!("a body is damaged: {place:?}"),
            });
        }
        Ok(())
    }

    /// Bodies may be damaged from now on, if they are reported.
    pub(super) fn allow_damage(&mut self) {
        self.damage = Damage::Allowed;
    }

    /// Whether the partition is usable: creates the queue, sends and receives.
    pub(super) fn use_once(&mut self) -> Result<(), Violation> {
        let busy = self.clients.busy();
        self.ask_all(vec![
            create_queue(),
            send(&self.clients, "probe", None, 0),
            receive(1, 20),
        ])?;
        if self.clients.busy() > busy || self.partition.is_stopped() {
            return Err(Violation {
                promise: "liveness",
                seen: "busy or stopped though nothing is wrong".to_owned(),
            });
        }
        Ok(())
    }

    /// Ends this process: no further command is answered. A clean end leaves a mark.
    pub(super) fn end(&mut self, is_clean: bool) -> Result<(), Violation> {
        if is_clean {
            self.by_itself(Step::Mark)?;
        }
        self.clients.give_up()
    }

    /// Begins the next process on the same disk, with the faults that it has.
    pub(super) fn restart(self, entropy: u64) -> Result<Self, Box<NotOpened>> {
        let Self {
            clients,
            partition,
            tape,
            setting,
            now,
            ..
        } = self;
        drop(partition);
        Self::open(tape, setting, clients, now, entropy)
    }

    /// Continues with another setting.
    pub(super) fn set(&mut self, setting: Setting) {
        self.setting = setting;
    }

    pub(super) fn setting(&self) -> Setting {
        self.setting
    }

    pub(super) fn pass_time(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
    }

    pub(super) fn partition(&self) -> &Partition<u64> {
        &self.partition
    }

    pub(super) fn tape(&self) -> &Tape {
        &self.tape
    }

    pub(super) fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }
}
