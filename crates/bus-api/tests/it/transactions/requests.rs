//! Requests to `$management` in a transaction, and the rights that they need.

use std::collections::BTreeMap;
use std::time::Duration;

use kew_amqp::DeliveryId;
use kew_amqp::codec::{Array, Value};
use kew_amqp::message::write_application_properties;
use kew_bus_api::{AuthorizationRule, Right, RuleScope};

use super::*;
use crate::client::{settling, token_by};

#[tokio::test]
async fn requests_about_messages_can_be_part_of_a_transaction() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    client.fill(jobs, 1).await;
    let delivery = client.receive(receiver, 1).await.remove(0);
    let sent = client.send(jobs, 0, later()).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let cancel = cancelling(2);
    let completed = settling(&delivery, "completed");
    for commits in [false, true] {
        let id = client.declare(coordinator).await;
        for (operation, body) in [
            ("cancel-scheduled-message", &cancel),
            ("renew-lock", &completed),
            ("update-disposition", &completed),
        ] {
            let told = client.manage("jobs", operation, body, Some(&id)).await;
            assert_eq!(told, ok(), "{operation}");
        }
        let counts = server.view("jobs").await.counts;
        assert_eq!((counts.active, counts.scheduled), (1, 1));
        let state = client.discharge(coordinator, &id, !commits).await;
        assert_eq!(state, DeliveryState::ACCEPTED);
    }
    let counts = server.view("jobs").await.counts;
    assert_eq!((counts.active, counts.scheduled), (0, 0));
    let unknown = Bytes::from_static(b"?");
    let told = client
        .manage("jobs", "renew-lock", &completed, Some(&unknown))
        .await;
    assert_eq!(told, (400, UNKNOWN_ID.into()));
    for operation in [
        "schedule-message",
        "receive-by-sequence-number",
        "batch-delete-messages",
    ] {
        let id = client.declare(coordinator).await;
        let told = client.manage("jobs", operation, &cancel, Some(&id)).await;
        assert_eq!(told, (501, "amqp:not-implemented".into()), "{operation}");
        let refused = client.discharge(coordinator, &id, false).await;
        assert_eq!(condition_of(&refused), ROLLBACK);
    }
}

/// A scheduled message.
fn later() -> Bytes {
    let mut later = BytesMut::new();
    kew_amqp::message::write_head(
        &mut later,
        &kew_amqp::message::Header::default(),
        &Map::default(),
        &Map::build(|map| {
            let at = kew_amqp::codec::Timestamp(i64::MAX / 4);
            map.entry(&Symbol::from_static("x-opt-scheduled-enqueue-time"), &at);
        }),
    );
    later.extend_from_slice(&message("later"));
    later.freeze()
}

/// The body of a request to cancel a scheduled message.
fn cancelling(number: i64) -> Map {
    Map::build(|map| {
        let numbers = Value::Array(Array::longs([number]));
        map.entry("sequence-numbers", &numbers);
    })
}

async fn scheduled(server: &Server) -> u64 {
    server.view("jobs").await.counts.scheduled
}

#[tokio::test]
async fn a_request_that_makes_no_sense_fails_its_transaction() {
    let server = start().await;
    let mut client = server.trusted().await;
    let spare = client.sender("spare").await.unwrap();
    let coordinator = client.coordinator().await;
    // A request without a valid message.
    let requests = client.sender("jobs/$management").await.unwrap();
    let id = client.declare(coordinator).await;
    client.post(spare, &id, "x").await;
    let garbage = Bytes::from_static(b"\x00");
    let state = Some(in_transaction(&id, None));
    let refused = client.send_in(requests, 0, garbage, state).await;
    assert_eq!(condition_of(&refused), "amqp:decode-error");
    let refused = error_of(&client.discharge(coordinator, &id, false).await);
    assert_eq!(refused.condition, ROLLBACK);
    let text = refused.description.unwrap();
    assert!(text.as_str().contains("amqp:decode-error"), "{text}");
    client.detach(requests).await;
    // Requests without their parameters.
    for operation in [
        "update-disposition",
        "cancel-scheduled-message",
        "renew-lock",
    ] {
        let id = client.declare(coordinator).await;
        client.post(spare, &id, "x").await;
        let nothing = Map::default();
        let told = client.manage("jobs", operation, &nothing, Some(&id)).await;
        let is_left = operation == "renew-lock";
        assert_eq!(told.0, 400, "{operation}");
        // A request that is carried out at once is not part of the transaction.
        let state = client.discharge(coordinator, &id, false).await;
        assert_eq!(
            state == DeliveryState::ACCEPTED,
            is_left,
            "{operation}: {state:?}"
        );
    }
    assert_eq!(held(&server, "spare").await, (1, 0));
}

