//! Futures that are dropped.

use std::time::Duration;

use kew_client::{BusOptions, Message, ReceiverOptions, Unseen};

use crate::peer::{Peer, Verdict};
use crate::server::Server;

#[tokio::test(start_paused = true)]
async fn a_send_that_was_not_written_is_withdrawn() {
    let peer = Peer::start();
    peer.with(|it| it.credit = 1);
    let client = peer.client(BusOptions {
        sends_max: 2,
        ..BusOptions::default()
    });
    let sender = client.sender("jobs").await.unwrap();
    peer.with(|it| it.verdicts.push_back(Verdict::Wait));
    let message = Message::new("x");
    let first = sender.send(&message);
    tokio::pin!(first);
    tokio::select! {
        _ = &mut first => panic!("nothing was accepted"),
        () = peer.until(|it| it.messages.len() == 1) => {}
    }
    // There is no credit for another one. Places of those that are dropped are free for the next.
    for _ in 0..5 {
        tokio::select! {
            _ = &mut first => panic!("nothing was accepted"),
            _ = sender.send(&message) => panic!("there is no credit"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
    peer.release();
    first.await.unwrap();
    assert_eq!(sender.settled().await, Unseen::default());
    assert_eq!(peer.with(|it| it.messages.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn outcomes_of_sends_come_in_any_order() {
    let peer = Peer::start();
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    peer.with(|it| it.verdicts.extend([(); 4].map(|()| Verdict::Wait)));
    let messages = [(); 4].map(|()| Message::new("x"));
    let mut sends = messages
        .each_ref()
        .map(|message| Some(Box::pin(sender.send(message))));
    // All are under way before there is an answer to the first one.
    for (place, send) in sends.iter_mut().flatten().enumerate() {
        tokio::select! {
            _ = send => panic!("nothing was accepted"),
            () = peer.until(|it| it.messages.len() == place + 1) => {}
        }
    }
    for place in [2, 3, 0, 1] {
        let waits = sends[..place].iter().flatten().count();
        let condition = "amqp:not-allowed";
        peer.decide(waits, (place % 2 == 1).then_some(condition));
        // Its own outcome, while the others wait.
        let outcome = sends[place].take().unwrap().await;
        assert_eq!(outcome.is_err(), place % 2 == 1, "{place}: {outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_send_that_was_written_is_kept() {
    let peer = Peer::start();
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    peer.with(|it| {
        it.verdicts.extend([
            Verdict::Wait,
            Verdict::Wait,
            Verdict::Reject("amqp:not-allowed"),
        ]);
    });
    let message = Message::new("x");
    for number in 1..=2 {
        tokio::select! {
            _ = sender.send(&message) => panic!("nothing was accepted"),
            () = peer.until(|it| it.messages.len() == number) => {}
        }
    }
    peer.release();
    let unseen = sender.settled().await;
    assert_eq!((unseen.accepted, unseen.is_clean()), (2, true));
    tokio::select! {
        biased;
        _ = sender.send(&message) => {}
        () = peer.until(|it| it.messages.len() == 3) => {}
    }
    let unseen = sender.settled().await;
    assert!(unseen.failed <= 1 && unseen.unknown == 0, "{unseen:?}");
    // The connection breaks with a send under way.
    peer.with(|it| it.verdicts.push_back(Verdict::Wait));
    tokio::select! {
        _ = sender.send(&message) => panic!("nothing was accepted"),
        () = peer.until(|it| it.messages.len() == 4) => {}
    }
    peer.with(|it| it.verdicts.push_back(Verdict::Cut));
    sender.send(&message).await.unwrap_err();
    let unseen = sender.settled().await;
    assert_eq!((unseen.unknown, unseen.first_error.is_some()), (1, true));
}

#[tokio::test]
async fn receives_that_are_dropped_lose_nothing() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    let mut receiver = client
        .receiver("jobs", ReceiverOptions::default())
        .await
        .unwrap();
    // Nobody waits when the message comes.
    tokio::select! {
        _ = receiver.receive() => panic!("there is no message"),
        () = server.waiting(1) => {}
    }
    sender.send(&Message::new("0")).await.unwrap();
    for number in 0..50 {
        let next = Message::new(format!("{}", number + 1));
        // Dropped at some point or another.
        for polls in 0..3 {
            tokio::select! {
                biased;
                received = receiver.receive() => {
                    received.unwrap().abandon(Vec::new()).await.unwrap();
                }
                () = async { for _ in 0..polls { tokio::task::yield_now().await; } } => {}
            }
        }
        let received = receiver.receive().await.unwrap();
        assert_eq!(received.body(), format!("{number}"));
        received.complete().await.unwrap();
        sender.send(&next).await.unwrap();
    }
    assert_eq!(server.view("jobs").await.counts.active, 1);
    assert_eq!(server.view("jobs").await.counts.dead_letters, 0);
}

#[tokio::test]
async fn a_settlement_that_is_dropped_can_be_done_again() {
    let server = Server::start().await;
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    let mut receiver = client
        .receiver("jobs", ReceiverOptions::default())
        .await
        .unwrap();
    let mut were_carried_out = 0;
    for polls in 0..40 {
        sender
            .send(&Message::new(format!("{polls}")))
            .await
            .unwrap();
        let received = receiver.receive().await.unwrap();
        assert_eq!(received.body(), format!("{polls}"));
        tokio::select! {
            biased;
            () = async { for _ in 0..polls / 4 { tokio::task::yield_now().await; } } => {}
            completed = received.complete() => completed.unwrap(),
        }
        match received.complete().await {
            Ok(()) => {}
            Err(lost) => {
                assert!(lost.is_lock_lost(), "{lost}");
                were_carried_out += 1;
            }
        }
        assert_eq!(server.view("jobs").await.counts.active, 0);
    }
    assert!((1..40).contains(&were_carried_out), "{were_carried_out}");
}

#[tokio::test]
async fn an_attach_that_is_dropped_gives_its_link_up() {
    let server = Server::start().await;
    let client = server.client_with(BusOptions {
        links_max: 3,
        ..server.options()
    });
    let sender = client.sender("jobs").await.unwrap();
    for _ in 0..20 {
        tokio::select! {
            biased;
            _ = client.receiver("spare", ReceiverOptions::default()) => {}
            () = tokio::task::yield_now() => {}
        }
        sender.send(&Message::new("x")).await.unwrap();
    }
    // The links are free again.
    client.sender("spare").await.unwrap();
}
