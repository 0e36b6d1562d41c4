//! Empties a queue that `fill` has filled, or leaves a few messages of many.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use bus_load::{Client, body_of};
use kew_amqp::message::Message;
use kew_amqp::performative::{DeliveryState, Modified, Outcome as Settled};
use kew_amqp::{Delivery, Event, LinkId};
use serde::Serialize;

use crate::amqp10::is_accepted;
use crate::client::{connect, receiver, taker};
use crate::ends::stamp_of;
use crate::fill::ANSWER_TIMEOUT;
use crate::options::{Drain, Settles, Target};
use crate::report::{as_f64, round};

/// The printed result.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    mode: &'static str,
    seconds: f64,
    completed: u64,
    /// Deferred messages: they stay in the queue, and no receiver gets them again.
    kept: u64,
    rate: f64,
}

/// Receives all messages of the queue, and settles each unless it is deleted as it is received.
pub(crate) async fn run(target: &Target, options: &Drain) -> Result<Outcome> {
    let mut client = connect(target).await?;
    let link = match options.delete {
        true => taker(&mut client, &options.queue).await?,
        false => receiver(&mut client, &options.queue, Settles::Second).await?,
    };
    let mut draining = Draining {
        options,
        link,
        received: 0,
        completed: 0,
        kept: 0,
    };
    let began = Instant::now();
    draining.run(&mut client).await?;
    let seconds = began.elapsed().as_secs_f64();
    client.close().await?;
    Ok(Outcome {
        mode: "drain",
        seconds: round(seconds),
        completed: draining.completed,
        kept: draining.kept,
        rate: round(as_f64(options.count) / seconds),
    })
}

struct Draining<'a> {
    options: &'a Drain,
    link: LinkId,
    received: u64,
    completed: u64,
    kept: u64,
}

impl Draining<'_> {
    async fn run(&mut self, client: &mut Client) -> Result<()> {
        client.connection.grant(self.link, self.options.credit);
        while self.completed + self.kept < self.options.count {
            let event = tokio::time::timeout(ANSWER_TIMEOUT, client.event()).await;
            let progress = || format!("no answer came after {} messages", self.received);
            match event.with_context(progress)?? {
                Event::Delivery(delivery) => self.on_delivery(client, delivery)?,
                event if is_kept(&event) => self.kept += 1,
                event => self.completed += u64::from(is_accepted(&event)?),
            }
        }
        Ok(())
    }

    fn on_delivery(&mut self, client: &mut Client, delivery: Delivery) -> Result<()> {
        let number = stamp_of(&body_of(&Message::scan(delivery.payload)?)?)?;
        let expected = self.options.oldest + self.received;
        if number != expected {
            bail!("message {number} arrived instead of {expected}");
        }
        if self.received >= self.options.count {
            bail!("more than {} messages arrived", self.options.count);
        }
        let is_kept = is_one_of(self.received, self.options.keep_every);
        let state = if is_kept {
            deferred()
        } else {
            DeliveryState::ACCEPTED
        };
        self.received += 1;
        if self.options.delete {
            self.completed += 1;
        } else {
            client.connection.update(delivery.delivery, state);
        }
        if client.connection.credit(self.link) <= self.options.credit / 2 {
            client.connection.grant(self.link, self.options.credit);
        }
        Ok(())
    }
}

/// Whether the message at this place is one of each `every`.
fn is_one_of(place: u64, every: u64) -> bool {
    every > 0 && place.is_multiple_of(every)
}

fn deferred() -> DeliveryState {
    DeliveryState::from(Settled::Modified(Modified {
        delivery_failed: None,
        undeliverable_here: Some(true),
        message_annotations: None,
    }))
}

/// Whether an event confirms that a message was deferred.
fn is_kept(event: &Event) -> bool {
    matches!(
        event,
        Event::Disposition {
            is_settled: true,
            state: Some(DeliveryState::Outcome(Settled::Modified(_))),
            ..
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_of_each_so_many_stays() {
        let kept = |every| (0..10).filter(|&place| is_one_of(place, every)).count();
        assert_eq!([kept(0), kept(1), kept(4), kept(100)], [0, 10, 3, 1]);
    }
}
