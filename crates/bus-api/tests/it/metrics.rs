//! Metrics of clients' operations and resources.

use std::collections::BTreeMap;

use kew_amqp::codec::Map;
use kew_amqp::error::Error;
use kew_amqp::performative::{DeliveryState, Modified, Outcome};
use kew_bus_api::WELL_KNOWN_KEY;
use kew_metrics::{Read, page, read};

use crate::client::{Server, message, settling, token};

pub(crate) struct Page(BTreeMap<String, Read>);

impl Page {
    pub(crate) fn of(server: &Server) -> Self {
        Self(read(&page(server.api.metrics())).unwrap())
    }

    /// The sum of the samples with this name that have these labels, perhaps among others.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let samples = self.0.values().flat_map(|family| &family.samples);
        let has = |own: &BTreeMap<String, String>| {
            let mut labels = labels.iter();
            labels.all(|(name, value)| own.get(*name).is_some_and(|own| own == value))
        };
        let found = samples.filter(|(other, own, _)| other == name && has(own));
        let sum = found.fold(0.0, |sum, (_, _, value)| sum + value);
        // Counts are whole.
        format!("{sum}").parse().unwrap()
    }
}

/// Waits until a page fulfils a condition: answers reach a client before its connection's next
/// turn.
pub(crate) async fn until(server: &Server, mut is_so: impl FnMut(&Page) -> bool) -> Page {
    // By the clock, and not by a count: how long a page takes depends on the build.
    let began = std::time::Instant::now();
    while began.elapsed() < std::time::Duration::from_secs(180) {
        let page = Page::of(server);
        if is_so(&page) {
            return page;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("{:#?}", Page::of(server).0);
}

fn update() -> Map {
    Map::build(|map| map.entry("operation", "com.microsoft:update-disposition"))
}

#[tokio::test]
async fn operations_and_resources_of_a_client_are_counted() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    for body in ["one", "two", "three", "four", "five", "six"] {
        assert_eq!(
            client.send(sender, 0, message(body)).await,
            DeliveryState::ACCEPTED
        );
    }
    client.connection.grant(receiver, 10);
    let mut deliveries = Vec::new();
    for _ in 0..6 {
        deliveries.push(client.delivery().await);
    }
    let page = until(&server, |page| {
        page.sum("kew_amqp_unsettled", &[("direction", "out")]) == 6
    })
    .await;
    let bus = [("protocol", "bus")];
    assert_eq!(page.sum("kew_connections_open", &bus), 1);
    assert_eq!(page.sum("kew_connections_accepted_total", &bus), 1);
    assert_eq!(page.sum("kew_amqp_sessions", &[]), 1);
    assert_eq!(page.sum("kew_amqp_links", &[]), 2);
    assert_eq!(page.sum("kew_amqp_links", &[("kind", "receiver")]), 1);
    assert_eq!(page.sum("kew_amqp_credit", &[]), 4);
    // Beside the two links.
    let held = page.sum("kew_amqp_held_bytes", &[]);
    assert!((6 * 128..6 * 128 + 4_096).contains(&held), "{held}");
    assert_eq!(page.sum("kew_bus_sends_total", &[("code", "")]), 6);
    assert_eq!(page.sum("kew_bus_send_seconds_count", &[]), 6);
    assert_eq!(page.sum("kew_bus_messages_sent_total", &[]), 6);
    let peek_lock = [("mode", "peek_lock")];
    assert_eq!(page.sum("kew_bus_messages_delivered_total", &peek_lock), 6);
    // Outgoing messages have more annotations than incoming ones.
    let sent = page.sum("kew_bus_sent_bytes_total", &[]);
    assert!(sent > 6 * 3 && page.sum("kew_bus_delivered_bytes_total", &peek_lock) > sent);

    let modified = |undeliverable_here| {
        DeliveryState::from(Outcome::Modified(Modified {
            delivery_failed: Some(true),
            undeliverable_here: Some(undeliverable_here),
            message_annotations: None,
        }))
    };
    let letter = DeliveryState::rejected(Error::new("com.microsoft:dead-letter", "no good"));
    let released = DeliveryState::from(Outcome::Released);
    // Abandoned and released messages would arrive again: credit is removed first.
    client.connection.grant(receiver, 0);
    let told = [
        ("complete", DeliveryState::ACCEPTED),
        ("abandon", modified(false)),
        ("defer", modified(true)),
        ("dead_letter", letter),
        ("release", released),
    ];
    for ((_, state), delivery) in told.iter().zip(&deliveries) {
        client.tell(delivery, state.clone()).await;
    }
    // The last one is completed by a request first, so that its lock has ended.
    let done = client
        .ask(
            "jobs/$management",
            &update(),
            &settling(&deliveries[5], "completed"),
        )
        .await;
    assert_eq!(
        done.get("statusCode").unwrap().value().as_integer(),
        Some(200)
    );
    client.tell(&deliveries[5], DeliveryState::ACCEPTED).await;
    let page = until(&server, |page| {
        page.sum("kew_amqp_unsettled", &[("direction", "out")]) == 0
    })
    .await;
    for (outcome, _) in &told {
        let labels = [("outcome", *outcome), ("code", "")];
        assert_eq!(
            page.sum("kew_bus_settlements_total", &labels),
            1,
            "{outcome}"
        );
    }
    let lost = [
        ("outcome", "complete"),
        ("code", "com.microsoft:message-lock-lost"),
    ];
    assert_eq!(page.sum("kew_bus_settlements_total", &lost), 1);
    assert_eq!(
        page.sum("kew_bus_locks_lost_total", &[("lock", "message")]),
        1
    );
    assert_eq!(page.sum("kew_bus_settle_seconds_count", &[]), 6);
    assert_eq!(page.sum("kew_amqp_held_bytes", &[]), held - 6 * 128);

    drop(client);
    let page = until(&server, |page| page.sum("kew_connections_open", &bus) == 0).await;
    for name in ["kew_amqp_sessions", "kew_amqp_links", "kew_amqp_credit"] {
        assert_eq!(page.sum(name, &[]), 0, "{name}");
    }
}

#[tokio::test]
async fn requests_and_refusals_are_counted_by_kind() {
    let server = Server::start().await;
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    client.sender("jobs").await.unwrap_err();
    let jobs = "sb://localhost/jobs";
    client.put_token(jobs, &token(jobs, "wrong", 60)).await;
    let whole = token("sb://localhost/", WELL_KNOWN_KEY, 60);
    client.put_token("sb://localhost/", &whole).await;
    client.receiver("absent").await.unwrap_err();
    let sender = client.sender("jobs").await.unwrap();
    client.send(sender, 5, message("x")).await;
    let operation = |name: &'static str| Map::build(|map| map.entry("operation", name));
    let node = "jobs/$management";
    for name in [
        "com.microsoft:renew-session-lock",
        "com.microsoft:what-is-this",
    ] {
        client.ask(node, &operation(name), &Map::default()).await;
    }
    let mut stranger = server.connect("PLAIN", Some("\0RootManageSharedAccessKey\0wrong"));
    stranger
        .until(|event| matches!(event, kew_amqp::Event::Closed { .. }).then_some(()))
        .await;

    let page = Page::of(&server);
    let requests = |operation, status, code| {
        let labels = [
            ("protocol", "bus"),
            ("operation", operation),
            ("status", status),
            ("code", code),
        ];
        page.sum("kew_requests_total", &labels)
    };
    assert_eq!(requests("put-token", "202", ""), 1);
    assert_eq!(requests("put-token", "401", "amqp:unauthorized-access"), 1);
    let lost = "com.microsoft:session-lock-lost";
    assert_eq!(requests("renew-session-lock", "410", lost), 1);
    assert_eq!(requests("unknown", "501", "amqp:not-implemented"), 1);
    let put = [("operation", "put-token")];
    assert_eq!(page.sum("kew_request_seconds_count", &put), 2);
    assert_eq!(
        page.sum("kew_bus_locks_lost_total", &[("lock", "session")]),
        1
    );
    let denied = |credential| {
        let labels = [("protocol", "bus"), ("credential", credential)];
        page.sum("kew_authentication_failures_total", &labels)
    };
    assert_eq!([denied("none"), denied("SAS"), denied("PLAIN")], [1, 1, 1]);
    let refused = |scope, code| {
        page.sum(
            "kew_amqp_refusals_total",
            &[("scope", scope), ("code", code)],
        )
    };
    assert_eq!(refused("attach", "amqp:unauthorized-access"), 1);
    assert_eq!(refused("attach", "amqp:not-found"), 1);
    let unknown_format = [("code", "amqp:not-implemented")];
    assert_eq!(page.sum("kew_bus_sends_total", &unknown_format), 1);
}
