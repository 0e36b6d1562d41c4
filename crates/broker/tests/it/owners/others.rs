//! A log that other machines keep too: commits wait for them, and an idle owner beats.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kew_broker::{Broker, BrokerOptions, Moment, Partition, Rejection, Standing};
use kew_engine::Timestamp;
use kew_log::{BootTime, Epoch};
use kew_log_contract::{MemoryOptions, MemorySource, Others};
use tokio::task::JoinHandle;

use super::{broker_options, open, receive_all, until};
use crate::metrics::{metrics, value};
use crate::support::{create, peek, send};

const HEARTBEAT_MS: u64 = 1000;

fn kept_by_others() -> MemoryOptions {
    MemoryOptions {
        heartbeat_ms: Some(HEARTBEAT_MS),
        ..MemoryOptions::default()
    }
}

/// So many milliseconds after the start of a test.
fn at(ms: u64) -> Moment {
    Moment {
        time: Timestamp::from_ms(super::NOW.as_ms() + ms),
        boot: BootTime::from_us(1_000_000 + ms * 1000),
    }
}

/// A turn without commands. Returns whether it has brought the log anything.
fn idle(partition: &mut Partition<u32>, now: Moment) -> bool {
    let before = partition.log().end();
    let mut commands = VecDeque::new();
    partition.turn(now, &mut commands, &mut Vec::new());
    partition.log().end() != before
}

fn run_jobs(partition: &mut Partition<u32>) {
    while let Some(job) = partition.next_job() {
        partition.complete(job.run(), &mut Vec::new()).unwrap();
    }
}

/// Lets time pass without a command, as a driver does, and returns when something was appended.
fn beats(partition: &mut Partition<u32>, from_ms: u64, until_ms: u64) -> Vec<u64> {
    let mut beats = Vec::new();
    let mut now_ms = from_ms;
    while now_ms <= until_ms {
        if idle(partition, at(now_ms)) {
            beats.push(now_ms);
        }
        run_jobs(partition);
        let due = partition.next_wake().boot.map_or(u64::MAX, BootTime::as_us);
        now_ms = (due.saturating_sub(at(0).boot.as_us()) / 1000).max(now_ms + 1);
    }
    beats
}

fn recorded_ms(source: &MemorySource) -> u64 {
    open(source).recorded_at().as_ms() - super::NOW.as_ms()
}

#[test]
fn an_idle_owner_beats_so_that_time_goes_on() {
    let source = MemorySource::new(kept_by_others());
    let mut partition = open(&source);
    run_jobs(&mut partition);
    assert!(idle(&mut partition, at(0)), "nothing has a time yet");
    run_jobs(&mut partition);
    assert_eq!(beats(&mut partition, 10, 3500), [1000, 2000, 3000]);

    // What has a time puts the next one off.
    let mut commands = VecDeque::from([(1, create())]);
    partition.turn(at(3600), &mut commands, &mut Vec::new());
    run_jobs(&mut partition);
    assert_eq!(beats(&mut partition, 3700, 5000), [4600]);

    // What is under way has one, too.
    assert!(idle(&mut partition, at(5600)));
    let commit = partition.next_job().unwrap();
    assert!(!idle(&mut partition, at(9000)));
    let due = partition.next_wake().boot;
    assert!(
        due.is_none_or(|due| due > at(9000).boot),
        "it spins: {due:?}"
    );
    partition.complete(commit.run(), &mut Vec::new()).unwrap();
    assert!(idle(&mut partition, at(9001)));
    run_jobs(&mut partition);
    assert_eq!(recorded_ms(&source), 9001);
}

#[test]
fn a_log_that_nobody_else_keeps_rests() {
    let source = MemorySource::new(MemoryOptions::default());
    let mut partition = open(&source);
    run_jobs(&mut partition);
    assert_eq!(beats(&mut partition, 0, 100_000), []);
}

fn start_with(source: &MemorySource, stop_patience: Duration) -> Broker {
    let options = BrokerOptions {
        stop_patience,
        ..broker_options()
    };
    let started = Broker::start_on(Arc::new(source.clone()), options);
    started.unwrap().0
}

/// A broker with a queue, and the other machines. It waits for them for long.
async fn owner(options: MemoryOptions) -> (MemorySource, Broker) {
    let source = MemorySource::new(options);
    let broker = start_with(&source, Duration::from_secs(3600));
    broker.submit(create()).await.unwrap();
    (source, broker)
}

