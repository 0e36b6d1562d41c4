//! Topics, subscriptions and rules at a service that answers as a test says, in Azure's form.

use std::time::{Duration, SystemTime};

use kew_client::{
    CorrelationFilter, EntityStatus, ErrorKind, Filter, FilterValue, NewRule, RuleDescription,
    RuleSettings, Sql, SubscriptionSettings, TopicSettings, UnknownElements, uuid_of,
};

use crate::admin_answers::{entry, error, feed, reply, sent_of};
use crate::script::{Reply, Script};

fn described(name: &str, kind: &str, elements: &str) -> String {
    let content = format!(
        "<{kind} xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
         xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">{elements}</{kind}>"
    );
    entry(name, &content)
}

fn topic(elements: &str) -> String {
    described("news", "TopicDescription", elements)
}

fn subscription(elements: &str) -> String {
    described("mine", "SubscriptionDescription", elements)
}

fn rule(elements: &str) -> String {
    described("r", "RuleDescription", elements)
}

fn ok(body: &str) -> Reply {
    reply("200 OK", body)
}

/// The target of a request, in lower case.
fn target(head: &str) -> &str {
    head.split(" http/1.1").next().unwrap()
}

#[tokio::test]
async fn every_setting_of_a_topic_is_sent_in_order() {
    let script = Script::of([reply("201 Created", &topic(""))]);
    let settings = TopicSettings {
        default_time_to_live: Some(Duration::from_hours(1)),
        max_size_megabytes: Some(2_048),
        requires_duplicate_detection: Some(true),
        duplicate_window: Some(Duration::from_mins(20)),
        enable_batched_operations: Some(false),
        filters_before_publishing: Some(true),
        is_anonymous_accessible: Some(false),
        authorization_rules: Some(Vec::new()),
        status: Some(EntityStatus::SendDisabled),
        user_metadata: Some("a & b".to_owned()),
        support_ordering: Some(true),
        auto_delete_on_idle: Some(Duration::from_hours(24)),
        enable_partitioning: Some(true),
        enable_subscription_partitioning: Some(true),
        enable_express: Some(true),
        max_message_size_kilobytes: Some(512),
        unknown: UnknownElements::default(),
    };
    let created = script.admin().create_topic("a/news", &settings).await;
    assert_eq!(created.unwrap().name, "news");
    let expected = "<DefaultMessageTimeToLive>PT1H</DefaultMessageTimeToLive>\
         <MaxSizeInMegabytes>2048</MaxSizeInMegabytes>\
         <RequiresDuplicateDetection>true</RequiresDuplicateDetection>\
         <DuplicateDetectionHistoryTimeWindow>PT20M</DuplicateDetectionHistoryTimeWindow>\
         <EnableBatchedOperations>false</EnableBatchedOperations>\
         <FilteringMessagesBeforePublishing>true</FilteringMessagesBeforePublishing>\
         <IsAnonymousAccessible>false</IsAnonymousAccessible>\
         <AuthorizationRules></AuthorizationRules><Status>SendDisabled</Status>\
         <UserMetadata>a &amp; b</UserMetadata><SupportOrdering>true</SupportOrdering>\
         <AutoDeleteOnIdle>P1D</AutoDeleteOnIdle><EnablePartitioning>true</EnablePartitioning>\
         <EnableSubscriptionPartitioning>true</EnableSubscriptionPartitioning>\
         <EnableExpress>true</EnableExpress>\
         <MaxMessageSizeInKilobytes>512</MaxMessageSizeInKilobytes>";
    assert_eq!(sent_of("TopicDescription", &script.bodies()[0]), expected);
    let head = &script.heads()[0];
    assert_eq!(target(head), "put /a/news?api-version=2021-05");
    assert!(!head.contains("if-match"), "{head}");
}

