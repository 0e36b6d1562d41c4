//! Messages that cannot be read or given back, and messages that come with them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kew_amqp::message::write_data;
use kew_client::{BusOptions, ErrorKind, ReceiverOptions, SessionChoice};

use crate::peer::Peer;

const SOON: Duration = Duration::from_secs(1);

fn message(body: &str) -> Bytes {
    let mut out = BytesMut::new();
    write_data(&mut out, body.as_bytes());
    out.freeze()
}

fn unreadable() -> Bytes {
    Bytes::from_static(b"nothing")
}

/// A service with a message that cannot be read between two others.
fn service() -> std::sync::Arc<Peer> {
    let peer = Peer::start();
    peer.with(|it| {
        it.deliveries
            .extend([message("1"), unreadable(), message("2")]);
    });
    peer
}

/// Takes three batches: both messages come, and between them the error.
macro_rules! assert_that_the_others_come {
    ($receiver:expr) => {
        let first = $receiver.receive_batch(3, SOON).await.unwrap();
        assert_eq!((first.len(), first[0].body()), (1, "1".into()));
        let error = $receiver.receive_batch(3, SOON).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.text().contains("cannot be read"), "{error}");
        let last = $receiver.receive_batch(3, SOON).await.unwrap();
        assert_eq!((last.len(), last[0].body()), (1, "2".into()));
    };
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_with_a_message_that_cannot_be_read_is_not_lost() {
    let peer = service();
    let client = peer.client(BusOptions::default());
    let options = ReceiverOptions { prefetch: 3 };
    let mut receiver = client.deleting_receiver("jobs", options).await.unwrap();
    assert_that_the_others_come!(receiver);
    let peer = service();
    let client = peer.client(BusOptions::default());
    let mut receiver = client.deleting_receiver("jobs", options).await.unwrap();
    assert_eq!(receiver.receive().await.unwrap().body(), "1");
    let last = receiver.close().await.unwrap();
    let last: Vec<_> = last.iter().map(|message| message.body()).collect();
    assert_eq!(last, ["2"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_locked_with_a_message_that_cannot_be_read_comes_in_order() {
    let peer = service();
    let client = peer.client(BusOptions::default());
    let options = ReceiverOptions { prefetch: 3 };
    let choice = SessionChoice::named("a");
    let session = client.session("steps", choice, options).await;
    let mut session = session.unwrap();
    assert_that_the_others_come!(session);
    assert_eq!(peer.with(|it| it.outcomes.len()), 1, "it was given back");
    let peer = service();
    let client = peer.client(BusOptions::default());
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    assert_that_the_others_come!(receiver);
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_given_back_does_not_keep_the_others() {
    let peer = Peer::start();
    peer.with(|it| {
        it.deliveries.extend(["1", "2", "3", "4"].map(message));
        it.refusals.push_back("com.microsoft:message-lock-lost");
    });
    let client = peer.client(BusOptions::default());
    let options = ReceiverOptions { prefetch: 4 };
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    assert_eq!(receiver.receive().await.unwrap().body(), "1");
    let error = receiver.close().await.unwrap_err();
    assert!(error.is_lock_lost(), "{error}");
    assert_eq!(peer.with(|it| it.outcomes.len()), 3);
}
