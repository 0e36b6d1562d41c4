//! Hostile clients, and the limits that protect memory, descriptors, files and honest clients.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use queue_load::{Client, Dribblers, Endpoint, PutOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::load;
use crate::server::{Server, show};

const DRIBBLERS: usize = 1000;

/// How long they dribble. The body of a client without a key is refused after 5 s.
const DRIBBLE: Duration = Duration::from_secs(8);

/// The size of an answer to a dribbler that reads none: 32 messages of 8,000 characters.
const ANSWER_SIZE_KIB: u64 = 272;

/// The memory that dribblers may use, without that of the kernel: 48 KiB each, and one answer for each that reads none,
/// which are a sixth of them.
const MEMORY_MAX_KIB: u64 =
    48 * DRIBBLERS as u64 + ANSWER_SIZE_KIB * (DRIBBLERS as u64).div_ceil(6);

/// The value of a metric, added up.
async fn metric(address: SocketAddr, name: &str) -> f64 {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("it reads");
    let mut answer = String::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_string(&mut answer));
    read.await.expect("in time").expect("an answer");
    let lines = answer.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        if !rest.starts_with(['{', ' ']) {
            return None;
        }
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    });
    lines.sum()
}

#[test]
fn dribblers_hold_little_and_honest_clients_are_answered() {
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(dribbled(place.path()));
}

async fn dribbled(data_dir: &Path) {
    let server = Server::start(data_dir);
    let address = server.addresses()[0];
    let endpoint = server.endpoint();
    let mut client = server.client();
    // Honest clients have a queue of their own. Otherwise they delete the messages before the dribblers ask for them.
    for queue in ["dribble", "honest"] {
        client.create_queue(queue, &[]).await.expect("created");
    }
    for _ in 0..32 {
        let text = "x".repeat(8000);
        let put = client.put("dribble", &text, PutOptions::default());
        put.await.expect("put");
    }
    let memory = server.peak_memory_kib();
    let files = metric(address, "process_open_fds").await;
    let dribblers = Dribblers::start(&endpoint, "dribble", DRIBBLERS);
    let mut honest = JoinSet::new();
    for _ in 0..4 {
        honest.spawn(work(endpoint.clone()));
    }
    let mut answered = 0;
    while let Some(count) = honest.join_next().await {
        answered += count.expect("every honest request is answered");
    }
    let open = metric(address, "kew_connections_open").await;
    let files_more = metric(address, "process_open_fds").await - files;
    let memory_more_kib = server.peak_memory_kib() - memory;
    let tally = dribblers.tally();
    show(&format!(
        "dribblers={DRIBBLERS} {tally} honest_answers={answered} connections_open={open} \
         memory_kib={memory_more_kib} files={files_more}"
    ));
    assert!(open >= 0.7 * DRIBBLERS as f64, "{open} were open");
    assert!(tally.closed > 0, "no limit of time held: {tally}");
    assert!(memory_more_kib < MEMORY_MAX_KIB, "{memory_more_kib} KiB");
    // One descriptor for each connection, and those that are being closed.
    assert!(files_more < 1.2 * DRIBBLERS as f64, "{files_more} files");
    drop(dribblers);
    let deadline = Instant::now() + Duration::from_secs(30);
    while metric(address, "kew_connections_open").await > 10.0 {
        assert!(Instant::now() < deadline, "connections stay open");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    server.terminate();
}

/// Puts, gets and deletes while others dribble; returns how many requests were answered.
async fn work(endpoint: Arc<Endpoint>) -> usize {
    let mut client = Client::new(endpoint);
    let end = Instant::now() + DRIBBLE;
    let patience = Duration::from_secs(10);
    let mut answered = 0;
    while Instant::now() < end {
        let put = client.put("honest", "a message", PutOptions::default());
        timeout(patience, put).await.expect("in time").expect("put");
        let got = timeout(patience, client.get("honest", 1, 60)).await;
        for message in got.expect("in time").expect("got") {
            let receipt = message.receipt.expect("it was received").value;
            let delete = client.delete("honest", &message.id, &receipt);
            timeout(patience, delete)
                .await
                .expect("in time")
                .expect("deleted");
            answered += 1;
        }
        answered += 2;
    }
    answered
}

/// Everything below a directory, with its mode.
fn everything(directory: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("readable").path();
        let metadata = fs::symlink_metadata(&path).expect("it is there");
        found.push((path.clone(), metadata.permissions().mode() & 0o7777));
        if metadata.is_dir() {
            found.extend(everything(&path));
        }
    }
    found
}

