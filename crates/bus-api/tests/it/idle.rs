//! A connection without any traffic.

use std::time::Duration;

use kew_amqp::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use crate::client::Server;

/// A frame without a performative.
const EMPTY: [u8; 8] = [0, 0, 0, 8, 2, 0, 0, 0];
/// How long the client waits for a frame before it closes the connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the server does.
const SERVERS_PATIENCE: Duration = Duration::from_mins(4);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn empty_frames_keep_it_for_minutes_both_ways() {
    let server = Server::start().await;
    let config = Config {
        idle_timeout: Some(PATIENCE),
        ..Config::default()
    };
    let mut client = server.trusted_with(config).await;
    client.receiver("jobs").await.unwrap();
    client.say().await;
    let stream = &mut client.stream;
    let mut buffer = [0; 64];
    stream.write_all(&EMPTY).await.unwrap();
    // Time is paused only now: while a test waits for the broker's threads, paused time would jump.
    tokio::time::pause();
    let (began, mut heard_at) = (Instant::now(), Instant::now());
    let mut said_at = began;
    while began.elapsed() < Duration::from_mins(10) {
        if let Ok(read) = timeout(SECOND, stream.read(&mut buffer)).await {
            let size = read.unwrap();
            assert!(size > 0, "the server hung up");
            assert!(buffer[..size].chunks(8).all(|frame| frame == EMPTY));
            heard_at = Instant::now();
        }
        assert!(heard_at.elapsed() < PATIENCE, "the client would be gone");
        // As seldom as the server allows.
        if said_at.elapsed() > SERVERS_PATIENCE - 2 * SECOND {
            stream.write_all(&EMPTY).await.unwrap();
            said_at = Instant::now();
        }
    }
    // A client that stops sending is closed.
    stream.write_all(&EMPTY).await.unwrap();
    let said_at = Instant::now();
    let mut last = Vec::new();
    stream.read_to_end(&mut last).await.unwrap();
    assert!(last.len() > EMPTY.len(), "the client gets an error");
    let silent = said_at.elapsed();
    assert!(silent >= SERVERS_PATIENCE - SECOND, "{silent:?}");
    assert!(
        silent < SERVERS_PATIENCE + Duration::from_mins(1),
        "{silent:?}"
    );
}
