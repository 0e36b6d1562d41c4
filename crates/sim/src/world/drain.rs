//! The liveness phase: no more faults, everything is received and deleted, within bounds.

use kew_broker::Rejection;
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome, VisibilityTimeout};

use super::World;
use crate::checker::{Seen, Violation, promise, violated};
use crate::faults::Crash;
use crate::seam::{self, files_of};
use crate::workload::queue_name;

/// More turns than any answer needs: above it something waits forever.
const TURNS_MAX: u32 = 2_000;
/// More receives than any queue needs until it is empty.
const RECEIVES_MAX: u32 = 20_000;
/// How often a busy partition is asked again, with a second between.
const RETRIES_MAX: u32 = 30;
/// How long an idle partition may take until its space follows its live data, in turns of 10 ms: a minute.
const SPACE_TURNS_MAX: u32 = 6_000;
/// Longer than any lease or delay of the workload.
const LEASE_SECONDS_MAX: u64 = 31;

impl World {
    /// No more faults: receives and deletes until every queue stays empty.
    pub(crate) fn drain(&mut self) -> Result<(), Violation> {
        self.trace.add("drain", &[], &());
        self.settle_down()?;
        self.end_backup()?;
        self.check_scrub_ends()?;
        self.check_space()?;
        self.check_nothing_is_kept()?;
        for queue in 0..self.swarm.queues {
            self.drain_queue(queue)?;
        }
        self.checker.check_drained(self.life.now)?;
        if let Some(bus) = &self.bus {
            let swarm = bus.swarm.clone();
            self.drain_bus(&swarm)?;
        }
        self.check_nothing_held_back()
    }

    /// The size of the segments in the unit in which the log ends: they stay until it goes on.
    fn open_bytes(&self) -> u64 {
        let (state, log) = (self.life.partition.state(), self.life.partition.log());
        let end = log.end().as_u64();
        let open_unit = state.units_around(&(end..end + 1));
        let is_open = |records| state.units_around(&records).end > open_unit.start;
        let open = files_of(log)
            .segments()
            .filter(|span| is_open(span.records()));
        open.map(|span| span.size_bytes).sum()
    }

    /// Four segments. One that was made for a large batch can be larger than usual.
    fn kept_bytes_max(&self) -> u64 {
        let log = files_of(self.life.partition.log());
        let sizes: Vec<u64> = log.segments().map(|segment| segment.size_bytes).collect();
        let prepared_bytes = log.space().used_bytes - sizes.iter().sum::<u64>();
        let usual_bytes = self.options.log.segment_size_max_bytes;
        let largest_bytes = sizes.into_iter().fold(prepared_bytes, u64::max);
        4 * largest_bytes.max(usual_bytes)
    }

    /// L2: without commands, segments soon take at most twice the live data and four segments.
    fn check_space(&mut self) -> Result<(), Violation> {
        if self.members.is_some() {
            // It has no files.
            return Ok(());
        }
        let mut nothing = None;
        for _ in 0..SPACE_TURNS_MAX {
            let space = files_of(self.life.partition.log()).space();
            let live_bytes = self.life.partition.state().live_bytes();
            let kept_bytes = self.kept_bytes_max() + self.open_bytes();
            // A third of these small segments is room that no batch takes, so 1.4 is out of reach.
            if space.size_bytes <= live_bytes * 2 + kept_bytes {
                self.life.partition.state().check_live_bytes();
                return Ok(());
            }
            self.pass_time(|_| 10_000)?;
            self.turn_and_note(u64::MAX, &mut nothing)?;
            self.end_step();
        }
        let (state, log) = (
            self.life.partition.state(),
            files_of(self.life.partition.log()),
        );
        let segments = log
            .segments()
            .map(|segment| (segment.records(), state.live_bytes_in(segment.records())));
        let segments: Vec<_> = segments.collect();
        violated!(
            promise::SPACE,
            "{} live bytes take {:?}; by segment: {segments:?}",
            state.live_bytes(),
            log.space()
        )
    }

    /// Lets time pass, and lets the partition do its due work.
    pub(crate) fn rest(&mut self, ms: u64) -> Result<(), Violation> {
        self.pass_time(|_| ms * 1000)?;
        let mut nothing = None;
        for _ in 0..TURNS_MAX {
            self.turn_and_note(u64::MAX, &mut nothing)?;
            self.end_step();
            let due = self.life.partition.state().next_deadline();
            let is_due = due.is_some_and(|due| due.has_passed(self.life.now));
            if !is_due && !self.life.partition.is_due_work_waiting() {
                return Ok(());
            }
            if !is_due {
                // It waits for a read, which is tried again after a second if it has failed.
                self.pass_time(|_| 100_000)?;
            }
        }
        violated!(promise::LIVENESS, "something stays due forever")
    }

    pub(crate) fn check_bus_drained(&self) -> Result<(), Violation> {
        let bus = self.bus.as_ref();
        bus.map_or(Ok(()), |bus| bus.checker.check_drained())
    }

