//! Fills the queue of a service.

use anyhow::{Result, bail};
use bus_load::message;
use bytes::Bytes;
use kew_amqp::performative::{DeliveryState, Tag};
use kew_amqp::{Event, Outgoing};
use queue_load::{Client, PutOptions};
use tokio::task::JoinSet;

use crate::options::{Service, Target};
use crate::target::QUEUE;

/// Puts in progress, so that it does not take long.
const CONNECTIONS: u64 = 16;
const SENDS: u64 = 500;

/// Puts so many messages of this size.
pub(crate) async fn fill(target: &Target, service: Service, count: u64, size: usize) -> Result<()> {
    match service {
        Service::Queue => fill_queue(target, count, size).await,
        Service::Bus => fill_bus(target, count, size).await,
    }
}

async fn fill_queue(target: &Target, count: u64, size: usize) -> Result<()> {
    let endpoint = target.endpoint();
    Client::new(endpoint.clone())
        .create_queue(QUEUE, &[])
        .await?;
    let mut puts: JoinSet<Result<()>> = JoinSet::new();
    for number in 0..CONNECTIONS {
        let mut client = Client::new(endpoint.clone());
        let share = count / CONNECTIONS + u64::from(number < count % CONNECTIONS);
        let text = "x".repeat(size);
        puts.spawn(async move {
            for _ in 0..share {
                client.put(QUEUE, &text, PutOptions::default()).await?;
            }
            Ok(())
        });
    }
    while let Some(put) = puts.join_next().await {
        put??;
    }
    Ok(())
}

async fn fill_bus(target: &Target, count: u64, size: usize) -> Result<()> {
    let mut client = target.raw_bus().await?;
    let link = client.sender(QUEUE).await?;
    let body = vec![b'x'; size];
    let (mut sent, mut settled) = (0, 0);
    while settled < count {
        while sent < count && sent - settled < SENDS && client.connection.can_send(link) {
            sent += 1;
            let outgoing = Outgoing {
                tag: Tag::new(&sent.to_be_bytes())?,
                message_format: 0,
                is_settled: false,
                state: None,
            };
            let parts = [message(&body, sent, None), Bytes::new()];
            client.connection.send(link, outgoing, parts)?;
        }
        if let Event::Disposition { state, .. } = client.event().await? {
            if state != Some(DeliveryState::ACCEPTED) {
                bail!("a message was not accepted: {state:?}");
            }
            settled += 1;
        }
    }
    Ok(client.close().await?)
}
