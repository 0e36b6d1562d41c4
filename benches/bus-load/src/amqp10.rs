//! The two ends of a queue over AMQP 1.0.

use anyhow::{Context as _, Result, bail};
use bus_load::{Client, body_of, colored_message, message};
use bytes::Bytes;
use kew_amqp::message::Message;
use kew_amqp::performative::{DeliveryState, Tag};
use kew_amqp::{Delivery, DeliveryId, Event, LinkId, Outgoing};

use crate::client::{connect, receiver};
use crate::ends::{COLOR, Received, Receiving, Sending, stamp_of};
use crate::options::{Settles, Target};

/// A sending link, on a connection of its own.
pub(crate) struct Sender {
    client: Client,
    link: LinkId,
    sent_count: u64,
    /// Messages have a color, for rules.
    is_colored: bool,
}

impl Sender {
    pub(crate) async fn connect(target: &Target, queue: &str) -> Result<Self> {
        let mut client = connect(target).await?;
        let link = client.sender(queue).await?;
        Ok(Self {
            client,
            link,
            sent_count: 0,
            is_colored: false,
        })
    }

    pub(crate) async fn connect_topic(target: &Target, topic: &str) -> Result<Self> {
        Ok(Self {
            is_colored: true,
            ..Self::connect(target, topic).await?
        })
    }
}

impl Sending for Sender {
    async fn send(&mut self, body: Bytes) -> Result<bool> {
        if !self.client.connection.can_send(self.link) {
            return Ok(false);
        }
        self.sent_count += 1;
        let message = match self.is_colored {
            true => colored_message(&body, self.sent_count, COLOR),
            false => message(&body, self.sent_count, None),
        };
        send(&mut self.client, self.link, self.sent_count, message)?;
        Ok(true)
    }

    async fn settled(&mut self) -> Result<usize> {
        let mut count = 0;
        let mut has_any = false;
        while let Some(event) = self.client.ready_event()? {
            has_any = true;
            count += usize::from(is_accepted(&event)?);
        }
        if !has_any {
            self.client.exchange().await?;
        }
        Ok(count)
    }
}

/// Sends an encoded message. There must be room for it.
pub(crate) fn send(client: &mut Client, link: LinkId, number: u64, message: Bytes) -> Result<()> {
    transfer(client, link, number, (message, 0))?;
    Ok(())
}

/// Sends encoded bytes of a message format. There must be room for them.
pub(crate) fn transfer(
    client: &mut Client,
    link: LinkId,
    number: u64,
    (encoded, message_format): (Bytes, u32),
) -> Result<DeliveryId> {
    let outgoing = Outgoing {
        tag: Tag::new(&number.to_be_bytes())?,
        message_format,
        is_settled: false,
        state: None,
    };
    let sent = client
        .connection
        .send(link, outgoing, [encoded, Bytes::new()]);
    sent.context("a message was rejected")
}

/// Whether an event settles a message that was sent or received. A rejection is an error, and so is
/// the end of a link.
pub(crate) fn is_accepted(event: &Event) -> Result<bool> {
    match event {
        Event::Disposition {
            is_settled: true,
            state: Some(DeliveryState::ACCEPTED),
            ..
        } => Ok(true),
        Event::Disposition {
            is_settled: true,
            state,
            ..
        } => bail!("a message was not accepted: {state:?}"),
        Event::Detached { error, .. } => bail!("the link was detached: {error:?}"),
        _ => Ok(false),
    }
}

/// Receiving links, on a connection of their own.
pub(crate) struct Receiver {
    client: Client,
    credit: u32,
    settles: Settles,
}

impl Receiver {
    pub(crate) async fn connect(target: &Target, queue: &str, credit: u32) -> Result<Self> {
        Self::connect_all(target, [queue.to_owned()], credit).await
    }

    /// One link for each address.
    pub(crate) async fn connect_all(
        target: &Target,
        addresses: impl IntoIterator<Item = String>,
        credit: u32,
    ) -> Result<Self> {
        let mut client = connect(target).await?;
        for address in addresses {
            let link = receiver(&mut client, &address, target.settles).await?;
            client.connection.grant(link, credit);
        }
        Ok(Self {
            client,
            credit,
            settles: target.settles,
        })
    }

    fn on_delivery(&mut self, delivery: Delivery, received: &mut Received) -> Result<()> {
        received
            .stamps
            .push(stamp_of(&body_of(&Message::scan(delivery.payload)?)?)?);
        let connection = &mut self.client.connection;
        match self.settles {
            Settles::First => {
                connection.settle(delivery.delivery, Some(DeliveryState::ACCEPTED));
                received.completed += 1;
            }
            Settles::Second => {
                connection.update(delivery.delivery, DeliveryState::ACCEPTED);
            }
        }
        if connection.credit(delivery.link) <= self.credit / 2 {
            connection.grant(delivery.link, self.credit);
        }
        Ok(())
    }
}

impl Receiving for Receiver {
    async fn received(&mut self, received: &mut Received) -> Result<()> {
        let mut has_any = false;
        while let Some(event) = self.client.ready_event()? {
            has_any = true;
            if let Event::Delivery(delivery) = event {
                self.on_delivery(delivery, received)?;
            } else {
                received.completed += usize::from(is_accepted(&event)?);
            }
        }
        if !has_any {
            self.client.exchange().await?;
        }
        Ok(())
    }

    async fn leave(&mut self) -> Result<()> {
        Ok(self.client.close().await?)
    }
}
