//! Metrics and health, through the door.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use kew_broker::Broker;
use kew_metrics::{Read, read};
use kew_queue_api::Limits;

use crate::client::{Answer, Call, Door, Wire, call, put};

pub(crate) type Page = BTreeMap<String, Read>;

fn scrape_call(method: &'static str) -> Call {
    call(method, "").target("/metrics").anonymous()
}

pub(crate) async fn scrape(door: &Door) -> Page {
    let answer = door.send(scrape_call("GET")).await;
    answer.check_status(200);
    read(&answer.body).unwrap()
}

/// The sum of the samples with that name that have these labels, perhaps among others.
pub(crate) fn sum(page: &Page, name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |sample: &BTreeMap<String, String>| {
        let mut labels = labels.iter();
        labels.all(|(name, value)| sample.get(*name).is_some_and(|other| other == value))
    };
    let samples = page.values().flat_map(|family| &family.samples);
    let matching = samples.filter(|(other, labels, _)| other == name && has(labels));
    matching.map(|(_, _, value)| value).sum()
}

#[track_caller]
fn check(page: &Page, name: &str, labels: &[(&str, &str)], expected: f64) {
    let found = sum(page, name, labels);
    assert!(
        (found - expected).abs() < 1e-9,
        "{name}{labels:?} is {found}, not {expected}"
    );
}

fn of(operation: &'static str) -> [(&'static str, &'static str); 2] {
    [("protocol", "queue"), ("operation", operation)]
}