#[tokio::test]
async fn a_scheduled_message_of_a_newer_queue_is_not_cancelled() {
    let server = start().await;
    let mut other = server.trusted().await;
    let jobs = other.sender("jobs").await.unwrap();
    let sent = other.send(jobs, 0, later()).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let mut client = server.trusted().await;
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    let told = client
        .manage(
            "jobs",
            "cancel-scheduled-message",
            &cancelling(1),
            Some(&id),
        )
        .await;
    assert_eq!(told, ok());
    let options = server.view("jobs").await.options;
    let queue = || queue_named("jobs");
    server
        .order(BusCommand::DeleteQueue { queue: queue() })
        .await;
    server
        .order(BusCommand::CreateQueue {
            queue: queue(),
            options,
        })
        .await;
    let mut other = server.trusted().await;
    let jobs = other.sender("jobs").await.unwrap();
    let sent = other.send(jobs, 0, later()).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let refused = error_of(&client.discharge(coordinator, &id, false).await);
    assert_eq!(refused.condition, ROLLBACK);
    let text = refused.description.unwrap();
    assert!(text.as_str().contains("amqp:not-found"), "{text}");
    assert_eq!(scheduled(&server).await, 1);
    // And one for a queue that does not exist is refused at once.
    let id = client.declare(coordinator).await;
    let told = client
        .manage(
            "absent",
            "cancel-scheduled-message",
            &cancelling(1),
            Some(&id),
        )
        .await;
    assert_eq!(told, (404, "amqp:not-found".into()));
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
}

#[tokio::test]
async fn a_commit_waits_for_the_requests_before_it() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    for _ in 0..2 {
        let sent = client.send(jobs, 0, later()).await;
        assert_eq!(sent, DeliveryState::ACCEPTED);
    }
    let coordinator = client.coordinator().await;
    let requests = client.requests("jobs").await;
    for (number, commits) in [(1, true), (2, false)] {
        let id = client.declare(coordinator).await;
        client.ask_to_cancel(requests, number, &id);
        // Everything is written at once, without waiting for answers.
        let asked = client.ask_to_discharge(coordinator, &id, commits);
        let late = plain(Some(in_transaction(&id, None)));
        let parts = [message("late"), Bytes::new()];
        let late = client.connection.send(jobs, late, parts).unwrap();
        let again = client.ask_to_discharge(coordinator, &id, true);
        let [told, late, again] = client.answers([asked, late, again]).await;
        assert_eq!(told, DeliveryState::ACCEPTED);
        // Requests behind a discharge are not part of it, whether it waits or not.
        for refused in [late, again] {
            assert_eq!(condition_of(&refused), UNKNOWN_ID);
        }
        assert_eq!(scheduled(&server).await, 1);
    }
    assert_eq!(held(&server, "jobs").await, (0, 0));
}

#[tokio::test]
async fn a_commit_waits_for_all_the_requests_before_it() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    client.fill(jobs, 1).await;
    let delivery = client.receive(receiver, 1).await.remove(0);
    for _ in 0..3 {
        let sent = client.send(jobs, 0, later()).await;
        assert_eq!(sent, DeliveryState::ACCEPTED);
    }
    let coordinator = client.coordinator().await;
    let requests = client.requests("jobs").await;
    let astray = client.requests("absent").await;
    let completed = settling(&delivery, "completed");
    // Everything of a round is written at once.
    let id = client.declare(coordinator).await;
    for number in [2, 3] {
        client.ask_to_cancel(requests, number, &id);
    }
    let asked = client.ask_to_discharge(coordinator, &id, true);
    // Behind the discharge it is not part of the transaction.
    client.ask_at_once(requests, "update-disposition", &completed, &id);
    let [told] = client.answers([asked]).await;
    assert_eq!(told, DeliveryState::ACCEPTED);
    assert_eq!(scheduled(&server).await, 1);
    let id = client.declare(coordinator).await;
    client.ask_to_cancel(astray, 1, &id);
    client.ask_to_cancel(requests, 4, &id);
    let asked = client.ask_to_discharge(coordinator, &id, true);
    let [told] = client.answers([asked]).await;
    assert_eq!(condition_of(&told), ROLLBACK);
    assert_eq!(scheduled(&server).await, 1);
    assert_eq!(held(&server, "jobs").await, (1, 0));
    // No transaction has settled the message.
    let mut other = server.trusted().await;
    let told = other
        .manage("jobs", "update-disposition", &completed, None)
        .await;
    assert_eq!(told, ok());
}

