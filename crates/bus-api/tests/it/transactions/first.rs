//! Sessions with a coordinator and links to several entities, as SDKs with cross-entity transactions have them: the first
//! entity gets the failed transfers of the others.

use kew_bus_api::Right;
use kew_engine::bus::{BusQueueOptions, EntityStatus};

use super::via::{UNAVAILABLE, failed, with_status};
use super::*;
use crate::client::LOCAL;
use crate::rules::{later, rule, server as server_with_clock, stranger, token_of};

const LETTERS: &str = "jobs/$Transfer/$DeadLetterQueue";

async fn delete(server: &Server, queue: &str) {
    let queue = queue_named(queue);
    server.order(BusCommand::DeleteQueue { queue }).await;
}

impl Client {
    /// Completes the next message of a link together with a message that is sent over another one.
    async fn answer(&mut self, coordinator: LinkId, (from, to): (LinkId, LinkId), body: &str) {
        let held_now = self.receive(from, 1).await;
        let id = self.declare(coordinator).await;
        self.post(to, &id, body).await;
        self.retire(&held_now[0], &id, Outcome::Accepted).await;
        self.commit(coordinator, &id).await;
    }

    /// Commits a transaction that only sends this.
    async fn send_alone(&mut self, coordinator: LinkId, to: LinkId, body: &str) -> DeliveryState {
        let id = self.declare(coordinator).await;
        self.post(to, &id, body).await;
        self.discharge(coordinator, &id, false).await
    }

    /// Why such a transaction is rolled back.
    async fn rolls_back(&mut self, coordinator: LinkId, to: LinkId) -> String {
        let error = error_of(&self.send_alone(coordinator, to, "x").await);
        assert_eq!(error.condition, ROLLBACK);
        error.description.unwrap().as_str().to_owned()
    }
}

#[tokio::test]
async fn what_a_transaction_cannot_send_is_a_failed_transfer_of_the_first_entity() {
    let server = start().await;
    let mut other = server.trusted().await;
    let jobs = other.sender("jobs").await.unwrap();
    other.fill(jobs, 5).await;
    let mut client = server.trusted().await;
    let coordinator = client.coordinator().await;
    let from = client.receiver("jobs").await.unwrap();
    let to = client.sender("spare").await.unwrap();
    let ways = (from, to);
    client.answer(coordinator, ways, "one").await;
    assert_eq!(held(&server, "spare").await, (1, 0));
    // The link stays, and the transaction is committed.
    with_status(&server, "spare", EntityStatus::SendDisabled).await;
    client.answer(coordinator, ways, "two").await;
    assert_eq!(
        client.dead_letter(LETTERS, "two", "spare").await,
        UNAVAILABLE
    );
    let mut again = Attach::new("again".into(), Role::Sender);
    again.source = Some(Source::new("here".into()));
    again.target = Some(Target::new("spare".into()));
    let (again, _) = client.attach(again).await.unwrap();
    client.answer(coordinator, (from, again), "three").await;
    assert_eq!(
        client.dead_letter(LETTERS, "three", "spare").await,
        UNAVAILABLE
    );
    // Outside of transactions the client hears of it at once.
    let refused = client.send(to, 0, message("x")).await;
    assert_eq!(condition_of(&refused), "com.microsoft:entity-disabled");
    delete(&server, "spare").await;
    client.answer(coordinator, ways, "four").await;
    assert_eq!(
        client.dead_letter(LETTERS, "four", "spare").await,
        UNAVAILABLE
    );
    let refused = client.send(to, 0, message("x")).await;
    assert_eq!(condition_of(&refused), "amqp:not-found");
    // Another queue of that name gets what is sent from then on.
    server
        .order(BusCommand::CreateQueue {
            queue: queue_named("spare"),
            options: BusQueueOptions::default(),
        })
        .await;
    client.answer(coordinator, ways, "five").await;
    assert_eq!(held(&server, "spare").await, (1, 0));
    assert_eq!(held(&server, "jobs").await, (0, 0));
    assert_eq!(failed(&server, "jobs").await, 0);
}

/// It is drained: what its messages become still arrives.
#[tokio::test]
async fn the_first_entity_need_not_accept_messages_itself() {
    let server = start().await;
    let mut other = server.trusted().await;
    let jobs = other.sender("jobs").await.unwrap();
    other.fill(jobs, 1).await;
    with_status(&server, "jobs", EntityStatus::SendDisabled).await;
    let mut client = server.trusted().await;
    let coordinator = client.coordinator().await;
    let from = client.receiver("jobs").await.unwrap();
    let to = client.sender("spare").await.unwrap();
    client.answer(coordinator, (from, to), "one").await;
    assert_eq!(held(&server, "spare").await, (1, 0));
    assert_eq!(held(&server, "jobs").await, (0, 0));
}

