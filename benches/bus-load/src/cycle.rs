//! Messages through one queue, or through a topic to several subscriptions, as fast as possible.
//!
//! One end sends, with a limited number of unsettled messages. The other receives, with as much
//! credit, and completes. Neither waits for the other, except that the sender stops while a queue or
//! subscription holds ten times as many on average: only messages that were completed count.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use queue_load::Usage;
use serde::Serialize;
use tokio::sync::Notify;

use crate::ends::{Ends, Received, Receiving, Sending, stamped};
use crate::options::{Cycle, FanOut, Pace, Target};
use crate::report::{Cost, Spread, as_f64, round};

/// How long operations may still be in progress after the measurement.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The printed result.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    mode: &'static str,
    protocol: String,
    in_flight: u32,
    size: u32,
    copies: u64,
    seconds: f64,
    /// Messages, or copies of them, that were completed during the measurement.
    messages: u64,
    rate: f64,
    /// From the send to the settlement.
    settled: Option<Spread>,
    /// From the send to the arrival.
    arrived: Option<Spread>,
    client: Option<Cost>,
    server: Option<Cost>,
}

/// How messages go round.
#[derive(Clone, Copy)]
struct Load<'a> {
    mode: &'static str,
    options: &'a Pace,
    /// Of each message: one for each queue or subscription that gets it.
    copies: u64,
}

/// Runs a cycle, and leaves the queue empty.
pub(crate) async fn run(target: &Target, cycle: &Cycle) -> Result<Outcome> {
    let ends = Ends::connect(target, &cycle.queue, cycle.pace.in_flight).await?;
    let load = Load {
        mode: "cycle",
        options: &cycle.pace,
        copies: 1,
    };
    go_round(target, ends, load).await
}

/// Publishes to a topic, and leaves its subscriptions empty. Completed copies count.
pub(crate) async fn run_fan_out(target: &Target, fan_out: &FanOut) -> Result<Outcome> {
    let credit = fan_out.pace.in_flight;
    let ends = Ends::connect_topic(target, &fan_out.topic, fan_out.matching, credit).await?;
    let load = Load {
        mode: "fan-out",
        options: &fan_out.pace,
        copies: u64::from(fan_out.matching),
    };
    go_round(target, ends, load).await
}

async fn go_round(target: &Target, ends: Ends, load: Load<'_>) -> Result<Outcome> {
    let run = Run::new(target, load);
    let options = load.options;
    let length = Duration::from_secs_f64(options.warmup + options.seconds);
    let measured = tokio::time::timeout(length + DRAIN_TIMEOUT, async {
        match ends {
            Ends::Amqp10(ends) => run.between(*ends).await,
            Ends::Amqp091(ends) => run.between(*ends).await,
            Ends::Null(ends) => run.between(*ends).await,
        }
    });
    match measured.await {
        Ok(result) => result?,
        Err(_) => bail!("no end came: {:?}", run.counts),
    }
    Ok(run.outcome())
}

/// How many copies wait at most, or those of one message: what waits at the end has to be received, too.
const COPIES_MAX: u64 = 200_000;

/// How far the messages are.
#[derive(Debug, Default)]
struct Counts {
    sent: Cell<u64>,
    settled: Cell<u64>,
    completed: Cell<u64>,
}

/// A point in time, with the counts and the usage until then.
#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    completed: u64,
    client: Option<Usage>,
    server: Option<Usage>,
}

struct Run<'a> {
    target: &'a Target,
    options: &'a Pace,
    load: Load<'a>,
    began: Instant,
    counts: Counts,
    /// Microseconds, while it is measured.
    settled_us: RefCell<Vec<i64>>,
    arrived_us: RefCell<Vec<i64>>,
    begin: Cell<Option<Reading>>,
    end: Cell<Option<Reading>>,
    /// The sender has ended.
    is_all_sent: Cell<bool>,
    /// Notifies waiters of any of these.
    changed: Notify,
}

impl<'a> Run<'a> {
    fn new(target: &'a Target, load: Load<'a>) -> Self {
        Self {
            target,
            options: load.options,
            load,
            began: Instant::now(),
            counts: Counts::default(),
            settled_us: RefCell::default(),
            arrived_us: RefCell::default(),
            begin: Cell::new(None),
            end: Cell::new(None),
            is_all_sent: Cell::new(false),
            changed: Notify::new(),
        }
    }

