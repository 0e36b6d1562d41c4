//! Kew in memory, with both of its front ends, reached over socket pairs.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kew_broker::{Broker, BrokerOptions};
use kew_bus_api::{BusApi, BusApiOptions, Origin as BusOrigin, import, read_config};
use kew_bus_message::AmqpFormat;
use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusNamespace, BusOptions, Dial, DialFuture, QueueAccount,
    QueueClient, QueueOptions, Retry, Stream,
};
use kew_log::MemoryStorage;
use kew_queue_api::{Accounts, Origin, QueueApi, QueueApiOptions};

use crate::panics::fail_on_panics_of_the_server;

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

const BUS_QUEUES: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "jobs", "Properties": {"LockDuration": "PT15S"}},
    {"Name": "steps", "Properties": {"RequiresSession": true}}
]}]}}"#;

const CONNECTION_STRING: &str = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
     SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;";

/// Retries that a test does not wait for.
const QUICK: Retry = Retry {
    retries: 20,
    first_delay: Duration::from_millis(1),
    delay_max: Duration::from_millis(20),
    busy_delay: Duration::from_millis(5),
};

pub(crate) struct Kew {
    pub(crate) broker: Broker,
    queues: QueueApi,
    bus: BusApi,
}

impl Kew {
    /// With the queues `jobs` of both services, and `steps` with sessions.
    pub(crate) async fn start() -> Arc<Self> {
        fail_on_panics_of_the_server();
        let storage = Arc::new(MemoryStorage::new());
        let mut options = BrokerOptions::default();
        options.partition.format = Arc::new(AmqpFormat);
        let (broker, _) = Broker::start(storage, options).unwrap();
        let bus = BusApi::open(broker.clone(), BusApiOptions::default()).await;
        import(&broker, read_config(BUS_QUEUES).unwrap())
            .await
            .unwrap();
        let options = QueueApiOptions {
            accounts: Accounts::well_known(),
            ..QueueApiOptions::default()
        };
        let kew = Arc::new(Self {
            queues: QueueApi::new(broker.clone(), options),
            bus: bus.unwrap(),
            broker,
        });
        kew.queue_client().create_queue("jobs", &[]).await.unwrap();
        kew
    }

    pub(crate) fn queue_client(self: &Arc<Self>) -> QueueClient {
        let options = QueueOptions {
            retry: QUICK,
            dial: Some(self.clone()),
            ..QueueOptions::default()
        };
        QueueClient::new(QueueAccount::development(), options).unwrap()
    }

    pub(crate) fn bus_client(self: &Arc<Self>) -> BusClient {
        let options = BusOptions {
            retry: QUICK,
            // A message of the largest size grows by what the service says of it.
            message_size_max: 2 << 20,
            dial: Some(self.clone()),
            ..BusOptions::default()
        };
        let namespace = BusNamespace::parse(CONNECTION_STRING).unwrap();
        BusClient::new(namespace, options).unwrap()
    }

    pub(crate) fn admin(self: &Arc<Self>) -> BusAdmin {
        let options = AdminOptions {
            retry: QUICK,
            dial: Some(self.clone()),
            ..AdminOptions::default()
        };
        let namespace = BusNamespace::parse(CONNECTION_STRING).unwrap();
        BusAdmin::new(namespace, options).unwrap()
    }
}

impl Dial for Kew {
    fn dial<'a>(&'a self, _: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let forever = std::future::pending::<()>();
            if port == 10001 {
                let api = self.queues.clone();
                let origin = Origin {
                    peer: PEER,
                    is_secure: false,
                    may_use_public_key: true,
                };
                tokio::spawn(async move { api.serve_connection(theirs, origin, forever).await });
            } else {
                let api = self.bus.clone();
                let origin = BusOrigin {
                    peer: PEER,
                    is_secure: false,
                    public_key: Ok(()),
                };
                let place = api.admit(PEER);
                let place = place.ok_or(std::io::ErrorKind::ConnectionReset)?;
                tokio::spawn(async move { api.serve(theirs, origin, place, forever).await });
            }
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

impl Drop for Kew {
    fn drop(&mut self) {
        self.broker.stop();
    }
}
