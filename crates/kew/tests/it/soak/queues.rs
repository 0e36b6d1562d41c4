//! The part of the load that uses Queue Storage.

use std::sync::atomic::Ordering::Relaxed;

use kew_client::{Error, PutOptions, QueueAccount, QueueClient};

use tokio::task::JoinSet;

use super::{Pace, TICK, body};
use crate::server::queue_client;

const STEADY: &str = "soak";

/// Each has a request under way at a time.
const CLIENTS: u64 = 8;

/// How many messages a queue has that comes and goes.
const BRIEF_COUNT: u64 = 100;

/// The queue with its backlog.
pub(super) async fn prepare(account: &QueueAccount, backlog: u64) {
    let client = queue_client(account.clone());
    client.create_queue(STEADY, &[]).await.expect("created");
    let mut tasks = JoinSet::new();
    for first in 0..CLIENTS {
        let client = queue_client(account.clone());
        tasks.spawn(async move {
            for number in (first..backlog).step_by(usize::try_from(CLIENTS).unwrap_or(1)) {
                put(&client, STEADY, number).await.expect("put");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("filled");
    }
}

async fn put(client: &QueueClient, queue: &str, number: u64) -> Result<(), Error> {
    let text = body(number);
    client.put(queue, &text, PutOptions::default()).await?;
    Ok(())
}

/// As many messages arrive as leave.
pub(super) async fn steady(account: QueueAccount, pace: Pace) {
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let (account, pace) = (account.clone(), pace.clone());
        let one = async move { pace.keep_up(|| one_of_the_steady(&account, &pace)).await };
        tasks.spawn(one);
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("a client ends well");
    }
}

async fn one_of_the_steady(account: &QueueAccount, pace: &Pace) -> Result<(), Error> {
    let client = queue_client(account.clone());
    let count = Pace::count() / CLIENTS;
    let mut clock = Pace::clock(TICK);
    let mut number = 0;
    while pace.goes_on() {
        clock.tick().await;
        for _ in 0..count {
            number += 1;
            put(&client, STEADY, number).await?;
        }
        pace.of_storage.fetch_add(count, Relaxed);
        replace(&client, count).await?;
    }
    Ok(())
}

/// Deletes so many messages. Beside them, one in fifty is changed and stays hidden for a while.
async fn replace(client: &QueueClient, count: u64) -> Result<(), Error> {
    let mut left = count;
    let mut looked_at = 0;
    while left > 0 {
        let wanted = u32::try_from(left.min(32)).unwrap_or(32);
        for message in client.get(STEADY, wanted, Some(30)).await? {
            let receipt = message.receipt.as_ref().expect("it was received");
            looked_at += 1;
            if looked_at % 50 == 1 {
                let text = Some("changed");
                let (id, receipt) = (&message.id, &receipt.value);
                client.update(STEADY, id, receipt, 2, text).await?;
            } else {
                client
                    .delete_message(STEADY, &message.id, &receipt.value)
                    .await?;
                left -= 1;
            }
        }
    }
    Ok(())
}

/// Once in each period, a client connects, and creates, fills, clears and deletes a queue.
pub(super) async fn come_and_go(account: QueueAccount, pace: Pace) {
    pace.keep_up(|| rounds(&account, &pace)).await;
}

async fn rounds(account: &QueueAccount, pace: &Pace) -> Result<(), Error> {
    let mut clock = Pace::clock(pace.period);
    let mut number = 0_u64;
    let name = format!("brief-{}", pace.errors.load(Relaxed));
    while pace.goes_on() {
        clock.tick().await;
        number += 1;
        let client = queue_client(account.clone());
        brief(&client, &format!("{name}-{number}")).await?;
    }
    Ok(())
}

async fn brief(client: &QueueClient, queue: &str) -> Result<(), Error> {
    let metadata = [("purpose".to_owned(), queue.to_owned())];
    client.create_queue(queue, &metadata).await?;
    for number in 0..BRIEF_COUNT {
        put(client, queue, number).await?;
    }
    client.get(queue, 32, Some(60)).await?;
    client.clear(queue).await?;
    for number in 0..BRIEF_COUNT / 10 {
        put(client, queue, number).await?;
    }
    client.delete_queue(queue).await
}
