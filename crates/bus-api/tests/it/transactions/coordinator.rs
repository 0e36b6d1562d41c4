//! The coordinator's refusals, and the limits of one connection.

use kew_amqp::codec::Raw;
use kew_amqp::performative::Flow;

use super::*;

#[tokio::test]
async fn invalid_input_to_a_coordinator_is_refused_at_the_smallest_scope() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    for (payload, expected) in [
        (message("x"), "amqp:decode-error"),
        (encoded(&Map::default()), "amqp:decode-error"),
        (Bytes::from_static(b"\x00"), "amqp:decode-error"),
        (Bytes::new(), "amqp:decode-error"),
        (
            encoded(&Control::Declare(Declare {
                global_id: Some(Raw::of(&7)),
            })),
            "amqp:not-implemented",
        ),
    ] {
        let refused = client.send(coordinator, 0, payload).await;
        assert_eq!(condition_of(&refused), expected);
    }
    let id = client.declare(coordinator).await;
    let state = Some(in_transaction(&id, None));
    let declare = encoded(&Control::Declare(Declare { global_id: None }));
    let refused = client.send_in(coordinator, 0, declare.clone(), state).await;
    assert_eq!(condition_of(&refused), "amqp:not-allowed");
    // Ids that are too short, too long, or unknown.
    for id in [0, 1, 16, 32, 4000] {
        let id = Bytes::from(vec![b'x'; id]);
        let refused = client.discharge(coordinator, &id, false).await;
        assert_eq!(condition_of(&refused), UNKNOWN_ID);
        let state = Some(in_transaction(&id, None));
        let refused = client.send_in(jobs, 0, message("x"), state).await;
        assert_eq!(condition_of(&refused), UNKNOWN_ID);
    }
    // A message that cannot be answered ends the link.
    let settled = Outgoing {
        tag: Tag::from([9; 16]),
        message_format: 0,
        is_settled: true,
        state: None,
    };
    client
        .connection
        .send(coordinator, settled, [declare, Bytes::new()])
        .unwrap();
    let error = client
        .until(|event| match event {
            Event::Detached { error, .. } => Some(error.clone()),
            _ => None,
        })
        .await;
    assert_eq!(error.unwrap().condition, "amqp:not-allowed");
    client.fill(jobs, 1).await;
}

#[tokio::test]
async fn messages_are_not_received_in_a_transaction() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    client.fill(jobs, 1).await;
    client.receiver("jobs").await.unwrap();
    let id = Bytes::from_static(b"t");
    let flow = Flow {
        next_incoming_id: Some(0),
        incoming_window: 100,
        next_outgoing_id: 100,
        outgoing_window: 100,
        // The receiver's: they are given in order.
        handle: Some(1),
        delivery_count: Some(0),
        link_credit: Some(1),
        available: None,
        drain: false,
        echo: false,
        properties: Some(Map::build(|map| {
            map.entry(&Symbol::from_static("txn-id"), &id)
        })),
    };
    client.say_by_hand(&flow).await;
    let error = client
        .until(|event| match event {
            Event::Detached { error, .. } => Some(error.clone()),
            _ => None,
        })
        .await;
    assert_eq!(error.unwrap().condition, "amqp:not-implemented");
    client.fill(jobs, 1).await;
}

#[tokio::test]
async fn transactions_have_bounds() {
    let server = start_with(Limits {
        transactions_max: 3,
        transactions_size_bytes_max: 60_000,
        ..Limits::default()
    })
    .await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(client.declare(coordinator).await);
    }
    let declare = Control::Declare(Declare { global_id: None });
    let limit = "amqp:resource-limit-exceeded";
    let refused = client.control(coordinator, declare).await;
    assert_eq!(condition_of(&refused), limit);
    // The limit of messages, and of their bytes together.
    for _ in 0..100 {
        client.post(jobs, &ids[0], "x").await;
    }
    let large = "x".repeat(20_000);
    client.post(jobs, &ids[1], &large).await;
    let sent = |id: &Bytes, body: &str| (message(body), Some(in_transaction(id, None)));
    for (payload, state) in [sent(&ids[0], "x"), sent(&ids[1], &"x".repeat(45_000))] {
        let refused = client.send_in(jobs, 0, payload, state).await;
        assert_eq!(condition_of(&refused), limit);
    }
    // A failed transaction holds no memory.
    client.post(jobs, &ids[2], &"x".repeat(50_000)).await;
    for (id, is_done) in ids.iter().zip([false, false, true]) {
        let state = client.discharge(coordinator, id, false).await;
        assert_eq!(state == DeliveryState::ACCEPTED, is_done, "{state:?}");
    }
    assert_eq!(held(&server, "jobs").await, (1, 0));
    client.declare(coordinator).await;
}
