//! Transactions: all of one takes effect at its commit, or nothing.

use std::sync::Arc;
use std::time::Duration;

use kew_amqp::performative::Control;
use kew_client::{
    BusClient, BusOptions, Error, ErrorKind, Locked, Message, Receiver, ReceiverOptions,
};

use crate::peer::{COORDINATOR, Peer, Verdict};
use crate::server::{QUICK, Server};

const ROLLBACK: &str = "amqp:transaction:rollback";

/// The messages of a queue, and its dead letters.
async fn held(server: &Server, queue: &str) -> (u64, u64) {
    let counts = server.view(queue).await.counts;
    (counts.active, counts.dead_letters)
}

async fn received(client: &BusClient, count: u32) -> (Receiver, Vec<Locked>) {
    let sender = client.sender("jobs").await.unwrap();
    for _ in 0..count {
        sender.send(&Message::new("job")).await.unwrap();
    }
    let receiver = client.receiver("jobs", ReceiverOptions::default());
    let mut receiver = receiver.await.unwrap();
    let within = Duration::from_mins(1);
    let all = receiver.receive_batch(count, within).await.unwrap();
    assert_eq!(all.len(), count as usize);
    (receiver, all)
}

fn is_rolled_back(error: &Error) -> bool {
    (error.kind(), error.code()) == (ErrorKind::Refused, Some(ROLLBACK))
}

#[tokio::test]
async fn a_commit_takes_effect_at_once() {
    let server = Server::start().await;
    let client = server.client();
    let (_receiver, messages) = received(&client, 4).await;
    let spare = client.sender("spare").await.unwrap();
    let transaction = client.begin().await.unwrap();
    transaction
        .send(&spare, &Message::new("done"))
        .await
        .unwrap();
    let mut batch = spare.new_batch();
    for _ in 0..2 {
        assert!(batch.try_add(&Message::new("done")).unwrap());
    }
    transaction.send_batch(&spare, &batch).await.unwrap();
    transaction.complete(&messages[0]).await.unwrap();
    transaction
        .dead_letter(&messages[1], "odd", "", Vec::new())
        .await
        .unwrap();
    transaction.defer(&messages[2], Vec::new()).await.unwrap();
    transaction.abandon(&messages[3], Vec::new()).await.unwrap();
    assert_eq!(held(&server, "spare").await, (0, 0));
    assert_eq!(held(&server, "jobs").await, (4, 0));
    transaction.commit().await.unwrap();
    assert_eq!(held(&server, "spare").await, (3, 0));
    assert_eq!(held(&server, "jobs").await, (2, 1));
}

#[tokio::test]
async fn what_is_dropped_or_rolled_back_has_no_effect() {
    let server = Server::start().await;
    let client = server.client();
    let (_receiver, messages) = received(&client, 2).await;
    let spare = client.sender("spare").await.unwrap();
    for (message, is_dropped) in messages.iter().zip([true, false]) {
        let transaction = client.begin().await.unwrap();
        transaction.complete(message).await.unwrap();
        transaction.send(&spare, &Message::new("x")).await.unwrap();
        // Nobody else settles it meanwhile.
        let taken = message.complete().await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::Refused, "{taken}");
        match is_dropped {
            true => drop(transaction),
            false => transaction.roll_back().await.unwrap(),
        }
        message.complete().await.unwrap();
    }
    assert_eq!(held(&server, "spare").await, (0, 0));
    assert_eq!(held(&server, "jobs").await, (0, 0));
}

#[tokio::test]
async fn a_transaction_ends_with_its_connection() {
    let server = Server::start().await;
    let client = server.client();
    let (_receiver, messages) = received(&client, 1).await;
    let spare = client.sender("spare").await.unwrap();
    let old = client.begin().await.unwrap();
    old.send(&spare, &Message::new("x")).await.unwrap();
    server.cut();
    // Ids begin anew with each connection: that of the old one may be that of the new one.
    let new = client.begin().await.unwrap();
    let refused = old.send(&spare, &Message::new("x")).await.unwrap_err();
    assert!(is_rolled_back(&refused), "{refused}");
    let refused = old.commit().await.unwrap_err();
    assert!(is_rolled_back(&refused), "{refused}");
    let gone = new.complete(&messages[0]).await.unwrap_err();
    assert!(gone.text().contains("link is still there"), "{gone}");
    // It was not carried out, and the transaction is not committed without it.
    let refused = new.commit().await.unwrap_err();
    assert!(is_rolled_back(&refused), "{refused}");
    let last = client.begin().await.unwrap();
    last.send(&spare, &Message::new("x")).await.unwrap();
    last.commit().await.unwrap();
    assert_eq!(held(&server, "spare").await, (1, 0));
}

