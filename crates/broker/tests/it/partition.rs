//! A partition, driven by hand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kew_broker::{
    Answered, Partition, PartitionOptions, Rejection, Reply, ResidentLimit, Spent, TurnEnd,
};
use kew_engine::bus::{BusCommand, Purge};
use kew_engine::storage::{Metadata, StorageCommand, StorageOutcome};
use kew_engine::{Command, EntityName, Outcome, RunLength, SequenceNumber, Service, Timestamp};
use kew_log::{
    Fault, FaultyStorage, JobKind, LogOptions, LogPosition, PageOptions, Repeat, inspect,
};

use crate::support::{create, delete, moment, next_wake, peek, receive, send};

pub(crate) struct Driver {
    pub(crate) storage: FaultyStorage,
    pub(crate) partition: Partition<u32>,
    pub(crate) now: Timestamp,
    /// How many jobs have read records.
    pub(crate) loads: u64,
    /// How each of their reads ends.
    pub(crate) fault_of_loads: Option<Fault>,
}

pub(crate) fn options() -> PartitionOptions {
    PartitionOptions {
        log: LogOptions {
            segment_size_first_bytes: 64 * 1024,
            segment_size_max_bytes: 64 * 1024,
            batch_size_max_bytes: 16 * 1024,
            turn_space_min_bytes: 8 * 1024,
            settlement_reserve_bytes: 16 * 1024,
            ballast_size_bytes: 64 * 1024,
            recent_bytes_max: 4 * 1024,
            pages: PageOptions {
                file_size_bytes: 64 * 1024,
                ..PageOptions::default()
            },
            ..LogOptions::default()
        },
        snapshot_after_bytes: 16 * 1024,
        snapshot_after_effects: u64::MAX,
        tick_budget: 16,
        due_budget: 64,
        run_length: RunLength::TINY,
        gather_steps: 1,
        replays_beside: true,
        resident_limit: ResidentLimit::None,
        far_ms: 0,
        scrub_bytes_per_second: 1,
        ..PartitionOptions::default()
    }
}

impl Driver {
    pub(crate) fn on(storage: FaultyStorage) -> Self {
        Self::with(storage, options())
    }

    pub(crate) fn with(storage: FaultyStorage, options: PartitionOptions) -> Self {
        let now = Timestamp::from_ms(1_000_000);
        let (partition, _) =
            Partition::open(Arc::new(storage.clone()), options, 1, [1; 16], now).unwrap();
        Self {
            storage,
            partition,
            now,
            loads: 0,
            fault_of_loads: None,
        }
    }

    pub(crate) fn new() -> Self {
        let mut driver = Self::on(FaultyStorage::new());
        driver.ask(create()).unwrap();
        driver
    }

    /// One command, one turn, and every job that follows.
    pub(crate) fn ask(&mut self, command: Command) -> Reply {
        let mut commands = VecDeque::from([(0, command)]);
        let mut replies = Vec::new();
        loop {
            let end = self
                .partition
                .turn(moment(self.now), &mut commands, &mut replies);
            self.jobs(&mut replies);
            // More due work is for the turns that a test asks for.
            let is_decided = matches!(end, TurnEnd::Done | TurnEnd::MoreIsDue);
            if is_decided && self.partition.waiting().next().is_none() {
                break;
            }
        }
        assert_eq!(replies.len(), 1);
        replies.remove(0).1
    }

    pub(crate) fn jobs(&mut self, replies: &mut Vec<(u32, Reply)>) {
        while let Some(job) = self.partition.next_job() {
            let is_load = job.kind() == JobKind::Load;
            self.loads += u64::from(is_load);
            let fault = self.fault_of_loads.filter(|_| is_load);
            if let Some(fault) = fault {
                self.storage.fail_after(0, fault, Repeat::Sticky);
            }
            let outcome = job.run();
            if fault.is_some() {
                self.storage.clear_faults();
            }
            // A failure shows in the answers.
            let _ = self.partition.complete(outcome, replies);
        }
    }

    pub(crate) fn reopened(self) -> Self {
        Self::on(self.storage.kill())
    }

    /// Fills the disk for good. While it is full, snapshots have all pages anew, and older page files go: that makes room
    /// again.
    pub(crate) fn fill_up(&mut self, mut fill: impl FnMut(&mut Self) -> usize) {
        let mut in_vain = 0;
        while in_vain < 4 || !self.partition.is_out_of_space() {
            in_vain = match fill(self) {
                0 => in_vain + 1,
                _ => 0,
            };
            self.now = self.now.plus_seconds(2);
            self.rest();
        }
    }

