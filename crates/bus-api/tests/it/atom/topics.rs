//! Creates, reads, changes, lists and deletes topics and subscriptions; what is not supported yet is refused.

use kew_engine::bus::{BusCommand, BusQueueOptions};

use super::lists::between;
use super::{ask, create, update};
use crate::client::{Server, queue_named};
use crate::rest::Answer;

pub(super) const CONNECT: &str = "xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
    xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\"";

pub(super) async fn create_topic(server: &Server, path: &str, elements: &str) -> Answer {
    let create = ask("PUT", path).description("TopicDescription", elements);
    create.of(server).await
}

pub(super) async fn subscribe(server: &Server, path: &str, elements: &str) -> Answer {
    let create = ask("PUT", path).description("SubscriptionDescription", elements);
    create.of(server).await
}

pub(super) async fn update_topic(server: &Server, path: &str, elements: &str) -> Answer {
    let update = ask("PUT", path).header("If-Match", "*");
    update
        .description("TopicDescription", elements)
        .of(server)
        .await
}

pub(super) async fn update_subscription(server: &Server, path: &str, elements: &str) -> Answer {
    let update = ask("PUT", path).header("If-Match", "*");
    let update = update.description("SubscriptionDescription", elements);
    update.of(server).await
}

/// The elements of the description in an answer, without times.
fn described(answer: &Answer, kind: &str) -> String {
    let begin = format!("<{kind} {CONNECT}>");
    let (_, after) = answer.body.split_once(&begin).unwrap();
    let (inner, _) = after.split_once(&format!("</{kind}>")).unwrap();
    let mut text = inner.to_owned();
    for name in ["CreatedAt", "UpdatedAt", "AccessedAt"] {
        let element = format!("<{name}>{}</{name}>", answer.text(name));
        assert!(text.contains(&element), "{text}");
        text = text.replace(&element, &format!("<{name}/>"));
    }
    text
}

/// The name and the path of each entry of a feed.
pub(super) fn entries(page: &Answer) -> Vec<(String, String)> {
    let entries = page.body.split("<entry>").skip(1);
    let read = entries.map(|entry| {
        let title = between(entry, "<title type=\"text\">", "<")[0];
        let id = between(entry, "<id>http://ns.example:5300/", "?")[0];
        (title.to_owned(), id.to_owned())
    });
    read.collect()
}

const COUNTS: &str = "<CountDetails xmlns:d2p1=\"http://schemas.microsoft.com/netservices/2011/06/servicebus\">\
    <d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount>\
    <d2p1:DeadLetterMessageCount>0</d2p1:DeadLetterMessageCount>\
    <d2p1:ScheduledMessageCount>0</d2p1:ScheduledMessageCount>\
    <d2p1:TransferMessageCount>0</d2p1:TransferMessageCount>\
    <d2p1:TransferDeadLetterMessageCount>0</d2p1:TransferDeadLetterMessageCount></CountDetails>";