#[tokio::test]
async fn every_setting_of_a_subscription_is_sent_in_order() {
    let script = Script::of([
        reply("201 Created", &subscription("")),
        ok(&subscription("")),
    ]);
    let settings = SubscriptionSettings {
        lock_duration: Some(Duration::from_secs(5)),
        requires_session: Some(true),
        default_time_to_live: Some(SubscriptionSettings::FOREVER),
        dead_letters_expired: Some(true),
        dead_letters_filter_failures: Some(false),
        default_rule: Some(NewRule {
            name: "red".to_owned(),
            settings: RuleSettings {
                filter: Filter::Sql(Sql::new("color = 'red' AND size < 5")),
                ..RuleSettings::default()
            },
        }),
        max_delivery_count: Some(3),
        enable_batched_operations: Some(true),
        status: Some(EntityStatus::ReceiveDisabled),
        forward_to: Some("jobs".to_owned()),
        user_metadata: Some("mine".to_owned()),
        forward_dead_letters_to: Some("dead".to_owned()),
        auto_delete_on_idle: Some(Duration::from_mins(5)),
        unknown: UnknownElements::default(),
    };
    let admin = script.admin();
    let created = admin.create_subscription("a/news", "mine", &settings).await;
    created.unwrap();
    let updated = admin.update_subscription("a/news", "mine", &settings).await;
    updated.unwrap();
    let before = "<LockDuration>PT5S</LockDuration><RequiresSession>true</RequiresSession>\
         <DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>\
         <DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>\
         <DeadLetteringOnFilterEvaluationExceptions>false\
         </DeadLetteringOnFilterEvaluationExceptions>";
    let rule = "<DefaultRuleDescription>\
         <Filter xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\" i:type=\"SqlFilter\">\
         <SqlExpression>color = 'red' AND size &lt; 5</SqlExpression>\
         <CompatibilityLevel>20</CompatibilityLevel></Filter><Name>red</Name>\
         </DefaultRuleDescription>";
    let after = "<MaxDeliveryCount>3</MaxDeliveryCount>\
         <EnableBatchedOperations>true</EnableBatchedOperations><Status>ReceiveDisabled</Status>\
         <ForwardTo>sb://ns.example.net/jobs</ForwardTo><UserMetadata>mine</UserMetadata>\
         <ForwardDeadLetteredMessagesTo>sb://ns.example.net/dead</ForwardDeadLetteredMessagesTo>\
         <AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>";
    let (bodies, heads) = (script.bodies(), script.heads());
    let sent = |index: usize| sent_of("SubscriptionDescription", &bodies[index]);
    assert_eq!(sent(0), format!("{before}{rule}{after}"));
    // Rules stay at an update.
    assert_eq!(sent(1), format!("{before}{after}"));
    for head in &heads {
        let expected = "put /a/news/subscriptions/mine?api-version=2021-05";
        assert_eq!(target(head), expected);
        for (name, resource) in [
            ("authorization", "a%2fnews%2fsubscriptions%2fmine"),
            ("servicebussupplementaryauthorization", "jobs"),
            ("servicebusdlqsupplementaryauthorization", "dead"),
        ] {
            let header = format!(
                "\r\n{name}: sharedaccesssignature sr=sb%3a%2f%2fns%2eexample%2enet%2f{resource}&"
            );
            assert!(head.contains(&header), "{name}: {head}");
        }
    }
    assert!(heads[1].contains("\r\nif-match: *\r\n"), "{}", heads[1]);
}

