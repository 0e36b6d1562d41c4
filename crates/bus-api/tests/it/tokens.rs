//! What a client may do, by its tokens.

use kew_amqp::Event;
use kew_bus_api::WELL_KNOWN_KEY;

use crate::client::{Server, token};

const UNAUTHORIZED: &str = "amqp:unauthorized-access";

#[tokio::test]
async fn a_token_lets_in_where_it_is_for() {
    let server = Server::start().await;
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    let refused = client.sender("jobs").await.unwrap_err();
    assert_eq!(refused.condition, UNAUTHORIZED);
    let good = token("sb://localhost/JOBS", WELL_KNOWN_KEY, 60);
    assert_eq!(client.put_token("sb://localhost/jobs", &good).await, 202);
    client.sender("jobs").await.unwrap();
    client
        .receiver("sb://localhost/Jobs/$DeadLetterQueue")
        .await
        .unwrap();
    let refused = client.sender("steps").await.unwrap_err();
    assert_eq!(refused.condition, UNAUTHORIZED);
}

#[tokio::test]
async fn a_wrong_token_is_told_and_lets_nobody_in() {
    let server = Server::start().await;
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    let jobs = "sb://localhost/jobs";
    for token in [
        token(jobs, "other", 60),
        token(jobs, WELL_KNOWN_KEY, -1),
        token("sb://localhost/steps", WELL_KNOWN_KEY, 60),
        "eyJhbGciOi".to_owned(),
    ] {
        assert_eq!(client.put_token(jobs, &token).await, 401, "{token}");
    }
    let refused = client.receiver("jobs").await.unwrap_err();
    assert_eq!(refused.condition, UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn who_puts_no_token_is_closed() {
    let server = Server::start().await;
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    let began = tokio::time::Instant::now();
    let error = client.until(|event| match event {
        Event::Closed { error, .. } => Some(error.clone()),
        _ => None,
    });
    let error = error.await.unwrap();
    assert_eq!(error.condition, UNAUTHORIZED);
    assert!((15..30).contains(&began.elapsed().as_secs()));
}
