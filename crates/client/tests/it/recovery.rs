//! Links, connections and servers that go away in the middle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kew_client::{BusOptions, ErrorKind, Message, ReceiverOptions, Retry};

use crate::peer::{Peer, Verdict};
use crate::server::Server;

fn numbered(number: usize) -> Message {
    Message {
        id: Some(format!("{number}")),
        ..Message::new(format!("{number}"))
    }
}

#[tokio::test]
async fn cuts_in_the_middle_of_sends_lose_nothing_and_double_nothing() {
    const SENDERS: usize = 4;
    const EACH: usize = 60;
    let server = Server::start().await;
    let client = server.client();
    let sender = Arc::new(client.sender("jobs").await.unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for first in 0..SENDERS {
        let sender = sender.clone();
        tasks.spawn(async move {
            let mut outcomes = Vec::new();
            for number in (first..SENDERS * EACH).step_by(SENDERS) {
                outcomes.push((number, sender.send(&numbered(number)).await));
            }
            outcomes
        });
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let cutter = tokio::spawn({
        let (server, is_over) = (server.clone(), is_over.clone());
        async move {
            let mut cut_at = 20;
            while !is_over.load(Ordering::Relaxed) {
                if server.view("jobs").await.counts.active >= cut_at {
                    server.cut();
                    cut_at += 20;
                }
                tokio::task::yield_now().await;
            }
        }
    });
    let outcomes: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    is_over.store(true, Ordering::Relaxed);
    cutter.await.unwrap();
    let mut stored: BTreeMap<usize, usize> = BTreeMap::new();
    let mut from = 0;
    loop {
        let peeked = client.peek("jobs", from, 100).await.unwrap();
        let Some(last) = peeked.last() else {
            break;
        };
        from = last.sequence_number().unwrap() + 1;
        for message in &peeked {
            let number = message.id().unwrap().parse().unwrap();
            *stored.entry(number).or_default() += 1;
        }
    }
    let mut unknown = 0;
    for (number, outcome) in outcomes {
        let count = stored.get(&number).copied().unwrap_or(0);
        match outcome {
            Ok(()) => assert_eq!(count, 1, "{number} was accepted"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
                assert!(count <= 1, "{number} was sent again by itself");
                unknown += 1;
            }
        }
    }
    assert!(
        unknown < SENDERS * EACH / 2,
        "most sends go through: {unknown}"
    );
    assert!(sender.settled().await.is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_cut_after_a_message_was_written_leaves_its_outcome_open() {
    let peer = Peer::start();
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    peer.with(|it| it.verdicts.push_back(Verdict::Cut));
    let error = sender.send(&Message::new("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    sender.send(&Message::new("y")).await.unwrap();
    let (messages, connections) = peer.with(|it| (it.messages.len(), it.connections));
    assert_eq!((messages, connections), (2, 2));
}

#[tokio::test]
async fn a_restart_of_the_server_is_waited_for() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    sender.send(&numbered(0)).await.unwrap();
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    let locked = receiver.receive().await.unwrap();
    server.stop();
    let hasty = server.client_with(BusOptions {
        retry: Retry {
            retries: 0,
            ..Retry::default()
        },
        ..server.options()
    });
    let error = hasty.sender("jobs").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TryAgainLater, "{error}");
    assert!(
        error.text().contains("cannot connect to localhost:5672"),
        "{error}"
    );
    let message = numbered(1);
    let sent = sender.send(&message);
    tokio::pin!(sent);
    tokio::select! {
        _ = &mut sent => panic!("nobody is there"),
        () = tokio::task::yield_now() => {}
    }
    server.run().await;
    sent.await.unwrap();
    assert_eq!(receiver.receive().await.unwrap().body(), "1");
    // The lock is in the log, and the token decodes.
    locked.complete().await.unwrap();
}

#[tokio::test]
async fn a_receiver_that_waits_survives_a_cut() {
    let server = Server::start().await;
    let client = server.client();
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    let waiting = tokio::spawn(async move {
        let message = receiver.receive().await.unwrap();
        message.complete().await.unwrap();
        message.body()
    });
    for _ in 0..3 {
        server.waiting(1).await;
        server.cut();
        server.connected().await;
    }
    let sender = client.sender("jobs").await.unwrap();
    sender.send(&Message::new("at last")).await.unwrap();
    assert_eq!(waiting.await.unwrap(), "at last");
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_detached_is_attached_again_when_it_is_used() {
    let peer = Peer::start();
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    for condition in ["amqp:link:detach-forced", "amqp:internal-error"] {
        peer.detach("jobs", condition).await;
        sender.send(&Message::new("x")).await.unwrap();
    }
    peer.until(|it| it.messages.len() == 2).await;
    assert_eq!(peer.with(|it| it.connections), 1);
}

#[tokio::test]
async fn a_lock_of_a_former_connection_is_not_taken_for_one_of_the_next() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    for number in 0..2 {
        sender.send(&numbered(number)).await.unwrap();
    }
    // Each is the first delivery of its connection.
    let first = receiver.receive().await.unwrap();
    server.cut();
    let second = receiver.receive().await.unwrap();
    assert_eq!((first.body(), second.body()), ("0".into(), "1".into()));
    first.complete().await.unwrap();
    let left = client.peek("jobs", 0, 10).await.unwrap();
    let left: Vec<_> = left.iter().map(|message| message.body()).collect();
    assert_eq!(left, ["1"]);
    second.complete().await.unwrap();
    assert_eq!(server.view("jobs").await.counts.active, 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_falls_silent_is_left() {
    let peer = Peer::start();
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver("spare", options).await.unwrap();
    peer.with(|it| it.verdicts.push_back(Verdict::Freeze));
    let began = tokio::time::Instant::now();
    let waiting = tokio::spawn(async move { receiver.receive().await });
    let error = sender.send(&Message::new("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    let again = peer.until(|it| it.connections == 2);
    let again = tokio::time::timeout(Duration::from_secs(120), again).await;
    again.expect("another connection is made");
    let waited = began.elapsed().as_secs();
    assert!((59..120).contains(&waited), "{waited}");
    assert!(!waiting.is_finished(), "it goes on");
    waiting.abort();
}

#[tokio::test]
async fn the_connection_ends_with_the_last_handle() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    sender.send(&Message::new("x")).await.unwrap();
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    drop((client, sender));
    let message = receiver.receive().await.unwrap();
    drop(receiver);
    // It still has its lock, and needs the connection.
    message.complete().await.unwrap();
    assert_eq!(server.connections(), 1);
    drop(message);
    server.ended().await;
}