/// A subscription stands for its topic, and so does a sub-queue.
#[tokio::test]
async fn the_first_entity_of_a_subscription_is_its_topic() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = server.trusted().await;
    let coordinator = client.coordinator().await;
    let from = "events/Subscriptions/all/$DeadLetterQueue";
    client.receiver(from).await.unwrap();
    let to_itself = client.sender("events").await.unwrap();
    let to = client.sender("spare").await.unwrap();
    with_status(&server, "spare", EntityStatus::SendDisabled).await;
    let id = client.declare(coordinator).await;
    client.post(to, &id, "one").await;
    client.post(to_itself, &id, "two").await;
    client.commit(coordinator, &id).await;
    let letters = "events/$Transfer/$DeadLetterQueue";
    assert_eq!(
        client.dead_letter(letters, "one", "spare").await,
        UNAVAILABLE
    );
    // Its own link ends with it, as others do.
    with_status(&server, "events", EntityStatus::SendDisabled).await;
    let error = client.detached(to_itself).await.unwrap();
    assert_eq!(error.condition, "com.microsoft:entity-disabled");
}

/// Without a coordinator in their session, links are alone. SDKs have that without cross-entity transactions.
#[tokio::test]
async fn a_link_in_another_session_than_the_coordinator_ends_with_its_entity() {
    let server = start().await;
    let mut client = server.trusted().await;
    let coordinator = client.coordinator().await;
    client.receiver("jobs").await.unwrap();
    client.session = client.connection.begin();
    client.begun().await;
    let to = client.sender("spare").await.unwrap();
    let id = client.declare(coordinator).await;
    client.post(to, &id, "one").await;
    with_status(&server, "spare", EntityStatus::SendDisabled).await;
    let error = client.detached(to).await.unwrap();
    assert_eq!(error.condition, "com.microsoft:entity-disabled");
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    assert_eq!(failed(&server, "jobs").await, 0);
}

/// A client fills the first entity with what it cannot send to another one, so it needs a right on it at that time.
#[tokio::test]
async fn a_first_entity_whose_token_has_expired_gets_no_failed_transfers() {
    let server = server_with_clock(None, LOCAL).await;
    let mut client = stranger(&server).await;
    for (queue, right, seconds) in [("jobs", Right::Listen, 100), ("spare", Right::Send, 900)] {
        let rule = rule(queue, &[right]);
        server.add_rule(None, rule.clone()).await.unwrap();
        let token = token_of(&rule, queue, seconds);
        let resource = format!("sb://localhost/{queue}");
        assert_eq!(client.put_token(&resource, &token).await, 202);
    }
    let coordinator = client.coordinator().await;
    let from = client.receiver("jobs").await.unwrap();
    with_status(&server, "spare", EntityStatus::SendDisabled).await;
    let to = client.sender("spare").await.unwrap();
    // The right to receive its messages is enough.
    let sent = client.send_alone(coordinator, to, "one").await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(failed(&server, "jobs").await, 1);
    later(200);
    client.declare(coordinator).await;
    client.detached(from).await.unwrap();
    let text = client.rolls_back(coordinator, to).await;
    assert!(text.contains("'spare' is disabled"), "{text}");
    assert_eq!(failed(&server, "jobs").await, 1);
    // What is sent while its destination accepts it arrives.
    with_status(&server, "spare", EntityStatus::Active).await;
    let sent = client.send_alone(coordinator, to, "two").await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(held(&server, "spare").await, (1, 0));
}

/// Tokens are for the name that the client uses, although the failed transfers are the topic's.
#[tokio::test]
async fn a_first_entity_that_the_client_has_lost_gets_no_failed_transfers() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = stranger(&server).await;
    let subscription = "events/Subscriptions/all";
    let seconds = 1_000_000_000;
    let mut tokens = Vec::new();
    for (name, right, path) in [
        ("listens", Right::Listen, subscription),
        ("sends", Right::Send, "spare"),
    ] {
        let rule = rule(name, &[right]);
        server.add_rule(None, rule.clone()).await.unwrap();
        let resource = format!("sb://localhost/{path}");
        let token = token_of(&rule, path, seconds);
        assert_eq!(client.put_token(&resource, &token).await, 202);
        tokens.push((resource, rule));
    }
    let coordinator = client.coordinator().await;
    let from = client.receiver(subscription).await.unwrap();
    with_status(&server, "spare", EntityStatus::SendDisabled).await;
    let to = client.sender("spare").await.unwrap();
    let sent = client.send_alone(coordinator, to, "one").await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(failed(&server, "events").await, 1);
    server.remove_rule(None, "listens").await.unwrap();
    client.detached(from).await.unwrap();
    let text = client.rolls_back(coordinator, to).await;
    assert!(text.contains("'spare' is disabled"), "{text}");
    assert_eq!(failed(&server, "events").await, 1);
    // Another link gets the error of its queue at once.
    client.detach(to).await;
    let refused = client.sender("spare").await.unwrap_err();
    assert_eq!(refused.condition, "com.microsoft:entity-disabled");
    // A token that replaces another one, and has another right, is enough too.
    let (resource, _) = &tokens[0];
    let token = token_of(&tokens[1].1, subscription, seconds);
    assert_eq!(client.put_token(resource, &token).await, 202);
    let to = client.sender("spare").await.unwrap();
    let sent = client.send_alone(coordinator, to, "two").await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(failed(&server, "events").await, 2);
}

