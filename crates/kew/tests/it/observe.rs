//! Operators can see what happens, and no secret appears in logs and metrics.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kew_metrics::{Read, lint, read};
use queue_load::{Client, DEVELOPMENT_KEY, Endpoint, PutOptions};
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::load;
use crate::server::{Server, run};
use crate::skip::skip;

/// Texts that must never appear, besides the account's key and pop receipts.
const CANARIES: [&str; 7] = [
    "canary-body",
    "canary-new-body",
    "canary-token",
    "canary-signature",
    "canary-sas",
    "canary-metadata",
    "Y2FuYXJ5LWtleS1vZi1hbi1hY2NvdW50",
];

/// A key of no account, the last of the canaries.
const WRONG_KEY: &str = CANARIES[6];

/// A server with everything logged, and an operators' listener.
fn start(data_dir: &Path, format: &str, level: &str) -> Server {
    Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", "127.0.0.1:0"]);
        command.args(["--metrics-listen", "127.0.0.1:0"]);
        command.args(["--log-format", format, "--slow-request", "20"]);
        command.env("KEW_LOG", level);
    })
}

fn metrics_address(server: &Server) -> SocketAddr {
    let printed = &server.facts("KEW_METRICS_LISTEN")[0];
    printed.parse().expect("an address and a port")
}

/// Sends bytes, and reads until the server closes the connection.
async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    let mut answer = String::new();
    // It may close before it has read everything, which does not matter here.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

async fn scrape(address: SocketAddr) -> String {
    scrape_as(address, "application/openmetrics-text").await
}

async fn scrape_as(address: SocketAddr, accept: &str) -> String {
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    let answer = exchange(address, &request).await;
    let (head, page) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    page.to_owned()
}

/// Every operation once, with canaries wherever there is room; returns the receipts.
async fn every_operation(client: &mut Client) -> Vec<String> {
    let metadata = [("owner", "canary-metadata")];
    client
        .create_queue("orders", &metadata)
        .await
        .expect("created");
    client.set_metadata("orders", &metadata).await.expect("set");
    client.queue_properties("orders").await.expect("read");
    client.list_queues("", "", 10).await.expect("listed");
    let mut receipts = Vec::new();
    for _ in 0..4 {
        let sent = client.put("orders", "canary-body", PutOptions::default());
        receipts.push(sent.await.expect("sent").receipt);
    }
    client.peek("orders", 2).await.expect("peeked");
    for message in client.get("orders", 2, 600).await.expect("received") {
        let receipt = message.receipt.expect("a received message has one").value;
        let text = Some("canary-new-body");
        let new = client
            .update("orders", &message.id, &receipt, 600, text)
            .await;
        let new = new.expect("updated").value;
        // The old receipt does not work any more.
        client
            .delete("orders", &message.id, &receipt)
            .await
            .expect_err("refused");
        client
            .delete("orders", &message.id, &new)
            .await
            .expect("deleted");
        receipts.extend([receipt, new]);
    }
    client.clear("orders").await.expect("cleared");
    client
        .put("orders", "canary-body", PutOptions::default())
        .await
        .expect("sent");
    client
        .put("absent", "canary-body", PutOptions::default())
        .await
        .expect_err("no queue");
    client.create_queue("doomed", &[]).await.expect("created");
    client.delete_queue("doomed").await.expect("deleted");
    receipts
}