    /// A turn without commands.
    pub(crate) fn rest(&mut self) {
        let mut replies = Vec::new();
        self.partition
            .turn(moment(self.now), &mut VecDeque::new(), &mut replies);
        self.jobs(&mut replies);
        assert!(replies.is_empty());
    }

    fn receive_all(&mut self) -> Vec<Outcome> {
        let mut all = Vec::new();
        loop {
            match self.ask(receive(32)) {
                Ok(Answered { outcome, .. }) if !outcome.bodies().is_empty() => {
                    all.push(outcome);
                }
                Ok(_) => return all,
                Err(rejection) => panic!("{rejection}"),
            }
        }
    }
}

fn create_queues(driver: &mut Driver, count: usize) {
    for number in 0..count {
        let queue = EntityName::storage_queue("acct", format!("queue-{number}"));
        let metadata = Metadata::default();
        let created = Command::Storage(StorageCommand::CreateQueue { queue, metadata });
        driver.ask(created).unwrap();
    }
}

/// A snapshot that is due is gathered before turns, a few entities each time, and not in the commit that made it due.
#[test]
fn a_snapshot_that_is_due_is_gathered_in_steps() {
    let mut driver = Driver::new();
    create_queues(&mut driver, 20);
    let mut sent = 0;
    while !driver.partition.is_gathering() {
        driver.ask(send("a".repeat(1000))).unwrap();
        sent += 1;
        assert!(sent < 100, "no snapshot is due");
    }
    // What changes meanwhile is not in the snapshot, and is found behind it.
    let mut turns = 0;
    while driver.partition.is_gathering() {
        driver.ask(send("b")).unwrap();
        (sent, turns) = (sent + 1, turns + 1);
        assert!(turns < 100, "it does not end");
    }
    assert!(turns > 5, "{turns}");
    let mut driver = driver.reopened();
    let received = driver.receive_all();
    let count: usize = received.iter().map(|it| it.bodies().len()).sum();
    assert_eq!(count, sent);
    assert_eq!(driver.partition.state().counts().0, 21);
}

/// By clocks that the driver gives: the two readings for a step are the only ones.
#[test]
fn each_step_of_a_snapshot_is_timed_and_nothing_else() {
    const QUEUES: usize = 6;
    static READINGS: AtomicU64 = AtomicU64::new(0);
    fn after(readings: u64) -> Spent {
        Spent {
            elapsed: Duration::from_millis(3 * readings),
            on_processor: Duration::from_millis(2 * readings),
        }
    }
    fn clocks() -> Spent {
        after(READINGS.fetch_add(1, Ordering::Relaxed))
    }
    let mut driver = Driver::new();
    driver.partition.time_snapshot_steps(clocks);
    create_queues(&mut driver, QUEUES - 1);
    let mut sent = 0;
    while !driver.partition.is_gathering() {
        assert_eq!(READINGS.load(Ordering::Relaxed), 0, "no snapshot was begun");
        driver.ask(send("a".repeat(1000))).unwrap();
        sent += 1;
        assert!(sent < 100, "no snapshot is due");
    }
    let mut steps: Vec<Spent> = driver.partition.take_snapshot_steps().collect();
    assert!(!steps.is_empty(), "to begin it is a step");
    let mut turns = 0;
    while driver.partition.is_gathering() {
        driver.ask(send("b")).unwrap();
        steps.extend(driver.partition.take_snapshot_steps());
        turns += 1;
        assert!(turns < 100, "it does not end");
    }
    // A queue each, and the first one with the beginning.
    assert_eq!(steps, [after(1); QUEUES]);
    driver.ask(send("c")).unwrap();
    assert_eq!(driver.partition.take_snapshot_steps().count(), 0);
    assert_eq!(READINGS.load(Ordering::Relaxed), 2 * QUEUES as u64);
}

