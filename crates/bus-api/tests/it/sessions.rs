//! Sessions, and links that hold them.

use std::time::{Duration, Instant};

use kew_amqp::Event;
use kew_amqp::codec::{Map, Text};

use crate::client::Server;

/// The least that a queue can have.
const LOCK_DURATION: Duration = Duration::from_secs(5);

/// A client learns that it has lost a session also while it wants nothing; a renewal puts that off.
#[tokio::test]
async fn a_session_that_is_lost_is_detached() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let began = Instant::now();
    let lost = client.session("brief", "lost").await;
    let renewed = client.session("brief", "renewed").await;
    while began.elapsed() < LOCK_DURATION / 5 {
        tokio::time::sleep(LOCK_DURATION / 10).await;
    }
    let renewed_at = Instant::now();
    let properties = Map::build(|map| map.entry("operation", "com.microsoft:renew-session-lock"));
    let body = Map::build(|map| map.entry("session-id", &Text::from("renewed")));
    let answer = client.ask("brief/$management", &properties, &body).await;
    let status = answer.get("statusCode").unwrap().value().as_integer();
    assert_eq!(status, Some(200));
    for (link, since) in [(lost, began), (renewed, renewed_at)] {
        let (detached, error) = client
            .until(|event| match event {
                // Those that the client detached itself have no error.
                Event::Detached {
                    link,
                    error: Some(error),
                    ..
                } => Some((*link, error.clone())),
                _ => None,
            })
            .await;
        assert_eq!(detached, link);
        assert_eq!(error.condition, "com.microsoft:session-lock-lost");
        // Not before its time, and not much later.
        let held = since.elapsed();
        let least = LOCK_DURATION - Duration::from_millis(100);
        assert!(
            (least..LOCK_DURATION * 3).contains(&held),
            "{held:?} after the lock"
        );
    }
}
