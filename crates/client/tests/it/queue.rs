//! Queue Storage of Kew.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use kew_broker::Broker;
use kew_client::{
    AccessPolicy, CorsRule, Dial, DialFuture, ErrorKind, Logging, Metrics, PutOptions,
    QueueAccount, QueueClient, QueueOptions, QueueSas, ServiceProperties, Stream,
};
use kew_queue_api::{Accounts, Origin, QueueApi, QueueApiOptions};
use tokio_rustls::TlsAcceptor;

use crate::panics::fail_on_panics_of_the_server;
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

#[tokio::test]
async fn a_stored_policy_permits_and_ends_signatures() {
    let kew = Kew::start();
    let client = kew.client();
    client.create_queue("jobs", &[]).await.unwrap();
    assert!(client.access_policies("jobs").await.unwrap().is_empty());
    let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let policy = |id: &str, permissions: Option<&str>| AccessPolicy {
        id: id.to_owned(),
        start: at(1_700_000_000),
        expiry: at(4_070_908_800),
        permissions: permissions.map(str::to_owned),
    };
    let bare = AccessPolicy {
        id: "b".to_owned(),
        ..AccessPolicy::default()
    };
    let policies = [policy("senders", Some("a")), bare];
    client.set_access_policies("jobs", &policies).await.unwrap();
    assert_eq!(client.access_policies("jobs").await.unwrap(), policies);

    let account = QueueAccount::development();
    let url = account.signed_url_by_policy("jobs", "senders", false);
    let url = url.unwrap();
    // The address of a queue is no address of a service: its signature is used with the service's.
    let (_, query) = url.expose().split_once('?').unwrap();
    let service = format!("{}?{query}", account.endpoint().url());
    let sender = kew.client_of(QueueAccount::parse(&service).unwrap());
    let options = PutOptions::default();
    sender.put("jobs", "x", options).await.unwrap();
    let refused = sender.peek("jobs", 1).await.unwrap_err();
    assert_eq!(refused.status(), Some(403), "{refused}");

    client.set_access_policies("jobs", &[]).await.unwrap();
    let refused = sender.put("jobs", "x", options).await.unwrap_err();
    assert_eq!(refused.status(), Some(403), "{refused}");
    let six: Vec<_> = (0..6).map(|it| policy(&it.to_string(), None)).collect();
    let refused = client.set_access_policies("jobs", &six).await;
    assert_eq!(refused.unwrap_err().status(), Some(400));
}

#[tokio::test]
async fn properties_of_the_service_are_set_and_read() {
    let kew = Kew::start();
    let client = kew.client();
    let texts = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect();
    let rule = CorsRule {
        allowed_origins: texts(&["https://a.example"]),
        allowed_methods: texts(&["GET", "PUT"]),
        allowed_headers: texts(&["x-ms-meta-*"]),
        exposed_headers: texts(&["x-ms-request-id"]),
        max_age_s: 60,
    };
    let all = ServiceProperties {
        logging: Some(Logging {
            read: true,
            retention_days: Some(3),
            ..Logging::default()
        }),
        hour_metrics: Some(Metrics {
            is_enabled: true,
            includes_apis: true,
            retention_days: Some(7),
        }),
        minute_metrics: Some(Metrics::default()),
        cors: Some(vec![rule]),
    };
    client.set_service_properties(&all).await.unwrap();
    assert_eq!(client.service_properties().await.unwrap(), all);
    // What is not given stays.
    let no_rules = ServiceProperties {
        cors: Some(Vec::new()),
        ..ServiceProperties::default()
    };
    client.set_service_properties(&no_rules).await.unwrap();
    let expected = ServiceProperties {
        cors: Some(Vec::new()),
        ..all
    };
    assert_eq!(client.service_properties().await.unwrap(), expected);
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
