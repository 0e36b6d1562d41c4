//! Message sessions.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kew_client::{BusClient, ErrorKind, Message, ReceiverOptions, SessionChoice, SessionReceiver};

use crate::server::Server;

const SOON: Duration = Duration::from_millis(50);

async fn send(client: &BusClient, session: &str, bodies: &[&str]) {
    let sender = client.sender("steps").await.unwrap();
    for body in bodies {
        let message = Message {
            session_id: Some(session.to_owned()),
            ..Message::new(body.to_string())
        };
        sender.send(&message).await.unwrap();
    }
}

async fn accept(
    client: &BusClient,
    choice: SessionChoice,
) -> Result<SessionReceiver, kew_client::Error> {
    let options = ReceiverOptions::default();
    client.session("steps", choice, options).await
}

#[tokio::test]
async fn a_session_is_received_in_order_by_one() {
    let server = Server::start().await;
    let client = server.client();
    send(&client, "a", &["1", "2", "3"]).await;
    let mut session = accept(&client, SessionChoice::next(SOON)).await.unwrap();
    assert_eq!(session.id(), "a");
    assert!(session.locked_until().unwrap() > SystemTime::now());
    let taken = accept(&client, SessionChoice::named("a"))
        .await
        .unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Refused);
    assert_eq!(taken.code(), Some("com.microsoft:session-cannot-be-locked"));
    for body in ["1", "2"] {
        let message = session.receive().await.unwrap();
        assert_eq!(
            (message.body(), message.session_id()),
            (body.into(), Some("a"))
        );
        message.complete().await.unwrap();
    }
    let peeked = session.peek(0, 10).await.unwrap();
    assert_eq!(peeked.len(), 1);
    session.close().await.unwrap();
    let mut session = accept(&client, SessionChoice::named("a")).await.unwrap();
    let last = session.receive().await.unwrap();
    assert_eq!((last.body(), last.delivery_count()), ("3".into(), 0));
    let refused = last.renew().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    last.complete().await.unwrap();
}

#[tokio::test]
async fn no_session_is_an_answer() {
    let server = Server::start().await;
    let client = server.client();
    let none = accept(&client, SessionChoice::next(SOON))
        .await
        .unwrap_err();
    assert_eq!(none.kind(), ErrorKind::TryAgainLater);
    assert_eq!(none.code(), Some("com.microsoft:timeout"));
    let options = ReceiverOptions::default();
    let wrong = client
        .session("jobs", SessionChoice::named("a"), options)
        .await;
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Refused);
    let wrong = client.receiver("steps", options).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn a_session_has_state_and_a_lock() {
    let server = Server::start().await;
    let client = server.client();
    let session = accept(&client, SessionChoice::named("a")).await.unwrap();
    assert_eq!(session.state().await.unwrap(), None);
    let state = Bytes::from_static(b"half");
    session.set_state(Some(state.clone())).await.unwrap();
    assert_eq!(session.state().await.unwrap(), Some(state.clone()));
    let until = session.renew().await.unwrap();
    assert_eq!(session.locked_until(), Some(until));
    drop(session);
    let again = async {
        loop {
            match accept(&client, SessionChoice::named("a")).await {
                Ok(session) => return session,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let session = tokio::time::timeout(Duration::from_secs(60), again).await;
    let session = session.expect("a session that is dropped is free at once");
    assert_eq!(session.state().await.unwrap(), Some(state));
    session.set_state(None).await.unwrap();
    assert_eq!(session.state().await.unwrap(), None);
}

#[tokio::test]
async fn deferred_messages_of_a_session() {
    let server = Server::start().await;
    let client = server.client();
    send(&client, "a", &["1"]).await;
    let mut session = accept(&client, SessionChoice::named("a")).await.unwrap();
    let message = session.receive().await.unwrap();
    message.defer(Vec::new()).await.unwrap();
    let number = message.sequence_number().unwrap();
    let found = session.receive_deferred(&[number]).await.unwrap();
    assert_eq!(found[0].body(), "1");
    found[0].complete().await.unwrap();
    assert_eq!(server.view("steps").await.counts.active, 0);
}

#[tokio::test]
async fn a_session_ends_with_its_connection() {
    let server = Server::start().await;
    let client = server.client();
    send(&client, "a", &["1", "2"]).await;
    let mut session = accept(&client, SessionChoice::named("a")).await.unwrap();
    let message = session.receive().await.unwrap();
    server.cut();
    for error in [
        session.receive().await.unwrap_err(),
        session.renew().await.unwrap_err(),
        session.state().await.unwrap_err(),
        message.complete().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.is_lock_lost(), "{error}");
    }
    // The client goes on.
    client.sender("steps").await.unwrap();
}