#[tokio::test]
async fn entries_have_every_element_that_sdks_read() {
    let server = Server::start().await;
    let version = "api-version=2021-05";
    let created = create_topic(&server, &format!("/Shop/Events?{version}"), "").await;
    let created = created.check(201);
    let expected = format!(
        "<DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>\
        <MaxSizeInMegabytes>1024</MaxSizeInMegabytes>\
        <RequiresDuplicateDetection>false</RequiresDuplicateDetection>\
        <DuplicateDetectionHistoryTimeWindow>PT10M</DuplicateDetectionHistoryTimeWindow>\
        <EnableBatchedOperations>true</EnableBatchedOperations><SizeInBytes>0</SizeInBytes>\
        <FilteringMessagesBeforePublishing>false</FilteringMessagesBeforePublishing>\
        <IsAnonymousAccessible>false</IsAnonymousAccessible><AuthorizationRules />\
        <Status>Active</Status><CreatedAt/><UpdatedAt/><AccessedAt/>\
        <SupportOrdering>true</SupportOrdering>{COUNTS}<SubscriptionCount>0</SubscriptionCount>\
        <AutoDeleteOnIdle>P10675199DT2H48M5.4775807S</AutoDeleteOnIdle>\
        <EnablePartitioning>false</EnablePartitioning>\
        <EntityAvailabilityStatus>Available</EntityAvailabilityStatus>\
        <EnableSubscriptionPartitioning>false</EnableSubscriptionPartitioning>\
        <EnableExpress>false</EnableExpress>\
        <MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>"
    );
    assert_eq!(described(&created, "TopicDescription"), expected);
    let head = "<entry xmlns=\"http://www.w3.org/2005/Atom\">\
        <id>http://ns.example:5300/Shop/Events?api-version=2021-05</id>\
        <title type=\"text\">Shop/Events</title>";
    assert!(created.body.starts_with(head), "{}", created.body);

    let path = format!("/shop/events/Subscriptions/All?{version}");
    let created = subscribe(&server, &path, "").await.check(201);
    let expected = format!(
        "<LockDuration>PT1M</LockDuration><RequiresSession>false</RequiresSession>\
        <DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>\
        <DeadLetteringOnMessageExpiration>false</DeadLetteringOnMessageExpiration>\
        <DeadLetteringOnFilterEvaluationExceptions>true</DeadLetteringOnFilterEvaluationExceptions>\
        <MessageCount>0</MessageCount><MaxDeliveryCount>10</MaxDeliveryCount>\
        <EnableBatchedOperations>true</EnableBatchedOperations><Status>Active</Status>\
        <CreatedAt/><UpdatedAt/><AccessedAt/>{COUNTS}\
        <AutoDeleteOnIdle>P10675199DT2H48M5.4775807S</AutoDeleteOnIdle>\
        <EntityAvailabilityStatus>Available</EntityAvailabilityStatus>"
    );
    assert_eq!(described(&created, "SubscriptionDescription"), expected);
    // JavaScript takes the name from the path of the id, .NET and Python from the title.
    let head = "<entry xmlns=\"http://www.w3.org/2005/Atom\">\
        <id>http://ns.example:5300/shop/events/Subscriptions/All?api-version=2021-05</id>\
        <title type=\"text\">All</title>";
    assert!(created.body.starts_with(head), "{}", created.body);
    let read = ask("GET", "/SHOP/EVENTS/subscriptions/ALL")
        .of(&server)
        .await
        .check(200);
    assert_eq!(described(&read, "SubscriptionDescription"), expected);
    let read = ask("GET", "/shop/events").of(&server).await.check(200);
    assert_eq!(read.text("SubscriptionCount"), "1");
}

