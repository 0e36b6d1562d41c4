//! Start, stop, and what survives in between.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use kew_client::{ErrorKind, PutOptions};
use rustix::process::Signal;

use crate::server::{PATIENCE, Server, account_at, queue_client};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        tokio::time::timeout(2 * PATIENCE, future)
            .await
            .expect("within the time limit")
    })
}

/// The status and body of a plain GET.
fn http_get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("it listens");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a valid time-out");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )
    .expect("writable");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("an answer in UTF-8");
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.expect("a status line"), body.to_owned())
}

#[test]
fn health_is_shown_without_a_signature() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(place.path());
    for path in ["/health/live", "/health/ready"] {
        let (status, body) = http_get(server.addresses()[0], path);
        assert_eq!(status, 200, "{path}: {body}");
    }
}

/// The home of a new user is empty.
#[test]
fn the_first_start_needs_nothing_but_a_home() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_with(|command| {
        command.env_remove("XDG_DATA_HOME").env("HOME", home.path());
        command.args(["serve", "--queue-listen", "127.0.0.1:0"]);
    });
    let (status, _) = http_get(server.addresses()[0], "/health/ready");
    assert_eq!(status, 200);
    assert!(home.path().join(".local/share/kew/MANIFEST").is_file());
}

#[test]
fn every_address_is_printed_and_served() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(place.path());
        command.args([
            "--queue-listen",
            "127.0.0.1:0",
            "--queue-listen",
            "127.0.0.1:0",
        ]);
    });
    let addresses = server.addresses();
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    assert_ne!(addresses[0], addresses[1]);
    block_on(async {
        // A message put through one listener is received through the other.
        let client = |at: usize| queue_client(account_at(addresses[at]));
        let (first, second) = (client(0), client(1));
        first.create_queue("doors", &[]).await.expect("created");
        first
            .put("doors", "through", PutOptions::default())
            .await
            .expect("put");
        let found = second.get("doors", 1, Some(30)).await.expect("received");
        assert_eq!(found[0].text, "through");
    });
}

#[test]
fn the_environment_configures_and_serving_is_the_default() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start_with(|command| {
        command.env("KEW_DATA_DIR", place.path());
        command.env("KEW_QUEUE_LISTEN", "127.0.0.1:0");
    });
    block_on(async {
        let created = server
            .queue_client()
            .create_queue("by-environment", &[])
            .await;
        assert!(created.expect("created"));
    });
    let mut entries = std::fs::read_dir(place.path()).expect("a directory");
    assert!(entries.next().is_some(), "the data directory is empty");
}

#[test]
fn the_name_of_a_deleted_queue_is_reserved_if_configured() {
    let server = Server::start_with(|command| {
        command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
        command.args(["--queue-deletion-delay", "3600"]);
    });
    block_on(async {
        let client = server.queue_client();
        client.create_queue("held", &[]).await.expect("created");
        client.delete_queue("held").await.expect("deleted");
        let error = client.create_queue("held", &[]).await.expect_err("held");
        assert_eq!(
            (error.status(), error.code()),
            (Some(409), Some("QueueBeingDeleted"))
        );
    });
}

#[test]
fn a_stop_is_clean_and_acknowledged_messages_survive() {
    for signal in [Signal::TERM, Signal::INT] {
        let place = tempfile::tempdir().expect("a temporary directory");
        let server = Server::start(place.path());
        let sent = block_on(async {
            let client = server.queue_client();
            client
                .create_queue("kept", &[("colour".to_owned(), "green".to_owned())])
                .await
                .expect("created");
            client
                .put("kept", "text", PutOptions::default())
                .await
                .expect("put")
        });
        server.stop(signal);

        let server = Server::start(place.path());
        block_on(async {
            let client = server.queue_client();
            let properties = client.queue_properties("kept").await.expect("it exists");
            let colour = ("colour".to_owned(), "green".to_owned());
            assert_eq!(properties.metadata, [colour]);
            assert_eq!(properties.approximate_message_count, 1);
            let found = client.get("kept", 32, Some(30)).await.expect("received");
            assert_eq!(found.len(), 1);
            assert_eq!(
                (found[0].id.as_str(), found[0].text.as_str()),
                (sent.id.as_str(), "text")
            );
            assert_eq!(
                (found[0].dequeue_count, found[0].inserted),
                (1, sent.inserted)
            );
        });
    }
}

