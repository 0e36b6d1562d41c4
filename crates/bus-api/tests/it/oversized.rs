//! Messages larger than their link allows. They are sent by hand, because the test client's
//! connection would respect the link's limit, and SDKs do not.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode, Map};
use kew_amqp::frame::{FrameType, take_frame, write_frame};
use kew_amqp::message::{BATCH_FORMAT, Message, write_batch};
use kew_amqp::performative::{DeliveryState, Outcome, Performative, Rejected, Role, Tag, Transfer};
use kew_amqp::{LinkId, Millis};
use kew_engine::bus::{BusCommand, BusQueueOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Client, Server, message, queue_named};
use crate::metrics::Page;

/// The limit of a queue, and of links to it.
const SIZE_BYTES_MAX: u64 = 2_048;

/// A client of a queue with a small limit, and its first link, which sends to it.
async fn start() -> (Server, Client, LinkId) {
    let server = Server::start().await;
    let create = BusCommand::CreateQueue {
        queue: queue_named("small"),
        options: BusQueueOptions {
            message_size_bytes_max: SIZE_BYTES_MAX,
            ..BusQueueOptions::default()
        },
    };
    server.order(create).await;
    let mut client = server.trusted().await;
    let sender = client.sender("small").await.unwrap();
    client.can_send(sender).await;
    (server, client, sender)
}

/// The first transfer of a delivery over the client's first link.
pub(crate) fn delivery(id: u32) -> Transfer {
    Transfer {
        handle: 0,
        delivery_id: Some(id),
        delivery_tag: Some(Tag::from([1; 16])),
        message_format: Some(0),
        settled: Some(false),
        more: false,
        rcv_settle_mode: None,
        state: None,
        resume: false,
        aborted: false,
        batchable: false,
    }
}

/// Sends a message in as many transfers as needed.
pub(crate) async fn transfer(client: &mut Client, first: Transfer, payload: &[u8]) {
    client.say().await;
    let mut transfer = first;
    let count = payload.chunks(1_000).count();
    for (at, part) in payload.chunks(1_000).enumerate() {
        transfer.more = at + 1 < count;
        let mut out = BytesMut::new();
        write_frame(&mut out, FrameType::Amqp, 0, |out| {
            transfer.encode(out);
            out.extend_from_slice(part);
        });
        client.stream.write_all(&out).await.unwrap();
        transfer.delivery_id = None;
        transfer.delivery_tag = None;
    }
}

/// Waits for the outcome of a delivery that was sent by hand.
pub(crate) async fn verdict(client: &mut Client, delivery: u32) -> DeliveryState {
    let mut input = BytesMut::new();
    loop {
        while let Some(frame) = take_frame(&mut input, u32::MAX).unwrap() {
            match Performative::decode(&frame.body) {
                Ok((Performative::Disposition(it), _)) if it.first == delivery => {
                    assert!(it.settled && it.role == Role::Receiver, "{it:?}");
                    return it.state.unwrap();
                }
                Ok((Performative::Flow(_), _)) => {}
                other => panic!("{other:?}"),
            }
        }
        let mut bytes = BytesMut::new();
        let read = client.stream.read_buf(&mut bytes);
        let read = tokio::time::timeout(Duration::from_secs(60), read).await;
        assert!(read.expect("an answer").unwrap() > 0, "the server hung up");
        client.connection.feed(&bytes, Millis(0));
        // The test client's connection does not know the outcome, and it must not match a delivery
        // of its own.
        while client.connection.poll_event().is_some() {}
        input.extend_from_slice(&bytes);
    }
}

pub(crate) fn assert_too_large(state: &DeliveryState, delivery: u32, size: usize, limit: u64) {
    let Some(Outcome::Rejected(Rejected { error: Some(error) })) = state.outcome() else {
        panic!("{state:?}");
    };
    assert_eq!(error.condition, "amqp:link:message-size-exceeded");
    let text = error.description.as_ref().unwrap().as_str();
    let expected = format!(
        "The received message (delivery-id:{delivery}, size:{size} bytes) exceeds the limit \
         ({limit} bytes) currently allowed on the link."
    );
    assert!(text.starts_with(&expected), "{text}");
}

#[tokio::test]
async fn a_message_that_is_too_large_is_rejected_and_its_link_goes_on() {
    let (server, mut client, sender) = start().await;
    let held_before = Page::of(&server).sum("kew_amqp_held_bytes", &[]);
    for (id, size) in [(0, 2_049), (1, 300_000)] {
        transfer(&mut client, delivery(id), &vec![0; size]).await;
        let state = verdict(&mut client, id).await;
        assert_too_large(&state, id, size, SIZE_BYTES_MAX);
    }
    let sent = client.send(sender, 0, message("small enough")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let refused = [("code", "amqp:link:message-size-exceeded")];
    let page = Page::of(&server);
    assert_eq!(page.sum("kew_bus_sends_total", &refused), 2);
    assert_eq!(page.sum("kew_amqp_held_bytes", &[]), held_before);
    assert_eq!(server.view("small").await.counts.active, 1);
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_rejected_whole() {
    let (server, mut client, _) = start().await;
    let mut batch = BytesMut::new();
    let messages: Vec<Bytes> = (0..200).map(|n| message(&format!("number {n}"))).collect();
    write_batch(&mut batch, &messages);
    let first = Transfer {
        message_format: Some(BATCH_FORMAT),
        ..delivery(0)
    };
    transfer(&mut client, first, &batch).await;
    let state = verdict(&mut client, 0).await;
    assert_too_large(&state, 0, batch.len(), SIZE_BYTES_MAX);
    assert_eq!(server.view("small").await.counts.active, 0);
}

/// More of them than a link gets credit for at once.
#[tokio::test]
async fn credit_is_renewed_for_oversized_messages() {
    let (server, mut client, sender) = start().await;
    for id in 0..2_500 {
        let settled = Transfer {
            settled: Some(true),
            ..delivery(id)
        };
        transfer(&mut client, settled, &[0; 2_049]).await;
        // The client does not wait for credit for the answers: half of it is always left.
        let output = client.connection.take_output(Millis(0));
        assert!(output.is_empty());
    }
    transfer(&mut client, delivery(2_500), &[0; 2_049]).await;
    let state = verdict(&mut client, 2_500).await;
    assert_too_large(&state, 2_500, 2_049, SIZE_BYTES_MAX);
    let sent = client.send(sender, 0, message("small enough")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(server.view("small").await.counts.active, 1);
}

#[tokio::test]
async fn a_request_that_is_too_large_is_rejected() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let node = "jobs/$management";
    let requests = client.sender(node).await.unwrap();
    client.can_send(requests).await;
    let size = (1 << 20) + 1;
    transfer(&mut client, delivery(0), &vec![0; size]).await;
    let state = verdict(&mut client, 0).await;
    assert_too_large(&state, 0, size, 1 << 20);
    let peek = Map::build(|map| map.entry("operation", "com.microsoft:peek-message"));
    let body = Map::build(|map| {
        map.entry("from-sequence-number", &0_i64);
        map.entry("message-count", &1);
    });
    let other = client.ask_for("spare/$management", &peek, &body).await;
    assert_eq!(status_of(&other), Some(204));
}

fn status_of(answer: &Message) -> Option<i64> {
    let status = answer.application_properties().get("statusCode");
    status?.value().as_integer()
}
