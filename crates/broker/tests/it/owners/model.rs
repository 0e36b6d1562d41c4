//! A log that two members agree on, with leases, and a link that loses answers.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kew_broker::{Broker, BrokerOptions, Moment, Partition, Rejection, Reply};
use kew_engine::{Command, Timestamp};
use kew_log::{BootTime, JobKind, LogEnd};
use kew_log_contract::{LinkOptions, Lost, Model, ModelOptions};

use super::{NOW, broker_options, hand_over_in_turn};
use crate::metrics::{metrics, value};
use crate::partition::options;
use crate::support::{create, peek, send};

const END: &str = "kew_log_end_position";

/// A partition on a member of a model. Its commits are for the test to run.
struct Member {
    model: Model,
    partition: Partition<u32>,
    replies: Vec<(u32, Reply)>,
    /// How many renewals of a lease were sent.
    renewals: usize,
}

/// A link that loses only what a test lets it lose.
fn model() -> Model {
    let link = LinkOptions {
        once_in: 0,
        delay_us_max: 0,
    };
    let options = ModelOptions {
        link,
        ..ModelOptions::default()
    };
    Model::new(options, 1)
}

impl Member {
    fn open(model: &Model, member: usize) -> Self {
        let source = model.member(member);
        let (partition, _) = Partition::open_from(&source, options(), [1; 16], NOW).unwrap();
        Self {
            model: model.clone(),
            partition,
            replies: Vec::new(),
            renewals: 0,
        }
    }

    fn boot(&self) -> BootTime {
        self.model.advance_ms(0)
    }

    fn turn(&mut self, commands: &[(u32, Command)]) {
        let boot = self.boot();
        let time = Timestamp::from_ms(NOW.as_ms() + boot.as_us() / 1000);
        let mut commands: VecDeque<_> = commands.iter().cloned().collect();
        let now = Moment { time, boot };
        self.partition.turn(now, &mut commands, &mut self.replies);
        while !commands.is_empty() {
            // There is no room yet.
            self.settle().unwrap();
            self.partition.turn(now, &mut commands, &mut self.replies);
        }
    }

    /// Runs all jobs.
    fn settle(&mut self) -> Result<(), LogEnd> {
        while let Some(job) = self.partition.next_job() {
            self.renewals += usize::from(job.kind() == JobKind::Renew);
            self.partition.complete(job.run(), &mut self.replies)?;
        }
        Ok(())
    }

    fn confirm(&mut self) {
        self.partition.confirm(self.boot(), &mut self.replies);
    }

    /// The commands that were answered, and why one failed.
    fn answered(&mut self) -> Vec<(u32, Option<Rejection>)> {
        let replies = self.replies.drain(..);
        replies
            .map(|(ticket, reply)| (ticket, reply.err()))
            .collect()
    }
}

#[test]
fn a_lease_answers_what_only_reads_and_ends_before_the_next_owner_commits() {
    let model = model();
    let mut first = Member::open(&model, 0);
    first.turn(&[(1, create()), (2, send("a"))]);
    first.settle().unwrap();
    assert_eq!(first.answered(), [(1, None), (2, None)]);
    first.turn(&[(3, peek())]);
    first.confirm();
    assert_eq!(first.answered(), [(3, None)], "it needs no commit");
    assert_eq!(first.renewals, 1);

    // The first one does not know of it yet. It may still show what it has: nothing else is agreed.
    let mut second = Member::open(&model, 1);
    second.turn(&[(11, send("b"))]);
    second.settle().unwrap();
    assert_eq!(second.answered(), [], "its first commit waits");
    first.turn(&[(4, peek())]);
    first.confirm();
    assert_eq!(first.answered(), [(4, None)]);

    model.advance_ms(2_600);
    first.turn(&[(5, peek())]);
    first.confirm();
    assert_eq!(first.answered(), [], "its lease is over");
    second.turn(&[]);
    second.settle().unwrap();
    assert_eq!(second.answered(), [], "and perhaps not for the others");
    let due = second.partition.next_wake().boot.unwrap();
    model.advance_to(due);
    second.turn(&[]);
    second.settle().unwrap();
    assert_eq!(second.answered(), [(11, None)]);
    let end = first.settle().unwrap_err();
    assert!(matches!(end, LogEnd::Fenced(_)), "{end}");
    assert_eq!(first.answered(), [(5, Some(Rejection::NotOwner))]);
}

/// The answer of its last commit is lost, and another member begins an epoch before the owner asks again.
#[test]
fn a_fenced_owner_knows_what_its_last_commit_has_done() {
    for (lost, rejection) in [
        (Lost::Answer, None),
        (Lost::Request, Some(Rejection::Unknown)),
    ] {
        let model = model();
        let mut first = Member::open(&model, 0);
        first.turn(&[(1, create())]);
        first.settle().unwrap();
        first.answered();
        model.lose_next(lost, true);
        first.turn(&[(2, send("a")), (3, peek())]);
        let end = first.settle().unwrap_err();
        assert!(matches!(end, LogEnd::Fenced(_)), "{end}");
        // What only reads must not rest on a commit that ends the log, although it is agreed.
        let is_there = u64::from(rejection.is_none());
        let read = (3, Some(Rejection::NotOwner));
        let mut answered = first.answered();
        answered.sort_by_key(|(ticket, _)| *ticket);
        assert_eq!(answered, [(2, rejection), read]);
        model.let_all_arrive();
        let second = Member::open(&model, 1);
        let (_, count) = second.partition.state().counts();
        assert_eq!(count, is_there);
    }
}

/// As a runner reads it.
fn boot_time() -> BootTime {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let boot = rustix::time::clock_gettime(clock);
    let us = boot.tv_sec * 1_000_000 + boot.tv_nsec / 1000;
    BootTime::from_us(us.try_into().unwrap())
}

/// The story of the log in memory, over links that lose answers and with short leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_own_the_log_in_turn() {
    let options = ModelOptions {
        lease_ms: 30,
        margin_ms: 5,
        ..ModelOptions::default()
    };
    let model = Model::new(options, 7);
    model.keep_time(boot_time);
    let start = |member| -> Broker {
        let source = Arc::new(model.member(member));
        Broker::start_on(source, broker_options()).unwrap().0
    };
    hand_over_in_turn(start).await;
}

/// A commit that waits for another member's lease is no job. A stop waits for it, too, but not longer than for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_gives_up_a_commit_that_waits_for_a_lease() {
    let model = model();
    let mut first = Member::open(&model, 0);
    first.turn(&[(1, create())]);
    first.settle().unwrap();
    assert_eq!(first.renewals, 1);
    let source = Arc::new(model.member(1));
    let options = BrokerOptions {
        stop_patience: Duration::from_millis(20),
        ..broker_options()
    };
    let (second, _) = Broker::start_on(source, options).unwrap();
    let begun = value(&metrics(&second, 0).await, END, &[]);
    let mut sent = pin!(second.submit(send("a")));
    let mut end = begun;
    // A page of metrics comes from the thread that runs the turns, so each page lets it take the command or make room.
    while end == begun {
        tokio::select! {
            biased;
            reply = &mut sent => panic!("it is answered before its commit: {:?}", reply.err()),
            page = metrics(&second, 0) => end = value(&page, END, &[]),
        }
    }
    second.stop();
    assert_eq!(sent.await.err(), Some(Rejection::Unknown));
}
