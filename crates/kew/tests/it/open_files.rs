//! Few open files: each protocol has its part, what one does not use the other may have, and those who are
//! served go on.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::server::{PATIENCE, Server, show};

/// Of which the server keeps 512: 512 are left, and each protocol is guaranteed a quarter of them.
const FILES_MAX: u64 = 1024;
const MOST: usize = 384;
const GUARANTEED: usize = 128;

const QUEUE_HEALTH: &[u8] = b"GET /health/live HTTP/1.1\r\nhost: kew\r\n\r\n";
const BUS_HEALTH: &[u8] = b"GET /health HTTP/1.1\r\nhost: kew\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200";
const BUSY: &[u8] = b"HTTP/1.1 503";

fn start(data_dir: &std::path::Path) -> Option<Server> {
    if let Err(error) = Command::new("prlimit").arg("--version").output() {
        show(&format!("SKIPPED: a limit of files needs prlimit: {error}"));
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

/// A connection on which this was said and answered with that, if the server takes it.
fn served(address: SocketAddr, said: &[u8], answered: &[u8]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(said).ok()?;
    let mut answer = vec![0; answered.len()];
    stream.read_exact(&mut answer).ok()?;
    (answer == answered).then_some(stream)
}

/// As many as the server takes.
fn fill(address: SocketAddr, said: &[u8], answered: &[u8]) -> Vec<TcpStream> {
    std::iter::from_fn(|| served(address, said, answered)).collect()
}

/// Tries until it comes to pass.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it did not come to pass");
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
    // One may have all but what the other is guaranteed.
    let buses = fill(bus, BUS_HEALTH, OK);
    assert_eq!(buses.len(), MOST);
    let mut queues = fill(queue, QUEUE_HEALTH, OK);
    assert_eq!(queues.len(), GUARANTEED);
    // One more is told so, and whoever is served goes on.
    eventually(|| served(queue, QUEUE_HEALTH, BUSY));
    eventually(|| served(bus, BUS_HEALTH, BUSY));
    let goes_on = b"GET /health/live HTTP/1.1\r\nhost: kew\r\nconnection: close\r\n\r\n";
    queues[0].write_all(goes_on).expect("it is read");
    let mut rest = String::new();
    queues[0].read_to_string(&mut rest).expect("an answer");
    assert!(rest.contains("HTTP/1.1 200"), "{rest}");
    queues.remove(0);
    // What one gives back, the other may have, and the other way round.
    drop(buses);
    eventually(|| {
        let more = fill(queue, QUEUE_HEALTH, OK);
        queues.extend(more);
        (queues.len() == MOST).then_some(())
    });
    assert_eq!(fill(bus, BUS_HEALTH, OK).len(), GUARANTEED);
    drop(queues);
    assert!(server.terminate().status.success());
}