#[tokio::test]
async fn settings_are_kept_as_they_were_given() {
    let server = Server::start().await;
    let topic = "<DefaultMessageTimeToLive>PT1H</DefaultMessageTimeToLive>\
        <MaxSizeInMegabytes>2048</MaxSizeInMegabytes>\
        <EnableBatchedOperations>false</EnableBatchedOperations><UserMetadata>mine</UserMetadata>\
        <SupportOrdering>false</SupportOrdering><EnableExpress>true</EnableExpress>\
        <AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle><Status>SendDisabled</Status>\
        <LockDuration>PT1S</LockDuration>";
    let created = create_topic(&server, "/t", topic).await.check(201);
    for (name, value) in [
        ("DefaultMessageTimeToLive", "PT1H"),
        ("MaxSizeInMegabytes", "2048"),
        ("EnableBatchedOperations", "false"),
        ("UserMetadata", "mine"),
        ("SupportOrdering", "false"),
        ("EnableExpress", "true"),
        ("AutoDeleteOnIdle", "PT5M"),
        ("Status", "SendDisabled"),
    ] {
        assert_eq!(created.text(name), value);
    }
    // A topic has no locks: the element is not read.
    assert!(!created.body.contains("LockDuration"));
    let subscription = "<LockDuration>PT30S</LockDuration><RequiresSession>true</RequiresSession>\
        <DefaultMessageTimeToLive>PT2M</DefaultMessageTimeToLive>\
        <DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>\
        <DeadLetteringOnFilterEvaluationExceptions>false</DeadLetteringOnFilterEvaluationExceptions>\
        <MaxDeliveryCount>3</MaxDeliveryCount><Status>ReceiveDisabled</Status>\
        <ForwardTo>Spare</ForwardTo><UserMetadata>ours</UserMetadata>\
        <ForwardDeadLetteredMessagesTo>Jobs</ForwardDeadLetteredMessagesTo>\
        <AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle><MaxSizeInMegabytes>0</MaxSizeInMegabytes>";
    let path = "/t/subscriptions/s";
    let created = subscribe(&server, path, subscription).await.check(201);
    for (name, value) in [
        ("LockDuration", "PT30S"),
        ("RequiresSession", "true"),
        ("DefaultMessageTimeToLive", "PT2M"),
        ("DeadLetteringOnMessageExpiration", "true"),
        ("DeadLetteringOnFilterEvaluationExceptions", "false"),
        ("MaxDeliveryCount", "3"),
        ("Status", "ReceiveDisabled"),
        ("ForwardTo", "sb://ns.example:5300/Spare"),
        ("UserMetadata", "ours"),
        ("ForwardDeadLetteredMessagesTo", "sb://ns.example:5300/Jobs"),
        ("AutoDeleteOnIdle", "PT5M"),
    ] {
        assert_eq!(created.text(name), value);
    }
    // .NET names the default rule.
    let rule = "<DefaultRuleDescription><Filter i:type=\"TrueFilter\"><SqlExpression>1=1</SqlExpression></Filter>\
        <Action i:type=\"EmptyRuleAction\"/><Name>$Default</Name></DefaultRuleDescription>";
    let path = "/t/subscriptions/with-rule";
    subscribe(&server, path, rule).await.check(201);
}

