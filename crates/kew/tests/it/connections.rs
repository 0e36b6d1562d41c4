//! Connections that break, and clients that fall silent, under load.
//!
//! The clients use a proxy that resets connections in the middle of a request or an answer, towards
//! both sides. The outcome of such a request is unknown to its client, and all promises hold.
//! Silent clients send a part of a request, or read no answer, and stay connected.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use queue_load::PutOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::load::{self, Ending, Load, Random, Style, from_environment};
use crate::server::{PATIENCE, Server, account_at, show};

/// How many connections are reset.
const RESETS_DEFAULT: u64 = 300;

const SILENT_PEERS: usize = 300;

#[test]
fn resets_in_the_middle_of_requests_and_answers_lose_nothing() {
    let resets = from_environment("KEW_RESETS").unwrap_or(RESETS_DEFAULT);
    let seed = load::seed();
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(reset_loop(place.path(), resets, seed));
}

async fn reset_loop(data_dir: &Path, resets: u64, seed: u64) {
    let mut load = Load::new(seed, &Style::default());
    let server = Server::start(data_dir);
    load.create_queues(&server).await;
    let proxy = Proxy::start(server.addresses()[0], load.random.next()).await;
    load.begin(&account_at(proxy.address), Ending::Told);
    while proxy.counts.all() < resets {
        load.acknowledged(20).await;
    }
    load.end().await;
    let counts = &proxy.counts;
    show(&format!(
        "resets_in_requests={} resets_before_answers={} resets_in_answers={}",
        counts.in_request.load(Relaxed),
        counts.before_answer.load(Relaxed),
        counts.in_answer.load(Relaxed)
    ));
    for count in [&counts.in_request, &counts.before_answer, &counts.in_answer] {
        assert!(count.load(Relaxed) > 0, "a kind of reset did not occur");
    }
    load.finish(server, || Server::start(data_dir)).await;
}

#[derive(Default)]
struct Counts {
    in_request: AtomicU64,
    before_answer: AtomicU64,
    in_answer: AtomicU64,
}

impl Counts {
    fn all(&self) -> u64 {
        self.in_request.load(Relaxed)
            + self.before_answer.load(Relaxed)
            + self.in_answer.load(Relaxed)
    }
}

/// Passes bytes on until it resets the connection.
struct Proxy {
    address: SocketAddr,
    counts: Arc<Counts>,
    listening: tokio::task::JoinHandle<()>,
}

