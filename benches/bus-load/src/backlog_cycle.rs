//! Cycles behind a backlog: each message is sent to the tail, and for each the oldest one is received and
//! completed. The count of messages stays the same.
//!
//! A cycle receives when its own message is settled, so its three steps follow one another.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bus_load::{Client, body_of, message};
use kew_amqp::message::Message;
use kew_amqp::performative::DeliveryState;
use kew_amqp::{Delivery, DeliveryId, Direction, Event, LinkId};
use queue_load::Usage;
use serde::Serialize;

use crate::amqp10::{is_accepted, transfer};
use crate::client::{connect, receiver};
use crate::ends::{stamp_of, stamped};
use crate::fill::ANSWER_TIMEOUT;
use crate::options::{BacklogCycle, Settles, Target};
use crate::report::{Cost, Spread, as_f64, round};

/// The printed result.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    mode: &'static str,
    in_flight: u32,
    size: u32,
    seconds: f64,
    /// Completed cycles.
    messages: u64,
    rate: f64,
    /// From a send to its settlement.
    settled: Option<Spread>,
    /// From a send to the end of a completion.
    cycle: Option<Spread>,
    client: Option<Cost>,
    server: Option<Cost>,
}

/// Measures, and leaves as many messages in the queue as there were.
pub(crate) async fn run(target: &Target, options: &BacklogCycle) -> Result<Outcome> {
    let mut client = connect(target).await?;
    let mut cycles = Cycles {
        options,
        sender: client.sender(&options.queue).await?,
        receiver: receiver(&mut client, &options.queue, Settles::Second).await?,
        sends: VecDeque::new(),
        began: VecDeque::new(),
        sent: 0,
        received: 0,
        settled_us: Vec::new(),
        cycle_us: Vec::new(),
    };
    let usage = || {
        let server = target.pid.and_then(Usage::of);
        (Usage::of(std::process::id()), server)
    };
    let (before, began) = (usage(), Instant::now());
    let ends = began + Duration::from_secs_f64(options.seconds);
    cycles.run(&mut client, ends).await?;
    let (after, seconds) = (usage(), began.elapsed().as_secs_f64());
    client.close().await?;
    let messages = cycles.cycle_us.len() as u64;
    let cost = |before, after| Cost::between(before, after, seconds, messages);
    Ok(Outcome {
        mode: "backlog-cycle",
        in_flight: options.in_flight,
        size: options.size,
        seconds: round(seconds),
        messages,
        rate: round(as_f64(messages) / seconds),
        settled: Spread::of(cycles.settled_us),
        cycle: Spread::of(cycles.cycle_us),
        client: cost(before.0, after.0),
        server: cost(before.1, after.1),
    })
}

struct Cycles<'a> {
    options: &'a BacklogCycle,
    sender: LinkId,
    receiver: LinkId,
    /// Sends that are not settled.
    sends: VecDeque<(DeliveryId, Instant)>,
    /// When the cycles in progress began. The one that began first ends first.
    began: VecDeque<Instant>,
    sent: u64,
    received: u64,
    settled_us: Vec<i64>,
    cycle_us: Vec<i64>,
}

impl Cycles<'_> {
    async fn run(&mut self, client: &mut Client, ends: Instant) -> Result<()> {
        loop {
            while self.began.len() < self.options.in_flight as usize
                && Instant::now() < ends
                && client.connection.can_send(self.sender)
            {
                self.begin(client)?;
            }
            if self.began.is_empty() && Instant::now() >= ends {
                return Ok(());
            }
            let event = tokio::time::timeout(ANSWER_TIMEOUT, client.event()).await;
            let event = event.with_context(|| format!("no answer came: {}", self.progress()))??;
            self.on_event(client, event)?;
        }
    }

    fn begin(&mut self, client: &mut Client) -> Result<()> {
        let number = self.options.first + self.sent;
        let message = message(&stamped(number, self.options.size), number, None);
        let now = Instant::now();
        let delivery = transfer(client, self.sender, number, (message, 0))?;
        self.sends.push_back((delivery, now));
        self.began.push_back(now);
        self.sent += 1;
        Ok(())
    }

    fn on_event(&mut self, client: &mut Client, event: Event) -> Result<()> {
        if is_accepted(&event)?
            && let Event::Disposition { delivery, .. } = event
        {
            return match delivery.direction() {
                Direction::Outgoing => self.on_settled(client, delivery),
                Direction::Incoming => self.on_completed(),
            };
        }
        match event {
            Event::Delivery(delivery) => self.on_delivery(client, delivery),
            _ => Ok(()),
        }
    }

    /// The message is in the queue: the cycle receives the oldest one.
    fn on_settled(&mut self, client: &mut Client, delivery: DeliveryId) -> Result<()> {
        let place = self.sends.iter().position(|(it, _)| *it == delivery);
        let settled = place.and_then(|place| self.sends.remove(place));
        let (_, sent_at) = settled.context("a message was settled twice")?;
        self.settled_us.push(micros_since(sent_at));
        let credit = client.connection.credit(self.receiver);
        client.connection.grant(self.receiver, credit + 1);
        Ok(())
    }

    fn on_delivery(&mut self, client: &mut Client, delivery: Delivery) -> Result<()> {
        let number = stamp_of(&body_of(&Message::scan(delivery.payload)?)?)?;
        let expected = self.options.oldest + self.received;
        if number != expected {
            bail!("message {number} arrived instead of {expected}");
        }
        self.received += 1;
        let state = DeliveryState::ACCEPTED;
        client.connection.update(delivery.delivery, state);
        Ok(())
    }

    fn on_completed(&mut self) -> Result<()> {
        let began = self.began.pop_front();
        let began = began.context("a message was completed twice")?;
        self.cycle_us.push(micros_since(began));
        Ok(())
    }

    fn progress(&self) -> String {
        let (sent, received) = (self.sent, self.received);
        format!(
            "{sent} sent, {} unsettled, {received} received",
            self.sends.len()
        )
    }
}

fn micros_since(then: Instant) -> i64 {
    i64::try_from(then.elapsed().as_micros()).unwrap_or(i64::MAX)
}