/// A clean end leaves a snapshot of everything, also if an older one was still under way.
#[test]
fn a_clean_end_leaves_nothing_to_replay() {
    let mut driver = Driver::new();
    driver.ask(send("before")).unwrap();
    driver.partition.snapshot();
    let mut replies = Vec::new();
    let snapshot = driver.partition.next_job().unwrap();
    assert_eq!(snapshot.kind(), JobKind::Snapshot);
    driver.ask(send("after")).unwrap();
    assert!(driver.partition.close(), "an older one is under way");
    // The worker has written it.
    let written = snapshot.run();
    driver.partition.complete(written, &mut replies).unwrap();
    driver.jobs(&mut replies);
    assert!(!driver.partition.close());
    driver.jobs(&mut replies);
    let report = inspect(&driver.storage.kill()).unwrap();
    assert_eq!(report.snapshot_used, Some(report.end));
    assert_eq!(report.events_to_replay, 0);
}

fn rejection(reply: Reply) -> Rejection {
    reply.expect_err("this must not succeed")
}

#[test]
fn an_answer_waits_for_its_commit() {
    let mut driver = Driver::new();
    let mut commands = VecDeque::from([(1, send("a")), (2, peek()), (3, receive(1))]);
    let mut replies = Vec::new();
    driver
        .partition
        .turn(moment(driver.now), &mut commands, &mut replies);
    assert!(
        replies.is_empty(),
        "all of them show what a crash could take back"
    );
    driver.jobs(&mut replies);
    let tickets: Vec<u32> = replies.iter().map(|(ticket, _)| *ticket).collect();
    assert_eq!(tickets, [1, 2, 3]);

    // A read of a quiet queue does not wait, not even for a write to another queue.
    let other = Command::Storage(StorageCommand::CreateQueue {
        queue: EntityName::storage_queue("acct", "other"),
        metadata: Default::default(),
    });
    let mut commands = VecDeque::from([(4, other), (5, peek())]);
    replies.clear();
    driver
        .partition
        .turn(moment(driver.now), &mut commands, &mut replies);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].0, 5);
    driver.jobs(&mut replies);
    assert_eq!(replies.len(), 2);
}

#[test]
fn commands_that_look_at_many_messages_share_no_turn() {
    let mut driver = Driver::new();
    let dry_run = || {
        Command::Bus(BusCommand::Purge {
            queue: EntityName {
                service: Service::ServiceBus,
                account: "ns".into(),
                name: "jobs".into(),
            },
            purge: Purge {
                from: SequenceNumber::default(),
                until: None,
                before: None,
                count: 1,
                with_locked: false,
                is_dry_run: true,
            },
        })
    };
    let mut commands: VecDeque<_> = (0..5).map(|ticket| (ticket, dry_run())).collect();
    let mut answered_after = Vec::new();
    let mut replies = Vec::new();
    loop {
        let end = driver
            .partition
            .turn(moment(driver.now), &mut commands, &mut replies);
        answered_after.push(replies.len());
        if end == TurnEnd::Done {
            break;
        }
    }
    assert_eq!(answered_after, [2, 4, 5]);
}

#[test]
fn after_a_failed_sync_nothing_is_answered_with_success() {
    let mut driver = Driver::new();
    driver.ask(send("kept")).unwrap();
    driver.storage.fail_after(1, Fault::Eio, Repeat::Once);
    assert_eq!(rejection(driver.ask(send("unknown"))), Rejection::Stopped);
    assert_eq!(rejection(driver.ask(send("refused"))), Rejection::Stopped);
    assert_eq!(rejection(driver.ask(peek())), Rejection::Stopped);
    assert!(driver.partition.is_stopped());

    driver.storage.clear_faults();
    let mut driver = driver.reopened();
    let Ok(Answered {
        outcome, bodies, ..
    }) = driver.ask(receive(32))
    else {
        panic!("a new start serves what is there");
    };
    assert!(matches!(
        outcome,
        Outcome::Storage(StorageOutcome::Received(_))
    ));
    assert!(bodies.len() <= 2, "nothing that was refused is there");
    assert_eq!(bodies.read().remove(0).unwrap(), "kept");
}