#[tokio::test]
async fn requests_are_counted_by_operation_status_and_code() {
    let door = Door::open();
    let wire = &mut door.connect();
    wire.send(call("PUT", "/orders")).await.check_status(201);
    wire.send(call("PUT", "/orders")).await.check_status(204);
    for _ in 0..3 {
        wire.send(put("orders", "", "hello"))
            .await
            .check_status(201);
    }
    wire.send(put("absent", "", "hello"))
        .await
        .check_status(404);
    wire.send(call("GET", "/orders/messages?numofmessages=99"))
        .await
        .check_status(400);
    let got = wire.send(call("GET", "/orders/messages")).await;
    got.check_status(200);
    wire.send(call("GET", "").target("/health/live").anonymous())
        .await
        .check_status(200);
    let page = scrape(&door).await;
    let outcome = |operation, status, code| {
        let labels = [&of(operation)[..], &[("status", status), ("code", code)]].concat();
        sum(&page, "kew_requests_total", &labels)
    };
    let counted = [
        outcome("CreateQueue", "201", ""),
        outcome("CreateQueue", "204", ""),
        outcome("PutMessage", "201", ""),
        outcome("PutMessage", "404", "QueueNotFound"),
        outcome("GetMessages", "200", ""),
        outcome("GetMessages", "400", "OutOfRangeQueryParameterValue"),
        outcome("Health", "200", ""),
        outcome("Unknown", "400", "InvalidUri"),
    ];
    assert_eq!(counted, [1.0, 1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
    check(&page, "kew_requests_total", &[], 9.0);
    check(&page, "kew_request_seconds_count", &of("PutMessage"), 4.0);
    let body = put("orders", "", "hello").to_bytes();
    let body_bytes = body.len() - body.windows(4).position(|w| w == b"\r\n\r\n").unwrap() - 4;
    check(
        &page,
        "kew_request_body_bytes_total",
        &of("PutMessage"),
        4.0 * body_bytes as f64,
    );
    let labels = [("queue", "orders"), ("state", "visible")];
    check(&page, "kew_queue_messages", &labels, 2.0);
    let labels = [("queue", "orders"), ("state", "invisible")];
    check(&page, "kew_queue_messages", &labels, 1.0);
    // The scrape before is in the next page.
    check(
        &scrape(&door).await,
        "kew_requests_total",
        &of("Metrics"),
        1.0,
    );
}

#[tokio::test]
async fn denials_are_counted_by_credential() {
    let door = Door::open();
    let signed = call("PUT", "/orders");
    let wrong = call("PUT", "/orders").key("devstoreaccount1", "c2VjcmV0");
    let old = call("PUT", "/orders").version("2018-11-09").anonymous();
    for call in [
        signed.clone(),
        wrong.clone(),
        wrong.lite(),
        signed.clone().authorization("Bearer canary"),
        signed.clone().authorization("Basic canary"),
        call("GET", "/orders?comp=metadata&sig=canary").anonymous(),
        signed.anonymous(),
        old,
    ] {
        door.send(call).await;
    }
    let page = scrape(&door).await;
    let denied = |credential, code, expected| {
        let labels = [("credential", credential), ("code", code)];
        check(
            &page,
            "kew_authentication_failures_total",
            &labels,
            expected,
        );
    };
    denied("SharedKey", "AuthenticationFailed", 1.0);
    denied("SharedKeyLite", "AuthenticationFailed", 1.0);
    denied("Bearer", "InvalidAuthenticationInfo", 1.0);
    denied("other", "InvalidAuthenticationInfo", 1.0);
    denied("SAS", "AuthenticationFailed", 1.0);
    denied("none", "NoAuthenticationInformation", 1.0);
    denied("none", "ResourceNotFound", 1.0);
    check(&page, "kew_authentication_failures_total", &[], 7.0);
}

#[tokio::test]
async fn a_page_that_may_not_ask_has_failed_no_authentication() {
    let door = Door::open();
    let preflight = call("OPTIONS", "/orders")
        .anonymous()
        .header("Origin", "http://a")
        .header("Access-Control-Request-Method", "GET");
    door.send(preflight)
        .await
        .check_error(403, "CorsPreflightFailure");
    let page = scrape(&door).await;
    check(&page, "kew_requests_total", &[("status", "403")], 1.0);
    check(&page, "kew_authentication_failures_total", &[], 0.0);
}

#[tokio::test]
async fn garbage_does_not_make_the_page_grow() {
    let door = Door::open();
    let garbage = async |from: u32, to: u32| {
        let wire = &mut door.connect();
        for number in from..to {
            // Different in every part: verb, account, queue, id, query, headers. The word tells it
            // from the page's own numbers, which may hold any digits.
            let method = ["GET", "PUT", "DELETE", "POST", "BREW"][number as usize % 5];
            let word = format!("canary{number}");
            let target = match number % 4 {
                0 => format!("/{word}/{word}?comp={word}"),
                1 => format!("/devstoreaccount1/{word}/messages/{word}?popreceipt={word}"),
                2 => format!("/{word}/{word}/{word}/{word}/{word}"),
                _ => format!("/metrics?{word}"),
            };
            let call = call(method, "").target(&target);
            let call = call.header("x-ms-client-request-id", &word);
            wire.send(call.authorization(&format!("{word} x"))).await;
        }
    };
    let lines = |answer: &Answer| answer.body.lines().count();
    garbage(0, 200).await;
    door.send(scrape_call("GET")).await;
    let before = door.send(scrape_call("GET")).await;
    garbage(200, 10_000).await;
    let after = door.send(scrape_call("GET")).await;
    assert_eq!(lines(&before), lines(&after));
    assert!(after.body.len() < 64 * 1024, "{} bytes", after.body.len());
    check(
        &read(&after.body).unwrap(),
        "kew_requests_total",
        &[],
        10_002.0,
    );
    assert!(!after.body.contains("canary"), "{}", after.body);
}

#[tokio::test]
async fn other_machines_are_not_shown_metrics() {
    let door = Door::open();
    for peer in ["192.0.2.1:1", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1"] {
        let peer: SocketAddr = peer.parse().unwrap();
        let answer = door.connect_from(peer).send(scrape_call("GET")).await;
        assert!(
            answer.status >= 400 && !answer.body.contains("kew_"),
            "{answer:?}"
        );
    }
    for peer in ["127.8.9.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        let peer: SocketAddr = peer.parse().unwrap();
        let answer = door.connect_from(peer).send(scrape_call("GET")).await;
        answer.check_status(200);
    }
    // Nor through a proxy that identifies itself.
    for header in [
        "Forwarded",
        "Via",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Real-IP",
    ] {
        let answer = door
            .send(scrape_call("GET").header(header, "127.0.0.1"))
            .await;
        assert!(answer.status >= 400, "{header}");
    }
    // Nor to a page whose own name points here.
    for (host, status) in [
        ("evil.example", 400),
        ("127.0.0.1.evil.example:10001", 400),
        ("LocalHost:10001", 200),
        ("[::1]:10001", 200),
    ] {
        let answer = door.send(scrape_call("GET").header("Host", host)).await;
        answer.check_status(status);
    }
    // Nor with any other path, or with a query.
    for target in ["/metrics?", "/metrics/", "/metrics?x=1", "/Metrics"] {
        let answer = door.send(scrape_call("GET").target(target)).await;
        assert!(answer.status >= 400, "{target}");
    }
}

#[tokio::test]
async fn a_client_gets_the_format_that_it_asks_for() {
    let door = Door::open();
    let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let plain = "text/plain; version=0.0.4; charset=utf-8";
    for (accept, expected) in [
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            open,
        ),
        ("*/*", plain),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = door
                .send(scrape_call(method).header("Accept", accept))
                .await;
            answer.check_status(200);
            assert_eq!(answer.header("content-type"), Some(expected), "{accept}");
            let is_open = answer.body.ends_with("# EOF\n");
            assert_eq!(is_open, method == "GET" && expected == open, "{accept}");
        }
    }
    let answer = door.send(scrape_call("GET")).await;
    assert_eq!(answer.header("content-type"), Some(plain));
}

