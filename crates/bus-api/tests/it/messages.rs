//! Messages that are sent, received and settled.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::Map;
use kew_amqp::error::Error;
use kew_amqp::message::{BATCH_FORMAT, Message, write_application_properties, write_batch};
use kew_amqp::performative::{
    DeliveryState, Disposition, Modified, Outcome, Received, Rejected, Role, Tag,
    TransactionalState,
};
use kew_amqp::{Config, Event, Millis, Outgoing};
use kew_broker::AdmissionLimits;
use kew_bus_api::Limits;
use tokio::io::AsyncWriteExt as _;

use crate::client::{Server, message, settling};
use crate::hostile::frame;
use crate::metrics::until;

fn condition_of(state: &DeliveryState) -> String {
    match state.outcome() {
        Some(Outcome::Rejected(Rejected { error: Some(error) })) => error.condition.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Returned, or deferred, with changes to the message's properties.
pub(crate) fn modified(is_deferred: bool, changes: Option<Map>) -> DeliveryState {
    DeliveryState::from(Outcome::Modified(Modified {
        delivery_failed: Some(true),
        undeliverable_here: Some(is_deferred),
        message_annotations: changes,
    }))
}

/// A change of so many bytes.
fn change(size: usize) -> Option<Map> {
    Some(Map::build(|map| {
        map.entry("why", "x".repeat(size).as_str());
    }))
}

#[tokio::test]
async fn an_answer_repeats_the_clients_outcome() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("/JOBS").await.unwrap();
    let receiver = client.receiver("sb://localhost/jobs").await.unwrap();
    let sent = client.send(sender, 0, message("one")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let released = DeliveryState::from(Outcome::Released);
    for (told, count) in [
        (modified(false, None), 0),
        (released, 1),
        (DeliveryState::ACCEPTED, 1),
    ] {
        client.connection.grant(receiver, 1);
        let delivery = client.delivery().await;
        assert_eq!(delivery.tag.as_bytes().len(), 16);
        let found = Message::scan(delivery.payload.clone()).unwrap();
        assert_eq!(found.header().unwrap().delivery_count, count);
        assert_eq!(found.body(), message("one"));
        assert_eq!(client.tell(&delivery, told.clone()).await, told);
    }
    client.send(sender, 0, message("two")).await;
    client.connection.grant(receiver, 1);
    let delivery = client.delivery().await;
    let told = DeliveryState::rejected(Error::new("com.microsoft:dead-letter", "no good"));
    let answer = client.tell(&delivery, told).await;
    let plain = Outcome::Rejected(Rejected { error: None });
    assert_eq!(answer, DeliveryState::from(plain));
    let letters = client.receiver("jobs/$deadletterqueue").await.unwrap();
    client.connection.grant(letters, 1);
    let letter = client.delivery().await;
    let again = DeliveryState::rejected(Error::new("com.microsoft:dead-letter", "no good"));
    let answer = client.tell(&letter, again).await;
    assert_eq!(condition_of(&answer), "amqp:not-allowed");
}

#[tokio::test]
async fn a_state_that_is_no_outcome_leaves_message_and_lock() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("spare").await.unwrap();
    let receiver = client.receiver("spare").await.unwrap();
    for body in ["one", "two", "three"] {
        client.send(sender, 0, message(body)).await;
    }
    client.connection.grant(receiver, 3);
    let mut deliveries = Vec::new();
    for _ in 0..3 {
        deliveries.push(client.delivery().await);
    }
    let read = DeliveryState::Received(Received {
        section_number: 0,
        section_offset: 0,
    });
    // First a state without an outcome, then no state: the outcome comes later.
    client
        .connection
        .update(deliveries[0].delivery, read.clone());
    client.say().await;
    let nothing = Disposition {
        role: Role::Receiver,
        first: 0,
        last: Some(2),
        settled: false,
        state: None,
        batchable: false,
    };
    client.stream.write_all(&frame(0, &nothing)).await.unwrap();
    let telling = client.tell(&deliveries[0], DeliveryState::ACCEPTED);
    let told = tokio::time::timeout(Duration::from_secs(20), telling).await;
    assert_eq!(told.expect("it is answered"), DeliveryState::ACCEPTED);
    // Settled without an outcome, the messages stay locked until the locks expire.
    client.connection.settle(deliveries[1].delivery, Some(read));
    client.connection.settle(deliveries[2].delivery, None);
    client.say().await;
    until(&server, |page| page.sum("kew_amqp_unsettled", &[]) == 0).await;
    let update = Map::build(|map| map.entry("operation", "com.microsoft:update-disposition"));
    for delivery in &deliveries[1..] {
        let completed = settling(delivery, "completed");
        let told = client.ask("spare/$management", &update, &completed).await;
        assert_eq!(
            told.get("statusCode").unwrap().value().as_integer(),
            Some(200)
        );
    }
}

#[tokio::test]
async fn a_batch_is_accepted_completely_or_not_at_all() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let batch = |messages: &[Bytes]| {
        let mut out = BytesMut::new();
        write_batch(&mut out, messages);
        out.freeze()
    };
    let broken = batch(&[message("a"), Bytes::from_static(b"no message")]);
    let refused = client.send(sender, BATCH_FORMAT, broken).await;
    assert_eq!(condition_of(&refused), "amqp:decode-error");
    let good = batch(&[message("b"), message("c")]);
    let sent = client.send(sender, BATCH_FORMAT, good).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 2);
    for body in ["b", "c"] {
        let found = Message::scan(client.delivery().await.payload).unwrap();
        assert_eq!(found.body(), message(body));
    }
}

