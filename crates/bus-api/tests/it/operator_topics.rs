//! Topics, subscriptions and rules in the operator's interface.

use kew_engine::bus::{BusCommand, NewRule};
use kew_filter::{Definition, Equality, FilterDefinition, OwnedValue, SqlDefinition};
use serde_json::{Value as Json, json};

use crate::client::{Server, queue_named};
use crate::operator::{get, refused};

#[tokio::test]
async fn a_topic_is_shown_with_its_subscriptions_and_their_rules() {
    let server = Server::with_topic(&["all", "red"]).await;
    let filter = FilterDefinition::Correlation(vec![Equality::User {
        name: "color".into(),
        value: OwnedValue::Text("red".into()),
    }]);
    for (name, filter, action) in [
        ("color", filter, None),
        ("none", FilterDefinition::False, Some("SET a = 1")),
    ] {
        let action = action.map(|text| SqlDefinition {
            text: text.into(),
            ..SqlDefinition::default()
        });
        server
            .order(BusCommand::AddRule {
                topic: queue_named("events"),
                subscription: queue_named("events/subscriptions/red"),
                rule: Box::new(NewRule {
                    name: name.into(),
                    definition: Definition::new(filter, action).unwrap(),
                }),
            })
            .await;
    }
    let mut client = server.trusted().await;
    client.send_one("events", "one").await;
    let listed = get(&server, "GET", "topics", &Json::Null).await;
    assert_eq!(listed["topics"][0]["name"], "events");
    assert_eq!(listed["topics"][0]["subscriptions"], 2);
    assert_eq!(listed["next"], Json::Null);
    let shown = get(&server, "GET", "topics/Events", &Json::Null).await;
    assert_eq!(shown["topic"]["active_messages"], 0);
    let of = |index: usize| {
        let subscription = &shown["subscriptions"][index];
        let count = subscription["active_messages"].as_u64();
        (subscription["name"].as_str().unwrap().to_owned(), count)
    };
    assert_eq!(of(0), ("events/subscriptions/all".to_owned(), Some(1)));
    assert_eq!(of(1), ("events/subscriptions/red".to_owned(), Some(1)));
    let page = get(&server, "GET", "topics/events?limit=1&skip=1", &Json::Null).await;
    assert_eq!(page["subscriptions"].as_array().unwrap().len(), 1);
    assert_eq!(page["subscriptions"][0]["name"], "events/subscriptions/red");
    assert_eq!(page["next"], 2);
    let rules = get(
        &server,
        "GET",
        "rules/events/subscriptions/red?limit=2",
        &Json::Null,
    )
    .await;
    let names: Vec<_> = (0..2)
        .map(|it| rules["rules"][it]["name"].clone())
        .collect();
    assert_eq!(names, ["$Default", "color"]);
    assert_eq!(rules["next"], 2);
    assert_eq!(
        rules["rules"][1]["definition"],
        json!({"FilterType": "Correlation", "CorrelationFilter": {"Properties": {"color": "red"}}})
    );
    let rest = get(
        &server,
        "GET",
        "rules/events/subscriptions/red?skip=2",
        &Json::Null,
    )
    .await;
    let action = &rest["rules"][0]["definition"]["Action"];
    assert_eq!(action, &json!({"SqlExpression": "SET a = 1"}));
    for path in [
        "topics/jobs",
        "topics/absent",
        "rules/events",
        "rules/absent",
    ] {
        assert_eq!(
            refused(&server, "GET", path, "").await.status,
            404,
            "{path}"
        );
    }
    assert_eq!(refused(&server, "POST", "topics", "").await.status, 405);
}