#[tokio::test]
async fn the_operators_listener_serves_only_metrics_and_health() {
    let door = Door::open();
    for (method, target, status) in [
        ("GET", "/metrics", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/health/live", 200),
        ("GET", "/health/ready", 200),
        ("POST", "/metrics", 405),
        ("PUT", "/devstoreaccount1/orders", 405),
        ("GET", "/devstoreaccount1?comp=list", 404),
        ("GET", "/", 404),
    ] {
        let wire = &mut door.connect_operator();
        let answer = wire.send(call(method, "").target(target)).await;
        answer.check_status(status);
        assert!(wire.is_closed().await, "{target}");
    }
    let answer = door.connect_operator().send(scrape_call("GET")).await;
    check(&read(&answer.body).unwrap(), "kew_queues", &[], 0.0);
}

#[tokio::test]
async fn the_operators_listener_serves_so_many_at_once() {
    let door = Door::open();
    let mut open: Vec<Wire> = Vec::new();
    for _ in 0..32 {
        let mut wire = door.connect_operator();
        wire.write(b"GET /metr").await;
        open.push(wire);
    }
    // Each has its place when its task ran.
    tokio::task::yield_now().await;
    assert!(door.connect_operator().is_closed().await);
    open.pop();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    loop {
        let mut wire = door.connect_operator();
        if !wire.closes_soon().await {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline);
    }
}

#[tokio::test]
async fn many_scrape_at_once_while_requests_are_served() {
    let door = std::sync::Arc::new(Door::open());
    door.send(call("PUT", "/orders")).await.check_status(201);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let door = door.clone();
        tasks.spawn(async move {
            door.send(put("orders", "", "x")).await.check_status(201);
            scrape(&door).await
        });
    }
    while let Some(page) = tasks.join_next().await {
        check(&page.unwrap(), "kew_partition_answered", &[], 1.0);
    }
    check(
        &scrape(&door).await,
        "kew_requests_total",
        &of("PutMessage"),
        24.0,
    );
}

#[tokio::test(start_paused = true)]
async fn connections_are_counted() {
    let door = Door::with_limits(Limits {
        connections_max: 3,
        ..Limits::default()
    });
    let mut idle = door.connect();
    let mut slow = door.connect();
    idle.send(call("GET", "").target("/health/live").anonymous())
        .await;
    slow.write(b"GET /x HT").await;
    assert!(slow.is_closed_at_last().await);
    assert!(idle.is_closed_at_last().await);
    // A connection without a request gives way to those with one.
    let mut silent = door.connect();
    let mut known = [door.connect(), door.connect(), door.connect()];
    for wire in &mut known {
        // Without the broker, which has another clock.
        let list = call("GET", "/?comp=list&maxresults=0");
        wire.send(list).await.check_status(400);
    }
    assert!(silent.is_closed().await);
    let mut refused = door.connect();
    refused.answer(false).await.check_status(503);
    let answer = known[0].send(scrape_call("GET")).await;
    let page = read(&answer.body).unwrap();
    check(&page, "kew_connections_open", &[], 3.0);
    check(&page, "kew_connections_accepted_total", &[], 6.0);
    check(
        &page,
        "kew_connections_refused_total",
        &[("reason", "gave_way")],
        1.0,
    );
    check(
        &page,
        "kew_connections_refused_total",
        &[("reason", "limit")],
        1.0,
    );
    check(
        &page,
        "kew_connections_timed_out_total",
        &[("phase", "head")],
        1.0,
    );
    check(
        &page,
        "kew_connections_timed_out_total",
        &[("phase", "idle")],
        1.0,
    );
}

#[tokio::test]
async fn a_stopped_broker_still_has_a_page() {
    let broker = Broker::start_in_memory().unwrap();
    let door = Door::with_broker(broker.clone());
    let stopping = tokio::task::spawn_blocking(move || broker.stop());
    stopping.await.unwrap();
    let page = scrape(&door).await;
    check(&page, "kew_partition_state", &[("state", "stopped")], 1.0);
    check(&page, "kew_partition_answered", &[], 0.0);
}