#[tokio::test]
async fn invalid_messages_are_refused_and_the_link_stays() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let unknown = client.send(sender, 5, message("x")).await;
    assert_eq!(condition_of(&unknown), "amqp:not-implemented");
    let in_transaction = DeliveryState::Transactional(TransactionalState {
        txn_id: Bytes::from_static(b"t"),
        outcome: None,
    });
    let payload = message("x");
    let refused = client
        .send_in(sender, 0, payload, Some(in_transaction))
        .await;
    assert_eq!(condition_of(&refused), "amqp:transaction:unknown-id");
    let garbage = client.send(sender, 0, Bytes::from_static(b"\x00")).await;
    assert_eq!(condition_of(&garbage), "amqp:decode-error");
    let steps = client.sender("steps").await.unwrap();
    let without_session = client.send(steps, 0, message("x")).await;
    assert_eq!(condition_of(&without_session), "amqp:not-allowed");
    let sent = client.send(sender, 0, message("x")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
}

#[tokio::test]
async fn the_metadata_of_a_message_has_a_limit_of_its_own() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    for (sizes_bytes, is_taken) in [
        (&[32_000, 32_000][..], true),
        (&[32_000, 32_000, 2_000], false),
        (&[33_000], false),
    ] {
        let mut payload = BytesMut::new();
        let properties = Map::build(|map| {
            for (index, &size_bytes) in sizes_bytes.iter().enumerate() {
                map.entry(index.to_string().as_str(), "x".repeat(size_bytes).as_str());
            }
        });
        write_application_properties(&mut payload, &properties);
        payload.extend_from_slice(&message("x"));
        let state = client.send(sender, 0, payload.freeze()).await;
        if is_taken {
            assert_eq!(state, DeliveryState::ACCEPTED);
        } else {
            assert_eq!(condition_of(&state), "amqp:link:message-size-exceeded");
        }
    }
}

#[tokio::test]
async fn a_message_that_its_sender_has_settled_is_accepted_and_gets_no_outcome() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    client.can_send(sender).await;
    let settled = Outgoing {
        tag: Tag::from([9; 16]),
        message_format: 0,
        is_settled: true,
        state: None,
    };
    let parts = [message("settled"), Bytes::new()];
    let first = client.connection.send(sender, settled, parts).unwrap();
    client.can_send(sender).await;
    let unsettled = Outgoing {
        tag: Tag::from([10; 16]),
        message_format: 0,
        is_settled: false,
        state: None,
    };
    let parts = [message("not settled"), Bytes::new()];
    let second = client.connection.send(sender, unsettled, parts).unwrap();
    assert_ne!(first, second);
    // The only outcome is that of the second one, which came after the first one.
    let answered = client
        .until(|event| match event {
            Event::Disposition { delivery, .. } => Some(*delivery),
            _ => None,
        })
        .await;
    assert_eq!(answered, second);
    assert_eq!(server.view("jobs").await.counts.active, 2);
}

#[tokio::test]
async fn links_that_cannot_be_are_refused() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let absent = client.receiver("absent").await.unwrap_err();
    assert_eq!(absent.condition, "amqp:not-found");
    let text = absent.description.unwrap();
    let expected = "The messaging entity 'absent' could not be found";
    assert!(text.as_str().starts_with(expected), "{text}");
    let to_letters = client.sender("jobs/$deadletterqueue").await.unwrap_err();
    assert_eq!(to_letters.condition, "amqp:not-allowed");
    let without_session = client.receiver("steps").await.unwrap_err();
    assert_eq!(without_session.condition, "amqp:not-allowed");
}