/// Requests that fail, each with canaries; returns the answers.
async fn many_errors(address: SocketAddr) -> String {
    let url = format!("http://{address}/devstoreaccount1");
    let wrong = Endpoint::new(&url, "devstoreaccount1", WRONG_KEY).expect("an endpoint");
    let mut wrong = Client::new(wrong.into());
    wrong
        .create_queue("orders", &[])
        .await
        .expect_err("a wrong key");
    let body = "<QueueMessage><MessageText>canary-body</MessageText></QueueMessage>";
    let with = |first: &str, headers: &str, body: &str| {
        format!(
            "{first} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             x-ms-version: 2026-10-06\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        )
    };
    let queue = "/devstoreaccount1/orders";
    let requests = [
        with(
            &format!("GET {queue}?comp=metadata"),
            "Authorization: Bearer canary-token\r\n",
            "",
        ),
        with(
            &format!("GET {queue}?comp=metadata"),
            "Authorization: SharedKey devstoreaccount1:canary-signature\r\n",
            "",
        ),
        with(
            &format!("GET {queue}?comp=metadata&sv=2024-01-01&sig=canary-sas"),
            "",
            "",
        ),
        with(
            &format!("DELETE {queue}/messages/1?popreceipt=canary-signature"),
            "",
            "",
        ),
        with(
            &format!("POST {queue}/messages"),
            "Authorization: canary-token\r\n",
            body,
        ),
        with("BREW /?sig=canary-sas", "", ""),
        with(
            &format!("GET {queue}%0Aforged%1B[31m?sig=canary-sas"),
            "",
            "",
        ),
        with(
            "GET /metrics?sig=canary-sas",
            "x-ms-client-request-id: \"\\n forged\ttab\r\n",
            "",
        ),
        "GET /devstoreaccount1?sig=canary-sas\r\nAuthorization canary-token\r\n\r\n".to_owned(),
        format!("GET /{} HTTP/1.1\r\n\r\n", "canary-sas".repeat(20_000)),
    ];
    let mut answers = String::new();
    for request in requests {
        let answer = exchange(address, &request).await;
        // An answer may contain its own client's text: only the first line is kept.
        let _ = writeln!(answers, "{}", answer.lines().next().unwrap_or(""));
    }
    answers
}

/// A request with a slow body.
async fn slow_request(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let head = format!(
        "PUT /devstoreaccount1/slow HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         x-ms-client-request-id: slow-one\r\nContent-Length: 5\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    // Longer than the threshold for slow requests.
    tokio::time::sleep(Duration::from_millis(60)).await;
    stream.write_all(b"hello").await.expect("it reads");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
}

async fn no_secret_is_shown(format: &str) -> String {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(place.path(), format, "trace");
    let address = server.addresses()[0];
    let mut client = server.client();
    let mut receipts = every_operation(&mut client).await;
    let answers = many_errors(address).await;
    slow_request(address).await;
    let pages = [
        scrape(metrics_address(&server)).await,
        scrape(address).await,
    ];
    // Printed once, where it is documented.
    assert!(server.facts("KEW_QUEUE_CONNECTION_STRING")[0].contains(DEVELOPMENT_KEY));
    for name in ["KEW_QUEUE_LISTEN", "KEW_METRICS_LISTEN", "KEW_READY"] {
        assert!(
            !server.facts(name).concat().contains(DEVELOPMENT_KEY),
            "{name}"
        );
    }
    drop(client);
    // The end of a crash, which may dump memory.
    server.log_with(&["slow-one"]);
    let log = server.end_by(Signal::ABORT);
    receipts.extend(CANARIES.map(str::to_owned));
    receipts.push(DEVELOPMENT_KEY.to_owned());
    receipts.push(DEVELOPMENT_KEY[..40].to_owned());
    for secret in &receipts {
        assert!(!log.contains(secret), "{secret} is in the log");
        assert!(!answers.contains(secret), "{secret} is in an answer");
        for page in &pages {
            read(page).expect("a page in order");
            assert!(!page.contains(secret), "{secret} is in the metrics");
        }
    }
    log
}

#[test]
fn no_secret_is_in_logs_of_text_nor_a_line_that_a_client_forged() {
    let log = load::run(no_secret_is_shown("text"));
    assert!(!log.contains('\u{1b}'), "a control character");
    for line in log.lines() {
        assert!(
            line.starts_with("20"),
            "not the beginning of an event: {line:?}"
        );
    }
    assert!(log.contains(
        "operation=\"PutMessage\" account=\"devstoreaccount1\" queue=\"orders\" status=201"
    ));
    assert!(log.contains("\\nforged"));
    assert!(log.contains("slow request"));
}

#[test]
fn no_secret_is_in_logs_of_json_and_every_line_is_an_object() {
    let log = load::run(no_secret_is_shown("json"));
    let events: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object of JSON"))
        .collect();
    let of_target =
        |target: &'static str| events.iter().filter(move |event| event["target"] == target);
    let put = of_target("kew::access")
        .find(|event| event["operation"] == "PutMessage" && event["status"] == 404)
        .expect("the put to a queue that is not there");
    assert_eq!(put["code"], "QueueNotFound");
    assert_eq!(put["queue"], "absent");
    assert_eq!(put["level"], "DEBUG");
    assert_eq!(put["request_id"].as_str().map(str::len), Some(36));
    for name in ["duration_us", "request_bytes", "response_bytes"] {
        assert!(put[name].as_u64().is_some_and(|value| value > 0), "{put}");
    }
    assert!(
        put["peer"]
            .as_str()
            .is_some_and(|peer| peer.starts_with("127.0.0.1:"))
    );
    let slow: Vec<&Value> = of_target("kew::slow").collect();
    let slow_one = |event: &&&Value| event["client_request_id"] == "slow-one";
    let slow = slow.iter().find(slow_one).expect("the slow request");
    assert_eq!(slow["level"], "INFO");
    assert!(
        slow["duration_us"].as_u64().is_some_and(|us| us >= 20_000),
        "{slow}"
    );
}

#[test]
fn requests_are_not_logged_unless_asked_for() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let log = load::run(async {
        let server = start(place.path(), "json", "info");
        let mut client = server.client();
        client.create_queue("orders", &[]).await.expect("created");
        drop(client);
        server.terminate()
    });
    assert!(!log.contains("kew::access"), "{log}");
}

#[test]
fn wrong_settings_are_refused_with_the_allowed_values() {
    for (args, expected) in [
        (["--log-format", "xml"], "text or json"),
        (["--slow-request", "0"], "from 1 to 3600000"),
        (["--metrics-queues", "10001"], "from 0 to 10000"),
        (["--metrics-listen", "nowhere"], "ADDR:PORT"),
    ] {
        let (ended, _) = run(|command| {
            command.args(["serve", "--ephemeral"]).args(args);
        });
        assert_eq!(ended.status.code(), Some(2), "{args:?}");
        assert!(ended.log.contains(expected), "{}", ended.log);
    }
}

/// A row of the page: name, kind, labels.
type Row = (String, String, BTreeSet<String>);

/// The rows of the tables in `docs/metrics.md`.
fn documented() -> BTreeMap<String, Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(path).expect("the page is there");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`').to_owned();
        let labels = cells[3]
            .split(',')
            .map(|label| label.trim().trim_matches('`'));
        let labels = labels.filter(|label| !label.is_empty()).map(str::to_owned);
        let meaning = cells[5];
        assert!(!meaning.is_empty(), "{row}");
        (name.clone(), (name, cells[2].to_owned(), labels.collect()))
    })
    .collect()
}

