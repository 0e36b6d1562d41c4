//! Kew in memory, reached over socket pairs that a test can cut.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_broker::{Broker, BrokerOptions};
use kew_bus_api::{BusApi, BusApiOptions, NAMESPACE, Origin, import, read_config};
use kew_client::{BusClient, BusNamespace, BusOptions, Dial, DialFuture, Retry, Stream};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView};
use kew_engine::{Command, EntityName, Outcome, Service};
use kew_log::MemoryStorage;
use tokio::task::AbortHandle;

use crate::panics::fail_on_panics_of_the_server;

const ORIGIN: Origin = Origin {
    peer: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1),
    is_secure: false,
    public_key: Ok(()),
};

const QUEUES: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "jobs"},
    {"Name": "spare"},
    {"Name": "once", "Properties": {"RequiresDuplicateDetection": true}},
    {"Name": "steps", "Properties": {"RequiresSession": true}}
]}]}}"#;

pub(crate) use crate::peer::CONNECTION_STRING;

/// Retries that a test does not wait for.
pub(crate) const QUICK: Retry = Retry {
    retries: 20,
    first_delay: Duration::from_millis(1),
    delay_max: Duration::from_millis(20),
    busy_delay: Duration::from_millis(5),
};

pub(crate) struct Server {
    storage: Arc<MemoryStorage>,
    running: Mutex<Option<Running>>,
    connections: Mutex<Vec<AbortHandle>>,
}

struct Running {
    broker: Broker,
    api: BusApi,
}

impl Server {
    pub(crate) async fn start() -> Arc<Self> {
        fail_on_panics_of_the_server();
        let server = Arc::new(Self {
            storage: Arc::new(MemoryStorage::new()),
            running: Mutex::new(None),
            connections: Mutex::new(Vec::new()),
        });
        server.run().await;
        let queues = read_config(QUEUES).unwrap();
        import(&server.broker(), queues).await.unwrap();
        server
    }

    /// Begins to serve what the storage has.
    pub(crate) async fn run(&self) {
        let (broker, _) = Broker::start(self.storage.clone(), BrokerOptions::default()).unwrap();
        let api = BusApi::open(broker.clone(), BusApiOptions::default()).await;
        let api = api.unwrap();
        *self.running.lock().unwrap() = Some(Running { broker, api });
    }

    /// Stops it, in the middle of everything. What was answered is in the storage.
    pub(crate) fn stop(&self) {
        self.cut();
        let running = self.running.lock().unwrap().take();
        running.unwrap().broker.stop();
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            connection.abort();
        }
    }

    /// How many connections were made since they were cut.
    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    /// Serves a connection, as soon as it is there.
    pub(crate) fn serve<S: Stream + 'static>(
        &self,
        stream: impl Future<Output = io::Result<S>> + Send + 'static,
    ) -> io::Result<()> {
        let running = self.running.lock().unwrap();
        let running = running.as_ref().ok_or(io::ErrorKind::ConnectionRefused)?;
        let api = running.api.clone();
        let place = api.admit(ORIGIN.peer);
        let place = place.ok_or(io::ErrorKind::ConnectionReset)?;
        let served = tokio::spawn(async move {
            if let Ok(stream) = stream.await {
                let forever = std::future::pending();
                api.serve(stream, ORIGIN, place, forever).await;
            }
        });
        self.connections.lock().unwrap().push(served.abort_handle());
        Ok(())
    }

    /// Waits until there is a connection again.
    pub(crate) async fn connected(&self) {
        let connected = async {
            while self.connections() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let connected = tokio::time::timeout(Duration::from_secs(60), connected).await;
        connected.expect("the client connects again");
    }

    /// Waits until all connections have come to an end.
    pub(crate) async fn ended(&self) {
        let ended = async {
            let all_ended = || {
                self.connections
                    .lock()
                    .unwrap()
                    .iter()
                    .all(AbortHandle::is_finished)
            };
            while !all_ended() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        ended.expect("the client closes its connection");
    }

    fn broker(&self) -> Broker {
        let running = self.running.lock().unwrap();
        running.as_ref().unwrap().broker.clone()
    }

    pub(crate) async fn view(&self, queue: &str) -> BusQueueView {
        let queue = EntityName {
            service: Service::ServiceBus,
            account: NAMESPACE.into(),
            name: queue.into(),
        };
        let command = Command::Bus(BusCommand::ReadQueue { queue });
        match self.broker().submit(command).await.unwrap().outcome {
            Outcome::Bus(BusOutcome::Queue(view)) => *view,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until that many receivers wait for messages.
    pub(crate) async fn waiting(&self, count: usize) {
        let broker = self.broker();
        let watched = async {
            while broker.watch_count() != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let watched = tokio::time::timeout(Duration::from_secs(60), watched).await;
        watched.expect("receivers come and go");
    }

    pub(crate) fn options(self: &Arc<Self>) -> BusOptions {
        BusOptions {
            retry: QUICK,
            dial: Some(self.clone()),
            ..BusOptions::default()
        }
    }

    pub(crate) fn client(self: &Arc<Self>) -> BusClient {
        self.client_with(self.options())
    }

    pub(crate) fn client_with(self: &Arc<Self>, options: BusOptions) -> BusClient {
        let namespace = BusNamespace::parse(CONNECTION_STRING).unwrap();
        BusClient::new(namespace, options).unwrap()
    }
}

impl Dial for Server {
    fn dial<'a>(&'a self, _: &'a str, _: u16) -> DialFuture<'a> {
        Box::pin(async move {
            let running = self.running.lock().unwrap();
            let running = running.as_ref().ok_or(io::ErrorKind::ConnectionRefused)?;
            let api = running.api.clone();
            let place = api
                .admit(ORIGIN.peer)
                .ok_or(io::ErrorKind::ConnectionReset)?;
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let serve = async move {
                let forever = std::future::pending();
                api.serve(theirs, ORIGIN, place, forever).await;
            };
            let served = tokio::spawn(serve);
            let mut connections = self.connections.lock().unwrap();
            connections.push(served.abort_handle());
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.lock().unwrap().take() {
            running.broker.stop();
        }
    }
}