impl Proxy {
    async fn start(server: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let counts = Arc::new(Counts::default());
        let counting = counts.clone();
        let mut random = Random::new(seed);
        let listening = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("it listens");
                let random = Random::new(random.next());
                tokio::spawn(relay(client, server, random, counting.clone()));
            }
        });
        Self {
            address,
            counts,
            listening,
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Forwards some requests, and then resets both sides at some byte.
async fn relay(mut client: TcpStream, server: SocketAddr, mut random: Random, counts: Arc<Counts>) {
    let socket = TcpSocket::new_v4().expect("a socket");
    // The server finds it full, so that a long answer is cut while it is being written.
    socket.set_recv_buffer_size(4096).expect("a valid size");
    let Ok(mut upstream) = socket.connect(server).await else {
        return;
    };
    let mut buffer = vec![0; 256 * 1024];
    let pieces = random.below(40);
    let Some(request) = pass_on(&mut client, &mut upstream, &mut buffer, pieces).await else {
        return;
    };
    let request = buffer[..request].to_vec();
    match random.below(3) {
        0 => {
            // The end of the request never arrives, even if the client sends more.
            let part = cut(request.len(), &mut random);
            let _ = upstream.write_all(&request[..part]).await;
            counts.in_request.fetch_add(1, Relaxed);
        }
        1 => {
            let _ = upstream.write_all(&request).await;
            counts.before_answer.fetch_add(1, Relaxed);
        }
        _ => {
            let _ = upstream.write_all(&request).await;
            let Some(answer) = read_some(&mut upstream, &mut buffer).await else {
                return;
            };
            let part = cut(answer, &mut random);
            let _ = client.write_all(&buffer[..part]).await;
            counts.in_answer.fetch_add(1, Relaxed);
        }
    }
    for stream in [upstream, client] {
        // With nothing to linger for, the close is a reset.
        let _ = stream.set_zero_linger();
    }
}

/// Where to cut this many bytes, before the last.
fn cut(size: usize, random: &mut Random) -> usize {
    usize::try_from(random.below(size as u64)).expect("an index")
}

async fn read_some(stream: &mut TcpStream, buffer: &mut [u8]) -> Option<usize> {
    match stream.read(buffer).await {
        Ok(count @ 1..) => Some(count),
        _ => None,
    }
}

/// Forwards `pieces` pieces of requests, and all answers; returns the size of the next piece, which
/// is in the buffer.
async fn pass_on(
    client: &mut TcpStream,
    upstream: &mut TcpStream,
    buffer: &mut [u8],
    pieces: u64,
) -> Option<usize> {
    let mut passed = 0;
    loop {
        let (to_server, to_client) = buffer.split_at_mut(128 * 1024);
        tokio::select! {
            count = client.read(to_server) => {
                let count = count.ok().filter(|count| *count > 0)?;
                if passed == pieces {
                    return Some(count);
                }
                upstream.write_all(&to_server[..count]).await.ok()?;
                passed += 1;
            }
            count = upstream.read(to_client) => {
                let count = count.ok().filter(|count| *count > 0)?;
                client.write_all(&to_client[..count]).await.ok()?;
            }
        }
    }
}

#[test]
fn silent_clients_delay_no_other_client() {
    let seed = load::seed();
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(silence(place.path(), seed));
}

async fn silence(data_dir: &Path, seed: u64) {
    let mut load = Load::new(seed, &Style::default());
    let server = Server::start(data_dir);
    load.create_queues(&server).await;
    let address = server.addresses()[0];
    let mut silent = Vec::new();
    for number in 0..SILENT_PEERS {
        silent.push(fall_silent(address, number).await);
    }
    load.begin(&server.account(), Ending::Told);
    load.acknowledged(5000).await;
    // A client beside them is answered at once. The fastest of them: a machine can stand still in any one.
    let mut client = server.client();
    client.create_queue("beside", &[]).await.expect("created");
    let mut fastest = PATIENCE;
    for _ in 0..3 {
        let begun = Instant::now();
        let put = client.put("beside", "text", PutOptions::default());
        let put = tokio::time::timeout(PATIENCE, put).await;
        put.expect("answered").expect("put");
        fastest = fastest.min(begun.elapsed());
    }
    assert!(fastest < Duration::from_secs(5), "{fastest:?}");
    show(&format!("silent_peers={}", silent.len()));
    load.finish(server, || Server::start(data_dir)).await;
    drop(silent);
}

/// A client that sends part of something, and nothing more.
async fn fall_silent(address: SocketAddr, number: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a valid size");
    let mut stream = socket.connect(address).await.expect("it listens");
    let said = match number % 4 {
        // No bytes.
        0 => String::new(),
        // Half a head.
        1 => format!("GET /devstoreaccount1/load-a/messages HTTP/1.1\r\nhost: {address}\r\nx-ms-"),
        // A head and half a body.
        2 => format!(
            "POST /devstoreaccount1/load-a/messages HTTP/1.1\r\nhost: {address}\r\n\
             content-length: 1000\r\n\r\n<QueueMessage><MessageText>"
        ),
        // Requests without reading the answers.
        _ => format!("GET /health/live HTTP/1.1\r\nhost: {address}\r\n\r\n").repeat(500),
    };
    // A server stops reading if it cannot answer, so it need not take everything.
    let say = stream.write_all(said.as_bytes());
    let _ = tokio::time::timeout(Duration::from_millis(200), say).await;
    stream
}
