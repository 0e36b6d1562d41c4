//! Messages that are sent via an entity to another one, in transactions and outside; and transactions with topics.

use kew_amqp::codec::Text;
use kew_amqp::message::Message;
use kew_bus_api::{AuthorizationRule, Right};
use kew_engine::bus::EntityStatus;

use super::*;
use crate::client::token_by;

const DESTINATION: &str = "com.microsoft:transfer-destination-address";
const FAR_FUTURE_S: u64 = 9_000_000_000;

fn via(entity: &str, destination: &str) -> Attach {
    let mut attach = Attach::new(
        format!("{entity} {destination}").as_str().into(),
        Role::Sender,
    );
    attach.source = Some(Source::new("here".into()));
    attach.target = Some(Target::new(entity.into()));
    let name = Symbol::from_static(DESTINATION);
    let destination = Text::from(destination);
    attach.properties = Some(Map::build(|map| map.entry(&name, &destination)));
    attach
}

impl Client {
    async fn sender_via(&mut self, entity: &str, destination: &str) -> LinkId {
        let (link, answer) = self.attach(via(entity, destination)).await.unwrap();
        let told = answer.properties.unwrap();
        let told = told.get(DESTINATION).unwrap();
        assert_eq!(told.value().as_str(), Some(destination));
        link
    }

    async fn refused_via(&mut self, entity: &str, destination: &str) -> (String, String) {
        let mut attach = via(entity, destination);
        // A link to the same entities may be there.
        attach.name = "refused".into();
        let error = self.attach(attach).await.unwrap_err();
        let text = error.description.unwrap().as_str().to_owned();
        (error.condition.to_string(), text)
    }

    /// Takes the next message of an entity, which ends in this body, and returns the reason why it is there. Its
    /// description names this destination.
    pub(super) async fn dead_letter(
        &mut self,
        entity: &str,
        body: &str,
        destination: &str,
    ) -> String {
        let taker = self.taker(entity).await;
        self.connection.grant(taker, 1);
        let delivery = self.delivery().await;
        self.detach(taker).await;
        assert!(delivery.payload.ends_with(body.as_bytes()), "{body}");
        let message = Message::scan(delivery.payload.clone()).unwrap();
        let properties = message.application_properties();
        let text = |name| {
            properties
                .get(name)
                .unwrap()
                .value()
                .as_str()
                .unwrap()
                .to_owned()
        };
        let description = text("DeadLetterErrorDescription");
        assert!(
            description.contains(&format!("'{destination}'")),
            "{description}"
        );
        text("DeadLetterReason")
    }
}

pub(super) async fn failed(server: &Server, queue: &str) -> u64 {
    server.view(queue).await.counts.failed_transfers
}

pub(super) async fn with_status(server: &Server, queue: &str, status: EntityStatus) {
    let options = BusQueueOptions {
        status,
        ..server.view(queue).await.options
    };
    let queue = queue_named(queue);
    server
        .order(BusCommand::UpdateQueue { queue, options })
        .await;
}

pub(super) const UNAVAILABLE: &str = "ForwardingDestinationUnavailable";

#[tokio::test]
async fn what_is_sent_via_a_queue_arrives_at_its_destination() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    client.fill(jobs, 1).await;
    let receiver = client.receiver("jobs").await.unwrap();
    let held_now = client.receive(receiver, 1).await;
    let link = client.sender_via("Jobs", "sb://host/SPARE").await;
    // Outside of a transaction it arrives at once.
    let sent = client.send(link, 0, message("one")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(held(&server, "spare").await, (1, 0));
    let coordinator = client.coordinator().await;
    for (fail, there) in [(true, 1), (false, 3)] {
        let id = client.declare(coordinator).await;
        client.post(link, &id, "two").await;
        client.post(link, &id, "three").await;
        if !fail {
            client.retire(&held_now[0], &id, Outcome::Accepted).await;
        }
        assert_eq!(held(&server, "spare").await, (1, 0));
        let state = client.discharge(coordinator, &id, fail).await;
        assert_eq!(state, DeliveryState::ACCEPTED);
        assert_eq!(held(&server, "spare").await, (there, 0));
    }
    assert_eq!(held(&server, "jobs").await, (0, 0));
    assert_eq!(failed(&server, "jobs").await, 0);
}

