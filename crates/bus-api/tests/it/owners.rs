//! What clients see when another process takes the log over, and when the server owns it again.

use std::time::Duration;

use bytes::Bytes;
use kew_amqp::codec::Map;
use kew_amqp::error::Error;
use kew_amqp::message::Message;
use kew_amqp::performative::{DeliveryState, Outcome, Rejected, Tag};
use kew_amqp::{Event, LinkId, Outgoing};
use kew_broker::{Broker, Rejection, Standing};
use kew_engine::Command;
use kew_engine::bus::BusCommand;
use kew_log::Epoch;
use kew_log_contract::{MemoryOptions, MemorySource};

use crate::client::{Client, Server, message, queue_named};
use crate::management::told;
use crate::rest::ask;
use crate::sessions::of_session;

/// A server on a log in memory, with a message in its queue.
async fn server() -> (Server, MemorySource) {
    let source = MemorySource::new(MemoryOptions::default());
    let server = Server::start_on_log(source.clone()).await;
    server.trusted().await.send_one("jobs", "one").await;
    (server, source)
}

/// Another process becomes the owner. The server does not know it before its next command.
async fn fence(server: &Server, source: &MemorySource) -> Broker {
    server.at_rest().await;
    Server::broker_on_log(source.clone())
}

/// The error of the link, which is detached before anything is settled on it.
async fn detached(client: &mut Client, link: LinkId) -> Error {
    client
        .until(|event| match event {
            Event::Disposition { .. } => panic!("{event:?}"),
            Event::Detached {
                link: id, error, ..
            } if *id == link => error.clone(),
            _ => None,
        })
        .await
}

/// Sends without waiting for the outcome.
async fn transfer(client: &mut Client, sender: LinkId, is_settled: bool) {
    client.can_send(sender).await;
    let outgoing = Outgoing {
        tag: Tag::from([7; 16]),
        message_format: 0,
        is_settled,
        state: None,
    };
    let parts = [message("two"), Bytes::new()];
    client.connection.send(sender, outgoing, parts).unwrap();
}

/// The threads of the broker change its standing in their own time.
async fn until(server: &Server, standing: Standing) {
    for _ in 0..10_000 {
        if server.broker().standing() == standing {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the server is {:?}", server.broker().standing());
}

/// Lets the server own the log again.
async fn take_back(server: &Server) {
    server.broker().promote(Epoch::new(100));
    until(server, Standing::Ready).await;
}

/// The body of the next message.
async fn body(client: &mut Client) -> Bytes {
    let delivery = client.delivery().await;
    Message::scan(delivery.payload).unwrap().body()
}

fn read_queue() -> Command {
    Command::Bus(BusCommand::ReadQueue {
        queue: queue_named("jobs"),
    })
}

const TIMEOUT: &str = "com.microsoft:timeout";

#[tokio::test]
async fn a_send_whose_outcome_is_unknown_is_not_settled() {
    let (server, source) = server().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let other = fence(&server, &source).await;
    transfer(&mut client, sender, false).await;
    let error = detached(&mut client, sender).await;
    assert_eq!(error.condition.as_str(), TIMEOUT);

    take_back(&server).await;
    let sender = client.sender("jobs").await.unwrap();
    let sent = client.send(sender, 0, message("three")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    other.stop();
}

#[tokio::test]
async fn a_settlement_whose_outcome_is_unknown_is_not_settled() {
    let (server, source) = server().await;
    let mut client = server.trusted().await;
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 1);
    let delivery = client.delivery().await;
    let other = fence(&server, &source).await;
    client
        .connection
        .update(delivery.delivery, DeliveryState::ACCEPTED);
    let error = detached(&mut client, receiver).await;
    assert_eq!(error.condition.as_str(), TIMEOUT);
    other.stop();
}

#[tokio::test]
async fn a_receive_whose_outcome_is_unknown_detaches_its_link() {
    let (server, source) = server().await;
    let mut client = server.trusted().await;
    let taker = client.taker("jobs").await;
    let other = fence(&server, &source).await;
    client.connection.grant(taker, 1);
    let error = detached(&mut client, taker).await;
    assert_eq!(error.condition.as_str(), TIMEOUT);

    // It was not received: no other owner has that.
    take_back(&server).await;
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 1);
    assert_eq!(body(&mut client).await, message("one"));
    other.stop();
}

/// A settlement is asked again until the server owns the log again.
#[tokio::test]
async fn a_settlement_outlives_another_owner() {
    let (server, source) = server().await;
    let mut client = server.trusted().await;
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 1);
    let delivery = client.delivery().await;
    let other = fence(&server, &source).await;
    let told = server.broker().submit(read_queue()).await;
    assert_eq!(told, Err(Rejection::NotOwner));
    let own = delivery.delivery;
    client.connection.update(own, DeliveryState::ACCEPTED);
    client.say().await;
    take_back(&server).await;
    let settled = client.until(|event| match event {
        Event::Disposition {
            delivery, state, ..
        } if *delivery == own => state.clone(),
        _ => None,
    });
    assert_eq!(settled.await, DeliveryState::ACCEPTED);
    other.stop();
}