#[test]
fn a_full_disk_can_be_drained_and_then_takes_messages_again() {
    let mut driver = Driver::new();
    driver.storage.set_capacity_bytes(Some(1600 * 1024));
    let body = "x".repeat(2000);
    let mut sent = 0;
    let full = loop {
        match driver.ask(send(body.clone())) {
            Ok(_) => sent += 1,
            Err(rejection) => break rejection,
        }
        assert!(
            sent < 1000,
            "1,600 KiB hold no 1,000 messages of 2,000 bytes"
        );
    };
    assert_eq!(full, Rejection::Full);
    assert!(driver.partition.is_out_of_space());
    assert!(driver.ask(peek()).is_ok(), "looking takes no space");

    let mut drained = 0;
    for outcome in driver.receive_all() {
        let Outcome::Storage(StorageOutcome::Received(messages)) = outcome else {
            panic!("a receive receives");
        };
        for message in &messages {
            driver.ask(delete(message)).unwrap();
            drained += 1;
        }
    }
    assert_eq!(drained, sent, "every acknowledged message is there");

    // After draining, the space is freed without further commands, within seconds.
    for _ in 0..10 {
        driver.now = driver.now.plus_seconds(1);
        if driver.ask(send(body.clone())).is_ok() {
            assert!(!driver.partition.is_out_of_space());
            return;
        }
    }
    panic!("a drained disk takes no messages");
}

fn expiring(body: &str, seconds: u32) -> Command {
    Command::Storage(StorageCommand::Send {
        queue: crate::support::queue(),
        body: body.to_owned().into(),
        encoding: kew_engine::BodyEncoding::Text,
        time_to_live_seconds: Some(seconds),
        visibility_timeout: kew_engine::VisibilityTimeout::ZERO,
    })
}

/// The last messages first, so that nearly every segment holds a body until the end: settlements
/// need many times the free space, which must be freed again.
#[test]
fn a_full_disk_is_drained_in_the_worst_order() {
    let mut driver = Driver::new();
    driver.storage.set_capacity_bytes(Some(8 << 20));
    let body = "x".repeat(100);
    let mut sent = 0;
    while driver.ask(send(body.clone())).is_ok() {
        sent += 1;
    }
    assert!(sent > 5000, "{sent} messages fill no 8 MiB");
    let mut received = Vec::new();
    for outcome in driver.receive_all() {
        let Outcome::Storage(StorageOutcome::Received(messages)) = outcome else {
            panic!("a receive receives");
        };
        received.extend(messages);
    }
    assert_eq!(received.len(), sent);
    // Receiving them repeatedly needs space too.
    for _ in 0..3 {
        driver.now = driver.now.plus_seconds(601);
        received.clear();
        for outcome in driver.receive_all() {
            let Outcome::Storage(StorageOutcome::Received(messages)) = outcome else {
                panic!("a receive receives");
            };
            received.extend(messages);
        }
        assert_eq!(received.len(), sent);
    }
    for message in received.iter().rev() {
        driver.ask(delete(message)).unwrap();
    }
    for _ in 0..10 {
        driver.now = driver.now.plus_seconds(1);
        driver.rest();
    }
    assert!(!driver.partition.is_out_of_space());
    // Messages drained while there is space are freed when there is none.
    let mut again = 0;
    for _ in 0..20 {
        while driver.ask(send(body.clone())).is_ok() {
            again += 1;
        }
        driver.now = driver.now.plus_seconds(1);
        driver.rest();
    }
    assert!(again > sent * 3 / 4, "{again} of {sent} messages fit again");
}

#[test]
fn messages_expire_on_a_full_disk_and_make_space() {
    let mut driver = Driver::new();
    driver.storage.set_capacity_bytes(Some(2 << 20));
    let body = "x".repeat(500);
    while driver.ask(expiring(&body, 60)).is_ok() {}
    assert!(driver.partition.is_out_of_space());
    driver.now = driver.now.plus_seconds(61);
    for _ in 0..200 {
        driver.rest();
        driver.now = next_wake(&driver.partition)
            .unwrap_or(driver.now)
            .max(driver.now);
        if driver.ask(send(body.clone())).is_ok() {
            return;
        }
    }
    panic!("a disk of expired messages takes none");
}

/// The only free space is that for empty snapshots with their page files, and after the drain there are no more commands:
/// no batch moves the log's end.
#[test]
fn a_drained_disk_frees_space_while_idle() {
    let mut driver = Driver::new();
    driver.rest();
    while !driver.partition.log().files().unwrap().space().has_ballast {
        driver.rest();
    }
    driver
        .storage
        .set_capacity_bytes(Some(driver.storage.used_bytes() + 64 * 1024));
    let body = "x".repeat(2000);
    while driver.ask(send(body.clone())).is_ok() {}
    for outcome in driver.receive_all() {
        let Outcome::Storage(StorageOutcome::Received(messages)) = outcome else {
            panic!("a receive receives");
        };
        for message in &messages {
            driver.ask(delete(message)).unwrap();
        }
    }
    for _ in 0..10 {
        driver.now = driver.now.plus_seconds(1);
        driver.rest();
    }
    assert!(!driver.partition.is_out_of_space());
    assert!(
        driver.partition.log().files().unwrap().space().has_ballast,
        "for next time"
    );
    driver.ask(send(body)).unwrap();
    // If there is nothing to free, snapshots do not repeat without end.
    let end = driver.partition.log().end();
    for _ in 0..5 {
        driver.now = driver.now.plus_seconds(1);
        driver.rest();
    }
    assert!(driver.partition.log().end().as_u64() < end.as_u64() + 8192);
    driver.reopened().ask(peek()).unwrap();
}