#[tokio::test]
async fn what_the_destination_does_not_accept_is_a_failed_transfer() {
    let server = start().await;
    let mut client = server.trusted().await;
    let coordinator = client.coordinator().await;
    let link = client.sender_via("jobs", "spare").await;
    with_status(&server, "spare", EntityStatus::SendDisabled).await;
    let sent = client.send(link, 0, message("one")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let letters = "jobs/$Transfer/$DeadLetterQueue";
    assert_eq!(
        client.dead_letter(letters, "one", "spare").await,
        UNAVAILABLE
    );
    // A disabled destination does not refuse the link.
    let second = client.sender_via("jobs", "Spare").await;
    let id = client.declare(coordinator).await;
    client.post(second, &id, "two").await;
    assert_eq!(failed(&server, "jobs").await, 0);
    client.commit(coordinator, &id).await;
    assert_eq!(
        client.dead_letter(letters, "two", "spare").await,
        UNAVAILABLE
    );
    // A session is missing at the destination.
    let steps = client.sender_via("jobs", "steps").await;
    let sent = client.send(steps, 0, message("three")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(
        client.dead_letter(letters, "three", "steps").await,
        "Session id is null."
    );
    // The destination is gone: the link stays, and a new one is refused.
    server
        .order(BusCommand::DeleteQueue {
            queue: queue_named("spare"),
        })
        .await;
    let sent = client.send(link, 0, message("four")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(
        client.dead_letter(letters, "four", "spare").await,
        UNAVAILABLE
    );
    let (condition, text) = client.refused_via("jobs", "spare").await;
    assert_eq!(condition, "amqp:not-found");
    assert!(text.contains("'spare' could not be found"), "{text}");
}

#[tokio::test]
async fn links_via_an_entity_are_refused_like_other_links() {
    let server = Server::with_topic(&["all"]).await;
    let mut client = server.trusted().await;
    let not_allowed = "amqp:not-allowed";
    for (entity, destination, expected) in [
        ("nothing", "spare", "amqp:not-found"),
        ("jobs", "nothing", "amqp:not-found"),
        ("jobs", "no such name!", "amqp:not-found"),
        ("jobs/$DeadLetterQueue", "spare", not_allowed),
        ("events/$Transfer/$DeadLetterQueue", "spare", not_allowed),
        ("jobs", "spare/$DeadLetterQueue", not_allowed),
        ("jobs", "events/Subscriptions/all", not_allowed),
        ("jobs", "spare/$management", not_allowed),
    ] {
        let (condition, text) = client.refused_via(entity, destination).await;
        assert_eq!(condition, expected, "{entity} {destination}: {text}");
    }
    let mut attach = via("jobs", "spare");
    let name = Symbol::from_static(DESTINATION);
    attach.properties = Some(Map::build(|map| map.entry(&name, &7u32)));
    let error = client.attach(attach).await.unwrap_err();
    assert_eq!(error.condition, "com.microsoft:argument-error");
    // The via entity is disabled now: the link ends.
    let link = client.sender_via("jobs", "spare").await;
    with_status(&server, "jobs", EntityStatus::SendDisabled).await;
    let error = client.detached(link).await.unwrap();
    assert_eq!(error.condition, "com.microsoft:entity-disabled");
    let (condition, _) = client.refused_via("jobs", "spare").await;
    assert_eq!(condition, "com.microsoft:entity-disabled");
}

#[tokio::test]
async fn a_client_that_sends_via_an_entity_may_send_to_both() {
    let server = Server::start().await;
    let mut keys = Vec::new();
    for (queue, right) in [
        ("jobs", Right::Send),
        ("spare", Right::Send),
        ("spare", Right::Listen),
    ] {
        let name = format!("{queue}-{right}").to_lowercase();
        let rule = AuthorizationRule::generate(&name, [right].into_iter().collect(), 1).unwrap();
        let rule = server.add_rule(Some(queue), rule).await.unwrap();
        let resource = format!("sb://localhost/{queue}");
        let token = token_by(&rule.name, &resource, &rule.primary_key, FAR_FUTURE_S);
        keys.push((resource, token));
    }
    let [jobs, spare, listens] = &keys[..] else {
        panic!("{keys:?}")
    };
    for (tokens, missing) in [
        (vec![jobs], Some("spare")),
        (vec![jobs, listens], Some("spare")),
        (vec![spare], Some("jobs")),
        (vec![jobs, spare], None),
    ] {
        let mut client = server.connect("ANONYMOUS", None);
        client.begun().await;
        for (queue, token) in tokens {
            assert_eq!(client.put_token(queue, token).await, 202);
        }
        match missing {
            None => {
                let link = client.sender_via("jobs", "spare").await;
                client.can_send(link).await;
                // A token for the destination that does not allow to send any more ends the link. Its end may come
                // before the answer.
                let (queue, token) = listens;
                assert_eq!(client.put_token(queue, token).await, 202);
                while client.connection.can_send(link) {
                    client.event().await;
                }
            }
            Some(missing) => {
                let (condition, text) = client.refused_via("jobs", "spare").await;
                assert_eq!(condition, "amqp:unauthorized-access");
                assert!(text.contains(&format!("Resource: '{missing}'")), "{text}");
            }
        }
    }
}

/// Tokens are for the names that the client uses, although messages are sent via the topic.
#[tokio::test]
async fn a_client_that_sends_via_a_subscription_has_rights_by_its_name() {
    let server = Server::with_topic(&["all"]).await;
    let rule = AuthorizationRule::generate("sends", [Right::Send].into_iter().collect(), 1);
    let rule = server.add_rule(None, rule.unwrap()).await.unwrap();
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    let put = async |client: &mut Client, name: &str, rights: &AuthorizationRule| {
        let resource = format!("sb://localhost/{name}");
        let token = token_by(&rights.name, &resource, &rights.primary_key, FAR_FUTURE_S);
        assert_eq!(client.put_token(&resource, &token).await, 202);
    };
    let subscription = "events/Subscriptions/all";
    put(&mut client, subscription, &rule).await;
    put(&mut client, "spare", &rule).await;
    let link = client.sender_via(subscription, "spare").await;
    client.can_send(link).await;
    // Another token, too, is judged by that name.
    put(&mut client, "spare", &rule).await;
    let sent = client.send(link, 0, message("one")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(held(&server, "spare").await, (1, 0));
    // Without the right on the subscription the link ends.
    let listens = AuthorizationRule::generate("listens", [Right::Listen].into_iter().collect(), 1);
    let listens = server.add_rule(None, listens.unwrap()).await.unwrap();
    put(&mut client, subscription, &listens).await;
    while client.connection.can_send(link) {
        client.event().await;
    }
}

#[tokio::test]
async fn a_link_announces_the_smaller_message_size_of_both() {
    let server = start().await;
    let mut client = server.trusted().await;
    let sizes = [("jobs", 2000), ("spare", 1500)];
    for (queue, message_size_bytes_max) in sizes {
        let options = BusQueueOptions {
            message_size_bytes_max,
            ..server.view(queue).await.options
        };
        let queue = queue_named(queue);
        server
            .order(BusCommand::UpdateQueue { queue, options })
            .await;
    }
    for (entity, destination) in [("jobs", "spare"), ("spare", "jobs")] {
        let (link, answer) = client.attach(via(entity, destination)).await.unwrap();
        assert_eq!(answer.max_message_size, Some(1500));
        // The client keeps to that.
        let sent = client.send(link, 0, message(&"x".repeat(1400))).await;
        assert_eq!(sent, DeliveryState::ACCEPTED);
    }
    for (queue, _) in sizes {
        assert_eq!(
            (held(&server, queue).await, failed(&server, queue).await),
            ((1, 0), 0)
        );
    }
}

#[tokio::test]
async fn a_transaction_has_parts_on_topics_and_subscriptions() {
    let server = Server::with_topic(&["all", "more"]).await;
    let mut client = server.trusted().await;
    let coordinator = client.coordinator().await;
    let events = client.sender("events").await.unwrap();
    client.fill(events, 1).await;
    let all = client.receiver("events/Subscriptions/all").await.unwrap();
    let first = client.receive(all, 1).await;
    let jobs = client.sender("jobs").await.unwrap();
    let active = async |name: &str| {
        let view = server.view(&format!("events/subscriptions/{name}")).await;
        view.counts.active
    };
    for fail in [true, false] {
        let id = client.declare(coordinator).await;
        client.post(events, &id, "one").await;
        client.post(jobs, &id, "two").await;
        // After a rollback, the client could not settle it again over its link.
        if !fail {
            client.retire(&first[0], &id, Outcome::Accepted).await;
        }
        assert_eq!((active("all").await, active("more").await), (1, 1));
        let state = client.discharge(coordinator, &id, fail).await;
        assert_eq!(state, DeliveryState::ACCEPTED);
    }
    // The topic stores what was sent, and its copies follow.
    let next = client.receive(all, 1).await;
    assert!(next[0].payload.ends_with(b"one"));
    assert_eq!((active("all").await, active("more").await), (1, 2));
    assert_eq!(held(&server, "jobs").await, (1, 0));
    // From a subscription to a topic: what fails is a failed transfer of the subscription's topic.
    let link = client
        .sender_via("events/Subscriptions/all", "events")
        .await;
    let id = client.declare(coordinator).await;
    client.post(link, &id, "three").await;
    client.retire(&next[0], &id, Outcome::Accepted).await;
    client.commit(coordinator, &id).await;
    let next = client.receive(all, 1).await;
    assert!(next[0].payload.ends_with(b"three"));
    let link = client.sender_via("events/Subscriptions/all", "jobs").await;
    // Its end would fail a transaction.
    client.detach(jobs).await;
    with_status(&server, "jobs", EntityStatus::Disabled).await;
    let id = client.declare(coordinator).await;
    client.post(link, &id, "four").await;
    client.retire(&next[0], &id, Outcome::Accepted).await;
    client.commit(coordinator, &id).await;
    let letters = "events/$Transfer/$DeadLetterQueue";
    assert_eq!(
        client.dead_letter(letters, "four", "jobs").await,
        UNAVAILABLE
    );
    // A disabled topic is neither a via entity nor sent to.
    let id = client.declare(coordinator).await;
    client.post(events, &id, "x").await;
    with_status(&server, "events", EntityStatus::Disabled).await;
    let error = error_of(&client.discharge(coordinator, &id, false).await);
    assert_eq!(error.condition, ROLLBACK);
    let (condition, _) = client
        .refused_via("events/Subscriptions/all", "spare")
        .await;
    assert_eq!(condition, "com.microsoft:entity-disabled");
}
