//! Messages that stay in the queue: a backlog, or the load under which a server is killed.
//!
//! Each message begins with its number. The numbers rise by one in the order of sending, so that a receiver
//! notices one that is missing, doubled or out of order.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use bus_load::{Client, Error};
use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map, Symbol, Timestamp};
use kew_amqp::message::{
    BATCH_FORMAT, Header, MessageId, Properties, write_batch, write_data, write_head,
};
use kew_amqp::{DeliveryId, Event, LinkId};
use queue_load::Usage;
use serde::Serialize;

use crate::amqp10::{is_accepted, transfer};
use crate::client::connect;
use crate::ends::stamped;
use crate::options::{Fill, Target};
use crate::report::{Cost, Spread, as_f64, round};

/// A server that answers nothing for so long has failed. A snapshot of a large backlog takes seconds.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The printed result.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    mode: &'static str,
    batch: u32,
    in_flight: u32,
    size: u32,
    seconds: f64,
    /// Accepted messages.
    messages: u64,
    rate: f64,
    /// From the send of a transfer to its settlement.
    settled: Option<Spread>,
    /// Whether the connection was lost.
    lost: bool,
    client: Option<Cost>,
    server: Option<Cost>,
}

/// Sends until the count is reached, the time is over, or the connection is lost.
pub(crate) async fn run(target: &Target, options: &Fill) -> Result<Outcome> {
    if options.count == 0 && options.seconds <= 0.0 {
        bail!("pass --count or --seconds, or the run never ends");
    }
    let mut client = connect(target).await?;
    let link = client.sender(&options.queue).await?;
    let mut filling = Filling::new(options);
    let usage = || {
        let server = target.pid.and_then(Usage::of);
        (Usage::of(std::process::id()), server)
    };
    let (before, began) = (usage(), Instant::now());
    let ended = filling.send_all(&mut client, link).await;
    let seconds = began.elapsed().as_secs_f64();
    let lost = match ended {
        Err(error) if options.until_lost && is_lost(&error) => true,
        ended => {
            ended?;
            false
        }
    };
    let after = usage();
    let messages = filling.accepted;
    let cost = |before, after| Cost::between(before, after, seconds, messages);
    Ok(Outcome {
        mode: "fill",
        batch: options.batch,
        in_flight: options.in_flight,
        size: options.size,
        seconds: round(seconds),
        messages,
        rate: round(as_f64(messages) / seconds),
        settled: Spread::of(filling.settled_us),
        lost,
        client: cost(before.0, after.0),
        server: cost(before.1, after.1),
    })
}

fn is_lost(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Gone(_)))
}

/// A transfer that is not settled yet.
struct Unsettled {
    delivery: DeliveryId,
    messages: u64,
    sent_at: Instant,
}

struct Filling<'a> {
    options: &'a Fill,
    /// How many messages were sent.
    sent: u64,
    accepted: u64,
    unsettled: VecDeque<Unsettled>,
    settled_us: Vec<i64>,
    began: Instant,
    /// Milliseconds since 1970-01-01 UTC at which the first message is scheduled.
    scheduled_from: Option<u64>,
}

impl<'a> Filling<'a> {
    fn new(options: &'a Fill) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let ms = u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
        Self {
            options,
            sent: 0,
            accepted: 0,
            unsettled: VecDeque::new(),
            settled_us: Vec::new(),
            began: Instant::now(),
            scheduled_from: options.days_ahead.map(|days| ms + days * 86_400_000),
        }
    }

    async fn send_all(&mut self, client: &mut Client, link: LinkId) -> Result<()> {
        loop {
            while self.unsettled.len() < self.options.in_flight as usize
                && client.connection.can_send(link)
                && !self.is_over()
            {
                self.send(client, link)?;
            }
            if self.unsettled.is_empty() && self.is_over() {
                return Ok(());
            }
            let event = tokio::time::timeout(ANSWER_TIMEOUT, client.event()).await;
            self.note(&event.context("no answer came")??)?;
        }
    }

    fn is_over(&self) -> bool {
        let Fill { count, seconds, .. } = *self.options;
        (count > 0 && self.sent >= count)
            || (seconds > 0.0 && self.began.elapsed().as_secs_f64() >= seconds)
    }

