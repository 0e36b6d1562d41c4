//! Answers that Queue Storage in Azure gave, from the recordings in `tests/answers`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_client::{
    AccessPolicy, CorsRule, ErrorKind, Logging, Metrics, PutOptions, QueueAccount, QueueClient,
    QueueOptions, ServiceProperties,
};

use crate::script::{Door, Reply, Script};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/answers")
}

/// An answer as it is sent: in chunks if it says so, which end anywhere.
fn recorded(name: &str) -> Reply {
    let file = std::fs::read_to_string(folder().join(name).with_extension("http")).unwrap();
    let (head, body) = file.split_once("\n\n").unwrap();
    let body = body.strip_suffix('\n').unwrap();
    let lines = head.lines().filter(|line| !line.starts_with('#'));
    let head: String = lines.map(|line| format!("{line}\r\n")).collect();
    let length = head.split("Content-Length: ").nth(1);
    if let Some(length) = length {
        assert_eq!(length.split_once('\r').unwrap().0, body.len().to_string());
        return Reply::Answer(format!("{head}\r\n{body}"));
    }
    assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{name}");
    let middle = body.floor_char_boundary(body.len() / 2);
    let chunks = [&body[..middle], &body[middle..], ""];
    let chunks = chunks.map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len()));
    Reply::Answer(format!("{head}\r\n{}", chunks.concat()))
}

/// A client of a service that gives these answers, and what it is asked.
fn azure<const N: usize>(names: [&str; N]) -> (QueueClient, Arc<Script>) {
    let script = Script::of(names.map(recorded));
    let text =
        "AccountName=storagename;AccountKey=c2VjcmV0;QueueEndpoint=http://storagename.example";
    let options = QueueOptions {
        dial: Some(Arc::new(Door(script.clone()))),
        ..QueueOptions::default()
    };
    let client = QueueClient::new(QueueAccount::parse(text).unwrap(), options);
    (client.unwrap(), script)
}

fn time(text: &str) -> SystemTime {
    httpdate::parse_http_date(text).unwrap()
}

#[test]
fn every_answer_names_its_source() {
    for file in std::fs::read_dir(folder()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|it| it == "http") {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("# Source: "), "{path:?}");
        }
    }
}

#[tokio::test]
async fn messages() {
    let (client, script) = azure([
        "put_message",
        "get_messages",
        "update_message",
        "peek_messages",
    ]);
    let put = client.put("jobs", "message1", PutOptions::default()).await;
    let put = put.unwrap();
    assert_eq!(put.id, "f13e7b74-7988-4fef-b51f-722140e3cf46");
    assert_eq!(put.receipt.value, "AgAAAAMAAAAAAAAAHFDwH1Dq2AE=");
    assert_eq!(put.inserted, time("Thu, 27 Oct 2022 22:04:46 GMT"));
    assert_eq!(put.expires, put.inserted + Duration::from_hours(7 * 24));

    let got = client.get("jobs", 1, None).await.unwrap();
    let [got] = &got[..] else { panic!("{got:?}") };
    assert_eq!((&got.id, got.text.as_str()), (&put.id, "message1"));
    assert_eq!((got.inserted, got.dequeue_count), (put.inserted, 1));
    let receipt = got.receipt.as_ref().unwrap();
    assert_eq!(receipt.value, "AgAAAAMAAAAAAAAAxBkIMlDq2AE=");
    assert_eq!(receipt.next_visible, put.inserted + Duration::from_secs(30));

    let updated = client.update("jobs", &got.id, &receipt.value, 0, None);
    let updated = updated.await.unwrap();
    assert_eq!(updated.value, "AwAAAAMAAAAAAAAAWwRuJ1Dq2AEBAAAA");
    assert_eq!(updated.next_visible, time("Thu, 27 Oct 2022 22:04:58 GMT"));
    let peeked = client.peek("jobs", 1).await.unwrap();
    assert_eq!((peeked[0].dequeue_count, &peeked[0].receipt), (0, &None));
    // All came over one connection, so each was read to its end.
    assert_eq!(*script.connections.lock().unwrap(), 1);
}

