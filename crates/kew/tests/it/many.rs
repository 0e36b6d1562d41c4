//! Many messages, and many consumers of one queue.

use std::collections::BTreeSet;
use std::sync::Arc;

use queue_load::{Client, Endpoint, PutOptions};
use tokio::task::JoinSet;

use crate::server::Server;

/// How many messages to use. Fewer without optimization, which would take minutes.
const MESSAGES: usize = if cfg!(debug_assertions) {
    10_000
} else {
    100_000
};

const PRODUCERS: usize = 16;

/// Far longer than the test: a message that appears twice was delivered twice.
const LEASE_SECONDS: u32 = 3600;

/// Item 96 of the checklist: two consumers share a queue, and each message goes to one of them.
#[test]
fn two_consumers_share_a_queue_without_loss_or_repetition() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(place.path());
    let endpoint = server.endpoint();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut client = Client::new(Arc::clone(&endpoint));
        client.create_queue("shared", &[]).await.expect("created");
        let mut producers = JoinSet::new();
        for producer in 0..PRODUCERS {
            producers.spawn(produce(Arc::clone(&endpoint), producer));
        }
        producers.join_all().await;
        let properties = client.queue_properties("shared").await.expect("it exists");
        assert_eq!(
            properties.approximate_message_count,
            u64::try_from(MESSAGES).expect("a small number")
        );
        let (one, other) = tokio::join!(
            consume(Arc::clone(&endpoint)),
            consume(Arc::clone(&endpoint))
        );
        let mut seen = BTreeSet::new();
        for text in one.iter().chain(&other) {
            assert!(seen.insert(text.clone()), "{text} was received twice");
        }
        assert_eq!(seen.len(), MESSAGES);
        assert!(!one.is_empty() && !other.is_empty());
        let properties = client.queue_properties("shared").await.expect("it exists");
        assert_eq!(properties.approximate_message_count, 0);
    });
}

async fn produce(endpoint: Arc<Endpoint>, producer: usize) {
    let mut client = Client::new(endpoint);
    for number in (producer..MESSAGES).step_by(PRODUCERS) {
        client
            .put("shared", &number.to_string(), PutOptions::default())
            .await
            .expect("put");
    }
}

/// Receives and deletes until the queue is empty, and returns the texts.
async fn consume(endpoint: Arc<Endpoint>) -> Vec<String> {
    let mut client = Client::new(endpoint);
    let mut texts = Vec::new();
    loop {
        let messages = client.get("shared", 32, LEASE_SECONDS).await.expect("got");
        if messages.is_empty() {
            return texts;
        }
        for message in messages {
            let receipt = message.receipt.expect("a get brings one").value;
            client
                .delete("shared", &message.id, &receipt)
                .await
                .expect("the receipt is the latest one");
            texts.push(message.text);
        }
    }
}