#[test]
fn the_end_is_marked_once_it_rests() {
    let mut driver = Driver::new();
    driver.ask(send("a")).unwrap();
    let proven = |driver: &Driver| inspect(&driver.storage).unwrap().durable;
    let proof = |driver: &Driver| driver.storage.content("proof");
    let end = driver.partition.log().end();
    driver.rest();
    assert!(proven(&driver) < end, "not at once");
    let wake = next_wake(&driver.partition).unwrap();
    assert_eq!(wake, driver.now.plus_ms(100));
    driver.now = wake;
    driver.rest();
    assert_eq!(proven(&driver), end);
    let marked = proof(&driver);
    // It looks at its space until it has been idle for a while.
    let mut looks = 0;
    while let Some(at) = next_wake(&driver.partition) {
        driver.now = at;
        driver.rest();
        looks += 1;
        assert!(looks < 10, "nothing is due");
    }
    driver.now = driver.now.plus_seconds(1);
    driver.rest();
    assert_eq!(proof(&driver), marked, "once");
    assert_eq!(driver.partition.log().end(), end, "it has no position");
}

/// The time of another owner can be hours ahead, and it can stand still.
#[test]
fn intervals_follow_the_machine_and_not_the_partitions_time() {
    let mut driver = Driver::new();
    driver.ask(send("a")).unwrap();
    driver.rest();
    let end = driver.partition.log().end();
    let mut now = moment(driver.now);
    let mut proven = |now| {
        let (mut none, mut replies) = (VecDeque::new(), Vec::new());
        driver.partition.turn(now, &mut none, &mut replies);
        driver.jobs(&mut replies);
        let due = driver.partition.next_wake();
        (inspect(&driver.storage).unwrap().durable, due)
    };
    now.time = now.time.plus_seconds(2 * 3600);
    let (durable, due) = proven(now);
    assert!(durable < end, "the log has rested for no time");
    assert_eq!((due.time, due.boot), (None, Some(now.boot.plus_ms(100))));
    now.boot = now.boot.plus_ms(100);
    assert_eq!(proven(now).0, end);
    now.time = now.time.plus_seconds(3600);
    let (_, due) = proven(now);
    assert!(due.boot > Some(now.boot), "nothing is due at once: {due:?}");
}

#[test]
fn a_full_disk_is_not_tried_all_the_time() {
    let mut driver = Driver::new();
    let expiring = Command::Storage(StorageCommand::Send {
        queue: crate::support::queue(),
        body: "x".into(),
        encoding: kew_engine::BodyEncoding::Text,
        time_to_live_seconds: Some(1),
        visibility_timeout: kew_engine::VisibilityTimeout::ZERO,
    });
    driver.ask(expiring).unwrap();
    driver
        .storage
        .set_capacity_bytes(Some(driver.storage.used_bytes()));
    while driver.ask(send("x".repeat(2000))).is_ok() {}
    assert!(driver.partition.is_out_of_space());
    driver.now = driver.now.plus_seconds(5);
    driver.rest();
    let wake = next_wake(&driver.partition).unwrap();
    assert!(
        wake >= driver.now.plus_ms(100),
        "an expired message must not make it spin"
    );
    assert!(
        driver.ask(create()).is_ok(),
        "a queue that is there takes no space"
    );
}