    fn drain_queue(&mut self, queue: usize) -> Result<(), Violation> {
        let name = queue_name(queue);
        let mut empty_rounds = 0;
        for _ in 0..RECEIVES_MAX {
            let receive = Command::Storage(StorageCommand::Receive {
                queue: name.clone(),
                count: 32,
                visibility_timeout: VisibilityTimeout::from_seconds(30)
                    .expect("30 s is below seven days"),
            });
            let Some(Outcome::Storage(StorageOutcome::Received(messages))) =
                self.ask_until_answered(queue, receive)?
            else {
                return Ok(());
            };
            if messages.is_empty() {
                self.pass_time(|_| LEASE_SECONDS_MAX * 1_000_000)?;
                empty_rounds += 1;
                if empty_rounds == 3 {
                    return self.check_empty(queue);
                }
            } else {
                empty_rounds = 0;
            }
            for message in messages {
                let delete = Command::Storage(StorageCommand::Delete {
                    queue: name.clone(),
                    message: message.message,
                    receipt: message.receipt,
                });
                self.ask_until_answered(queue, delete)?;
            }
        }
        violated!(
            promise::LIVENESS,
            "queue {queue} is not empty after {RECEIVES_MAX} receives"
        )
    }

    /// I7: after everything was deleted or has expired, nothing is counted.
    fn check_empty(&mut self, queue: usize) -> Result<(), Violation> {
        let read = Command::Storage(StorageCommand::ReadQueue {
            queue: queue_name(queue),
        });
        let mut count = 0;
        for _ in 0..TURNS_MAX {
            let Some(Outcome::Storage(StorageOutcome::Queue(view))) =
                self.ask_until_answered(queue, read.clone())?
            else {
                return Ok(());
            };
            count = view.approximate_message_count;
            if count == 0 {
                return Ok(());
            }
        }
        violated!(
            promise::COUNTS_CONSERVED,
            "an empty queue counts {count} messages"
        )
    }

    /// Retries while the partition is busy: without faults that does not last long.
    pub(crate) fn ask_until_answered(
        &mut self,
        queue: usize,
        command: Command,
    ) -> Result<Option<Outcome>, Violation> {
        for _ in 0..RETRIES_MAX {
            match self.ask_and_see(queue, command.clone())? {
                Seen::Answered(Ok((outcome, _))) => return Ok(Some(outcome)),
                Seen::Answered(Err(
                    Rejection::Busy | Rejection::NotOwner | Rejection::Full | Rejection::ReadFailed,
                )) => self.pass_time(|_| 1_000_000)?,
                Seen::Answered(Err(_)) | Seen::Unknown => return Ok(None),
            }
        }
        violated!(
            promise::LIVENESS,
            "still busy after {RETRIES_MAX} s: {command:?}"
        )
    }

    fn ask_and_see(&mut self, queue: usize, command: Command) -> Result<Seen, Violation> {
        let id = self.next_operation;
        self.ask(queue, command);
        self.read_clock()?;
        let mut seen = None;
        for _ in 0..TURNS_MAX {
            self.turn_and_note(id, &mut seen)?;
            self.end_step();
            if let Some(seen) = seen {
                return Ok(seen);
            }
        }
        violated!(promise::LIVENESS, "operation {id} was never answered")
    }

    /// One turn and its jobs, and the result of one operation in it.
    pub(super) fn turn_and_note(
        &mut self,
        id: u64,
        seen: &mut Option<Seen>,
    ) -> Result<(), Violation> {
        if let Some(asked) = self.history.get(&id)
            && asked.done
        {
            *seen = Some(asked.operation.seen.clone());
            return self.check();
        }
        if self.members.is_some() {
            // A commit may wait for a lease to end.
            self.pass_time(|_| 5_000)?;
        }
        let mut replies = Vec::new();
        self.decide(&mut replies)?;
        while let Some(job) = self
            .life
            .jobs
            .pop_front()
            .or_else(|| self.life.partition.next_job())
        {
            let done = seam::carry_out(job);
            self.follow_time()?;
            let completed = self.life.partition.complete(done, &mut replies);
            self.confirm(&mut replies);
            self.pass(&mut replies);
            if let Err(error) = completed {
                return violated!(promise::LIVENESS, "the log failed without a fault: {error}");
            }
        }
        if let Some((_, reply)) = replies.iter().find(|(ticket, _)| *ticket == id) {
            *seen = Some(match reply {
                Ok(answered) => self.read(answered),
                Err(rejection) => Seen::Answered(Err(rejection.clone())),
            });
        }
        self.take_in(replies)
    }

    /// No more faults, and everything in progress ends.
    fn settle_down(&mut self) -> Result<(), Violation> {
        self.faults.stop();
        self.reads_fail = false;
        let unsettled = self.dies_after.is_some() || self.call_may_fail;
        self.free_disk();
        self.slow_until = 0;
        self.settle_members()?;
        if unsettled {
            self.storage.clear_faults();
            self.crash(Crash::PowerCut)?;
        }
        let mut nothing = None;
        for _ in 0..TURNS_MAX {
            if self.life.commands.is_empty() && self.life.jobs.is_empty() && self.history.is_empty()
            {
                return Ok(());
            }
            self.turn_and_note(u64::MAX, &mut nothing)?;
            self.end_step();
        }
        violated!(
            promise::LIVENESS,
            "{} operations were never answered",
            self.history.len()
        )
    }
}