    async fn between(&self, (sender, receiver): (impl Sending, impl Receiving)) -> Result<()> {
        tokio::try_join!(self.send(sender), self.receive(receiver), self.keep_time())?;
        Ok(())
    }

    async fn keep_time(&self) -> Result<()> {
        tokio::time::sleep(Duration::from_secs_f64(self.options.warmup)).await;
        self.begin.set(Some(self.reading()));
        tokio::time::sleep(Duration::from_secs_f64(self.options.seconds)).await;
        self.end.set(Some(self.reading()));
        self.changed.notify_waiters();
        Ok(())
    }

    fn reading(&self) -> Reading {
        Reading {
            at: Instant::now(),
            completed: self.counts.completed.get(),
            client: Usage::of(std::process::id()),
            server: self.target.pid.and_then(Usage::of),
        }
    }

    fn is_measuring(&self) -> bool {
        self.begin.get().is_some() && self.end.get().is_none()
    }

    async fn send(&self, mut sender: impl Sending) -> Result<()> {
        let mut sent_at = VecDeque::new();
        let backlog_max = u64::from(self.options.in_flight) * 10 * self.load.copies;
        let backlog_max = backlog_max.min(COPIES_MAX.max(self.load.copies));
        loop {
            let is_over = self.end.get().is_some();
            if is_over && sent_at.is_empty() {
                break;
            }
            let backlog =
                || self.counts.sent.get() * self.load.copies - self.counts.completed.get();
            while !is_over
                && sent_at.len() < self.options.in_flight as usize
                && backlog() < backlog_max
            {
                let now = self.now_us();
                let body = stamped(now, self.options.size);
                if !sender.send(Bytes::from(body)).await? {
                    break;
                }
                sent_at.push_back(now);
                add(&self.counts.sent, 1);
            }
            tokio::select! {
                count = sender.settled() => self.note_settled(&mut sent_at, count?),
                () = self.changed.notified() => {}
            }
        }
        self.is_all_sent.set(true);
        self.changed.notify_waiters();
        Ok(())
    }

    fn note_settled(&self, sent_at: &mut VecDeque<u64>, count: usize) {
        let now = self.now_us();
        let settled = sent_at.drain(..count.min(sent_at.len()));
        if self.is_measuring() {
            let took = settled.map(|at| span(at, now));
            self.settled_us.borrow_mut().extend(took);
        }
        add(&self.counts.settled, count);
    }

    async fn receive(&self, mut receiver: impl Receiving) -> Result<()> {
        let mut received = Received::default();
        loop {
            let all = self.counts.sent.get() * self.load.copies;
            if self.is_all_sent.get() && self.counts.completed.get() >= all {
                return receiver.leave().await;
            }
            tokio::select! {
                result = receiver.received(&mut received) => result?,
                () = self.changed.notified() => {}
            }
            let now = self.now_us();
            if self.is_measuring() {
                let took = received.stamps.iter().map(|&at| span(at, now));
                self.arrived_us.borrow_mut().extend(took);
            }
            received.stamps.clear();
            let completed = std::mem::take(&mut received.completed);
            if completed > 0 {
                add(&self.counts.completed, completed);
                self.changed.notify_waiters();
            }
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn outcome(self) -> Outcome {
        let none = self.reading();
        let begin = self.begin.get().unwrap_or(none);
        let end = self.end.get().unwrap_or(none);
        let seconds = end.at.duration_since(begin.at).as_secs_f64();
        let messages = end.completed - begin.completed;
        let cost = |before, after| Cost::between(before, after, seconds, messages);
        Outcome {
            mode: self.load.mode,
            protocol: format!("{:?}", self.target.protocol).to_lowercase(),
            in_flight: self.options.in_flight,
            size: self.options.size,
            copies: self.load.copies,
            seconds: round(seconds),
            messages,
            rate: round(as_f64(messages) / seconds),
            settled: Spread::of(self.settled_us.into_inner()),
            arrived: Spread::of(self.arrived_us.into_inner()),
            client: cost(begin.client, end.client),
            server: cost(begin.server, end.server),
        }
    }
}

fn add(counter: &Cell<u64>, count: usize) {
    counter.set(counter.get() + count as u64);
}

/// The time between two moments, the second later, in microseconds.
fn span(from: u64, until: u64) -> i64 {
    i64::try_from(until.saturating_sub(from)).unwrap_or(i64::MAX)
}