#[tokio::test]
async fn queues() {
    let (client, script) = azure([
        "create_queue",
        "queue_properties",
        "list_queues_first_page",
        "list_queues_last_page",
        "list_queues_with_metadata",
    ]);
    assert!(client.create_queue("jobs", &[]).await.unwrap());
    let properties = client.queue_properties("jobs").await.unwrap();
    assert_eq!(properties.approximate_message_count, 1);
    assert_eq!(properties.metadata, []);

    let (first, marker) = client.list_queues("listqueue", false, None).await.unwrap();
    assert_eq!(first.len(), 3);
    assert_eq!(marker.as_deref(), Some("/storagename/listqueue3dcba29e4"));
    let last = client.list_queues("listqueue", true, marker.as_deref());
    let (last, marker) = last.await.unwrap();
    assert_eq!(
        (last[0].name.as_str(), marker),
        ("listqueue3dcba29e4", None)
    );
    let marker = "marker=%2fstoragename%2flistqueue3dcba29e4";
    assert!(script.heads()[3].contains(marker), "{}", script.heads()[3]);
    let (queues, _) = client.list_queues("pyqueue", true, None).await.unwrap();
    let pairs = [("val1", "test"), ("val2", "blah")];
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(queues[0].metadata, pairs);
}

#[tokio::test]
async fn access_policies() {
    let (client, _) = azure(["access_policies"]);
    let at = |seconds| Some(UNIX_EPOCH + Duration::from_secs(seconds));
    let expected = AccessPolicy {
        id: "testid".to_owned(),
        start: at(1_666_908_096),
        expiry: at(1_666_911_996),
        permissions: Some("r".to_owned()),
    };
    assert_eq!(client.access_policies("jobs").await.unwrap(), [expected]);
}

#[tokio::test]
async fn the_service() {
    let (client, _) = azure(["set_service_properties", "service_properties"]);
    let texts = |text: &str| -> Vec<String> {
        let texts = text.split_whitespace();
        texts.map(str::to_owned).collect()
    };
    let narrow = CorsRule {
        allowed_origins: texts("www.xyz.com"),
        allowed_methods: texts("GET"),
        ..CorsRule::default()
    };
    let wide = CorsRule {
        allowed_origins: texts("www.xyz.com www.ab.com www.bc.com"),
        allowed_methods: texts("GET PUT"),
        allowed_headers: texts("x-ms-meta-xyz x-ms-meta-foo x-ms-meta-data* x-ms-meta-target*"),
        exposed_headers: texts("x-ms-meta-abc x-ms-meta-bcd x-ms-meta-data* x-ms-meta-source*"),
        max_age_s: 500,
    };
    let properties = ServiceProperties {
        logging: Some(Logging::default()),
        hour_metrics: Some(Metrics::default()),
        minute_metrics: Some(Metrics::default()),
        cors: Some(vec![narrow, wide]),
    };
    client.set_service_properties(&properties).await.unwrap();
    assert_eq!(client.service_properties().await.unwrap(), properties);

    let (client, _) = azure(["service_stats"]);
    let stats = client.service_stats().await.unwrap();
    assert_eq!(stats.status, "live");
    let synced = time("Sat, 22 Jun 2019 20:09:48 GMT");
    assert_eq!(stats.last_sync, Some(synced));
}

#[tokio::test]
async fn refusals() {
    let names = [
        "queue_already_exists",
        "queue_not_found",
        "too_many_cors_rules",
    ];
    let (client, _) = azure(names);
    let none = ServiceProperties::default();
    for (refused, status, code, text) in [
        (
            client.create_queue("jobs", &[]).await.map(drop),
            409,
            "QueueAlreadyExists",
            "The specified queue already exists.",
        ),
        (
            client.delete_queue("jobs").await,
            404,
            "QueueNotFound",
            "The specified queue does not exist.",
        ),
        (
            client.set_service_properties(&none).await,
            400,
            "InvalidXmlDocument",
            "XML specified is not syntactically valid.; LineNumber: 0; LinePosition: 0; Reason: ",
        ),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused);
        assert_eq!(
            (refused.status(), refused.code()),
            (Some(status), Some(code))
        );
        assert_eq!(refused.text(), text);
    }
}
