//! Management of queues at Kew.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusNamespace, EntityStatus, ErrorKind, Message,
    QueueDescription, QueueRule, QueueSettings, ReceiverOptions, Right, Secret, UnknownElements,
};

use crate::server::{CONNECTION_STRING, QUICK, Server};

pub(crate) fn admin(server: &Arc<Server>) -> BusAdmin {
    admin_of(server, CONNECTION_STRING)
}

fn admin_of(server: &Arc<Server>, connection_string: &str) -> BusAdmin {
    let options = AdminOptions {
        retry: QUICK,
        dial: Some(server.clone()),
        ..AdminOptions::default()
    };
    let namespace = BusNamespace::parse(connection_string).unwrap();
    BusAdmin::new(namespace, options).unwrap()
}

/// Every setting has another value than its default.
fn unusual() -> QueueSettings {
    QueueSettings {
        lock_duration: Some(Duration::from_millis(30_500)),
        max_size_megabytes: Some(2_048),
        requires_duplicate_detection: Some(true),
        requires_session: Some(true),
        default_time_to_live: Some(Duration::from_hours(25)),
        dead_letters_expired: Some(true),
        duplicate_window: Some(Duration::from_mins(20)),
        max_delivery_count: Some(3),
        enable_batched_operations: Some(false),
        is_anonymous_accessible: Some(false),
        authorization_rules: Some(vec![rule("worker", &[Right::Listen])]),
        status: Some(EntityStatus::SendDisabled),
        forward_to: None,
        user_metadata: Some("<team> & \"owner\"".to_owned()),
        support_ordering: Some(false),
        auto_delete_on_idle: Some(Duration::from_hours(24 * 30)),
        enable_partitioning: Some(true),
        forward_dead_letters_to: Some("spare".to_owned()),
        enable_express: Some(true),
        max_message_size_kilobytes: Some(512),
        unknown: UnknownElements::default(),
    }
}

pub(crate) fn rule(name: &str, rights: &[Right]) -> QueueRule {
    QueueRule {
        name: name.to_owned(),
        rights: rights.to_vec(),
        primary_key: None,
        secondary_key: None,
        unknown: UnknownElements::default(),
    }
}

/// All that is shown of the settings, without keys.
fn shown(settings: &QueueSettings) -> String {
    let mut settings = settings.clone();
    for rule in settings.authorization_rules.iter_mut().flatten() {
        (rule.primary_key, rule.secondary_key) = (None, None);
    }
    format!("{settings:?}")
}

#[tokio::test]
async fn every_setting_is_kept() {
    let server = Server::start().await;
    let admin = admin(&server);
    let created = admin.create_queue("Made/Queue", &unusual()).await.unwrap();
    assert_eq!(created.name, "Made/Queue");
    assert_eq!(shown(&created.settings), shown(&unusual()));
    let read = admin.queue("made/queue").await.unwrap();
    assert_eq!(shown(&read.settings), shown(&created.settings));
    // An update that changes one setting changes no other.
    let settings = QueueSettings {
        max_delivery_count: Some(7),
        ..read.settings.clone()
    };
    let updated = admin.update_queue("made/queue", &settings).await.unwrap();
    assert_eq!(shown(&updated.settings), shown(&settings));
    assert!(updated.state.updated_at >= read.state.created_at);
    let keys = |it: &QueueDescription| {
        let rules = it.settings.authorization_rules.clone().unwrap();
        let keys = [rules[0].primary_key.clone(), rules[0].secondary_key.clone()];
        keys.map(|key| key.unwrap().expose().to_owned())
    };
    assert_eq!(keys(&updated), keys(&created));
}