/// One disposition can name more deliveries than one command of the broker accepts.
#[tokio::test]
async fn thousands_are_settled_by_one_disposition() {
    const ROUNDS: usize = 2;
    const BATCH: usize = 2_600;
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    let one = message("x");
    for _ in 0..ROUNDS {
        let mut batch = BytesMut::new();
        write_batch(&mut batch, std::iter::repeat_n(&one, BATCH));
        let sent = client.send(sender, BATCH_FORMAT, batch.freeze()).await;
        assert_eq!(sent, DeliveryState::ACCEPTED);
    }
    client.connection.grant(receiver, 10_000);
    let mut deliveries = Vec::new();
    for _ in 0..ROUNDS * BATCH {
        deliveries.push(client.delivery().await.delivery);
    }
    for delivery in &deliveries {
        client.connection.update(*delivery, DeliveryState::ACCEPTED);
    }
    for _ in &deliveries {
        let state = client
            .until(|event| match event {
                Event::Disposition {
                    is_settled: true,
                    state,
                    ..
                } => Some(state.clone()),
                _ => None,
            })
            .await;
        assert_eq!(state, Some(DeliveryState::ACCEPTED));
    }
}

/// A receiver that has taken all messages is notified of new ones. A receiver without credit leaves
/// them to others.
#[tokio::test]
async fn a_waiting_receiver_is_notified_and_leaves_messages_without_credit_to_others() {
    let server = Server::start().await;
    let mut producer = server.trusted().await;
    let sender = producer.sender("jobs").await.unwrap();
    let mut client = server.trusted().await;
    let first = client.receiver("jobs").await.unwrap();
    client.connection.grant(first, 5);
    for body in ["one", "two", "three"] {
        producer.send(sender, 0, message(body)).await;
        let delivery = client.delivery().await;
        assert_eq!(delivery.link, first);
        let body_of = Message::scan(delivery.payload.clone()).unwrap().body();
        assert_eq!(body_of, message(body));
        let accepted = DeliveryState::ACCEPTED;
        assert_eq!(client.tell(&delivery, accepted.clone()).await, accepted);
    }

    let mut other = server.trusted().await;
    let second = other.receiver("jobs").await.unwrap();
    other.connection.grant(second, 5);
    // No event shows that both wait: the first one's credit is removed, whether the second waits
    // yet or not.
    client.connection.drain(first);
    client
        .until(|event| matches!(event, Event::Drained { .. }).then_some(()))
        .await;
    for body in ["four", "five"] {
        producer.send(sender, 0, message(body)).await;
        let delivery = other.delivery().await;
        assert_eq!(delivery.link, second);
    }
}

/// A client whose settlement was refused for lack of room may not be able to repeat it.
#[tokio::test]
async fn a_settlement_waits_for_a_busy_broker() {
    let server = Server::start_with_admission(AdmissionLimits {
        body_bytes_max: 4_000,
        ..AdmissionLimits::default()
    })
    .await;
    let mut client = server.trusted().await;
    let mut left = BTreeSet::new();
    let mut receivers = Vec::new();
    for queue in ["jobs", "spare"] {
        let sender = client.sender(queue).await.unwrap();
        let receiver = client.receiver(queue).await.unwrap();
        receivers.push(receiver);
        client.send(sender, 0, message("one")).await;
        client.connection.grant(receiver, 1);
        left.insert(client.delivery().await.delivery);
    }
    // There is room for one of them at a time.
    for delivery in &left {
        let state = modified(false, change(3_000));
        client.connection.update(*delivery, state);
    }
    while !left.is_empty() {
        let (delivery, state) = client
            .until(|event| match event {
                Event::Disposition {
                    delivery, state, ..
                } => Some((*delivery, state.clone())),
                _ => None,
            })
            .await;
        let state = state.unwrap();
        assert!(
            matches!(state.outcome(), Some(Outcome::Modified(_))),
            "{state:?}"
        );
        assert!(left.remove(&delivery));
    }
    // There is never room for this one.
    client.connection.grant(receivers[0], 1);
    let delivery = client.delivery().await;
    let told = client.tell(&delivery, modified(false, change(5_000))).await;
    assert_eq!(condition_of(&told), "com.microsoft:server-busy");
}

