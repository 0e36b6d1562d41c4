//! Sessions with a coordinator and links to several entities, as SDKs with cross-entity transactions have them: the first
//! entity gets the failed transfers of the others.

use kew_engine::bus::{BusQueueOptions, EntityStatus};

use super::via::{UNAVAILABLE, failed, with_status};
use super::*;

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