/// An update replaces all settings, but for those that never change and authorization rules.
#[tokio::test]
async fn updates_replace_the_settings() {
    let server = Server::start().await;
    let topic = "<DefaultMessageTimeToLive>PT1H</DefaultMessageTimeToLive>\
        <MaxSizeInMegabytes>2048</MaxSizeInMegabytes>\
        <DuplicateDetectionHistoryTimeWindow>PT1M</DuplicateDetectionHistoryTimeWindow>\
        <AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights>\
        <KeyName>r</KeyName></AuthorizationRule></AuthorizationRules>\
        <UserMetadata>mine</UserMetadata><SupportOrdering>false</SupportOrdering>\
        <EnablePartitioning>true</EnablePartitioning><EnableExpress>true</EnableExpress>\
        <MaxMessageSizeInKilobytes>512</MaxMessageSizeInKilobytes>";
    let created = create_topic(&server, "/Shop/T", topic).await.check(201);
    let path = "/shop/t/subscriptions/s";
    subscribe(&server, "/shop/t/subscriptions/S", "")
        .await
        .check(201);

    // Clients send back what they have read, with what only the server sets.
    let read = described(&created, "TopicDescription");
    let same = update_topic(&server, "/shop/t", &read).await.check(200);
    let with_one = read.replace("<SubscriptionCount>0<", "<SubscriptionCount>1<");
    assert_eq!(described(&same, "TopicDescription"), with_one);
    assert!(same.body.contains("<title type=\"text\">Shop/T</title>"));
    let changed = update_topic(
        &server,
        "/SHOP/T",
        "<DefaultMessageTimeToLive>PT2H</DefaultMessageTimeToLive><EnablePartitioning>true</EnablePartitioning>",
    )
    .await
    .check(200);
    for (name, value) in [
        ("DefaultMessageTimeToLive", "PT2H"),
        ("MaxSizeInMegabytes", "1024"),
        ("DuplicateDetectionHistoryTimeWindow", "PT10M"),
        ("SupportOrdering", "true"),
        ("EnablePartitioning", "true"),
        ("EnableExpress", "false"),
        ("MaxMessageSizeInKilobytes", "1024"),
        ("KeyName", "r"),
        ("SubscriptionCount", "1"),
    ] {
        assert_eq!(changed.text(name), value, "{name}");
    }
    assert!(!changed.body.contains("UserMetadata"), "{}", changed.body);
    let read = ask("GET", "/shop/t").of(&server).await.check(200);
    assert_eq!(read.text("DefaultMessageTimeToLive"), "PT2H");

    let subscription = "<LockDuration>PT30S</LockDuration>\
        <DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>\
        <DeadLetteringOnFilterEvaluationExceptions>false</DeadLetteringOnFilterEvaluationExceptions>\
        <MaxDeliveryCount>3</MaxDeliveryCount><Status>ReceiveDisabled</Status>\
        <ForwardTo>Jobs</ForwardTo><UserMetadata>ours</UserMetadata>\
        <AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>";
    let changed = update_subscription(&server, path, subscription)
        .await
        .check(200);
    for (name, value) in [
        ("LockDuration", "PT30S"),
        ("DeadLetteringOnMessageExpiration", "true"),
        ("DeadLetteringOnFilterEvaluationExceptions", "false"),
        ("MaxDeliveryCount", "3"),
        ("Status", "ReceiveDisabled"),
        ("ForwardTo", "sb://ns.example:5300/Jobs"),
        ("UserMetadata", "ours"),
        ("AutoDeleteOnIdle", "PT5M"),
    ] {
        assert_eq!(changed.text(name), value, "{name}");
    }
    let read = ask("GET", path).of(&server).await.check(200);
    let shown = described(&changed, "SubscriptionDescription");
    assert_eq!(described(&read, "SubscriptionDescription"), shown);
    let rule = "<DefaultRuleDescription><Filter i:type='TrueFilter'/></DefaultRuleDescription>";
    let changed = update_subscription(&server, path, rule).await.check(200);
    let flag = changed.text("DeadLetteringOnFilterEvaluationExceptions");
    assert_eq!(flag, "true");
    assert!(!changed.body.contains("ForwardTo"), "{}", changed.body);
    assert!(changed.body.contains("<title type=\"text\">S</title>"));
}

#[tokio::test]
async fn updates_are_refused_with_the_reason() {
    let server = Server::start().await;
    create_topic(&server, "/t", "").await.check(201);
    let path = "/t/subscriptions/s";
    subscribe(&server, path, "").await.check(201);
    for (elements, says) in [
        (
            "<EnablePartitioning>true</EnablePartitioning>",
            "EnablePartitioning cannot be changed once the entity is there",
        ),
        (
            "<EnableSubscriptionPartitioning>true</EnableSubscriptionPartitioning>",
            "must be false",
        ),
        (
            "<DefaultMessageTimeToLive>PT0.5S</DefaultMessageTimeToLive>",
            "at least 1 s",
        ),
        (
            "<MaxSizeInMegabytes>0</MaxSizeInMegabytes>",
            "must be a number",
        ),
    ] {
        let refused = update_topic(&server, "/t", elements).await;
        refused.check_refused(400, 40_000, says);
    }
    let size = "<MaxMessageSizeInKilobytes>512</MaxMessageSizeInKilobytes>";
    let refused = update_topic(&server, "/t?api-version=2017-04", size).await;
    refused.check_refused(400, 40_000, "'TopicDescription' has unsupported properties");
    for (elements, says) in [
        (
            "<RequiresSession>true</RequiresSession>",
            "RequiresSession cannot be changed once the entity is there",
        ),
        ("<LockDuration>PT4S</LockDuration>", "5 s to 5 min"),
        ("<MaxDeliveryCount>0</MaxDeliveryCount>", "must be a number"),
        (
            "<Status>SendDisabled</Status>",
            "Status of a subscription must",
        ),
        (
            "<DefaultRuleDescription><Filter i:type='FalseFilter'/></DefaultRuleDescription>",
            "DefaultRuleDescription is only for a new subscription",
        ),
    ] {
        let refused = update_subscription(&server, path, elements).await;
        refused.check_refused(400, 40_000, says);
    }
    let refused = update_subscription(&server, path, "<ForwardTo>nowhere</ForwardTo>").await;
    refused.check_refused(400, 40_400, "'nowhere' could not be found");
    for path in ["/t/subscriptions/none", "/none/subscriptions/s"] {
        let refused = update_subscription(&server, path, "").await;
        refused.check_refused(404, 40_400, "could not be found");
    }
    let refused = update_topic(&server, "/none", "").await;
    refused.check_refused(404, 40_400, "'none'");
    let refused = update_topic(&server, path, "").await;
    refused.check_refused(404, 40_400, "could not be found");
    let etag = ask("PUT", "/t").header("If-Match", "\"1\"");
    let refused = etag.description("TopicDescription", "").of(&server).await;
    refused.check_refused(400, 40_000, "must be *");
}

