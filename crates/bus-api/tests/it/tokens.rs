//! The rights of a client, by its tokens.

use kew_amqp::Event;
use kew_bus_api::{AuthorizationRule, Rights, WELL_KNOWN_KEY};
use kew_engine::bus::{BusCommand, BusQueueOptions};

use crate::client::{Server, queue_named, token};

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
async fn a_wrong_token_is_refused_and_grants_nothing() {
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

#[tokio::test]
async fn a_token_for_an_entity_that_is_missing_is_answered_so() {
    let server = Server::start().await;
    let rule = AuthorizationRule::generate("r", Rights::ALL, 1).unwrap();
    server.add_rule(Some("jobs"), rule).await.unwrap();
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    let everywhere = token("sb://localhost/", WELL_KNOWN_KEY, 60);
    let wrong = token("sb://localhost/", "other", 60);
    let missing = "sb://localhost/Not/There";
    // The token first.
    let refused = client.put_token(missing, &wrong).await;
    assert_eq!(refused, 401);
    for (audience, shown) in [
        (missing, missing),
        ("amqps://localhost:5671/Not/There/", missing),
        ("sb://localhost/not%2Fthere?x", "sb://localhost/not/there"),
        ("absent/$management", "absent/$management"),
        (
            "sb://h/absent/$DeadLetterQueue",
            "sb://h/absent/$DeadLetterQueue",
        ),
        ("sb://h/t/Subscriptions/s", "sb://h/t/Subscriptions/s"),
    ] {
        let (status, text) = client.put_token_for(audience, &everywhere).await;
        let expected = format!("The messaging entity '{shown}' could not be found.");
        assert_eq!((status, text), (404, expected));
    }
    for audience in [
        "sb://localhost/",
        "sb://localhost",
        "",
        "$cbs",
        "sb://localhost/jobs",
        "sb://localhost/Jobs/$management",
        "jobs/$DeadLetterQueue",
        "jobs/$Transfer/$DeadLetterQueue/$management",
    ] {
        let answer = client.put_token_for(audience, &everywhere).await;
        assert_eq!(answer, (202, "Accepted".to_owned()), "{audience}");
    }
}

#[tokio::test]
async fn a_refused_token_grants_nothing_and_one_for_the_namespace_covers_new_queues() {
    let server = Server::start().await;
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    let everywhere = token("sb://localhost/", WELL_KNOWN_KEY, 60);
    assert_eq!(
        client.put_token("sb://localhost/later", &everywhere).await,
        404
    );
    let refused = client.sender("jobs").await.unwrap_err();
    assert_eq!(refused.condition, UNAUTHORIZED);
    assert_eq!(client.put_token("sb://localhost/", &everywhere).await, 202);
    let created = BusCommand::CreateQueue {
        queue: queue_named("later"),
        options: BusQueueOptions::default(),
    };
    server.order(created).await;
    client.sender("later").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_token_is_closed() {
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
