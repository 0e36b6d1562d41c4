//! Messages of the outbox go to a queue of Kew that detects duplicates.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use kew_broker::{Broker, BrokerOptions};
use kew_bus_api::{BusApi, BusApiOptions, Origin, import, read_config};
use kew_client::{BusClient, BusNamespace, BusOptions, Dial, DialFuture, Stream};
use kew_idempotency::{
    BusPublisher, ErrorKind, OutboxMessage, OutboxStore as _, Publish, PublishError, Pump,
    PumpOptions, StoreError, Transaction as _,
};
use kew_log::MemoryStorage;

use crate::database::{Database as _, Sqlite, id};

const QUEUES: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "once", "Properties": {"RequiresDuplicateDetection": true}}
]}]}}"#;

const CONNECTION_STRING: &str = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
     SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;";

/// Kew in memory, which ends with it.
struct Kew {
    broker: Broker,
    api: BusApi,
}

const ORIGIN: Origin = Origin {
    peer: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1),
    is_secure: false,
    public_key: Ok(()),
};

impl Kew {
    async fn start() -> Arc<Self> {
        let storage = Arc::new(MemoryStorage::new());
        let (broker, _) = Broker::start(storage, BrokerOptions::default()).unwrap();
        import(&broker, read_config(QUEUES).unwrap()).await.unwrap();
        let api = BusApi::open(broker.clone(), BusApiOptions::default()).await;
        Arc::new(Self {
            broker,
            api: api.unwrap(),
        })
    }

    fn client(self: &Arc<Self>) -> BusClient {
        let options = BusOptions {
            dial: Some(self.clone()),
            ..BusOptions::default()
        };
        let namespace = BusNamespace::parse(CONNECTION_STRING).unwrap();
        BusClient::new(namespace, options).unwrap()
    }
}

impl Dial for Kew {
    fn dial<'a>(&'a self, _: &'a str, _: u16) -> DialFuture<'a> {
        Box::pin(async move {
            let place = self.api.admit(ORIGIN.peer).unwrap();
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let api = self.api.clone();
            tokio::spawn(async move {
                let forever = std::future::pending();
                api.serve(theirs, ORIGIN, place, forever).await;
            });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

impl Drop for Kew {
    fn drop(&mut self) {
        self.broker.stop();
    }
}

/// Sends, and says that it does not know.
struct Forgetful(BusPublisher);

impl Publish for Forgetful {
    async fn publish(&self, message: &OutboxMessage) -> Result<(), PublishError> {
        self.0.publish(message).await?;
        Err(PublishError::unknown("the answer was lost"))
    }
}

#[tokio::test]
async fn a_message_that_is_sent_again_arrives_once() {
    let kew = Kew::start().await;
    let client = kew.client();
    let database = Sqlite::new().await;
    for name in ["1", "2"] {
        let guard = database.guard();
        let work = guard.run(id(name), |transaction| {
            let message = OutboxMessage {
                content_type: Some("text/plain".to_owned()),
                properties: [("n".to_owned(), name.to_owned())].into(),
                ..OutboxMessage::new("once", name, format!("body of {name}"))
            };
            Box::pin(async move { transaction.enqueue(&message).await })
        });
        work.await.map_err(|error| error.to_string()).unwrap();
    }
    let store = database.store();
    let publisher = Forgetful(BusPublisher::new(client.clone()));
    let forgetful = Pump::new(store.clone(), publisher, PumpOptions::default()).unwrap();
    for _ in 0..3 {
        let pumped = forgetful.run_once().await.unwrap();
        assert_eq!(pumped.failures[0].1.kind(), ErrorKind::OutcomeUnknown);
    }
    let publisher = BusPublisher::new(client.clone());
    let pump = Pump::new(store.clone(), publisher, PumpOptions::default()).unwrap();
    assert_eq!(pump.run_once().await.unwrap().sent, 2);

    let stored = client.peek("once", 0, 9).await.unwrap();
    let ids: Vec<_> = stored.iter().map(|it| it.id().unwrap()).collect();
    assert_eq!(ids, ["1", "2"]);
    assert_eq!(stored[0].body(), "body of 1");
    assert_eq!(stored[0].content_type(), Some("text/plain"));
    assert_eq!(stored[0].properties()[0].0, "n");
}

#[tokio::test]
async fn a_queue_that_is_absent_keeps_the_message() {
    let kew = Kew::start().await;
    let publisher = BusPublisher::new(kew.client());
    let database = Sqlite::new().await;
    let guard = database.guard();
    let work = guard.run(id("1"), |transaction| {
        let message = OutboxMessage::new("absent", "1", "");
        Box::pin(async move { transaction.enqueue(&message).await })
    });
    work.await
        .map_err(|error| StoreError::refused(error.to_string()))
        .unwrap();
    let store = database.store();
    let pump = Pump::new(store.clone(), publisher, PumpOptions::default()).unwrap();
    let pumped = pump.run_once().await.unwrap();
    assert_eq!(pumped.failures[0].1.kind(), ErrorKind::Refused);
    assert_eq!(store.pending("absent", 9).await.unwrap().len(), 1);
}