#[tokio::test]
async fn what_the_service_refuses_is_not_committed() {
    let server = Server::start().await;
    let client = server.client();
    let steps = client.sender("steps").await.unwrap();
    let spare = client.sender("spare").await.unwrap();
    let transaction = client.begin().await.unwrap();
    transaction.send(&spare, &Message::new("x")).await.unwrap();
    // A message without its session, which is found at the commit.
    transaction.send(&steps, &Message::new("x")).await.unwrap();
    let refused = transaction.commit().await.unwrap_err();
    assert!(is_rolled_back(&refused), "{refused}");
    assert_eq!(held(&server, "spare").await, (0, 0));
}

#[tokio::test]
async fn a_transaction_is_of_one_client() {
    let server = Server::start().await;
    let (client, other) = (server.client(), server.client());
    let spare = client.sender("spare").await.unwrap();
    let foreign = other.sender("spare").await.unwrap();
    let transaction = client.begin().await.unwrap();
    let refused = transaction.send(&foreign, &Message::new("x")).await;
    let refused = refused.unwrap_err();
    assert!(refused.text().contains("same client"), "{refused}");
    // It was never begun, and does no harm.
    transaction.send(&spare, &Message::new("x")).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(held(&server, "spare").await, (1, 0));
}

fn options() -> BusOptions {
    BusOptions {
        retry: QUICK,
        ..BusOptions::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_an_answer_has_an_unknown_outcome() {
    for (verdict, is_commit, kind) in [
        (Verdict::Cut, true, ErrorKind::OutcomeUnknown),
        (Verdict::Freeze, true, ErrorKind::OutcomeUnknown),
        (Verdict::Wait, true, ErrorKind::OutcomeUnknown),
        (Verdict::Reject(ROLLBACK), true, ErrorKind::Refused),
        // Without an answer it is rolled back as well.
        (Verdict::Cut, false, ErrorKind::TryAgainLater),
    ] {
        let peer = Peer::start();
        let client = peer.client(options());
        let sender = client.sender("jobs").await.unwrap();
        let transaction = client.begin().await.unwrap();
        let sent = transaction.send(&sender, &Message::new("x")).await;
        sent.unwrap();
        peer.with(|script| script.discharges.push_back(verdict.clone()));
        let told = match is_commit {
            true => transaction.commit().await,
            false => transaction.roll_back().await,
        };
        let told = told.unwrap_err();
        assert_eq!(told.kind(), kind, "{verdict:?}: {told}");
        // It is told once.
        let discharges = |it: &&Control| matches!(it, Control::Discharge(_));
        let told = peer.with(|script| script.controls.iter().filter(discharges).count());
        assert_eq!(told, 1, "{verdict:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_open_or_failed_prevents_the_commit() {
    for verdict in [Verdict::Wait, Verdict::Reject("amqp:not-allowed")] {
        let peer = Peer::start();
        let client = peer.client(options());
        let sender = client.sender("jobs").await.unwrap();
        let transaction = client.begin().await.unwrap();
        peer.with(|script| script.verdicts.push_back(verdict.clone()));
        let message = Message::new("x");
        let send = transaction.send(&sender, &message);
        let sent = tokio::time::timeout(Duration::from_secs(1), send).await;
        assert!(!matches!(sent, Ok(Ok(()))), "{verdict:?}");
        let refused = transaction.commit().await.unwrap_err();
        assert!(is_rolled_back(&refused), "{verdict:?}: {refused}");
        // Its link ends, and the transaction with it.
        peer.until(|script| script.detached.iter().any(|it| it == COORDINATOR))
            .await;
        let controls = peer.with(|script| script.controls.len());
        assert_eq!(controls, 1, "nothing was discharged");
    }
}

#[tokio::test]
async fn a_service_that_ignores_the_transaction_is_found_out() {
    let peer: Arc<Peer> = Peer::start();
    peer.with(|script| script.ignores_transactions = true);
    let client = peer.client(options());
    let sender = client.sender("jobs").await.unwrap();
    let transaction = client.begin().await.unwrap();
    let told = transaction.send(&sender, &Message::new("x")).await;
    let told = told.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::OutcomeUnknown, "{told}");
    assert!(is_rolled_back(&transaction.commit().await.unwrap_err()));
}
