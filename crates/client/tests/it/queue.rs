//! Queue Storage: against Kew, and against a service that answers as a test says, in Azure's form.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use kew_broker::Broker;
use kew_client::{
    BearerToken, Dial, DialFuture, ErrorKind, PutOptions, QueueAccount, QueueClient, QueueOptions,
    QueueSas, Secret, Stream, TokenFuture, TokenSource,
};
use kew_queue_api::{Accounts, Origin, QueueApi, QueueApiOptions};
use tokio_rustls::TlsAcceptor;

use crate::panics::fail_on_panics_of_the_server;
use crate::script::{Door, Reply, Script, answer};
use crate::server::QUICK;
use crate::transports::authority;

/// Kew in memory.
struct Kew {
    broker: Broker,
    api: QueueApi,
    connections: Mutex<usize>,
}

impl Kew {
    fn start() -> Arc<Self> {
        fail_on_panics_of_the_server();
        let broker = Broker::start_in_memory().unwrap();
        let options = QueueApiOptions {
            accounts: Accounts::well_known(),
            ..QueueApiOptions::default()
        };
        Arc::new(Self {
            api: QueueApi::new(broker.clone(), options),
            broker,
            connections: Mutex::new(0),
        })
    }

    fn client(self: &Arc<Self>) -> QueueClient {
        self.client_of(QueueAccount::development())
    }

    fn client_of(self: &Arc<Self>, account: QueueAccount) -> QueueClient {
        QueueClient::new(account, options(self.clone())).unwrap()
    }
}

impl Drop for Kew {
    fn drop(&mut self) {
        self.broker.stop();
    }
}

