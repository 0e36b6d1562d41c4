//! Queues after a restart.

use std::sync::Arc;

use kew_log::MemoryStorage;

use super::{ask, create, update};
use crate::client::Server;

#[tokio::test]
async fn queues_and_all_that_is_kept_of_them_outlive_a_restart() {
    let storage = Arc::new(MemoryStorage::new());
    let before = Server::start_on(Arc::clone(&storage)).await;
    create(&before, "/Next", "").await.check(201);
    let elements = "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>\
        <AuthorizationRules><AuthorizationRule><Rights><AccessRights>Listen</AccessRights></Rights>\
        <KeyName>r</KeyName></AuthorizationRule></AuthorizationRules>\
        <Status>ReceiveDisabled</Status><ForwardTo>NEXT</ForwardTo><UserMetadata>mine</UserMetadata>\
        <SupportOrdering>false</SupportOrdering><EnablePartitioning>true</EnablePartitioning>\
        <ForwardDeadLetteredMessagesTo>Next</ForwardDeadLetteredMessagesTo>\
        <EnableExpress>true</EnableExpress>";
    let created = ask("PUT", "/Shop/Orders").queue(elements).forwards();
    created.of(&before).await.check(201);
    let window = "<DuplicateDetectionHistoryTimeWindow>PT1H</DuplicateDetectionHistoryTimeWindow>";
    update(&before, "/Next", window).await.check(200);
    create(&before, "/gone", "").await.check(201);
    ask("DELETE", "/gone").of(&before).await.check(200);
    let topic = ask("PUT", "/News").description("TopicDescription", "");
    topic.of(&before).await.check(201);
    let subscription = "SubscriptionDescription";
    for name in ["Kept", "Gone"] {
        let path = format!("/News/Subscriptions/{name}");
        let create = ask("PUT", &path).description(subscription, "");
        create.of(&before).await.check(201);
    }
    for (kind, path, elements) in [
        (
            "TopicDescription",
            "/news",
            "<DefaultMessageTimeToLive>PT1H</DefaultMessageTimeToLive>",
        ),
        (
            subscription,
            "/news/subscriptions/kept",
            "<LockDuration>PT30S</LockDuration>\
             <DeadLetteringOnFilterEvaluationExceptions>false</DeadLetteringOnFilterEvaluationExceptions>",
        ),
    ] {
        let update = ask("PUT", path).header("If-Match", "*");
        let update = update.description(kind, elements);
        update.of(&before).await.check(200);
    }
    ask("DELETE", "/news/subscriptions/gone")
        .of(&before)
        .await
        .check(200);
    let mut shown = Vec::new();
    for path in [
        "/shop/orders",
        "/next",
        "/$Resources/queues",
        "/news",
        "/$Resources/topics",
        "/news/subscriptions",
        "/news/subscriptions/kept",
    ] {
        shown.push((path, ask("GET", path).of(&before).await.check(200).body));
    }
    assert!(shown[3].1.contains("<DefaultMessageTimeToLive>PT1H<"));
    assert!(shown[6].1.contains("<LockDuration>PT30S<"));
    assert!(
        shown[0]
            .1
            .contains("<ForwardTo>sb://ns.example:5300/NEXT</ForwardTo>")
    );
    assert!(
        shown[1]
            .1
            .contains("<DuplicateDetectionHistoryTimeWindow>PT1H<")
    );
    drop(before);
    let after = Server::start_on(storage).await;
    for (path, before) in shown {
        let after = ask("GET", path).of(&after).await.check(200);
        // The head of a list has the time of its creation.
        let entries = |body: &str| body.find("<entry").map(|start| body[start..].to_owned());
        assert_eq!(entries(&after.body), entries(&before), "{path}");
    }
}