#[tokio::test]
async fn what_is_not_said_gets_its_default() {
    let server = Server::start().await;
    let admin = admin(&server);
    let settings = QueueSettings::default();
    let created = admin.create_queue("plain", &settings).await.unwrap();
    let settings = &created.settings;
    assert_eq!(settings.lock_duration, Some(Duration::from_mins(1)));
    let forever = Some(QueueSettings::FOREVER);
    assert_eq!(settings.default_time_to_live, forever);
    assert_eq!(settings.auto_delete_on_idle, forever);
    assert_eq!(settings.status, Some(EntityStatus::Active));
    assert_eq!(settings.forward_to, None);
    let rules = settings.authorization_rules.as_ref();
    assert!(rules.is_some_and(Vec::is_empty));
    assert_eq!(settings.unknown.names().count(), 0);
    assert_eq!(created.state.accessed_at, None, "nobody has used it");
    assert!(created.state.created_at.unwrap() <= SystemTime::now());
}

#[tokio::test]
async fn queues_come_and_go() {
    let server = Server::start().await;
    let admin = admin(&server);
    assert!(!admin.queue_exists("new").await.unwrap());
    let settings = QueueSettings::default();
    admin.create_queue("new", &settings).await.unwrap();
    assert!(admin.queue_exists("new").await.unwrap());
    let again = admin.create_queue("new", &settings).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Refused);
    assert_eq!((again.status(), again.code()), (Some(409), Some("40900")));
    admin.delete_queue("new").await.unwrap();
    for gone in [
        admin.delete_queue("new").await.unwrap_err(),
        admin.queue("new").await.unwrap_err(),
        admin.update_queue("new", &settings).await.unwrap_err(),
    ] {
        assert_eq!(gone.kind(), ErrorKind::Refused);
        assert_eq!((gone.status(), gone.code()), (Some(404), Some("40400")));
    }
    let odd = QueueSettings {
        max_delivery_count: Some(0),
        ..settings
    };
    let refused = admin.create_queue("odd", &odd).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.status()),
        (ErrorKind::Refused, Some(400))
    );
    assert!(refused.text().contains("MaxDeliveryCount"), "{refused}");
    let unnamed = admin.delete_queue("/").await.unwrap_err();
    assert!(unnamed.text().contains("empty"), "{unnamed}");
}

#[tokio::test]
async fn lists_have_pages() {
    let server = Server::start().await;
    let admin = admin(&server);
    let names: Vec<String> = (0..230).map(|number| format!("many/{number}")).collect();
    let settings = QueueSettings::default();
    let created = names.iter().map(|name| admin.create_queue(name, &settings));
    assert!(join_all(created).await.into_iter().all(|it| it.is_ok()));
    let (mut listed, mut sizes) = (BTreeSet::new(), Vec::new());
    let mut skip = Some(0);
    while let Some(from) = skip {
        let page = admin.queues(from).await.unwrap();
        sizes.push(page.items.len());
        listed.extend(page.items.into_iter().map(|queue| queue.name));
        skip = page.next;
    }
    // The server begins with four.
    assert_eq!(sizes, [100, 100, 34]);
    assert_eq!(listed.len(), 234);
    assert!(names.iter().all(|name| listed.contains(name)));
}

#[tokio::test]
async fn counts_are_those_of_the_messages() {
    let server = Server::start().await;
    let admin = admin(&server);
    let client = server.client();
    let sender = client.sender("jobs").await.unwrap();
    for _ in 0..3 {
        sender.send(&Message::new("x")).await.unwrap();
    }
    let mut message = Message::new("x");
    message.scheduled_at = Some(SystemTime::now() + Duration::from_hours(1));
    sender.schedule(&[message]).await.unwrap();
    let receiver = client.receiver("jobs", ReceiverOptions::default());
    let mut receiver = receiver.await.unwrap();
    let received = receiver.receive_batch(1, Duration::from_mins(1)).await;
    for message in received.unwrap() {
        message.dead_letter("odd", "", Vec::new()).await.unwrap();
    }
    let state = admin.queue("jobs").await.unwrap().state;
    assert_eq!(state.active_count, Some(2));
    assert_eq!(state.dead_letter_count, Some(1));
    assert_eq!(state.scheduled_count, Some(1));
    assert_eq!(state.message_count, Some(4));
    assert_eq!(state.transfer_count, Some(0));
    assert_eq!(state.transfer_dead_letter_count, Some(0));
    assert!(state.size_bytes > Some(0) && state.accessed_at.is_some());
    assert_eq!(state.availability.as_deref(), Some("Available"));
}