#[tokio::test]
async fn a_commit_that_waits_is_answered_also_when_its_transaction_goes() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let sent = client.send(jobs, 0, later()).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let [first, second] = [1, 2].map(|number| format!("coordinator {number}"));
    let first = client.coordinator_named(&first).await;
    let second = client.coordinator_named(&second).await;
    let requests = client.requests("jobs").await;
    let id = client.declare(first).await;
    client.ask_to_cancel(requests, 1, &id);
    let asked = client.ask_to_discharge(second, &id, true);
    // Everything is written at once.
    client.connection.detach(first, true, None);
    let [answer] = client.answers([asked]).await;
    assert_eq!(condition_of(&answer), UNKNOWN_ID);
    assert_eq!(scheduled(&server).await, 1);
}

impl Client {
    /// A link for requests, with credit for several at once.
    async fn requests(&mut self, queue: &str) -> LinkId {
        let node = format!("{queue}/$management");
        let requests = self.sender(&node).await.unwrap();
        self.can_send(requests).await;
        requests
    }

    /// Requests to cancel a scheduled message in a transaction, without waiting.
    fn ask_to_cancel(&mut self, requests: LinkId, number: i64, id: &Bytes) {
        let body = cancelling(number);
        self.ask_at_once(requests, "cancel-scheduled-message", &body, id);
    }

    fn ask_at_once(&mut self, requests: LinkId, operation: &str, body: &Map, id: &Bytes) {
        let mut payload = BytesMut::new();
        let operation = format!("com.microsoft:{operation}");
        let properties = Map::build(|map| map.entry("operation", operation.as_str()));
        write_application_properties(&mut payload, &properties);
        write_value(&mut payload, body);
        let outgoing = plain(Some(in_transaction(id, None)));
        let parts = [payload.freeze(), Bytes::new()];
        self.connection.send(requests, outgoing, parts).unwrap();
    }

    /// Requests a commit or a rollback, without waiting.
    fn ask_to_discharge(&mut self, coordinator: LinkId, id: &Bytes, commits: bool) -> DeliveryId {
        let discharge = encoded(&Control::Discharge(Discharge {
            txn_id: id.clone(),
            fail: Some(!commits),
        }));
        let parts = [discharge, Bytes::new()];
        let sent = self.connection.send(coordinator, plain(None), parts);
        sent.unwrap()
    }

    /// The answers to all of these, in any order.
    async fn answers<const N: usize>(&mut self, sent: [DeliveryId; N]) -> [DeliveryState; N] {
        let mut told = BTreeMap::new();
        let all = self.until(|event| {
            if let Event::Disposition {
                delivery,
                state: Some(state),
                ..
            } = event
            {
                told.insert(*delivery, state.clone());
            }
            sent.iter().all(|own| told.contains_key(own)).then_some(())
        });
        let all = tokio::time::timeout(Duration::from_secs(60), all).await;
        all.expect("every request gets an answer");
        sent.map(|own| told[&own].clone())
    }
}

#[tokio::test]
async fn a_transaction_gives_no_rights() {
    let server = start().await;
    let mut owner = server.trusted().await;
    let jobs = owner.sender("jobs").await.unwrap();
    let receiver = owner.receiver("jobs").await.unwrap();
    owner.fill(jobs, 1).await;
    let delivery = owner.receive(receiver, 1).await.remove(0);
    let rule =
        AuthorizationRule::generate("sends", [Right::Send].into_iter().collect(), 1).unwrap();
    server.add_rule(Some("jobs"), rule).await.unwrap();
    let scope = RuleScope::of(Some("jobs"));
    let rule = server.api.rules().find(&scope, "sends").await.unwrap();
    // An unauthenticated client can declare, but do nothing.
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    let refused = client.sender("jobs").await.unwrap_err();
    assert_eq!(refused.condition, "amqp:unauthorized-access");
    let token = token_by(
        "sends",
        "sb://localhost/jobs",
        &rule.primary_key,
        9_000_000_000,
    );
    assert_eq!(client.put_token("sb://localhost/jobs", &token).await, 202);
    let jobs = client.sender("jobs").await.unwrap();
    client.post(jobs, &id, "x").await;
    client.commit(coordinator, &id).await;
    let id = client.declare(coordinator).await;
    let completed = settling(&delivery, "completed");
    let told = client.manage_as_sender("jobs", &completed, &id).await;
    assert_eq!(told, "amqp:unauthorized-access");
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    assert_eq!(held(&server, "jobs").await, (2, 0));
}

impl Client {
    async fn manage_as_sender(&mut self, queue: &str, body: &Map, id: &Bytes) -> String {
        let told = self
            .manage(queue, "update-disposition", body, Some(id))
            .await;
        assert_eq!(told.0, 401);
        told.1
    }
}