/// Sends a message, whose commit gets no answer.
async fn send_in_vain(
    broker: &Broker,
    others: &Others,
    body: &'static str,
) -> JoinHandle<Option<Rejection>> {
    let broker = broker.clone();
    let sent = tokio::spawn(async move { broker.submit(send(body)).await.err() });
    for _ in 0..10_000 {
        if others.waiting() > 0 {
            return sent;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("no commit asks the other machines");
}

/// The log's end, once it is so.
async fn appended_until(broker: &Broker, is_so: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..10_000 {
        let page = metrics(broker, 0).await;
        let end = value(&page, "kew_log_end_position", &[]).unwrap();
        if is_so(end) {
            return end;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("nothing is appended");
}

#[tokio::test]
async fn who_waits_for_others_does_not_hold_up_the_partition() {
    let (source, broker) = owner(kept_by_others()).await;
    source.others().fall_silent(None);
    let first = send_in_vain(&broker, source.others(), "a").await;
    let end = appended_until(&broker, |_| true).await;
    let second = send_in_vain(&broker, source.others(), "b").await;
    // The runner answers requests, and decides what comes meanwhile.
    appended_until(&broker, |now| now > end).await;
    assert!(!first.is_finished() && !second.is_finished());
    source.others().answer();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (None, None));
    assert_eq!(receive_all(&broker).await.len(), 2);
    broker.stop();
}

#[test]
fn a_short_silence_is_no_lack_of_a_quorum() {
    let source = MemorySource::new(kept_by_others());
    let mut partition = open(&source);
    idle(&mut partition, at(0));
    run_jobs(&mut partition);
    source.others().fall_silent(Some(at(500).boot));
    // A beat, which they do not answer.
    assert!(idle(&mut partition, at(1000)));
    let _commit = partition.next_job();
    assert!(!partition.is_without_quorum());
    assert_eq!(partition.next_wake().boot, Some(at(2500).boot));
    idle(&mut partition, at(2499));
    assert!(!partition.is_without_quorum());
    idle(&mut partition, at(2500));
    assert!(partition.is_without_quorum());
    let due = partition.next_wake().boot;
    assert!(
        due.is_none_or(|due| due > at(2500).boot),
        "it spins: {due:?}"
    );
    source.others().answer();
    assert!(!partition.is_without_quorum());
}

#[tokio::test]
async fn without_a_quorum_nothing_new_is_taken() {
    let (source, broker) = owner(kept_by_others()).await;
    source.others().fall_silent(None);
    let sent = send_in_vain(&broker, source.others(), "a").await;
    // Only now: a turn before would have refused the message.
    source.others().fall_silent(Some(BootTime::ZERO));
    metrics(&broker, 0).await;
    until(&broker, Standing::NoQuorum).await;
    assert!(!broker.is_ready());
    assert_eq!(broker.submit(peek()).await, Err(Rejection::Busy));
    let page = metrics(&broker, 0).await;
    let state = |name| value(&page, "kew_partition_state", &[("state", name)]);
    assert_eq!((state("no_quorum"), state("ready")), (Some(1.0), Some(0.0)));
    source.others().answer();
    assert_eq!(sent.await.unwrap(), None);
    until(&broker, Standing::Ready).await;
    assert_eq!(receive_all(&broker).await.len(), 1);
    broker.stop();
}

#[tokio::test]
async fn a_stop_waits_for_others_until_its_patience_ends() {
    let source = MemorySource::new(kept_by_others());
    let broker = start_with(&source, Duration::from_millis(20));
    broker.submit(create()).await.unwrap();
    source.others().fall_silent(None);
    let sent = send_in_vain(&broker, source.others(), "a").await;
    broker.stop();
    let told = sent.await.unwrap();
    assert_eq!(told, Some(Rejection::Unknown), "they may agree later");
    assert_eq!(source.others().waiting(), 0, "its thread has ended");

    source.others().answer();
    let (source, broker) = (
        source.clone(),
        start_with(&source, Duration::from_secs(3600)),
    );
    source.others().fall_silent(None);
    let sent = send_in_vain(&broker, source.others(), "b").await;
    let stopping = broker.clone();
    let stopped = std::thread::spawn(move || stopping.stop());
    until(&broker, Standing::Stopped).await;
    source.others().answer();
    stopped.join().unwrap();
    assert_eq!(sent.await.unwrap(), None, "they have answered in time");
}

/// A fence that is told while a commit waits does not wait for that commit.
#[tokio::test]
async fn an_owner_that_is_fenced_does_not_wait_for_others() {
    let (source, first) = owner(MemoryOptions {
        looks_when_reserving: true,
        ..kept_by_others()
    })
    .await;
    source.others().fall_silent(None);
    let sent = send_in_vain(&first, source.others(), "a").await;
    // Its promotion is no commit.
    let second = start_with(&source, Duration::from_secs(3600));
    assert_eq!(first.submit(send("b")).await, Err(Rejection::NotOwner));
    assert_eq!(sent.await.unwrap(), Some(Rejection::Unknown));
    until(&first, Standing::Following).await;
    source.others().answer();
    second.submit(send("c")).await.unwrap();
    first.promote(Epoch::new(100));
    until(&first, Standing::Ready).await;
    let late = second.submit(send("d")).await;
    assert!(
        matches!(late, Err(Rejection::NotOwner | Rejection::Unknown)),
        "{late:?}"
    );
    until(&second, Standing::Following).await;
    assert_eq!(receive_all(&first).await.len(), 1);
    first.stop();
    second.stop();
}