fn shown(families: BTreeMap<String, Read>) -> BTreeMap<String, (Row, bool)> {
    let row = |(name, family): (String, Read)| {
        let total = if family.kind == "counter" {
            "_total"
        } else {
            ""
        };
        let samples = family.samples.iter();
        let mut labels: BTreeSet<String> = samples
            .flat_map(|(_, labels, _)| labels.keys().cloned())
            .collect();
        labels.remove("le");
        let has_samples = !family.samples.is_empty();
        let name = name + total;
        (name.clone(), ((name, family.kind, labels), has_samples))
    };
    families.into_iter().map(row).collect()
}

#[test]
fn every_metric_is_documented_and_everything_documented_is_shown() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let page = load::run(async {
        let server = start(place.path(), "text", "info");
        every_operation(&mut server.client()).await;
        many_errors(server.addresses()[0]).await;
        scrape(metrics_address(&server)).await
    });
    let shown = shown(read(&page).expect("a page in order"));
    let documented = documented();
    let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(shown.keys().collect()),
        names(documented.keys().collect())
    );
    let mut empty = Vec::new();
    for (name, (row, has_samples)) in &shown {
        if *has_samples {
            assert_eq!(row, &documented[name]);
        } else {
            empty.push(name.as_str());
        }
    }
    // There was no snapshot since the start, no backup, and no Service Bus queue.
    assert_eq!(
        empty,
        [
            "kew_amqp_refusals_total",
            "kew_backup_age_seconds",
            "kew_bus_queue_duplicates_total",
            "kew_bus_queue_messages",
            "kew_bus_queue_messages_arrived_total",
            "kew_bus_queue_messages_completed_total",
            "kew_bus_queue_oldest_message_age_seconds",
            "kew_bus_queue_sessions_locked",
            "kew_bus_queue_size_bytes",
            "kew_bus_topic_copies_total",
            "kew_bus_topic_duplicates_total",
            "kew_bus_topic_filter_failures_total",
            "kew_bus_topic_filter_steps_total",
            "kew_bus_topic_messages",
            "kew_bus_topic_pending",
            "kew_bus_topic_pending_age_seconds",
            "kew_bus_topic_published_total",
            "kew_bus_topic_rules",
            "kew_bus_topic_size_bytes",
            "kew_bus_topic_unmatched_total",
            "kew_log_snapshot_age_seconds",
            "kew_log_snapshot_size_bytes"
        ]
    );
}