#[tokio::test]
async fn topics_and_subscriptions_are_listed_and_deleted() {
    let server = Server::start().await;
    for path in ["/B", "/a"] {
        create_topic(&server, path, "").await.check(201);
    }
    for name in ["Two", "one"] {
        // Python and Java write it in lower case.
        let path = format!("/B/subscriptions/{name}");
        let created = subscribe(&server, &path, "").await.check(201);
        let id = format!("<id>http://ns.example:5300/B/Subscriptions/{name}?");
        assert!(created.body.contains(&id), "{}", created.body);
    }
    let listed = |path: &'static str| {
        let server = &server;
        async move {
            let page = ask("GET", path).of(server).await.check(200);
            entries(&page)
        }
    };
    let entry = |title: &str, path: &str| (title.to_owned(), path.to_owned());
    let topics = listed("/$Resources/topics").await;
    assert_eq!(topics, [entry("a", "a"), entry("B", "B")]);
    assert_eq!(
        listed("/$Resources/topics?$skip=1").await,
        [entry("B", "B")]
    );
    let one = entry("one", "B/Subscriptions/one");
    let two = entry("Two", "B/Subscriptions/Two");
    let subscriptions = listed("/b/Subscriptions?$skip=0&$top=100").await;
    assert_eq!(subscriptions, [one.clone(), two.clone()]);
    assert_eq!(listed("/b/subscriptions?$skip=1&$top=1").await, [two]);
    assert_eq!(listed("/a/subscriptions").await, []);
    let queues = listed("/$Resources/queues").await;
    assert_eq!(queues.len(), 4, "{queues:?}");
    for path in ["/jobs/subscriptions", "/nothing/subscriptions"] {
        let none = ask("GET", path).of(&server).await;
        none.check_refused(404, 40_400, "could not be found");
    }

    let path = "/b/subscriptions/two";
    ask("DELETE", path).of(&server).await.check(200);
    ask("GET", path).of(&server).await.check(404);
    assert_eq!(listed("/b/subscriptions").await, [one]);
    ask("DELETE", "/b").of(&server).await.check(200);
    for path in ["/b", "/b/subscriptions/one", "/b/subscriptions"] {
        ask("GET", path).of(&server).await.check(404);
    }
    assert_eq!(listed("/$Resources/topics").await, [entry("a", "a")]);
}

