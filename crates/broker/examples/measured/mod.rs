//! A partition in this process, without a server: what its steps take.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::Duration;

use kew_broker::{Moment, Partition, Reply, TurnEnd};
use kew_engine::{Command, Outcome, Timestamp};
use kew_log::{BootTime, Job, JobKind, JobOutcome};

pub(crate) type Failure = Box<dyn std::error::Error>;

/// How many commands come at once.
pub(crate) const AT_ONCE: usize = 4096;

/// A partition, and what its steps took.
pub(crate) struct Measured {
    pub(crate) partition: Partition<()>,
    pub(crate) now: Timestamp,
    snapshots: mpsc::Sender<Job>,
    outcomes: mpsc::Receiver<JobOutcome>,
    replies: Vec<((), Reply)>,
    longest: Duration,
    all: Duration,
}

impl Measured {
    /// Measures a partition that was opened at `now`. Another thread writes its snapshots.
    pub(crate) fn with(
        partition: Partition<()>,
        now: Timestamp,
        run: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (snapshots, taken) = mpsc::channel::<Job>();
        let (done, outcomes) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for job in taken {
                    if done.send(job.run()).is_err() {
                        break;
                    }
                }
            });
            run(&mut Self {
                partition,
                now,
                snapshots,
                outcomes,
                replies: Vec::new(),
                longest: Duration::ZERO,
                all: Duration::ZERO,
            })
        })
    }

    /// Carries out commands a millisecond later, and returns the outcomes.
    pub(crate) fn ask(&mut self, commands: Vec<Command>) -> Result<Vec<Outcome>, Failure> {
        let count = commands.len();
        let mut commands: VecDeque<_> = commands.into_iter().map(|it| ((), it)).collect();
        loop {
            self.now = self.now.plus_ms(1);
            let began = used();
            let boot = BootTime::ZERO.plus_ms(self.now.as_ms());
            let now = Moment {
                time: self.now,
                boot,
            };
            let replies = &mut self.replies;
            let end = self.partition.turn(now, &mut commands, replies);
            self.note(began);
            // Nobody waits for these.
            drop(self.partition.take_wakes());
            drop(self.partition.take_waste());
            self.jobs()?;
            // What waits for a page that was read just now is decided by the next turn.
            if end == TurnEnd::Done && self.replies.len() >= count {
                break;
            }
            let waits = matches!(end, TurnEnd::WaitForJob | TurnEnd::WaitForMemory);
            if waits && let Ok(outcome) = self.outcomes.recv_timeout(Duration::from_millis(1)) {
                self.complete(outcome)?;
            }
        }
        let replies = self.replies.drain(..);
        replies.map(|(_, reply)| Ok(reply?.outcome)).collect()
    }

    fn jobs(&mut self) -> Result<(), Failure> {
        while let Some(job) = self.partition.next_job() {
            if job.kind() == JobKind::Snapshot {
                self.snapshots.send(job)?;
            } else {
                let outcome = job.run();
                self.complete(outcome)?;
            }
        }
        while let Ok(outcome) = self.outcomes.try_recv() {
            self.complete(outcome)?;
        }
        Ok(())
    }

    fn complete(&mut self, outcome: JobOutcome) -> Result<(), Failure> {
        let began = used();
        self.partition.complete(outcome, &mut self.replies)?;
        self.note(began);
        Ok(())
    }

    pub(crate) fn note(&mut self, began: Duration) {
        let took = used().saturating_sub(began);
        self.longest = self.longest.max(took);
        self.all += took;
    }

    pub(crate) fn print(&mut self, what: &str, count: usize) {
        let each_ns = self.all.as_nanos() / count.max(1) as u128;
        println!("{what}: longest step {:?}, {each_ns} ns each", self.longest);
        (self.longest, self.all) = (Duration::ZERO, Duration::ZERO);
    }
}

/// How long this thread has used a processor.
pub(crate) fn used() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(used.tv_nsec).unwrap_or(0))
}