#[test]
fn a_receipt_and_a_lease_outlive_a_crash() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(place.path());
    let held = block_on(async {
        let client = server.queue_client();
        client.create_queue("leases", &[]).await.expect("created");
        client
            .put("leases", "held", PutOptions::default())
            .await
            .expect("put");
        client
            .get("leases", 1, Some(600))
            .await
            .expect("received")
            .remove(0)
    });
    server.kill();

    let server = Server::start(place.path());
    block_on(async {
        let client = server.queue_client();
        let early = client.get("leases", 32, Some(30)).await.expect("answered");
        assert!(early.is_empty(), "the lease was forgotten: {early:?}");
        let old = held.receipt.expect("leased").value;
        let new = client
            .update("leases", &held.id, &old, 0, Some("changed"))
            .await;
        let new = new.expect("the receipt is good").value;
        let stale = client
            .delete_message("leases", &held.id, &old)
            .await
            .expect_err("the old one is not");
        assert_eq!(
            (stale.status(), stale.code()),
            (Some(404), Some("MessageNotFound"))
        );
        let found = client.peek("leases", 1).await.expect("visible").remove(0);
        assert_eq!((found.text.as_str(), found.dequeue_count), ("changed", 1));
        client
            .delete_message("leases", &held.id, &new)
            .await
            .expect("the new one is");
    });
}

#[test]
fn an_ephemeral_server_forgets() {
    let start = || {
        Server::start_with(|command| {
            command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
        })
    };
    let server = start();
    block_on(async {
        let client = server.queue_client();
        client.create_queue("fleeting", &[]).await.expect("created");
        client
            .put("fleeting", "text", PutOptions::default())
            .await
            .expect("put");
    });
    server.terminate();

    let server = start();
    block_on(async {
        let error = server
            .queue_client()
            .queue_properties("fleeting")
            .await
            .expect_err("forgotten");
        assert_eq!(
            (error.status(), error.code()),
            (Some(404), Some("QueueNotFound"))
        );
    });
}

#[test]
fn a_restart_after_a_clean_stop_is_quick() {
    let place = tempfile::tempdir().expect("a temporary directory");
    Server::start(place.path()).terminate();
    // The fastest of them: a machine can stand still in any one.
    let restarts = [(); 3].map(|()| {
        let begun = Instant::now();
        let server = Server::start(place.path());
        let took = begun.elapsed();
        server.terminate();
        took
    });
    let fastest = restarts.into_iter().min();
    assert!(fastest < Some(Duration::from_secs(5)), "{restarts:?}");
}

#[test]
fn a_stop_answers_the_requests_in_flight() {
    const CONNECTIONS: usize = 8;
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(place.path());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");

    // Eight connections put one message after another; the stop comes somewhere in between.
    runtime.block_on(async {
        server
            .queue_client()
            .create_queue("in-flight", &[])
            .await
            .expect("created");
    });
    let writers: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let client = server.queue_client();
            runtime.spawn(async move {
                let mut acknowledged = Vec::new();
                for count in 0.. {
                    let text = format!("{number}-{count}");
                    match client.put("in-flight", &text, PutOptions::default()).await {
                        Ok(_) => acknowledged.push(text),
                        Err(error) => return (acknowledged, text, error),
                    }
                }
                unreachable!("the server stops")
            })
        })
        .collect();
    runtime.block_on(async {
        let client = server.queue_client();
        let enough = async {
            while client
                .queue_properties("in-flight")
                .await
                .expect("it serves")
                .approximate_message_count
                < 100
            {}
        };
        tokio::time::timeout(PATIENCE, enough)
            .await
            .expect("the writers write");
    });
    server.terminate();

    let results = runtime.block_on(async {
        let mut results = Vec::new();
        for writer in writers {
            let joined = tokio::time::timeout(PATIENCE, writer)
                .await
                .expect("it ends");
            results.push(joined.expect("it does not panic"));
        }
        results
    });
    let server = Server::start(place.path());
    let mut found = std::collections::BTreeSet::new();
    runtime.block_on(async {
        let client = server.queue_client();
        loop {
            let messages = client
                .get("in-flight", 32, Some(600))
                .await
                .expect("received");
            if messages.is_empty() {
                break;
            }
            found.extend(messages.into_iter().map(|message| message.text));
        }
    });
    for (acknowledged, next, error) in results {
        // A clean stop ends connections between requests. Every request that was carried out got
        // its answer.
        assert_ne!(error.kind(), ErrorKind::Refused, "{next}: {error}");
        assert!(
            !found.contains(&next),
            "{next} was executed and not answered: {error}"
        );
        for text in acknowledged {
            assert!(found.contains(&text), "{text} was acknowledged and is lost");
        }
    }
}