#[tokio::test]
async fn a_topic_detects_duplicates_as_a_queue_does() {
    let server = Server::start().await;
    let detects = "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>";
    let window = |window: &str| {
        format!(
            "{detects}<DuplicateDetectionHistoryTimeWindow>{window}</DuplicateDetectionHistoryTimeWindow>"
        )
    };
    let short = create_topic(&server, "/t", &window("PT19S")).await;
    short.check_refused(400, 40_000, "20 s to 7 days");
    create_topic(&server, "/t", &window("PT20S"))
        .await
        .check(201);
    let changed = update_topic(&server, "/t", &window("PT1H")).await;
    let changed = changed.check(200);
    assert_eq!(changed.text("RequiresDuplicateDetection"), "true");
    let read = ask("GET", "/t").of(&server).await.check(200);
    let name = "DuplicateDetectionHistoryTimeWindow";
    assert_eq!(read.text(name), "PT1H");
    // As with queues, what is not named stays.
    let kept = update_topic(&server, "/t", "").await.check(200);
    assert_eq!(kept.text("RequiresDuplicateDetection"), "true");
    let off = "<RequiresDuplicateDetection>false</RequiresDuplicateDetection>";
    let refused = update_topic(&server, "/t", off).await;
    refused.check_refused(400, 40_000, "RequiresDuplicateDetection cannot be changed");
    create_topic(&server, "/made", "").await.check(201);
    let refused = update_topic(&server, "/made", detects).await;
    refused.check_refused(400, 40_000, "RequiresDuplicateDetection cannot be changed");
}

#[tokio::test]
async fn a_topic_filters_before_publishing() {
    let server = Server::start().await;
    let setting = "FilteringMessagesBeforePublishing";
    let with = |value: &str| format!("<{setting}>{value}</{setting}>");
    let created = create_topic(&server, "/t", &with("true")).await;
    assert_eq!(created.check(201).text(setting), "true");
    // An update replaces all settings that can change.
    let replaced = update_topic(&server, "/t", "").await.check(200);
    assert_eq!(replaced.text(setting), "false");
    update_topic(&server, "/t", &with("true")).await.check(200);
    let read = ask("GET", "/T").of(&server).await.check(200);
    assert_eq!(read.text(setting), "true");
    let wrong = update_topic(&server, "/t", &with("yes")).await;
    wrong.check_refused(400, 40_000, setting);
}

#[tokio::test]
async fn what_is_not_supported_yet_is_refused() {
    let server = Server::start().await;
    create_topic(&server, "/made", "").await.check(201);
    let (elements, says) = ("<Status>ReceiveDisabled</Status>", "Status of a topic must");
    let refused = create_topic(&server, "/t", elements).await;
    refused.check_refused(400, 40_000, says);
    let refused = update_topic(&server, "/made", elements).await;
    refused.check_refused(400, 40_000, says);
    create_topic(&server, "/t", "").await.check(201);
    let refused = subscribe(
        &server,
        "/t/subscriptions/s",
        "<Status>SendDisabled</Status>",
    )
    .await;
    refused.check_refused(400, 40_000, "Status of a subscription must");
    subscribe(&server, "/t/subscriptions/s", "")
        .await
        .check(201);
    let forwards = ask("PUT", "/q").queue("<ForwardTo>T</ForwardTo>");
    let created = forwards.of(&server).await.check(201);
    assert!(
        created.body.contains("<ForwardTo>sb://"),
        "{}",
        created.body
    );
}

#[tokio::test]
async fn a_name_is_of_one_entity_and_a_path_of_one_kind() {
    let server = Server::start().await;
    create_topic(&server, "/t", "").await.check(201);
    let exists = "exists already";
    create_topic(&server, "/t", "")
        .await
        .check_refused(409, 40_900, exists);
    create(&server, "/t", "")
        .await
        .check_refused(409, 40_900, exists);
    create_topic(&server, "/jobs", "")
        .await
        .check_refused(409, 40_900, exists);
    // An update says which kind it is for.
    update(&server, "/t", "")
        .await
        .check_refused(404, 40_400, "'t'");
    let change = ask("PUT", "/jobs").header("If-Match", "*");
    let change = change.description("TopicDescription", "").of(&server).await;
    change.check_refused(404, 40_400, "'jobs'");

    let path = "/t/subscriptions/s";
    create(&server, path, "")
        .await
        .check_refused(400, 40_000, "which is for subscriptions");
    create_topic(&server, path, "")
        .await
        .check_refused(400, 40_000, "which is for subscriptions");
    for path in ["/t/subscriptions", "/other/Subscriptions"] {
        create(&server, path, "")
            .await
            .check_refused(400, 40_000, "list of subscriptions of");
        create_topic(&server, path, "").await.check_refused(
            400,
            40_000,
            "list of subscriptions of",
        );
    }
    for path in ["/t", "/t/subscriptions/a/b", "/t/subscriptions/-a"] {
        let refused = subscribe(&server, path, "").await;
        refused.check_refused(400, 40_000, "not");
    }
    for topic in ["nothing", "jobs"] {
        let path = format!("/{topic}/subscriptions/s");
        let refused = subscribe(&server, &path, "").await;
        refused.check_refused(404, 40_400, topic);
    }
    subscribe(&server, path, "").await.check(201);
    subscribe(&server, path, "")
        .await
        .check_refused(409, 40_900, exists);
}

