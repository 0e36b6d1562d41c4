//! Loops as one would write them by hand, on the clients of the load generators: nothing is renewed, retried or
//! counted but the messages.

use std::cell::Cell;

use anyhow::{Result, bail};
use bus_load::body_of;
use kew_amqp::Event;
use kew_amqp::message::Message;
use kew_amqp::performative::DeliveryState;
use queue_load::Client;
use tokio::task::{JoinSet, LocalSet};

use crate::options::{Drain, Target};
use crate::target::QUEUE;

/// How long messages of Queue Storage are hidden, in seconds.
const VISIBILITY_S: u32 = 30;

/// Drains a queue of Queue Storage: each connection receives a batch, and deletes its messages one by one.
pub(crate) async fn drain_queue(
    target: &Target,
    options: &Drain,
    completed: std::rc::Rc<Cell<u64>>,
) -> Result<()> {
    let endpoint = target.endpoint();
    let batch = options.batch;
    let local = LocalSet::new();
    let mut loops: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..options.concurrency {
        let mut client = Client::new(endpoint.clone());
        let completed = completed.clone();
        let drain = async move {
            loop {
                let messages = client.get(QUEUE, batch, VISIBILITY_S).await?;
                if messages.is_empty() {
                    return Ok(());
                }
                for message in messages {
                    let receipt = message.receipt.as_ref().map(|it| it.value.as_str());
                    client
                        .delete(QUEUE, &message.id, receipt.unwrap_or_default())
                        .await?;
                    completed.set(completed.get() + 1);
                }
            }
        };
        loops.spawn_local_on(drain, &local);
    }
    local
        .run_until(async {
            while let Some(ended) = loops.join_next().await {
                ended??;
            }
            Ok(())
        })
        .await
}

/// Drains a queue of Service Bus over one link: completes each message, and holds no more than the listener may.
pub(crate) async fn drain_bus(
    target: &Target,
    options: &Drain,
    completed: std::rc::Rc<Cell<u64>>,
) -> Result<()> {
    let mut client = target.raw_bus().await?;
    let link = client.receiver(QUEUE).await?;
    let held_max = options.concurrency * options.batch;
    let mut held = 0;
    while completed.get() < options.count {
        if client.connection.credit(link) + held <= held_max / 2 {
            client.connection.grant(link, held_max - held);
        }
        match client.event().await? {
            Event::Delivery(delivery) => {
                body_of(&Message::scan(delivery.payload)?)?;
                let accepted = DeliveryState::ACCEPTED;
                client.connection.update(delivery.delivery, accepted);
                held += 1;
            }
            Event::Disposition {
                is_settled: true,
                state: Some(DeliveryState::ACCEPTED),
                ..
            } => {
                held -= 1;
                completed.set(completed.get() + 1);
            }
            Event::Disposition {
                is_settled: true,
                state,
                ..
            } => bail!("a message was not completed: {state:?}"),
            Event::Detached { error, .. } => bail!("the link was detached: {error:?}"),
            _ => {}
        }
    }
    Ok(client.close().await?)
}