/// To find out what can be freed takes a walk through the whole state, and a snapshot.
#[test]
fn a_large_full_disk_is_walked_seldom_and_still_freed_under_load() {
    const MESSAGES: u32 = 200_000;
    let mut driver = Driver::new();
    let mut commands: VecDeque<_> = (0..MESSAGES).map(|id| (id, send("x"))).collect();
    let mut replies = Vec::new();
    while !commands.is_empty() {
        driver
            .partition
            .turn(moment(driver.now), &mut commands, &mut replies);
        driver.jobs(&mut replies);
    }
    assert!(replies.iter().all(|(_, reply)| reply.is_ok()));
    driver
        .storage
        .set_capacity_bytes(Some(driver.storage.used_bytes()));
    let fill = |driver: &mut Driver| {
        let sent = std::iter::repeat_with(|| driver.ask(send("x".repeat(2000))));
        sent.take_while(Result::is_ok).count()
    };
    driver.fill_up(fill);
    let mut snapshots = vec![(driver.now, driver.partition.log().snapshots().last)];
    let (mut sent, mut least_bytes) = (0, u64::MAX);
    for _ in 0..100 {
        driver.now = driver.now.plus_ms(50);
        let was_draining = driver.partition.log().limits().full.is_some();
        for _ in 0..10 {
            let Outcome::Storage(StorageOutcome::Received(messages)) =
                driver.ask(receive(32)).unwrap().outcome
            else {
                panic!("a receive receives");
            };
            for message in &messages {
                driver.ask(delete(message)).unwrap();
            }
        }
        sent += fill(&mut driver);
        let log = driver.partition.log();
        let newest = log.snapshots().last;
        // Another one writes little.
        if (was_draining || log.limits().full.is_some()) && snapshots.last().unwrap().1 != newest {
            snapshots.push((driver.now, newest));
        }
        least_bytes = log
            .files()
            .unwrap()
            .space()
            .snapshot_bytes_max
            .min(least_bytes);
    }
    assert!(sent > 100, "{sent} messages had room in 5 s");
    // At 25 bytes per microsecond.
    let interval_ms = least_bytes / 25_000;
    assert!(interval_ms > 100, "{interval_ms}");
    let mut was_due = false;
    for pair in snapshots[1..].windows(2) {
        let bytes = |at: usize| pair[at].1.map_or(0, LogPosition::as_u64);
        // So much log is a reason of its own for a snapshot. The one behind it is the first that only makes space.
        let is_long = bytes(1) - bytes(0) > 1 << 20;
        let is_due = is_long || was_due;
        was_due = is_long;
        assert!(
            is_due || pair[1].0 >= pair[0].0.plus_ms(interval_ms),
            "{snapshots:?}"
        );
    }
    assert!(snapshots.len() > 2, "{snapshots:?}");
}

#[test]
fn a_partition_that_never_rests_makes_its_snapshots() {
    let mut driver = Driver::new();
    let first = driver
        .partition
        .log()
        .files()
        .unwrap()
        .segments()
        .next()
        .unwrap()
        .number;
    for _ in 0..200 {
        driver.ask(send("x".repeat(2000))).unwrap();
        let answer = driver.ask(receive(1)).unwrap();
        let Outcome::Storage(StorageOutcome::Received(messages)) = &answer.outcome else {
            panic!("a receive receives");
        };
        driver.ask(delete(&messages[0])).unwrap();
    }
    let log = driver.partition.log();
    assert!(log.snapshots().last.is_some());
    assert!(
        log.files().unwrap().segments().next().unwrap().number > first,
        "no segment was retired"
    );
    assert!(log.files().unwrap().segments().count() <= 4);
}

#[test]
fn every_message_survives_segments_and_snapshots_coming_and_going() {
    let mut driver = Driver::new();
    let mut kept = Vec::new();
    for round in 0..300 {
        driver
            .ask(send(format!("{round}:{}", "x".repeat(1000))))
            .unwrap();
        let Ok(Answered {
            outcome, bodies, ..
        }) = driver.ask(receive(1))
        else {
            panic!("a receive receives");
        };
        let Outcome::Storage(StorageOutcome::Received(messages)) = outcome else {
            panic!("a receive receives");
        };
        if round % 25 == 0 {
            kept.push(bodies.read().remove(0).unwrap());
        } else {
            driver.ask(delete(&messages[0])).unwrap();
        }
        if round % 60 == 0 {
            driver = driver.reopened();
        }
    }
    assert!(driver.partition.log().snapshots().last.is_some());
    assert!(driver.storage.used_bytes() < 1024 * 1024 + 64 * 1024 * 14);
    driver.now = driver.now.plus_seconds(600);
    let Ok(Answered { bodies, .. }) = driver.ask(receive(32)) else {
        panic!("a receive receives");
    };
    let shown: Vec<_> = bodies.read().into_iter().map(Result::unwrap).collect();
    assert_eq!(shown, kept);
}
