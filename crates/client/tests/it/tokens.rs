//! Tokens: shown in time, renewed, refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use kew_client::{
    BearerToken, BusClient, BusNamespace, BusOptions, ErrorKind, Message, Secret, TokenError,
    TokenFuture, TokenSource,
};

use crate::peer::Peer;
use crate::server::Server;

#[tokio::test(start_paused = true)]
async fn tokens_are_renewed_while_links_use_them() {
    let peer = Peer::start();
    let client = peer.client(BusOptions {
        token_lifetime: Duration::from_secs(40),
        ..BusOptions::default()
    });
    let sender = client.sender("jobs").await.unwrap();
    let spare = client.sender("spare").await.unwrap();
    drop(spare);
    assert_eq!(peer.with(|it| it.tokens.len()), 2);
    assert!(peer.with(|it| it.tokens[0].contains("%2Fjobs&")));
    tokio::time::sleep(Duration::from_secs(301)).await;
    let jobs = peer.with(|it| {
        it.tokens
            .iter()
            .filter(|it| it.contains("%2Fjobs&"))
            .count()
    });
    assert!((11..=12).contains(&jobs), "one every 30 s: {jobs}");
    assert_eq!(
        peer.with(|it| it.tokens.len()),
        jobs + 1,
        "nobody uses the other"
    );
    sender.send(&Message::new("x")).await.unwrap();
    assert_eq!(peer.with(|it| it.connections), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_nobody_uses_is_given_up_and_its_token_with_it() {
    let peer = Peer::start();
    let client = peer.client(BusOptions {
        token_lifetime: Duration::from_secs(40),
        ..BusOptions::default()
    });
    for round in 1..=2 {
        assert!(client.peek("jobs", 0, 1).await.unwrap().is_empty());
        tokio::time::sleep(Duration::from_mins(10)).await;
        let (tokens, detached) = peer.with(|it| (it.tokens.len(), it.detached.clone()));
        assert!(tokens <= 3 * round, "{tokens}");
        assert_eq!(detached, vec!["jobs/$management"; 2 * round]);
    }
    assert_eq!(peer.with(|it| it.connections), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_service_no_longer_takes_is_replaced() {
    let peer = Peer::start();
    let client = peer.client(BusOptions::default());
    let sender = client.sender("jobs").await.unwrap();
    peer.detach("jobs", "amqp:unauthorized-access").await;
    sender.send(&Message::new("x")).await.unwrap();
    peer.until(|it| it.messages.len() == 1).await;
    assert_eq!(peer.with(|it| it.tokens.len()), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_is_told_and_opens_nothing() {
    let peer = Peer::start();
    peer.with(|it| it.token_statuses.extend([401, 503, 202]));
    let client = peer.client(BusOptions::default());
    let error = client.sender("jobs").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(error.status(), Some(401), "{error}");
    assert!(peer.with(|it| !it.attached.contains(&"jobs".to_owned())));
    // A busy service is asked again.
    client.sender("jobs").await.unwrap();
    assert_eq!(peer.with(|it| it.tokens.len()), 3);
}

#[tokio::test(start_paused = true)]
async fn tokens_that_are_not_answered_do_not_take_the_places_of_others() {
    // More than may be on their way at once.
    const COUNT: usize = 70;
    let peer = Peer::start();
    peer.with(|it| it.token_statuses.extend([0; COUNT]));
    let client = peer.client(BusOptions::default());
    let names: Vec<_> = (0..COUNT)
        .map(|number| format!("silent-{number}"))
        .collect();
    let opened = names.iter().map(|name| client.sender(name));
    let opened = futures_util::future::join_all(opened).await;
    assert!(opened.iter().all(Result::is_err), "nothing was answered");
    peer.with(|it| it.token_statuses.clear());
    client.sender("jobs").await.unwrap();
    assert_eq!(peer.with(|it| it.connections), 1);
}

#[tokio::test]
async fn a_wrong_key_opens_nothing() {
    let server = Server::start().await;
    let wrong = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
         SharedAccessKey=wrong;UseDevelopmentEmulator=true";
    let wrong = BusNamespace::parse(wrong).unwrap();
    let client = BusClient::new(wrong, server.options()).unwrap();
    let error = client.sender("jobs").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(server.connections(), 1);
}

/// Gives tokens that last for some seconds, after it has failed for some times.
struct Source {
    failures: AtomicU32,
    is_temporary: bool,
}

impl TokenSource for Source {
    fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a> {
        Box::pin(async move {
            assert_eq!(scope, "https://servicebus.azure.net/.default");
            let left = self.failures.load(Ordering::Relaxed);
            if left > 0 {
                self.failures.store(left - 1, Ordering::Relaxed);
                return Err(TokenError {
                    text: "no identity".to_owned(),
                    is_temporary: self.is_temporary,
                });
            }
            Ok(BearerToken {
                text: Secret::new("a.b.c"),
                expires_at: SystemTime::now() + Duration::from_secs(60),
            })
        })
    }
}

#[tokio::test(start_paused = true)]
async fn bearer_tokens_come_from_their_source() {
    for (failures, is_temporary, is_open) in [(0, false, true), (2, true, true), (1, false, false)]
    {
        let peer = Peer::start();
        let source = Arc::new(Source {
            failures: AtomicU32::new(failures),
            is_temporary,
        });
        let namespace = BusNamespace::with_tokens("amqp://localhost", source).unwrap();
        let client = peer.client_of(namespace, BusOptions::default());
        match client.sender("jobs").await {
            Ok(_) => assert!(is_open),
            Err(error) => {
                assert!(!is_open && error.text().contains("no identity"), "{error}");
                assert_eq!(error.kind(), ErrorKind::Refused);
                continue;
            }
        }
        assert_eq!(peer.with(|it| it.tokens.clone()), ["a.b.c"]);
    }
}
