//! Rules of subscriptions at Kew.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_client::{
    BusAdmin, CorrelationFilter, ErrorKind, Filter, FilterValue, NewRule, RuleSettings, Sql,
    SubscriptionSettings, TopicSettings, uuid_of,
};

use crate::admin::admin;
use crate::server::Server;

/// A topic with a subscription.
async fn start() -> (Arc<Server>, BusAdmin) {
    let server = Server::start().await;
    let admin = admin(&server);
    let topic = TopicSettings::default();
    admin.create_topic("news", &topic).await.unwrap();
    let settings = SubscriptionSettings::default();
    let created = admin.create_subscription("news", "mine", &settings).await;
    created.unwrap();
    (server, admin)
}

fn of_filter(filter: Filter) -> RuleSettings {
    RuleSettings {
        filter,
        ..RuleSettings::default()
    }
}

async fn names(admin: &BusAdmin) -> Vec<String> {
    let page = admin.rules("news", "mine", 0).await.unwrap();
    assert_eq!(page.next, None);
    page.items.into_iter().map(|rule| rule.name).collect()
}

/// A value of each type.
fn values() -> Vec<(String, FilterValue)> {
    let other = |kind: &str, text: &str| FilterValue::Other {
        kind: kind.to_owned(),
        text: text.to_owned(),
    };
    let time: SystemTime = UNIX_EPOCH + Duration::from_millis(1_769_860_800_500);
    let id = uuid_of("01234567-89ab-cdef-0123-456789abcdef").unwrap();
    let all = [
        FilterValue::Null,
        FilterValue::from(" <red> "),
        FilterValue::Boolean(true),
        FilterValue::Int(-7),
        FilterValue::Long(1 << 40),
        FilterValue::Double(0.25),
        FilterValue::Time(time),
        FilterValue::Span(-15_000_000),
        FilterValue::Uuid(id),
        other("byte", "-1"),
        other("short", "-2"),
        other("unsignedByte", "1"),
        other("unsignedShort", "2"),
        other("unsignedInt", "3"),
        other("unsignedLong", "4"),
        other("float", "0.5"),
        other("char", "97"),
        other("decimal", "1.50"),
        other("base64Binary", "YWI="),
    ];
    let all = all.into_iter().enumerate();
    all.map(|(at, value)| (format!("@v{at}"), value)).collect()
}

#[tokio::test]
async fn a_rule_is_read_as_it_was_written() {
    let (_server, admin) = start().await;
    let sql = Sql {
        text: "color = @v1 AND size < @v3".to_owned(),
        parameters: values(),
        compatibility_level: Some(20),
    };
    let correlation = CorrelationFilter {
        correlation_id: Some("c".to_owned()),
        message_id: Some("m".to_owned()),
        to: Some("t".to_owned()),
        reply_to: Some("r".to_owned()),
        subject: Some(" s ".to_owned()),
        session_id: Some("i".to_owned()),
        reply_to_session_id: Some("j".to_owned()),
        content_type: Some("k".to_owned()),
        properties: values(),
    };
    for (name, filter) in [
        ("all", Filter::True),
        ("none", Filter::False),
        ("Sql", Filter::Sql(sql.clone())),
        ("correlation", Filter::Correlation(Box::new(correlation))),
    ] {
        let settings = RuleSettings {
            action: matches!(filter, Filter::Sql(_)).then(|| Sql {
                text: "SET a = @v0".to_owned(),
                ..sql.clone()
            }),
            ..of_filter(filter)
        };
        let created = admin.create_rule("news", "mine", name, &settings).await;
        let created = created.unwrap();
        assert_eq!(created.name, name);
        assert!(created.state.created_at.is_some());
        let read = admin.rule("NEWS", "Mine", &name.to_uppercase()).await;
        let read = read.unwrap();
        for theirs in [&created.settings, &read.settings] {
            assert_eq!(format!("{theirs:?}"), format!("{settings:?}"));
        }
    }
    let listed = names(&admin).await;
    assert_eq!(listed, ["$Default", "all", "correlation", "none", "Sql"]);
    let page = admin.rules("news", "mine", 4).await.unwrap();
    assert_eq!(page.items[0].name, "Sql");
}

