//! Few open files: each protocol has its guaranteed part, unused files go to the other,
//! authenticated clients keep their connections, and silent connections lock no client out.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kew_bus_api::{WELL_KNOWN_KEY, WELL_KNOWN_RULE, sign_token};

use crate::client::Shell;
use crate::server::{PATIENCE, Server};
use crate::skip::skip;

/// The server keeps 512 of them: 512 are left, and each protocol is guaranteed a quarter of those.
const FILES_MAX: u64 = 1024;
const MOST: usize = 384;
const GUARANTEED: usize = 128;

const OK: &[u8] = b"HTTP/1.1 200";
const BUSY: &[u8] = b"HTTP/1.1 503";

fn start(data_dir: &std::path::Path) -> Option<Server> {
    if let Err(error) = Command::new("prlimit").arg("--version").output() {
        skip(
            "open_files",
            &format!("no prlimit ({error})"),
            "install util-linux",
        );
        return None;
    }
    Some(Server::start_with(|command| {
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={FILES_MAX}"));
        limited.arg(command.get_program());
        limited.arg("serve").arg("--data-dir").arg(data_dir);
        limited.args([
            "--queue-listen",
            "127.0.0.1:0",
            "--bus-listen",
            "127.0.0.1:0",
        ]);
        *command = limited;
    }))
}

/// A signed list of queues: connections that sent it keep their places.
fn queue_request(server: &Server) -> Vec<u8> {
    let url = Shell::of(server).ok(&["sas"]);
    let (_, query) = url.trim_end().split_once('?').expect("a signature");
    format!("GET /devstoreaccount1?comp=list&{query} HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .into_bytes()
}

/// The same of Service Bus.
fn bus_request() -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let expiry = now.expect("it is after 1970").as_secs() + 3600;
    let token = sign_token("sb://localhost/", WELL_KNOWN_RULE, WELL_KNOWN_KEY, expiry);
    let path = "/$Resources/queues?api-version=2017-04";
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\n\r\n").into_bytes()
}

/// A connection on which this request got this answer, if the server accepts it.
fn served(address: SocketAddr, said: &[u8], answered: &[u8]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(said).ok()?;
    let mut answer = vec![0; answered.len()];
    stream.read_exact(&mut answer).ok()?;
    (answer == answered).then_some(stream)
}

/// As many connections as the server accepts.
fn fill(address: SocketAddr, said: &[u8], answered: &[u8]) -> Vec<TcpStream> {
    std::iter::from_fn(|| served(address, said, answered)).collect()
}

/// Retries until it succeeds.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it did not happen in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn protocols_share_the_files_and_neither_starves_the_other() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let Some(server) = start(place.path()) else {
        return;
    };
    let queue = server.addresses()[0];
    let bus = server.facts("KEW_BUS_LISTEN")[0]
        .parse()
        .expect("an address");
    server.log_with(&["384 at most"]);
    let (queue_request, bus_request) = (queue_request(&server), bus_request());
    // One protocol may have everything except the other's guarantee.
    let buses = fill(bus, &bus_request, OK);
    assert_eq!(buses.len(), MOST);
    let mut queues = fill(queue, &queue_request, OK);
    assert_eq!(queues.len(), GUARANTEED);
    // One more gets an error, and authenticated connections stay.
    eventually(|| served(queue, &queue_request, BUSY));
    eventually(|| served(bus, &bus_request, BUSY));
    let goes_on = b"GET /health/live HTTP/1.1\r\nhost: kew\r\nconnection: close\r\n\r\n";
    queues[0].write_all(goes_on).expect("it is read");
    let mut rest = String::new();
    queues[0].read_to_string(&mut rest).expect("an answer");
    assert!(rest.contains("HTTP/1.1 200"), "{rest}");
    queues.remove(0);
    // Files that one protocol frees are available to the other, in both directions.
    drop(buses);
    eventually(|| {
        let more = fill(queue, &queue_request, OK);
        queues.extend(more);
        (queues.len() == MOST).then_some(())
    });
    assert_eq!(fill(bus, &bus_request, OK).len(), GUARANTEED);
    drop(queues);
    server.terminate();
}

#[test]
fn silent_connections_lock_no_client_out() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let Some(server) = start(place.path()) else {
        return;
    };
    let queue = server.addresses()[0];
    let bus = server.facts("KEW_BUS_LISTEN")[0]
        .parse()
        .expect("an address");
    let (queue_request, bus_request) = (queue_request(&server), bus_request());
    let mut known = served(queue, &queue_request, OK).expect("there is room");
    let mut silent = Vec::new();
    let mut served_count = 0;
    for number in 0..600 {
        let to = if number % 2 == 0 { queue } else { bus };
        silent.push(TcpStream::connect(to).expect("it listens"));
        if number % 10 == 0 {
            let queue = served(queue, &queue_request, OK).is_some();
            let bus = served(bus, &bus_request, OK).is_some();
            served_count += usize::from(queue) + usize::from(bus);
        }
    }
    assert_eq!(served_count, 120, "of 120 honest clients");
    let goes_on = b"GET /health/live HTTP/1.1\r\nhost: kew\r\nconnection: close\r\n\r\n";
    known.write_all(goes_on).expect("it is read");
    let mut rest = String::new();
    known.read_to_string(&mut rest).expect("an answer");
    assert!(rest.contains("HTTP/1.1 200"), "{rest}");
    server.log_with(&["to make room for new ones"]);
    drop(silent);
    server.terminate();
}