#[tokio::test]
async fn descriptions_are_read() {
    let counts = "<CountDetails xmlns:d2p1=\"urn:counts\">\
         <d2p1:ActiveMessageCount>5</d2p1:ActiveMessageCount>\
         <d2p1:DeadLetterMessageCount>4</d2p1:DeadLetterMessageCount>\
         <d2p1:ScheduledMessageCount>3</d2p1:ScheduledMessageCount>\
         <d2p1:TransferMessageCount>2</d2p1:TransferMessageCount>\
         <d2p1:TransferDeadLetterMessageCount>1</d2p1:TransferDeadLetterMessageCount>\
         </CountDetails>";
    let of_topic = format!(
        "<SizeInBytes>77</SizeInBytes><FilteringMessagesBeforePublishing>true\
         </FilteringMessagesBeforePublishing>{counts}<SubscriptionCount>9</SubscriptionCount>\
         <CreatedAt>2024-01-01T00:00:00Z</CreatedAt><AccessedAt>0001-01-01T00:00:00Z</AccessedAt>\
         <SqlFilterCount>1</SqlFilterCount>"
    );
    let of_subscription = format!(
        "<DeadLetteringOnFilterEvaluationExceptions>false\
         </DeadLetteringOnFilterEvaluationExceptions><MessageCount>15</MessageCount>\
         <ForwardTo>https://ns.example.net/jobs</ForwardTo>{counts}\
         <DefaultRuleDescription><Name>$Default</Name></DefaultRuleDescription>"
    );
    let script = Script::of([
        ok(&topic(&of_topic)),
        ok(&subscription(&of_subscription)),
        feed(&topic(&of_topic), ""),
        feed(&subscription(&of_subscription), ""),
    ]);
    let admin = script.admin();
    let topic = admin.topic("news").await.unwrap();
    assert_eq!(topic.state.size_bytes, Some(77));
    assert_eq!(topic.state.subscription_count, Some(9));
    assert_eq!(topic.settings.filters_before_publishing, Some(true));
    assert!(topic.state.created_at.unwrap() < SystemTime::now());
    assert_eq!(topic.state.accessed_at, None);
    let unknown: Vec<_> = topic.settings.unknown.names().collect();
    assert_eq!(unknown, ["SqlFilterCount"]);
    let subscription = admin.subscription("news", "mine").await.unwrap();
    let (settings, state) = (subscription.settings, subscription.state);
    assert_eq!(settings.dead_letters_filter_failures, Some(false));
    assert_eq!(settings.forward_to.as_deref(), Some("jobs"));
    assert!(settings.default_rule.is_none() && settings.unknown.names().next().is_none());
    assert_eq!(state.message_count, Some(15));
    let details = [
        state.active_count,
        state.dead_letter_count,
        state.scheduled_count,
        state.transfer_count,
        state.transfer_dead_letter_count,
    ];
    assert_eq!(details, [5, 4, 3, 2, 1].map(Some));
    assert_eq!(admin.topics(0).await.unwrap().items[0].name, "news");
    let listed = admin.subscriptions("a/news", 7).await.unwrap();
    assert_eq!(listed.items[0].name, "mine");
    let heads = script.heads();
    let targets: Vec<&str> = heads.iter().map(|head| target(head)).collect();
    assert_eq!(
        targets,
        [
            "get /news?enrich=true&api-version=2021-05",
            "get /news/subscriptions/mine?enrich=true&api-version=2021-05",
            "get /$resources/topics?$skip=0&$top=100&api-version=2021-05",
            "get /a/news/subscriptions?$skip=7&$top=100&api-version=2021-05",
        ]
    );
}

/// All that a correlation filter can have.
fn correlation() -> CorrelationFilter {
    let text = |text: &str| Some(text.to_owned());
    let value = |name: &str, value: FilterValue| (name.to_owned(), value);
    CorrelationFilter {
        correlation_id: text("c"),
        message_id: text("m"),
        to: text("t"),
        reply_to: text("r"),
        subject: text(" <s> "),
        session_id: text("i"),
        reply_to_session_id: text("j"),
        content_type: text("k"),
        properties: vec![
            value("color", "red".into()),
            value("size", FilterValue::Int(7)),
            value("done", FilterValue::Boolean(true)),
            value("late", FilterValue::Span(-10_000_000)),
            value(
                "id",
                FilterValue::Uuid(uuid_of("01234567-89ab-cdef-0123-456789abcdef").unwrap()),
            ),
        ],
    }
}

