//! Clients that each hold a connection and use it as little as possible: they send a byte at a
//! time, or read none. If their connection is closed they reconnect at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{Connection, Endpoint};

/// Time from a byte to the next.
const PAUSE: Duration = Duration::from_millis(500);

/// The kernel's receive buffer of a dribbler.
const RECEIVE_BUFFER_SIZE_BYTES: u32 = 4096;

/// Dribbling connections, until they are dropped.
pub struct Dribblers {
    tally: Arc<Counts>,
    /// Dropping the set ends them all.
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    connected: AtomicU64,
    refused: AtomicU64,
    closed: AtomicU64,
    bytes: AtomicU64,
}

/// Counts of the connections.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// Connections made.
    pub connected: u64,
    /// Connections that could not be made.
    pub refused: u64,
    /// Connections that the server closed.
    pub closed: u64,
    /// Bytes sent.
    pub bytes: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            connected,
            refused,
            closed,
            bytes,
        } = self;
        write!(
            f,
            "connected={connected} refused={refused} closed_by_server={closed} bytes={bytes}"
        )
    }
}

impl Dribblers {
    /// Starts `count` dribblers, of all kinds in turn. The queue must exist.
    #[must_use]
    pub fn start(endpoint: &Arc<Endpoint>, queue: &str, count: usize) -> Self {
        let tally = Arc::new(Counts::default());
        let mut tasks = JoinSet::new();
        let said = said(endpoint, queue);
        for number in 0..count {
            let (whole, rest) = said[number % said.len()].clone();
            let (endpoint, tally) = (endpoint.clone(), tally.clone());
            tasks.spawn(async move {
                // So that they do not all send at the same time.
                sleep(PAUSE.mul_f64((number % 100) as f64 / 100.0)).await;
                loop {
                    dribble(&endpoint, &whole, &rest, &tally).await;
                    sleep(PAUSE).await;
                }
            });
        }
        Self {
            tally,
            _tasks: tasks,
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally {
            connected: self.tally.connected.load(Relaxed),
            refused: self.tally.refused.load(Relaxed),
            closed: self.tally.closed.load(Relaxed),
            bytes: self.tally.bytes.load(Relaxed),
        }
    }
}

/// The bytes that a kind of dribbler sends at once, and those that follow one by one.
type Said = (Vec<u8>, Vec<u8>);

fn said(endpoint: &Arc<Endpoint>, queue: &str) -> Vec<Said> {
    let mut signer = Connection::new(endpoint.clone());
    let messages = format!("/{queue}/messages");
    let body = format!(
        "<QueueMessage><MessageText>{}</MessageText></QueueMessage>",
        "x".repeat(1000)
    );
    let put = signer.to_bytes("POST", &messages, &[], body.as_bytes());
    let (head, body) = put.split_at(put.len() - body.len());
    let peek = [("numofmessages", "32"), ("peekonly", "true")];
    let peek = signer.to_bytes("GET", &messages, &peek, &[]);
    let stranger = b"POST /devstoreaccount1/dribble/messages HTTP/1.1\r\nhost: h\r\ncontent-length: 1000\r\n\r\n";
    vec![
        // A head without end.
        (
            Vec::new(),
            [b"GET / HTTP/1.1\r\nx: ".as_slice(), &[b'x'; 1000]].concat(),
        ),
        // A long head without end.
        (
            [b"GET / HTTP/1.1\r\nx: ".as_slice(), &[b'x'; 20_000]].concat(),
            vec![b'x'; 1000],
        ),
        // The body of an admitted request.
        (head.to_vec(), body.to_vec()),
        // The body of a refused request.
        (stranger.to_vec(), vec![b'x'; 1000]),
        // Requests without reading the answers.
        (peek.repeat(20), Vec::new()),
        // A handshake.
        (
            Vec::new(),
            [
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
                &[7; 500],
            ]
            .concat(),
        ),
    ]
}

/// One connection, until the server closes it or everything is sent.
async fn dribble(endpoint: &Endpoint, whole: &[u8], rest: &[u8], counts: &Counts) {
    let socket = TcpSocket::new_v4().and_then(|socket| {
        socket.set_recv_buffer_size(RECEIVE_BUFFER_SIZE_BYTES)?;
        Ok(socket)
    });
    let Ok(socket) = socket else {
        counts.refused.fetch_add(1, Relaxed);
        return;
    };
    let Ok(mut stream) = socket.connect(endpoint.address()).await else {
        counts.refused.fetch_add(1, Relaxed);
        return;
    };
    counts.connected.fetch_add(1, Relaxed);
    // A server that stops reading need not take everything.
    let sent = timeout(10 * PAUSE, stream.write_all(whole)).await;
    if matches!(sent, Ok(Err(_))) {
        counts.closed.fetch_add(1, Relaxed);
        return;
    }
    counts.bytes.fetch_add(whole.len() as u64, Relaxed);
    let mut sink = [0; 1];
    for byte in rest.iter().map(Some).chain(std::iter::repeat(None)) {
        sleep(PAUSE).await;
        if let Some(byte) = byte {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            counts.bytes.fetch_add(1, Relaxed);
        }
        // Reads at most one byte.
        if matches!(stream.try_read(&mut sink), Ok(0)) {
            break;
        }
        if byte.is_none()
            && matches!(
                timeout(PAUSE, stream.read(&mut sink)).await,
                Ok(Ok(0) | Err(_))
            )
        {
            break;
        }
    }
    counts.closed.fetch_add(1, Relaxed);
}