    fn send(&mut self, client: &mut Client, link: LinkId) -> Result<()> {
        let left = match self.options.count {
            0 => u64::MAX,
            count => count - self.sent,
        };
        let messages = left.min(u64::from(self.options.batch));
        let first = self.options.first + self.sent;
        let encoded = self.encoded(first, messages);
        self.unsettled.push_back(Unsettled {
            delivery: transfer(client, link, first, encoded)?,
            messages,
            sent_at: Instant::now(),
        });
        self.sent += messages;
        Ok(())
    }

    /// A transfer of `count` messages, and its format. A batch of one message is a message.
    fn encoded(&self, first: u64, count: u64) -> (Bytes, u32) {
        if count == 1 {
            return (self.message(first), 0);
        }
        let messages: Vec<Bytes> = (first..first + count).map(|it| self.message(it)).collect();
        let mut batch = BytesMut::new();
        write_batch(&mut batch, &messages);
        (batch.freeze(), BATCH_FORMAT)
    }

    fn message(&self, number: u64) -> Bytes {
        let header = Header {
            durable: true,
            ..Header::default()
        };
        let session = |count| format!("session-{}", number % count);
        let properties = Properties {
            message_id: Some(MessageId::Ulong(number)),
            group_id: self
                .options
                .sessions
                .map(|count| session(count).as_str().into()),
            ..Properties::default()
        };
        let annotations = self.scheduled_from.map_or_else(Map::default, |from| {
            let at = i64::try_from(from + number).unwrap_or(i64::MAX);
            let key = Symbol::from_static("x-opt-scheduled-enqueue-time");
            Map::build(|map| map.entry(&key, &Timestamp(at)))
        });
        let mut out = BytesMut::with_capacity(self.options.size as usize + 128);
        write_head(&mut out, &header, &Map::default(), &annotations);
        properties.encode(&mut out);
        write_data(&mut out, &stamped(number, self.options.size));
        out.freeze()
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        if !is_accepted(event)? {
            return Ok(());
        }
        let Event::Disposition { delivery, .. } = event else {
            return Ok(());
        };
        let place = self
            .unsettled
            .iter()
            .position(|it| it.delivery == *delivery);
        let settled = place.and_then(|place| self.unsettled.remove(place));
        let settled = settled.context("a transfer was settled twice")?;
        let us = settled.sent_at.elapsed().as_micros();
        self.settled_us.push(i64::try_from(us).unwrap_or(i64::MAX));
        self.accepted += settled.messages;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use kew_amqp::message::{Message, batch_messages};

    use super::*;
    use crate::options::{Mode, Options};

    fn options(more: &[&str]) -> Fill {
        let line = ["kew-bus-load", "fill", "--count", "5"];
        match Options::parse_from([&line[..], more].concat()).mode {
            Mode::Fill(fill) => fill,
            mode => panic!("another mode: {mode:?}"),
        }
    }

    #[test]
    fn a_batch_has_numbered_messages_in_turn_for_the_sessions() {
        let options = options(&["--sessions", "2", "--days-ahead", "365"]);
        let filling = Filling::new(&options);
        let (encoded, format) = filling.encoded(7, 3);
        assert_eq!(format, BATCH_FORMAT);
        let batch = Message::scan(encoded).unwrap();
        let messages: Vec<Message> = batch_messages(&batch)
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        let sessions: Vec<String> = messages
            .iter()
            .map(|it| {
                it.properties()
                    .unwrap()
                    .group_id
                    .unwrap()
                    .as_str()
                    .to_owned()
            })
            .collect();
        assert_eq!(sessions, ["session-1", "session-0", "session-1"]);
        for (number, message) in (7..).zip(&messages) {
            let body = bus_load::body_of(message).unwrap();
            assert_eq!(
                (body.len(), crate::ends::stamp_of(&body).unwrap()),
                (64, number)
            );
            assert_eq!(message.message_annotations().iter().count(), 1);
        }
    }

    #[test]
    fn one_message_is_no_batch() {
        let options = options(&[]);
        let (encoded, format) = Filling::new(&options).encoded(3, 1);
        let message = Message::scan(encoded).unwrap();
        let id = message.properties().unwrap().message_id;
        assert_eq!((format, id), (0, Some(MessageId::Ulong(3))));
    }
}