#[tokio::test]
async fn rules_are_written_as_the_service_wants_them() {
    let replies = (0..5).map(|_| reply("201 Created", &rule("<Filter i:type=\"TrueFilter\"/>")));
    let script = Script::of(replies);
    let admin = script.admin();
    let sql = Sql {
        text: "size > @least".to_owned(),
        parameters: vec![("@least".to_owned(), FilterValue::Long(3))],
        compatibility_level: None,
    };
    for filter in [
        Filter::True,
        Filter::False,
        Filter::Sql(sql.clone()),
        Filter::Correlation(Box::new(correlation())),
    ] {
        let action = matches!(filter, Filter::Sql(_)).then(|| Sql::new("SET a = 1"));
        let settings = RuleSettings {
            filter,
            action,
            ..RuleSettings::default()
        };
        let created = admin.create_rule("news", "mine", "$Default", &settings);
        created.await.unwrap();
    }
    let settings = RuleSettings::default();
    let updated = admin.update_rule("news", "mine", "r 1", &settings).await;
    updated.unwrap();
    let begun = |element: &str, kind: &str| {
        format!(
            "<{element} xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\" i:type=\"{kind}\">"
        )
    };
    let text = |text: &str| {
        format!("<SqlExpression>{text}</SqlExpression><CompatibilityLevel>20</CompatibilityLevel>")
    };
    let pair = |key: &str, kind: &str, text: &str| {
        let namespace = match kind {
            "guid" => "http://schemas.microsoft.com/2003/10/Serialization/",
            _ => "http://www.w3.org/2001/XMLSchema",
        };
        format!(
            "<KeyValueOfstringanyType><Key>{key}</Key>\
             <Value xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\" xmlns:l28=\"{namespace}\" \
             i:type=\"l28:{kind}\">{text}</Value></KeyValueOfstringanyType>"
        )
    };
    let properties = [
        pair("color", "string", "red"),
        pair("size", "int", "7"),
        pair("done", "boolean", "true"),
        pair("late", "duration", "-PT1S"),
        pair("id", "guid", "01234567-89ab-cdef-0123-456789abcdef"),
    ];
    let name = "<Name>$Default</Name>";
    let expected = [
        format!(
            "{}{}</Filter>{name}",
            begun("Filter", "TrueFilter"),
            text("1=1")
        ),
        format!(
            "{}{}</Filter>{name}",
            begun("Filter", "FalseFilter"),
            text("1=0")
        ),
        format!(
            "{}{}<Parameters>{}</Parameters></Filter>{}{}</Action>{name}",
            begun("Filter", "SqlFilter"),
            text("size &gt; @least"),
            pair("@least", "long", "3"),
            begun("Action", "SqlRuleAction"),
            text("SET a = 1"),
        ),
        format!(
            "{}<CorrelationId>c</CorrelationId><MessageId>m</MessageId><To>t</To>\
             <ReplyTo>r</ReplyTo><Label> &lt;s&gt; </Label><SessionId>i</SessionId>\
             <ReplyToSessionId>j</ReplyToSessionId><ContentType>k</ContentType>\
             <Properties>{}</Properties></Filter>{name}",
            begun("Filter", "CorrelationFilter"),
            properties.concat(),
        ),
        format!(
            "{}{}</Filter><Name>r 1</Name>",
            begun("Filter", "TrueFilter"),
            text("1=1")
        ),
    ];
    let bodies = script.bodies();
    for (body, expected) in bodies.iter().zip(&expected) {
        assert_eq!(sent_of("RuleDescription", body), expected);
    }
    let heads = script.heads();
    let rule = "put /news/subscriptions/mine/rules/%24default?api-version=2021-05";
    assert_eq!(target(&heads[0]), rule);
    assert!(!heads[0].contains("if-match"), "{}", heads[0]);
    let rule = "put /news/subscriptions/mine/rules/r%201?api-version=2021-05";
    assert_eq!(target(&heads[4]), rule);
    assert!(heads[4].contains("\r\nif-match: *\r\n"), "{}", heads[4]);
}

/// The rules of a service with these elements.
async fn read_rules(all: &[&str]) -> Vec<Result<RuleDescription, kew_client::Error>> {
    let script = Script::of(all.iter().map(|elements| ok(&rule(elements))));
    let admin = script.admin();
    let mut rules = Vec::new();
    for _ in all {
        rules.push(admin.rule("news", "mine", "r").await);
    }
    let target = target(&script.heads()[0]).to_owned();
    let expected = "get /news/subscriptions/mine/rules/r?enrich=true&api-version=2021-05";
    assert_eq!(target, expected);
    rules
}