impl Dial for Kew {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(async move {
            assert_eq!((host, port), ("127.0.0.1", 10001));
            *self.connections.lock().unwrap() += 1;
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let api = self.api.clone();
            let origin = Origin {
                peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
                is_secure: false,
                may_use_public_key: true,
            };
            tokio::spawn(async move {
                let forever = std::future::pending::<()>();
                api.serve_connection(theirs, origin, forever).await;
            });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

fn options(dial: Arc<dyn Dial>) -> QueueOptions {
    QueueOptions {
        retry: QUICK,
        dial: Some(dial),
        ..QueueOptions::default()
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

#[tokio::test]
async fn the_life_of_a_queue() {
    let kew = Kew::start();
    let client = kew.client();
    let metadata = pairs(&[("a_b", "1"), ("a1", "2")]);
    assert!(client.create_queue("jobs", &metadata).await.unwrap());
    assert!(!client.create_queue("jobs", &metadata).await.unwrap());
    let conflict = client.create_queue("jobs", &[]).await.unwrap_err();
    assert_eq!(conflict.code(), Some("QueueAlreadyExists"));
    for number in 0..3 {
        let name = format!("more-{number}");
        client.create_queue(&name, &[]).await.unwrap();
    }
    let (queues, next) = client.list_queues("more", true, None).await.unwrap();
    let names: Vec<_> = queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!((names, next), (vec!["more-0", "more-1", "more-2"], None));
    let (queues, _) = client.list_queues("jobs", true, None).await.unwrap();
    assert_eq!(queues[0].metadata.len(), 2);
    client
        .set_metadata("jobs", &pairs(&[("owner", "x y")]))
        .await
        .unwrap();
    client
        .put("jobs", "x", PutOptions::default())
        .await
        .unwrap();
    let properties = client.queue_properties("jobs").await.unwrap();
    assert_eq!(properties.metadata, pairs(&[("owner", "x y")]));
    assert_eq!(properties.approximate_message_count, 1);
    let stats = client.service_stats().await.unwrap();
    assert_eq!(stats.status, "live");
    client.clear("jobs").await.unwrap();
    client.delete_queue("jobs").await.unwrap();
    let gone = client.queue_properties("jobs").await.unwrap_err();
    assert_eq!(
        (gone.kind(), gone.code()),
        (ErrorKind::Refused, Some("QueueNotFound"))
    );
    assert_eq!(*kew.connections.lock().unwrap(), 2, "they are kept");
}

#[tokio::test]
async fn the_life_of_a_message() {
    let kew = Kew::start();
    let client = kew.client();
    client.create_queue("jobs", &[]).await.unwrap();
    let text = "a <b> & \"c\"\r\né 😀";
    let options = PutOptions {
        visibility_timeout: Some(0),
        time_to_live: Some(-1),
    };
    let put = client.put("jobs", text, options).await.unwrap();
    let peeked = client.peek("jobs", 32).await.unwrap();
    assert_eq!((peeked[0].text.as_str(), &peeked[0].receipt), (text, &None));
    let got = client.get("jobs", 32, Some(60)).await.unwrap();
    assert_eq!((&got[0].id, got[0].dequeue_count), (&put.id, 1));
    assert!(client.get("jobs", 1, None).await.unwrap().is_empty());
    let first = got[0].receipt.clone().unwrap();
    assert!(first.next_visible > SystemTime::now() + Duration::from_secs(30));
    let second = client
        .update("jobs", &put.id, &first.value, 0, Some("half"))
        .await
        .unwrap();
    let stale = client.delete_message("jobs", &put.id, &first.value).await;
    assert_eq!(stale.unwrap_err().code(), Some("MessageNotFound"));
    let got = client.get("jobs", 1, None).await.unwrap();
    assert_eq!((got[0].text.as_str(), got[0].dequeue_count), ("half", 2));
    assert_ne!(got[0].receipt.as_ref().unwrap().value, second.value);
    let receipt = &got[0].receipt.as_ref().unwrap().value;
    client
        .delete_message("jobs", &put.id, receipt)
        .await
        .unwrap();
    let refused = client.get("jobs", 33, None).await.unwrap_err();
    assert_eq!(refused.code(), Some("OutOfRangeQueryParameterValue"));
    assert!(refused.text().contains("MaximumAllowed: 32"), "{refused}");
    let refused = client.put("jobs", "\u{1}", options).await.unwrap_err();
    assert!(refused.text().contains("Base64"), "{refused}");
}

#[tokio::test]
async fn requests_run_side_by_side_on_so_many_connections() {
    let kew = Kew::start();
    let account = QueueAccount::development();
    let options = QueueOptions {
        connections_max: 4,
        ..options(kew.clone())
    };
    let client = QueueClient::new(account, options).unwrap();
    client.create_queue("jobs", &[]).await.unwrap();
    let puts = (0..100).map(|_| client.put("jobs", "x", PutOptions::default()));
    let puts = futures_util::future::join_all(puts).await;
    assert!(puts.into_iter().all(|put| put.is_ok()));
    let properties = client.queue_properties("jobs").await.unwrap();
    assert_eq!(properties.approximate_message_count, 100);
    assert!(*kew.connections.lock().unwrap() <= 4);
}

#[tokio::test]
async fn signatures_open_what_they_are_for() {
    let kew = Kew::start();
    kew.client().create_queue("jobs", &[]).await.unwrap();
    let sas = QueueSas {
        queue: None,
        permissions: Some("rl"),
        expiry: "2099-01-01T00:00:00Z",
        https_only: false,
    };
    let url = QueueAccount::development().signed_url(&sas).unwrap();
    let client = kew.client_of(QueueAccount::parse(url.expose()).unwrap());
    client.peek("jobs", 1).await.unwrap();
    client.list_queues("", false, None).await.unwrap();
    let refused = client.put("jobs", "x", PutOptions::default()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(refused.code(), Some("AuthorizationPermissionMismatch"));
}

impl Script {
    fn client(self: &Arc<Self>, options: QueueOptions) -> QueueClient {
        let account = "AccountName=acct;AccountKey=c2VjcmV0";
        let options = QueueOptions {
            dial: Some(Arc::new(Door(self.clone()))),
            ..options
        };
        let account = QueueAccount::parse(&format!("{account};QueueEndpoint=http://h/acct"));
        QueueClient::new(account.unwrap(), options).unwrap()
    }
}

const EMPTY: &str = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n";

/// In Azure's form: with a byte order mark, in chunks.
fn azure_messages() -> Reply {
    let body = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList><QueueMessage>\
         <MessageId>3a2cf5f0-6b5c-4b1e-a1f4-4a2f6f3f4ed1</MessageId>\
         <InsertionTime>Tue, 25 Jun 2019 20:45:00 GMT</InsertionTime>\
         <ExpirationTime>Tue, 02 Jul 2019 20:45:00 GMT</ExpirationTime>\
         <PopReceipt>AgAAAAMAAAAAAAAAq7x8YZcr1QE=</PopReceipt>\
         <TimeNextVisible>Tue, 25 Jun 2019 20:45:30 GMT</TimeNextVisible>\
         <DequeueCount>1</DequeueCount><MessageText>a&amp;b</MessageText></QueueMessage></QueueMessagesList>";
    Reply::Answer(format!(
        "HTTP/1.1 200 OK\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: application/xml\r\nServer: Windows-Azure-Queue/1.0 Microsoft-HTTPAPI/2.0\r\n\
         x-ms-request-id: 6ba1d1a2-0003-0047-2f95-2b2bd0000000\r\nx-ms-version: 2024-11-04\r\n\r\n\
         {:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    ))
}

fn azure_busy() -> Reply {
    let body = "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>ServerBusy</Code>\
         <Message>Operations per second is over the account limit.</Message></Error>";
    Reply::Answer(format!(
        "HTTP/1.1 503 Server Busy\r\nContent-Length: {}\r\nContent-Type: application/xml\r\n\
         x-ms-error-code: ServerBusy\r\n\r\n{body}",
        body.len()
    ))
}

const AZURE_TIMEOUT: &str = "HTTP/1.1 500 Operation Timed Out\r\nContent-Length: 0\r\nx-ms-error-code: OperationTimedOut\r\n\r\n";

#[tokio::test]
async fn answers_of_azure_are_read() {
    let script = Script::of([azure_messages()]);
    let client = script.client(QueueOptions::default());
    let got = client.get("jobs", 1, None).await.unwrap();
    assert_eq!(got[0].text, "a&b");
    let receipt = got[0].receipt.as_ref().unwrap();
    assert_eq!(receipt.value, "AgAAAAMAAAAAAAAAq7x8YZcr1QE=");
    let head = script.heads()[0].clone();
    assert!(
        head.starts_with("get /acct/jobs/messages?numofmessages=1 http/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains("\r\nauthorization: sharedkey acct:"),
        "{head}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_busy_service_is_given_time() {
    let script = Script::of([azure_busy(), azure_busy(), answer(EMPTY)]);
    let client = script.client(QueueOptions::default());
    let began = tokio::time::Instant::now();
    client
        .delete_message("jobs", "id", "receipt")
        .await
        .unwrap();
    assert!(began.elapsed() >= Duration::from_secs(8));
    let script = Script::of((0..10).map(|_| azure_busy()));
    let client = script.client(QueueOptions::default());
    let error = client.put("jobs", "x", PutOptions::default()).await;
    let error = error.unwrap_err();
    assert!(
        error.is_busy() && error.kind() == ErrorKind::TryAgainLater,
        "{error}"
    );
    assert_eq!(script.heads().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_and_not_answered_has_an_unknown_outcome() {
    for reply in [|| Reply::Close, || Reply::Silence, || answer(AZURE_TIMEOUT)] {
        let script = Script::of([reply()]);
        let client = script.client(QueueOptions::default());
        let error = client.put("jobs", "x", PutOptions::default()).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert_eq!(script.heads().len(), 1, "it is not sent again");
    }
    for reply in [|| Reply::Close, || Reply::Silence, || answer(AZURE_TIMEOUT)] {
        let script = Script::of([reply()]);
        let client = script.client(QueueOptions::default());
        let error = client.get("jobs", 32, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert_eq!(script.heads().len(), 1, "each time hides messages");
    }
    // What can be repeated is.
    let script = Script::of([Reply::Close, answer(AZURE_TIMEOUT), answer(EMPTY)]);
    script
        .client(QueueOptions::default())
        .clear("jobs")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_was_kept_loses_nothing() {
    let closing = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let script = Script::of([answer(closing), answer(EMPTY), answer(EMPTY)]);
    let client = script.client(QueueOptions::default());
    for _ in 0..3 {
        client
            .delete_message("jobs", "id", "receipt")
            .await
            .unwrap();
    }
    assert_eq!(*script.connections.lock().unwrap(), 2);
}

#[tokio::test]
async fn answers_that_are_none_are_told() {
    let html = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>";
    let moved = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://elsewhere/\r\n\r\n";
    let script = Script::of([answer(html), answer(moved)]);
    let client = script.client(QueueOptions::default());
    for _ in 0..2 {
        let error = client.peek("jobs", 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
    let created = "HTTP/1.1 201 Created\r\nContent-Length: 6\r\n\r\n<html>";
    let script = Script::of([answer(created)]);
    let client = script.client(QueueOptions::default());
    let error = client.put("jobs", "x", PutOptions::default()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_dropped_give_their_places_back() {
    let silence = (0..3).map(|_| Reply::Silence);
    let script = Script::of(silence.chain([answer(EMPTY)]));
    let client = script.client(QueueOptions {
        connections_max: 1,
        ..QueueOptions::default()
    });
    for _ in 0..3 {
        let delete = client.delete_message("jobs", "id", "receipt");
        let waited = tokio::time::timeout(Duration::from_secs(1), delete).await;
        assert!(waited.is_err(), "the service says nothing");
    }
    client
        .delete_message("jobs", "id", "receipt")
        .await
        .unwrap();
}

/// Kew behind TLS.
struct Secured(Arc<Kew>, TlsAcceptor);

impl Dial for Secured {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(async move {
            assert_eq!((host, port), ("localhost", 443));
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let (api, acceptor) = (self.0.api.clone(), self.1.clone());
            let origin = Origin {
                peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
                is_secure: true,
                may_use_public_key: true,
            };
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(theirs).await {
                    let forever = std::future::pending::<()>();
                    api.serve_connection(stream, origin, forever).await;
                }
            });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

#[tokio::test]
async fn https_is_spoken_with_those_that_are_trusted() {
    let kew = Kew::start();
    let sas = QueueSas {
        queue: None,
        permissions: None,
        expiry: "2099-01-01T00:00:00Z",
        https_only: true,
    };
    let development = QueueAccount::development();
    let url = development.signed_url(&sas).unwrap();
    let (roots, acceptor) = authority();
    let url = url
        .expose()
        .replace("http://127.0.0.1:10001", "https://localhost");
    let account = QueueAccount::parse(&url).unwrap();
    let secured = || options(Arc::new(Secured(kew.clone(), acceptor.clone())));
    let client = QueueClient::new(
        account.clone(),
        QueueOptions {
            extra_roots_pem: Some(roots),
            ..secured()
        },
    );
    let client = client.unwrap();
    client.create_queue("jobs", &[]).await.unwrap();
    client
        .put("jobs", "x", PutOptions::default())
        .await
        .unwrap();
    let others = QueueOptions {
        extra_roots_pem: Some(authority().0),
        ..secured()
    };
    let client = QueueClient::new(account, others).unwrap();
    let refused = client.peek("jobs", 1).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert!(!refused.text().contains("sig="), "{refused}");
}

/// Counts how often it is asked.
struct Source(Mutex<u32>);

impl TokenSource for Source {
    fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a> {
        Box::pin(async move {
            assert_eq!(scope, "https://storage.azure.com/.default");
            *self.0.lock().unwrap() += 1;
            Ok(BearerToken {
                text: Secret::new("a.b.c"),
                expires_at: SystemTime::now() + Duration::from_hours(1),
            })
        })
    }
}

#[tokio::test]
async fn bearer_tokens_are_kept() {
    let script = Script::of([answer(EMPTY), answer(EMPTY)]);
    let source = Arc::new(Source(Mutex::new(0)));
    let account = QueueAccount::with_tokens("http://localhost/acct", source.clone()).unwrap();
    let client = QueueClient::new(account, options(Arc::new(Door(script.clone())))).unwrap();
    for _ in 0..2 {
        client
            .delete_message("jobs", "id", "receipt")
            .await
            .unwrap();
    }
    assert_eq!(*source.0.lock().unwrap(), 1);
    assert!(script.heads()[1].contains("\r\nauthorization: bearer a.b.c\r\n"));
}