/// The place is taken in the order in which a client attaches, also if an earlier link is accepted later.
#[tokio::test]
async fn the_first_entity_is_the_first_that_a_client_asks_for() {
    let server = start().await;
    let mut client = server.trusted().await;
    let coordinator = client.coordinator().await;
    // It waits for the next session.
    let mut attach = Attach::new("from steps".into(), Role::Receiver);
    let mut source = Source::new("steps".into());
    let filter = Symbol::from_static("com.microsoft:session-filter");
    source.filter = Some(Map::build(|map| map.entry(&filter, &Value::Null)));
    attach.source = Some(source);
    attach.target = Some(Target::new("here".into()));
    let session = client.session.unwrap();
    let waiting = client.connection.attach(session, attach).unwrap();
    let spare = client.sender("spare").await.unwrap();
    // Until it is accepted, there is no first entity, and another link has not its place.
    with_status(&server, "spare", EntityStatus::SendDisabled).await;
    client.sender("jobs").await.unwrap();
    let text = client.rolls_back(coordinator, spare).await;
    assert!(text.contains("'spare' is disabled"), "{text}");
    // It is refused: the next link has its place.
    delete(&server, "steps").await;
    client.detached(waiting).await.unwrap();
    client.receiver("jobs").await.unwrap();
    let sent = client.send_alone(coordinator, spare, "one").await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(failed(&server, "jobs").await, 1);
}

async fn with_size(server: &Server, queue: &str, size_bytes_max: u64) {
    let options = BusQueueOptions {
        size_bytes_max,
        ..server.view(queue).await.options
    };
    let queue = queue_named(queue);
    server
        .order(BusCommand::UpdateQueue { queue, options })
        .await;
}

/// The error is about the first entity, and says why the destination did not accept the message.
#[tokio::test]
async fn a_first_entity_that_is_full_or_gone_rolls_the_transaction_back() {
    let server = start().await;
    let mut client = server.trusted().await;
    let coordinator = client.coordinator().await;
    let from = client.receiver("jobs").await.unwrap();
    let to = client.sender("spare").await.unwrap();
    with_status(&server, "spare", EntityStatus::SendDisabled).await;
    with_size(&server, "jobs", 100).await;
    let text = client.rolls_back(coordinator, to).await;
    let begin = "the failed transfer has no room in 'jobs', where ";
    let end = " of 100 bytes would be used; 'spare' refused it: it is disabled for this operation";
    assert!(text.contains(begin) && text.contains(end), "{text}");
    delete(&server, "jobs").await;
    client.detached(from).await.unwrap();
    let text = client.rolls_back(coordinator, to).await;
    assert!(text.contains("'spare' is disabled"), "{text}");
}

#[tokio::test]
async fn a_destination_that_is_full_or_needs_a_session_has_failed_transfers() {
    let server = start().await;
    let mut client = server.trusted().await;
    let coordinator = client.coordinator().await;
    client.receiver("jobs").await.unwrap();
    let spare = client.sender("spare").await.unwrap();
    let steps = client.sender("steps").await.unwrap();
    with_size(&server, "spare", 100).await;
    for (to, body, destination, reason) in [
        (spare, "one", "spare", UNAVAILABLE),
        (steps, "two", "steps", "Session id is null."),
    ] {
        let sent = client.send_alone(coordinator, to, body).await;
        assert_eq!(sent, DeliveryState::ACCEPTED);
        let told = client.dead_letter(LETTERS, body, destination).await;
        assert_eq!(told, reason);
        assert_eq!(held(&server, destination).await, (0, 0));
    }
}

#[tokio::test]
async fn a_link_that_is_attached_before_the_coordinator_ends_with_its_entity() {
    let server = start().await;
    let mut client = server.trusted().await;
    let before = client.sender("spare").await.unwrap();
    let coordinator = client.coordinator().await;
    client.receiver("jobs").await.unwrap();
    let id = client.declare(coordinator).await;
    client.post(before, &id, "one").await;
    with_status(&server, "spare", EntityStatus::SendDisabled).await;
    let error = client.detached(before).await.unwrap();
    assert_eq!(error.condition, "com.microsoft:entity-disabled");
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    assert_eq!(failed(&server, "jobs").await, 0);
    // One that is attached now is part of it.
    let after = client.sender("spare").await.unwrap();
    let sent = client.send_alone(coordinator, after, "two").await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(failed(&server, "jobs").await, 1);
}