/// The rules are those of promtool, which reads only the older format.
#[test]
fn promtool_accepts_the_metrics() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let [open, plain] = load::run(async {
        let server = start(place.path(), "text", "info");
        every_operation(&mut server.client()).await;
        many_errors(server.addresses()[0]).await;
        let address = metrics_address(&server);
        [
            scrape_as(address, "application/openmetrics-text").await,
            scrape_as(address, "*/*").await,
        ]
    });
    assert!(open.ends_with("# EOF\n") && !plain.ends_with("# EOF\n"));
    let [open, read_plain] = [&open, &plain].map(|page| read(page).expect("a page in order"));
    assert_eq!(lint(&open), [""; 0]);
    assert_eq!(lint(&read_plain), [""; 0]);
    let names = |page: &BTreeMap<String, Read>| page.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&read_plain), names(&open));
    check_with_promtool(&plain);
}

/// Checks a page with promtool, if it is installed.
fn check_with_promtool(page: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut promtool = match command.stderr(Stdio::piped()).spawn() {
        Ok(promtool) => promtool,
        Err(error) => {
            skip(
                "promtool",
                &format!("no promtool ({error})"),
                "install it (Debian: prometheus)",
            );
            return;
        }
    };
    let mut input = promtool.stdin.take().expect("it is piped");
    input.write_all(page.as_bytes()).expect("promtool reads");
    drop(input);
    let judged = promtool.wait_with_output().expect("promtool ends");
    let said = [judged.stdout, judged.stderr].concat();
    assert!(
        judged.status.success() && said.is_empty(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

#[test]
fn disk_space_and_recovery_time_are_shown() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let page = load::run(async {
        let server = start(place.path(), "text", "info");
        every_operation(&mut server.client()).await;
        server.kill();
        let server = start(place.path(), "text", "info");
        scrape(metrics_address(&server)).await
    });
    let families = read(&page).expect("a page in order");
    let value = |name: &str| families[name].samples[0].2;
    assert!(value("kew_recovery_events") > 10.0);
    for name in [
        "kew_recovery_seconds",
        "kew_disk_free_bytes",
        "kew_log_size_bytes",
        "kew_log_end_position",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
    ] {
        assert!(value(name) > 0.0, "{name}");
    }
    assert!((value("kew_queues") - 1.0).abs() < 0.1);
}
