//! The part of the load that uses Service Bus.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kew_client::{
    AdminOptions, BusAdmin, BusClient, Changes, Error, Locked, Message, QueueSettings,
    ReceiverOptions, Sender, SessionChoice,
};

use super::{Pace, TICK, body};
use crate::bus_load::Door;

/// It drops duplicates, so that the ids of the newest messages are kept.
const STEADY: &str = "soak";
const DEAD_LETTERS: &str = "soak/$deadletterqueue";
const SESSIONS: &str = "soak-sessions";

/// The shortest window that a queue can have.
const WINDOW: Duration = Duration::from_secs(20);

const PATIENCE: Duration = Duration::from_secs(30);

/// How many messages a queue has that comes and goes.
const BRIEF_COUNT: u64 = 100;

fn admin(door: &Door) -> BusAdmin {
    BusAdmin::new(door.namespace().clone(), AdminOptions::default()).expect("no TLS is needed")
}

/// The queues, and the backlog of one.
pub(super) async fn prepare(door: &Door, backlog: u64) {
    let admin = admin(door);
    let steady = QueueSettings {
        requires_duplicate_detection: Some(true),
        duplicate_window: Some(WINDOW),
        ..QueueSettings::default()
    };
    let with_sessions = QueueSettings {
        requires_session: Some(true),
        ..QueueSettings::default()
    };
    for (queue, settings) in [(STEADY, &steady), (SESSIONS, &with_sessions)] {
        admin.create_queue(queue, settings).await.expect("created");
    }
    let client = door.client();
    let sender = client.sender(STEADY).await.expect("a sender");
    for first in (0..backlog).step_by(100) {
        let numbers = first..first + 100;
        send(&sender, "first", numbers).await.expect("sent");
    }
}

/// Sends messages together, with ids of their own.
async fn send(sender: &Sender, name: &str, numbers: std::ops::Range<u64>) -> Result<(), Error> {
    let mut batch = sender.new_batch();
    for number in numbers {
        let message = message(name, number);
        if !batch.try_add(&message)? {
            sender.send_batch(&batch).await?;
            batch = sender.new_batch();
            assert!(batch.try_add(&message)?, "a message fits into a batch");
        }
    }
    sender.send_batch(&batch).await
}

fn message(name: &str, number: u64) -> Message {
    Message {
        id: Some(format!("{name}-{number}")),
        subject: Some("soak".to_owned()),
        ..Message::new(body(number))
    }
}

/// All parts of the load.
pub(super) async fn run(door: Door, pace: Pace) {
    tokio::join!(
        pace.keep_up(|| steady(&door, &pace)),
        pace.keep_up(|| sessions(&door, &pace)),
        pace.keep_up(|| come_and_go(&door, &pace)),
    );
}

/// As many messages arrive as leave: one of each tick late, and at least one by the dead-letter queue.
async fn steady(door: &Door, pace: &Pace) -> Result<(), Error> {
    let client = door.client();
    let sender = client.sender(STEADY).await?;
    let options = ReceiverOptions { prefetch: 0 };
    let mut receiver = client.receiver(STEADY, options).await?;
    let mut dead = client.receiver(DEAD_LETTERS, options).await?;
    let mut clock = Pace::clock(TICK);
    // Ids of an earlier try would be dropped.
    let name = format!("steady-{}", pace.errors.load(Relaxed));
    let mut first = 0;
    while pace.goes_on() {
        clock.tick().await;
        let count = Pace::count();
        send(&sender, &name, first + 1..first + count).await?;
        let late = Message {
            scheduled_at: Some(SystemTime::now() + Duration::from_secs(2)),
            ..message(&name, first)
        };
        sender.schedule(&[late]).await?;
        first += count;
        pace.of_bus.fetch_add(count, Relaxed);
        let mut left = u32::try_from(count).unwrap_or(u32::MAX);
        while left > 0 {
            let messages = receiver.receive_batch(left, Duration::ZERO).await?;
            left -= u32::try_from(messages.len()).unwrap_or(u32::MAX);
            settle(&messages).await?;
        }
        let next = tokio::time::timeout(PATIENCE, dead.receive_batch(50, Duration::ZERO)).await;
        complete(&next.expect("there are dead letters")?).await?;
    }
    receiver.close().await?;
    dead.close().await
}

/// Completes messages, but dead-letters the first one.
async fn settle(messages: &[Locked]) -> Result<(), Error> {
    let [first, others @ ..] = messages else {
        return Ok(());
    };
    let changes = Changes::default();
    first
        .dead_letter("soak", "one in each batch", changes)
        .await?;
    complete(others).await
}

async fn complete(messages: &[Locked]) -> Result<(), Error> {
    let messages: Vec<&Locked> = messages.iter().collect();
    Locked::complete_all(&messages).await.into_iter().collect()
}

/// New sessions all the time, each with a state that is cleared at the end.
async fn sessions(door: &Door, pace: &Pace) -> Result<(), Error> {
    let client = door.client();
    let sender = client.sender(SESSIONS).await?;
    let mut clock = Pace::clock(TICK);
    let mut number = 0;
    while pace.goes_on() {
        clock.tick().await;
        number += 1;
        session(&client, &sender, number).await?;
        pace.of_bus.fetch_add(1, Relaxed);
    }
    Ok(())
}

async fn session(client: &BusClient, sender: &Sender, number: u64) -> Result<(), Error> {
    let message = Message {
        session_id: Some(format!("session-{number}")),
        ..message("session", number)
    };
    sender.send(&message).await?;
    let choice = SessionChoice::next(PATIENCE);
    let options = ReceiverOptions { prefetch: 0 };
    let mut session = client.session(SESSIONS, choice, options).await?;
    session
        .set_state(Some(Bytes::from_static(b"state")))
        .await?;
    session.receive().await?.complete().await?;
    session.set_state(None).await?;
    session.close().await
}

/// Once in each period, a client connects, and creates, fills, purges and deletes a queue.
async fn come_and_go(door: &Door, pace: &Pace) -> Result<(), Error> {
    let mut clock = Pace::clock(pace.period);
    let mut number = 0_u64;
    let name = format!("brief-{}", pace.errors.load(Relaxed));
    while pace.goes_on() {
        clock.tick().await;
        number += 1;
        brief(door, &format!("{name}-{number}")).await?;
    }
    Ok(())
}

async fn brief(door: &Door, queue: &str) -> Result<(), Error> {
    let (admin, client) = (admin(door), door.client());
    admin.create_queue(queue, &QueueSettings::default()).await?;
    let sender = client.sender(queue).await?;
    send(&sender, queue, 0..BRIEF_COUNT).await?;
    let options = ReceiverOptions { prefetch: 0 };
    let mut receiver = client.receiver(queue, options).await?;
    let messages = receiver.receive_batch(10, Duration::ZERO).await?;
    for message in messages {
        message.defer(Changes::default()).await?;
    }
    receiver.close().await?;
    let purge = format!("$kew/v1/purge/{queue}");
    let purge = admin.ask("POST", &purge, Some(Bytes::from_static(b"{}")));
    assert_eq!(purge.await?.status, 202, "a purge begins");
    while admin.queue(queue).await?.state.message_count != Some(0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    send(&sender, queue, 0..BRIEF_COUNT / 10).await?;
    admin.delete_queue(queue).await
}
