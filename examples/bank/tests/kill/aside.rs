//! What a worker moves aside says why, down to the stack, and `bank return` puts it back.

use std::time::Duration;

use kew_bank::queue::{Queue, Service};
use kew_client::{PutOptions, QueueClient};
use tokio::time::{sleep, timeout};

use crate::readme::{Place, block, line};

const PATIENCE: Duration = Duration::from_secs(60);

const ID: &str = "6f9619ff-8b86-d011-b42d-00c04fc964ff";

/// Waits until a message has moved aside, and returns it.
async fn moved_aside(client: &QueueClient, poison: &str) -> String {
    let found = async {
        loop {
            // There is no such queue before the first one.
            let buried = client.peek(poison, 1).await.unwrap_or_default();
            match buried.into_iter().next() {
                Some(message) => return message.text,
                None => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(PATIENCE, found).await.expect("one moves aside")
}

#[tokio::test]
async fn a_message_that_moved_aside_has_a_stack_trace_and_can_be_returned() {
    // Its environment does not turn backtraces on.
    let mut place = Place::new();
    place.start(block("target/debug/bank-web &"));
    place.workers(2).await;
    let queue = Queue::connect(&place.queue_service, "bank-transactions", PATIENCE).unwrap();
    let Service::Storage(client) = queue.service() else {
        panic!("it is Queue Storage");
    };
    // From another program, which uses an id twice.
    for amount in ["5.00", "7.00"] {
        let text = format!("ann|giro|{ID}|{amount}");
        let put = client.put(queue.name(), &text, PutOptions::default());
        put.await.unwrap();
    }
    let buried = moved_aside(client, &queue.poison()).await;
    assert!(buried.contains("TransactionIdReused"), "{buried}");
    // The type of the error, and the way to the place that made it.
    assert!(buried.contains("kew_bank::request::IdReused"), "{buried}");
    let in_worker = "kew_bank::worker::Bookkeeper";
    assert!(buried.contains(in_worker), "{buried}");

    let give_back = line("bank return").replace('…', &place.queue_service);
    let returned = place.run(&give_back).await;
    // More than one, if a lease ended in between and it moved aside again.
    assert!(!returned.starts_with("returned=0"), "{returned}");
    assert!(returned.contains(" unreadable=0"), "{returned}");
    // It is still wrong.
    moved_aside(client, &queue.poison()).await;
}