#[tokio::test]
async fn rules_are_read_as_the_service_writes_them() {
    let sql = "<Filter i:type=\"SqlFilter\"><SqlExpression>a = @x</SqlExpression>\
         <CompatibilityLevel>20</CompatibilityLevel><Parameters><KeyValueOfstringanyType>\
         <Key>@x</Key><Value i:type=\"d6p1:string\" xmlns:d6p1=\"urn:x\"> b </Value>\
         </KeyValueOfstringanyType></Parameters><RequiresPreprocessing>false</RequiresPreprocessing>\
         </Filter><Action i:type=\"EmptyRuleAction\"/>\
         <CreatedAt>2024-01-01T00:00:00Z</CreatedAt><Name>r</Name>";
    let correlated = "<Filter i:type=\"CorrelationFilter\"><CorrelationId/><Label>order</Label>\
         <Properties><KeyValueOfstringanyType><Key>size</Key>\
         <Value i:type=\"l28:int\" xmlns:l28=\"urn:x\">7</Value></KeyValueOfstringanyType>\
         <KeyValueOfstringanyType><Key>when</Key>\
         <Value i:type=\"l28:short\" xmlns:l28=\"urn:x\">3</Value></KeyValueOfstringanyType>\
         </Properties></Filter><Action i:type=\"SqlRuleAction\">\
         <SqlExpression>SET a = 1</SqlExpression></Action><Name>r</Name>";
    let rules = read_rules(&[
        sql,
        correlated,
        "<Filter i:type=\"TrueFilter\"><SqlExpression>1=1</SqlExpression></Filter>",
        "<Filter i:type=\"b:FalseFilter\" xmlns:b=\"urn:b\"/>",
    ])
    .await;
    let rules: Vec<_> = rules.into_iter().map(Result::unwrap).collect();
    let Filter::Sql(found) = &rules[0].settings.filter else {
        panic!("{rules:?}");
    };
    let expected = Sql {
        text: "a = @x".to_owned(),
        parameters: vec![("@x".to_owned(), " b ".into())],
        compatibility_level: Some(20),
    };
    assert_eq!(*found, expected);
    assert!(rules[0].settings.action.is_none() && rules[0].state.created_at.is_some());
    assert_eq!(rules[0].settings.unknown.names().count(), 0);
    let Filter::Correlation(found) = &rules[1].settings.filter else {
        panic!("{rules:?}");
    };
    let short = FilterValue::Other {
        kind: "short".to_owned(),
        text: "3".to_owned(),
    };
    let expected = CorrelationFilter {
        subject: Some("order".to_owned()),
        properties: vec![
            ("size".to_owned(), FilterValue::Int(7)),
            ("when".to_owned(), short),
        ],
        ..CorrelationFilter::default()
    };
    assert_eq!(**found, expected);
    assert_eq!(rules[1].settings.action, Some(Sql::new("SET a = 1")));
    assert!(matches!(rules[2].settings.filter, Filter::True));
    assert!(matches!(rules[3].settings.filter, Filter::False));
}

#[tokio::test]
async fn what_a_rule_lacks_is_named() {
    let rules = read_rules(&[
        "<Name>r</Name>",
        "<Filter i:type=\"SqlFilter\"/>",
        "<Filter i:type=\"CorrelationFilter\"><Properties><KeyValueOfstringanyType>\
         <Value>1</Value></KeyValueOfstringanyType></Properties></Filter>",
    ])
    .await;
    let missing = [
        "a RuleDescription without Filter",
        "a bad Filter: without SqlExpression",
        "a bad Filter: with a property without Key",
    ];
    for (rule, missing) in rules.into_iter().zip(missing) {
        let told = rule.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Refused);
        assert!(told.text().contains(missing), "{told}");
    }
}

