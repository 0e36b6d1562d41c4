//! The full check: the whole content of a server, against the ledger.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kew_client::{PutOptions, QueueClient, QueueMessage};

use super::QUEUES;
use super::ledger::{Change, Held, Ledger};
use super::random::Random;
use super::writer::Fate;
use crate::server::{PATIENCE, Server};

/// How long the check itself hides messages: longer than it takes.
const LEASE: u32 = 600;

/// Checks all queues; no other client may use the server.
pub(super) async fn everything(server: &Server, ledger: &Ledger, random: &mut Random) {
    ledger.count_running_leases();
    let client = server.queue_client();
    let mut all = Vec::new();
    for queue in QUEUES {
        all.extend(one_queue(&client, ledger, queue).await);
    }
    ledger.assert_sound();
    // Most messages become visible again. The rest stays hidden, with receipts that the next check
    // will use after the next crash.
    for held in all {
        if random.percent(75) {
            show(&client, ledger, &held).await;
        }
    }
    ledger.assert_sound();
}

/// Deletes every message; the queues must then be empty, and stay so.
pub(super) async fn empty_at_last(server: &Server, ledger: &Ledger) {
    let client = server.queue_client();
    for queue in QUEUES {
        for held in one_queue(&client, ledger, queue).await {
            let change = ledger.begin_change(&held, Change::Delete);
            client
                .delete_message(queue, &held.id, &held.receipt)
                .await
                .expect("deleted");
            ledger.deleted(&change);
        }
        let properties = client.queue_properties(queue).await.expect("it exists");
        assert_eq!(properties.approximate_message_count, 0, "{queue}");
        let rest: Vec<QueueMessage> = client.get(queue, 32, Some(LEASE)).await.expect("answered");
        assert!(rest.is_empty(), "{queue} still holds {rest:?}");
        client
            .put(queue, "usable", PutOptions::default())
            .await
            .expect("put");
    }
    ledger.assert_sound();
}

/// Receives every message of an existing queue, and checks that none is missing.
async fn one_queue(client: &QueueClient, ledger: &Ledger, queue: &'static str) -> Vec<Held> {
    let (mut found, mut all) = (BTreeSet::new(), Vec::new());
    // First the visible messages, while leases from before the restart still hide the rest.
    drain(client, ledger, queue, &mut found, &mut all).await;
    // Then the messages with a known receipt: unless a request with unknown outcome used it, the
    // receipt must be valid, and makes the message visible.
    for held in ledger.missing(queue, &found) {
        if show(client, ledger, &held).await {
            ledger.receipt_outlived_a_restart();
        }
    }
    // At last the messages that a request with unknown outcome may hide, until its lease ends.
    let begun = Instant::now();
    loop {
        let unsettled = ledger.is_unsettled(queue);
        drain(client, ledger, queue, &mut found, &mut all).await;
        if !unsettled {
            break;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "leases of a few seconds do not end"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ledger.settle(queue, &found);
    let properties = client.queue_properties(queue).await.expect("it exists");
    let (counted, expected) = (properties.approximate_message_count, found.len() as u64);
    if counted != expected {
        ledger.violation(format!(
            "{queue} counts {counted} messages and holds {expected}"
        ));
    }
    all
}

async fn drain(
    client: &QueueClient,
    ledger: &Ledger,
    queue: &'static str,
    found: &mut BTreeSet<u64>,
    all: &mut Vec<Held>,
) {
    loop {
        let visit = ledger.begin_get(queue, LEASE);
        let messages = client.get(queue, 32, Some(LEASE)).await.expect("answered");
        for held in ledger.delivered(&visit, &messages) {
            found.insert(held.number);
            all.push(held);
        }
        if messages.is_empty() {
            return;
        }
    }
}

/// Makes a hidden message visible with its receipt; `false` if the receipt was refused.
async fn show(client: &QueueClient, ledger: &Ledger, held: &Held) -> bool {
    let change = ledger.begin_change(
        held,
        Change::Update {
            lease: 0,
            replace: false,
        },
    );
    match client
        .update(held.queue, &held.id, &held.receipt, 0, None)
        .await
    {
        Ok(receipt) => {
            ledger.updated(&change, &receipt);
            true
        }
        Err(error) => {
            let refused = (error.status(), error.code()) == (Some(404), Some("MessageNotFound"));
            assert!(
                refused,
                "message {} of {}: {error}",
                held.number, held.queue
            );
            ledger.change_failed(&change, Fate::ReceiptRefused, &error);
            false
        }
    }
}