/// A transfer that its sender has settled gets no answer, and its link stays.
#[tokio::test]
async fn a_settled_transfer_whose_outcome_is_unknown_is_dropped() {
    let (server, source) = server().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let other = fence(&server, &source).await;
    transfer(&mut client, sender, true).await;
    client.say().await;
    until(&server, Standing::Following).await;
    take_back(&server).await;
    let sent = client.send(sender, 0, message("three")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED, "on the same link");
    other.stop();
}

/// A receiver that waits stays attached, and gets what came in under the other owner.
#[tokio::test]
async fn a_receiver_that_waits_outlives_another_owner() {
    let (server, source) = server().await;
    let mut client = server.trusted().await;
    let receiver = client.receiver("spare").await.unwrap();
    client.connection.grant(receiver, 1);
    client.say().await;
    server.waiting(1).await;
    let other = fence(&server, &source).await;
    let other_server = Server::start_beside(other.clone()).await;
    other_server.trusted().await.send_one("spare", "two").await;
    let delete = BusCommand::DeleteQueue {
        queue: queue_named("jobs"),
    };
    let told = server.broker().submit(Command::Bus(delete)).await;
    assert_eq!(told, Err(Rejection::Unknown));
    take_back(&server).await;
    assert_eq!(body(&mut client).await, message("two"));
    other.stop();
}

/// The server learns that it is fenced.
async fn learn(server: &Server) {
    let delete = BusCommand::DeleteQueue {
        queue: queue_named("brief"),
    };
    let told = server.broker().submit(Command::Bus(delete)).await;
    assert_eq!(told, Err(Rejection::Unknown));
}

#[tokio::test]
async fn a_send_to_a_server_that_is_not_the_owner_is_refused_as_busy() {
    let (server, source) = server().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let other = fence(&server, &source).await;
    learn(&server).await;
    let sent = client.send(sender, 0, message("two")).await;
    let DeliveryState::Outcome(Outcome::Rejected(Rejected { error: Some(error) })) = sent else {
        panic!("{sent:?}");
    };
    assert_eq!(error.condition.as_str(), "com.microsoft:server-busy");
    let text = error.to_string();
    assert!(text.contains("Another server"), "{text}");
    assert_eq!(text.matches("try again").count(), 1, "{text}");

    // The link stays attached.
    take_back(&server).await;
    let sent = client.send(sender, 0, message("three")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    other.stop();
}

#[tokio::test]
async fn a_request_whose_outcome_is_unknown_has_timed_out() {
    let (server, source) = server().await;
    let mut client = server.trusted().await;
    let sender = client.sender("steps").await.unwrap();
    client.send(sender, 0, of_session("a")).await;
    client.session("steps", "a").await;
    let other = fence(&server, &source).await;
    let renewal = Map::build(|map| map.entry("operation", "com.microsoft:renew-session-lock"));
    let session = Map::build(|map| map.entry("session-id", "a"));
    let answer = client.ask("steps/$management", &renewal, &session).await;
    assert_eq!(told(&answer), (408, TIMEOUT.into()));
    let answer = client.ask("steps/$management", &renewal, &session).await;
    assert_eq!(told(&answer), (503, "com.microsoft:server-busy".into()));
    other.stop();
}

#[tokio::test]
async fn over_http_an_unknown_outcome_is_an_error_and_another_owner_a_busy_server() {
    let (server, source) = server().await;
    let other = fence(&server, &source).await;
    for (status, retries) in [(500, 0), (503, 1)] {
        let answer = ask(&server, "POST", "jobs/messages", &[], "two").await;
        assert_eq!(answer.status, status, "{answer:?}");
        let count = answer.body.matches("try again").count();
        assert_eq!(count, retries, "{answer:?}");
    }
    other.stop();
}

/// Tokens by the rules of a queue are judged again if the queue is perhaps deleted.
#[tokio::test]
async fn a_deletion_whose_outcome_is_unknown_counts_as_a_change_of_rules() {
    let (server, source) = server().await;
    let changes = server.api.rules().watch();
    let other = fence(&server, &source).await;
    let answer = ask(&server, "DELETE", "jobs?api-version=2021-05", &[], "").await;
    assert_eq!(answer.status, 500, "{answer:?}");
    assert!(changes.has_changed().unwrap());
    other.stop();
}