#[tokio::test]
async fn queues_forward_by_name() {
    let server = Server::start().await;
    let admin = admin(&server);
    let settings = QueueSettings {
        forward_to: Some("spare".to_owned()),
        ..QueueSettings::default()
    };
    let created = admin.create_queue("front", &settings).await.unwrap();
    assert_eq!(created.settings.forward_to.as_deref(), Some("spare"));
    let sender = server.client().sender("front").await.unwrap();
    sender.send(&Message::new("x")).await.unwrap();
    assert_eq!(server.view("spare").await.counts.active, 1);
    let none = QueueSettings {
        forward_to: Some(String::new()),
        ..created.settings
    };
    let updated = admin.update_queue("front", &none).await.unwrap();
    assert_eq!(updated.settings.forward_to, None);
    let elsewhere = QueueSettings {
        forward_to: Some("sb://elsewhere.net/spare".to_owned()),
        ..QueueSettings::default()
    };
    let refused = admin.update_queue("front", &elsewhere).await.unwrap_err();
    assert!(refused.text().contains("elsewhere.net"), "{refused}");
}

#[tokio::test]
async fn rules_of_a_queue_open_that_queue() {
    let server = Server::start().await;
    let admin = admin(&server);
    let mut sends = rule("sends", &[Right::Send]);
    sends.primary_key = Some(Secret::new("c29tZSBrZXkgb2YgMzIgYnl0ZXMsIGluIEJhc2U2NCE="));
    let settings = QueueSettings {
        authorization_rules: Some(vec![
            sends,
            rule("all", &[Right::Manage, Right::Send, Right::Listen]),
        ]),
        ..QueueSettings::default()
    };
    let created = admin.create_queue("own", &settings).await.unwrap();
    let rules = created.settings.authorization_rules.unwrap();
    let as_rule = |rule: &QueueRule| {
        let key = rule.primary_key.as_ref().unwrap().expose();
        format!(
            "Endpoint=sb://localhost;SharedAccessKeyName={};SharedAccessKey={key};\
             UseDevelopmentEmulator=true",
            rule.name
        )
    };
    let namespace = BusNamespace::parse(&as_rule(&rules[0])).unwrap();
    let client = BusClient::new(namespace, server.options()).unwrap();
    let sender = client.sender("own").await.unwrap();
    sender.send(&Message::new("x")).await.unwrap();
    let refused = admin_of(&server, &as_rule(&rules[0])).queue("own").await;
    let refused = refused.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.status()),
        (ErrorKind::Refused, Some(401))
    );
    let own = admin_of(&server, &as_rule(&rules[1]));
    assert_eq!(own.queue("own").await.unwrap().state.active_count, Some(1));
    for refused in [
        own.queue("jobs").await.map(drop).unwrap_err(),
        own.queues(0).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(refused.status(), Some(401), "{refused}");
    }
    // Debug shows no key.
    assert!(!format!("{rules:?}").contains("c29t"));
}

#[tokio::test]
async fn the_namespace_is_described() {
    let server = Server::start().await;
    let info = admin(&server).namespace().await.unwrap();
    assert_eq!(
        (info.sku.as_str(), info.messaging_units),
        ("Premium", Some(1))
    );
    assert_eq!(info.alias, None);
    assert!(info.created_at.unwrap() <= SystemTime::now());
    let wrong = CONNECTION_STRING.replace("SAS_KEY_VALUE", "another");
    let refused = admin_of(&server, &wrong).namespace().await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.status()),
        (ErrorKind::Refused, Some(401))
    );
}