#[tokio::test]
async fn an_update_of_a_rule_loses_nothing_of_newer_services() {
    let filter = "<Filter i:type=\"f:ShapeFilter\" i:odd=\"1\"><f:Sides>3</f:Sides></Filter>";
    let newer = "<f:Priority>9</f:Priority>";
    let action = "<Action i:type=\"JumpAction\"/>";
    let elements = format!("{filter}{action}<Name>r</Name>{newer}");
    let script = Script::of([ok(&rule(&elements)), ok(&rule(&elements))]);
    let admin = script.admin();
    let read = admin.rule("news", "mine", "r").await.unwrap();
    let Filter::Other { kind, .. } = &read.settings.filter else {
        panic!("{read:?}");
    };
    assert_eq!(kind, "ShapeFilter");
    admin
        .update_rule("news", "mine", "r", &read.settings)
        .await
        .unwrap();
    let body = &script.bodies()[1];
    let sent = sent_of("RuleDescription", body);
    let declared = "xmlns:f=\"urn:f\" xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\"";
    let filter = filter.replacen("<Filter", &format!("<Filter {declared}"), 1);
    assert_eq!(sent, format!("{filter}{action}<Name>r</Name>{newer}"));
    assert!(body.contains(&format!("connect\" {declared}>")), "{body}");
}

#[tokio::test]
async fn rules_are_listed_and_removed() {
    let full: String = (0..100)
        .map(|number| {
            let elements = "<Filter i:type=\"TrueFilter\"/>";
            described(&format!("r{number}"), "RuleDescription", elements)
        })
        .collect();
    let script = Script::of([
        feed(&full, ""),
        feed("", ""),
        ok(""),
        feed("", ""),
        error(404, "SubCode=40400. Not Found."),
    ]);
    let admin = script.admin();
    let page = admin.rules("news", "mine", 0).await.unwrap();
    assert_eq!((page.items.len(), page.next), (100, Some(100)));
    assert_eq!(page.items[99].name, "r99");
    assert!(
        admin
            .rules("news", "mine", 100)
            .await
            .unwrap()
            .items
            .is_empty()
    );
    admin.delete_rule("news", "mine", "r1").await.unwrap();
    assert!(!admin.rule_exists("news", "mine", "r1").await.unwrap());
    let gone = admin.delete_rule("news", "mine", "r1").await.unwrap_err();
    assert_eq!((gone.status(), gone.code()), (Some(404), Some("40400")));
    let heads = script.heads();
    let list = "get /news/subscriptions/mine/rules?$skip=100&$top=100&api-version=2021-05";
    assert_eq!(target(&heads[1]), list);
    let delete = "delete /news/subscriptions/mine/rules/r1?api-version=2021-05";
    assert_eq!(target(&heads[2]), delete);
}

#[tokio::test]
async fn names_are_checked_before_anything_is_sent() {
    let script = Script::of([]);
    let admin = script.admin();
    for (refused, what) in [
        (
            admin.topic("/").await.map(drop),
            "the name of the topic is empty",
        ),
        (admin.topic("a//b").await.map(drop), "topic is 'a//b'"),
        (admin.queue("a/../b").await.map(drop), "queue is 'a/../b'"),
        (
            admin.delete_subscription("t", "").await,
            "the name of the subscription is empty",
        ),
        (
            admin.delete_subscription("", "s").await,
            "the name of the topic is empty",
        ),
        (
            admin.delete_subscription("t", "s/rules").await,
            "the name of the subscription is 's/rules', and cannot have slashes",
        ),
        (
            admin.delete_rule("t", "s", "").await,
            "the name of the rule is empty",
        ),
        (admin.delete_rule("t", "s", "..").await, "rule is '..'"),
        (
            admin.rules("t", "s/x", 0).await.map(drop),
            "cannot have slashes",
        ),
        (
            admin.entity("").await.map(drop),
            "the name of the entity is empty",
        ),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused);
        assert!(refused.text().contains(what), "{refused}");
    }
    assert!(script.heads().is_empty());
}