#[tokio::test]
async fn rules_are_replaced_and_removed() {
    let (_server, admin) = start().await;
    let red = of_filter(Filter::Sql(Sql::new("color = 'red'")));
    admin.create_rule("news", "mine", "r", &red).await.unwrap();
    let again = admin.create_rule("news", "mine", "R", &red).await;
    let again = again.unwrap_err();
    assert_eq!((again.status(), again.code()), (Some(409), Some("40900")));
    let read = admin.rule("news", "mine", "r").await.unwrap();
    let changed = RuleSettings {
        action: Some(Sql::new("SET seen = 1")),
        ..read.settings
    };
    let updated = admin.update_rule("news", "mine", "r", &changed).await;
    let action = updated.unwrap().settings.action.unwrap();
    assert_eq!(action.text, "SET seen = 1");
    assert!(admin.rule_exists("news", "mine", "$Default").await.unwrap());
    admin.delete_rule("news", "mine", "$Default").await.unwrap();
    assert_eq!(names(&admin).await, ["r"]);
    for missing in [
        admin.delete_rule("news", "mine", "$Default").await,
        admin.rule("news", "mine", "$Default").await.map(drop),
        admin.update_rule("news", "mine", "x", &red).await.map(drop),
        admin
            .create_rule("news", "other", "x", &red)
            .await
            .map(drop),
        admin.rules("news", "other", 0).await.map(drop),
    ] {
        let missing = missing.unwrap_err();
        assert_eq!(
            (missing.status(), missing.code()),
            (Some(404), Some("40400"))
        );
    }
    let wrong = of_filter(Filter::Sql(Sql::new("color = = 1")));
    let refused = admin.create_rule("news", "mine", "x", &wrong).await;
    let refused = refused.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.status()),
        (ErrorKind::Refused, Some(400))
    );
    assert!(refused.text().contains("column 9"), "{refused}");
}

#[tokio::test]
async fn a_subscription_begins_with_the_rule_that_it_is_given() {
    let (_server, admin) = start().await;
    let settings = SubscriptionSettings {
        default_rule: Some(NewRule {
            name: "red".to_owned(),
            settings: of_filter(Filter::Sql(Sql::new("color = 'red'"))),
        }),
        ..SubscriptionSettings::default()
    };
    let created = admin.create_subscription("news", "red", &settings).await;
    let created = created.unwrap();
    assert!(created.settings.default_rule.is_none());
    let mut changed = settings;
    changed.max_delivery_count = Some(3);
    let updated = admin.update_subscription("news", "red", &changed).await;
    assert_eq!(updated.unwrap().settings.max_delivery_count, Some(3));
    let rules = admin.rules("news", "red", 0).await.unwrap().items;
    assert_eq!((rules.len(), rules[0].name.as_str()), (1, "red"));
    let Filter::Sql(sql) = &rules[0].settings.filter else {
        panic!("{rules:?}");
    };
    assert_eq!(sql.text, "color = 'red'");
}

#[tokio::test]
async fn many_rules_have_pages() {
    let (_server, admin) = start().await;
    for number in 0..103 {
        let name = format!("r{number:03}");
        let rule = of_filter(Filter::False);
        admin
            .create_rule("news", "mine", &name, &rule)
            .await
            .unwrap();
    }
    let first = admin.rules("news", "mine", 0).await.unwrap();
    assert_eq!((first.items.len(), first.next), (100, Some(100)));
    let rest = admin.rules("news", "mine", 100).await.unwrap();
    let names: Vec<&str> = rest.items.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["r099", "r100", "r101", "r102"]);
    assert_eq!(rest.next, None);
}