/// Queues of earlier versions have names that are for subscriptions now.
#[tokio::test]
async fn a_queue_that_is_there_keeps_its_name() {
    let server = Server::start().await;
    for name in ["old/subscriptions/s", "old/subscriptions"] {
        let queue = queue_named(name);
        let options = BusQueueOptions::default();
        server
            .order(BusCommand::CreateQueue { queue, options })
            .await;
        let path = format!("/{name}");
        let changed = update(&server, &path, "<MaxDeliveryCount>3</MaxDeliveryCount>").await;
        assert_eq!(changed.check(200).text("MaxDeliveryCount"), "3");
        let read = ask("GET", &path).of(&server).await.check(200);
        assert_eq!(read.text("MaxDeliveryCount"), "3");
    }
    create_topic(&server, "/old", "").await.check(201);
    let refused = subscribe(&server, "/old/subscriptions/s", "").await;
    refused.check_refused(409, 40_900, "exists already");
    for name in ["old/subscriptions/s", "old/subscriptions"] {
        let path = format!("/{name}");
        ask("DELETE", &path).of(&server).await.check(200);
        let refused = create(&server, &path, "").await;
        refused.check_refused(400, 40_000, "subscriptions");
    }
}

/// The name of a topic may have `/rules` in it.
#[tokio::test]
async fn paths_of_rules_are_found_behind_the_subscription() {
    let server = Server::start().await;
    for topic in ["a/rules-in", "a/rules/b", "rules"] {
        create_topic(&server, &format!("/{topic}"), "")
            .await
            .check(201);
        for name in ["s", "rules"] {
            let path = format!("/{topic}/subscriptions/{name}");
            subscribe(&server, &path, "").await.check(201);
            ask("GET", &path).of(&server).await.check(200);
            for rules in ["rules", "Rules/$Default"] {
                let path = format!("{path}/{rules}");
                let read = ask("GET", &path).of(&server).await.check(200);
                let expected = format!("/{topic}/Subscriptions/{name}/Rules/%24Default");
                let expected = expected.replace("%24", "$");
                assert!(read.body.contains(&expected), "{}", read.body);
            }
            let missing = ask("GET", &format!("{path}/rules/rules")).of(&server).await;
            missing.check_refused(404, 40_400, "the rule 'rules' could not be found");
        }
    }
    for path in [
        "/a/rules-in/subscriptions/none/rules",
        "/rules/subscriptions/s/rulesets",
    ] {
        let missing = ask("GET", path).of(&server).await;
        missing.check_refused(404, 40_400, "could not be found");
    }
}

#[tokio::test]
async fn a_topic_has_at_most_2000_subscriptions() {
    let server = Server::start().await;
    create_topic(&server, "/t", "").await.check(201);
    for number in 0..2000 {
        let created = BusCommand::CreateSubscription {
            topic: queue_named("t"),
            subscription: queue_named(&format!("t/subscriptions/s{number}")),
            options: BusQueueOptions::default(),
            rule: None,
        };
        server.order(created).await;
    }
    let refused = subscribe(&server, "/t/subscriptions/more", "").await;
    refused.check_refused(403, 40_300, "2000 subscriptions, which is the maximum");
}