/// There is no room for the changes of one of them: the others are settled without it.
#[tokio::test]
async fn settlements_without_changes_go_in_their_own_command() {
    let server = Server::start_with_admission(AdmissionLimits {
        body_bytes_max: 4_000,
        ..AdmissionLimits::default()
    })
    .await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    let mut deliveries = Vec::new();
    for _ in 0..4 {
        client.send(sender, 0, message("one")).await;
        client.connection.grant(receiver, 1);
        deliveries.push(client.delivery().await.delivery);
    }
    let (changed, mut completed) = (deliveries[0], BTreeSet::new());
    let state = modified(false, change(5_000));
    client.connection.update(changed, state);
    for delivery in &deliveries[1..] {
        client
            .connection
            .update(*delivery, Outcome::Accepted.into());
        completed.insert(*delivery);
    }
    let mut is_refused = false;
    while !(completed.is_empty() && is_refused) {
        let (delivery, state) = client
            .until(|event| match event {
                Event::Disposition {
                    delivery, state, ..
                } => Some((*delivery, state.clone())),
                _ => None,
            })
            .await;
        let state = state.unwrap();
        if delivery == changed {
            assert_eq!(condition_of(&state), "com.microsoft:server-busy");
            is_refused = true;
        } else {
            assert!(
                matches!(state.outcome(), Some(Outcome::Accepted)),
                "{state:?}"
            );
            completed.remove(&delivery);
        }
    }
}

/// A client may accept smaller frames than it sends: over WebSockets the Java SDK accepts 4 KiB.
#[tokio::test]
async fn changes_to_properties_are_not_repeated() {
    let server = Server::start().await;
    let config = Config {
        frame_size_max: 4_096,
        ..Config::default()
    };
    let mut client = server.trusted_with(config).await;
    let sender = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    client.send(sender, 0, message("one")).await;
    let long = "x".repeat(5_000);
    client.connection.grant(receiver, 1);
    let delivery = client.delivery().await;
    let told = client.tell(&delivery, modified(false, change(5_000))).await;
    assert_eq!(told, modified(false, None));
    client.connection.grant(receiver, 1);
    let delivery = client.delivery().await;
    let found = Message::scan(delivery.payload.clone()).unwrap();
    let properties = found.application_properties();
    assert_eq!(
        properties.get("why").unwrap().value().as_str(),
        Some(long.as_str())
    );
}

/// A client that drains a link waits for the answer, even if nothing more can be received.
#[tokio::test]
async fn a_drain_is_answered_when_too_much_is_unsettled() {
    let server = Server::start_with(Limits {
        unsettled_max: 1,
        ..Limits::default()
    })
    .await;
    let mut client = server.trusted().await;
    let sender = client.sender("spare").await.unwrap();
    let receiver = client.receiver("spare").await.unwrap();
    for body in ["one", "two"] {
        client.send(sender, 0, message(body)).await;
    }
    client.connection.grant(receiver, 1);
    let delivery = client.delivery().await;
    client.connection.grant(receiver, 5);
    client.connection.drain(receiver);
    let drained = client.until(|event| matches!(event, Event::Drained { .. }).then_some(()));
    let drained = tokio::time::timeout(Duration::from_secs(20), drained).await;
    drained.expect("a drain is answered");
    let told = client.tell(&delivery, DeliveryState::ACCEPTED).await;
    assert_eq!(told, DeliveryState::ACCEPTED);
    client.connection.grant(receiver, 1);
    client.delivery().await;
}

/// A sender's state of its own message is not an outcome.
#[tokio::test]
async fn a_senders_state_is_not_an_outcome() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    // The queue accepts only messages with a session.
    let sender = client.sender("steps").await.unwrap();
    client.can_send(sender).await;
    let outgoing = Outgoing {
        tag: Tag::from([7; 16]),
        message_format: 0,
        is_settled: false,
        state: None,
    };
    let parts = [message("astray"), Bytes::new()];
    let sent = client.connection.send(sender, outgoing, parts).unwrap();
    let claim = Disposition {
        role: Role::Sender,
        first: 0,
        last: None,
        settled: false,
        state: Some(DeliveryState::ACCEPTED),
        batchable: false,
    };
    let mut both = client.connection.take_output(Millis(0)).to_vec();
    both.extend_from_slice(&frame(0, &claim));
    client.stream.write_all(&both).await.unwrap();
    let told = client
        .until(|event| match event {
            Event::Disposition {
                delivery, state, ..
            } if *delivery == sent => state.clone(),
            _ => None,
        })
        .await;
    assert!(
        matches!(told.outcome(), Some(Outcome::Rejected(_))),
        "{told:?}"
    );
}