#[test]
fn no_other_user_can_read_the_data_directory_with_any_umask() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    for round in 0..2 {
        // Created in the first round, used and made durable again in the second.
        let server = Server::start_with(|command| {
            *command = std::process::Command::new("sh");
            command.args(["-c", "umask 000; exec \"$0\" \"$@\""]);
            command.arg(env!("CARGO_BIN_EXE_kew"));
            command.arg("serve").arg("--data-dir").arg(&data_dir);
            command.args(["--queue-listen", "127.0.0.1:0"]);
            command.stdin(Stdio::null());
        });
        load::run(async {
            let mut client = server.client();
            let name = format!("orders-{round}");
            client.create_queue(&name, &[]).await.expect("created");
            let put = client.put(&name, "a message", PutOptions::default());
            put.await.expect("put");
        });
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode();
        assert_eq!(mode(&data_dir) & 0o7777, 0o700);
        let found = everything(&data_dir);
        assert!(found.len() > 3, "{found:?}");
        for (path, mode) in found {
            let expected = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode, expected, "{}", path.display());
        }
        server.terminate();
    }
}

#[test]
fn no_file_name_contains_client_text() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("data");
    let server = Server::start(&data_dir);
    let names = |directory: &Path| -> BTreeSet<PathBuf> {
        everything(directory)
            .into_iter()
            .map(|(path, _)| path)
            .collect()
    };
    let before = names(place.path());
    let address = server.addresses()[0];
    load::run(async {
        let mut client = server.client();
        let mut made = Vec::new();
        for name in [
            "con",
            "nul",
            "lock",
            "manifest",
            "partition-0",
            "etc",
            "canary",
        ] {
            client.create_queue(name, &[]).await.expect("a good name");
            made.push(name);
        }
        for name in [
            "..",
            "%2e%2e",
            "..%2fcanary",
            "..%2f..%2fcanary",
            "%2ftmp%2fcanary",
            "../canary",
            "canary%00",
            "..%5ccanary",
            "Canary",
            "canary.",
            "%c0%ae%c0%ae%2fcanary",
            "canary%2fcanary",
            &"canary".repeat(50),
        ] {
            // Signed and unsigned: neither may leave a trace.
            let refused = client.create_queue(name, &[("owner", "..%2fcanary")]).await;
            assert!(refused.is_err(), "{name}");
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            let request = format!(
                "PUT /devstoreaccount1/{name} HTTP/1.1\r\nHost: ../canary\r\nConnection: close\r\n\r\n"
            );
            let sent = stream.write_all(request.as_bytes()).await;
            sent.expect("it reads");
            let mut answer = String::new();
            let read = stream.read_to_string(&mut answer).await;
            read.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 4"), "{name}: {answer}");
        }
        let put = client.put("canary", "../canary", PutOptions::default());
        put.await.expect("put");
        for name in made {
            client.delete_queue(name).await.expect("deleted");
        }
    });
    let after = names(place.path());
    for path in after.difference(&before) {
        let name = path.file_name().expect("a name").to_string_lossy();
        // The log may have grown meanwhile, and it reserves space in the background.
        assert!(
            name == "ballast"
                || ["segment-", "snapshot-", "pages-"]
                    .iter()
                    .any(|kind| name.starts_with(kind)),
            "{}",
            path.display()
        );
    }
    server.terminate();
}
