//! A topic that refuses messages that no rule of its subscriptions selects.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Map, write_list, write_map};
use kew_amqp::message::{BATCH_FORMAT, write_application_properties, write_batch};
use kew_amqp::performative::{DeliveryState, Outcome, Rejected};
use kew_engine::bus::{BusCommand, BusQueueOptions, NewRule};
use kew_filter::{Definition, Equality, FilterDefinition, OwnedValue};

use crate::client::{Server, message, queue_named};
use crate::management::told;
use crate::rest::ask;

const CONDITION: &str = "com.microsoft:no-matching-subscription";
const SAYS: &str = "no rule of the topic 'events' selects message";

impl Server {
    /// The topic `events` that filters, with a subscription that gets red messages.
    async fn that_filters() -> Self {
        let server = Self::with_topic(&[]).await;
        let (topic, subscription) = (
            queue_named("events"),
            queue_named("events/subscriptions/red"),
        );
        let red = FilterDefinition::Correlation(vec![Equality::User {
            name: "color".into(),
            value: OwnedValue::Text("red".into()),
        }]);
        let rule = NewRule {
            name: "red".into(),
            definition: Definition::new(red, None).unwrap(),
        };
        let options = BusQueueOptions {
            filters_before_publishing: true,
            ..BusQueueOptions::default()
        };
        server
            .order(BusCommand::UpdateQueue {
                queue: topic.clone(),
                options,
            })
            .await;
        server
            .order(BusCommand::CreateSubscription {
                topic,
                subscription,
                options: BusQueueOptions::default(),
                rule: Some(Box::new(rule)),
            })
            .await;
        server
    }

    async fn red_count(&self) -> u64 {
        self.view("events/subscriptions/red").await.counts.active
    }
}

fn colored(color: &str) -> Bytes {
    let mut out = BytesMut::new();
    let properties = Map::build(|map| map.entry("color", color));
    write_application_properties(&mut out, &properties);
    out.extend_from_slice(&message(color));
    out.freeze()
}

/// The condition and the text of a refused transfer.
fn refused(state: DeliveryState) -> (String, String) {
    let DeliveryState::Outcome(Outcome::Rejected(Rejected { error: Some(error) })) = state else {
        panic!("{state:?}");
    };
    let text = error.description.unwrap().as_str().to_owned();
    (error.condition.as_str().to_owned(), text)
}

/// The link stays: the next message over it is accepted.
#[tokio::test]
async fn a_message_that_no_rule_selects_is_rejected() {
    let server = Server::that_filters().await;
    let mut client = server.trusted().await;
    let sender = client.sender("events").await.unwrap();
    let (condition, text) = refused(client.send(sender, 0, colored("blue")).await);
    assert_eq!(condition, CONDITION);
    assert!(text.starts_with(&format!("{SAYS} 1")), "{text}");

    let mut batch = BytesMut::new();
    write_batch(&mut batch, &[colored("red"), colored("blue")]);
    let rejected = client.send(sender, BATCH_FORMAT, batch.freeze()).await;
    let (condition, text) = refused(rejected);
    assert_eq!(condition, CONDITION);
    assert!(text.starts_with(&format!("{SAYS} 2")), "{text}");
    assert_eq!(server.red_count().await, 0);

    let sent = client.send(sender, 0, colored("red")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    assert_eq!(server.red_count().await, 1);
}

#[tokio::test]
async fn over_http_and_by_a_request_it_is_refused_too() {
    let server = Server::that_filters().await;
    let sent = ask(&server, "POST", "events/messages", &[], "x").await;
    assert_eq!(sent.status, 400, "{sent:?}");
    assert!(sent.body.contains(SAYS), "{sent:?}");
    let red = [("color", "\"red\"")];
    let sent = ask(&server, "POST", "events/messages", &red, "x").await;
    assert_eq!(sent.status, 201, "{sent:?}");
    assert_eq!(server.red_count().await, 1);

    // A message without a time is sent at once.
    let mut client = server.trusted().await;
    let operation = "com.microsoft:schedule-message";
    let properties = Map::build(|map| map.entry("operation", operation));
    let body = Map::build(|map| {
        map.entry_with("messages", |out| {
            write_list(out, |list| {
                list.with(|out| write_map(out, |map| map.entry("message", &colored("blue"))));
            });
        });
    });
    let answer = client.ask("events/$management", &properties, &body).await;
    assert_eq!(told(&answer), (500, CONDITION.to_owned()));
}
