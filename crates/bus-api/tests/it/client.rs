//! A client, and a server with the queues `jobs` and, for sessions, `steps`.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode, Map, Symbol, Text, Uuid, write_list};
use kew_amqp::error::Error;
use kew_amqp::message::{Message, write_application_properties, write_data, write_value};
use kew_amqp::performative::{
    Attach, DeliveryState, ReceiverSettleMode, Role, SenderSettleMode, Source, Tag, Target,
};
use kew_amqp::{
    By, Config, Connection, Delivery, Event, Limits as WireLimits, LinkId, Millis, Outgoing, Sasl,
    SessionId,
};
use kew_broker::{AdmissionLimits, Broker, BrokerOptions, ResidentLimit};
use kew_bus_api::{
    AuthorizationRule, BusApi, BusApiOptions, Limits, NAMESPACE, Origin, RuleScope, WELL_KNOWN_KEY,
    WELL_KNOWN_RULE, import, read_config,
};
use kew_bus_message::AmqpFormat;
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView};
use kew_engine::{Command, EntityName, Outcome, RunLength, Service};
use kew_listen::{ServerNames, ServerNamesOptions};
use kew_log::{MemoryStorage, Storage};
use kew_log_contract::MemorySource;
use kew_loopback::handle_for_test;
use kew_metrics::{page, read};
use kew_principals::PrincipalError;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::panics::fail_on_panics_of_the_server;

pub(crate) const LOCAL: Origin = Origin {
    peer: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1),
    is_secure: false,
    public_key: Ok(()),
};

const QUEUES: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "Jobs", "Properties": {"LockDuration": "PT5S"}},
    {"Name": "spare"},
    {"Name": "steps", "Properties": {"RequiresSession": true}},
    {"Name": "brief", "Properties": {"RequiresSession": true, "LockDuration": "PT5S"}}
]}]}}"#;

/// The names that tests use for the server, besides those of loopback.
fn server_names(listener: IpAddr) -> ServerNames {
    let given = ["h", "ns.example"].iter().map(|name| name.parse().unwrap());
    ServerNames::new(ServerNamesOptions {
        given: given.collect(),
        aliases: vec![NAMESPACE.parse().unwrap()],
        listeners: vec![listener],
        tls: None,
    })
}

pub(crate) struct Server {
    broker: Broker,
    pub(crate) api: BusApi,
    origin: Origin,
}

/// How the brokers of the tests run: with the format of their messages.
fn broker_options() -> BrokerOptions {
    let mut options = BrokerOptions::default();
    options.partition.format = Arc::new(AmqpFormat);
    options
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::open(BusApiOptions::default(), LOCAL).await
    }

    pub(crate) async fn start_with(limits: Limits) -> Self {
        let options = BusApiOptions {
            limits,
            ..BusApiOptions::default()
        };
        Self::open(options, LOCAL).await
    }

    /// A server whose broker admits only so many commands.
    pub(crate) async fn start_with_admission(admission: AdmissionLimits) -> Self {
        let options = BrokerOptions {
            admission,
            ..broker_options()
        };
        let (broker, _) = Broker::start(Arc::new(MemoryStorage::new()), options).unwrap();
        Self::open_on(broker, BusApiOptions::default(), LOCAL)
            .await
            .with_queues()
            .await
    }

    /// A server whose connections come from that origin.
    pub(crate) async fn open(options: BusApiOptions, origin: Origin) -> Self {
        let storage = Arc::new(MemoryStorage::new());
        let (broker, _) = Broker::start(storage, broker_options()).unwrap();
        Self::open_on(broker, options, origin)
            .await
            .with_queues()
            .await
    }

    /// Adds a rule of the queue, or without one of the namespace.
    pub(crate) async fn add_rule(
        &self,
        queue: Option<&str>,
        rule: AuthorizationRule,
    ) -> Result<AuthorizationRule, PrincipalError> {
        self.api.rules().add(&RuleScope::of(queue), rule).await
    }

    pub(crate) async fn remove_rule(
        &self,
        queue: Option<&str>,
        name: &str,
    ) -> Result<(), PrincipalError> {
        let rules = self.api.rules();
        rules.remove(&RuleScope::of(queue), name, ()).await
    }

    pub(crate) async fn with_queues(self) -> Self {
        let queues = read_config(QUEUES).unwrap();
        import(&self.broker, queues).await.unwrap();
        self
    }

    /// A broker on a log that others can take over.
    pub(crate) fn broker_on_log(source: MemorySource) -> Broker {
        Broker::start_on(Arc::new(source), broker_options())
            .unwrap()
            .0
    }

    /// A server on such a log.
    pub(crate) async fn start_on_log(source: MemorySource) -> Self {
        Self::start_beside(Self::broker_on_log(source))
            .await
            .with_queues()
            .await
    }

    /// A server of a broker that is there.
    pub(crate) async fn start_beside(broker: Broker) -> Self {
        Self::open_on(broker, BusApiOptions::default(), LOCAL).await
    }

    /// Waits until no task has a command for the broker: a link looks at its entity once more after it was attached.
    pub(crate) async fn at_rest(&self) {
        let mut before = None;
        loop {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let decided = Some(self.decided().await);
            if decided == before {
                return;
            }
            before = decided;
        }
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// A server with the content of a storage, and nothing else.
    pub(crate) async fn start_on(storage: Arc<MemoryStorage>) -> Self {
        let (broker, _) = Broker::start(storage, broker_options()).unwrap();
        Self::open_on(broker, BusApiOptions::default(), LOCAL).await
    }

    /// A server that keeps no body in memory.
    pub(crate) async fn start_forgetful(storage: Arc<dyn Storage>) -> Self {
        let mut options = broker_options();
        options.partition.log.recent_bytes_max = 0;
        let (broker, _) = Broker::start(storage, options).unwrap();
        Self::open_on(broker, BusApiOptions::default(), LOCAL)
            .await
            .with_queues()
            .await
    }

    /// A server whose records leave memory as soon as a snapshot has them, in runs of four numbers.
    pub(crate) async fn start_cold() -> Self {
        let mut options = broker_options();
        options.partition.run_length = RunLength::TINY;
        options.partition.resident_limit = ResidentLimit::Bytes(0);
        // More than a test writes before it lets all leave memory: a message that changes between two snapshots, alone of
        // its run, stays beside its page.
        options.partition.snapshot_after_bytes = 64 << 10;
        options.partition.log.recent_bytes_max = 0;
        let (broker, _) = Broker::start(Arc::new(MemoryStorage::new()), options).unwrap();
        Self::open_on(broker, BusApiOptions::default(), LOCAL)
            .await
            .with_queues()
            .await
    }

    /// A server that listens on that address, as far as names are concerned.
    pub(crate) async fn start_at(listener: IpAddr) -> Self {
        let storage = Arc::new(MemoryStorage::new());
        let (broker, _) = Broker::start(storage, broker_options()).unwrap();
        let options = BusApiOptions {
            names: server_names(listener),
            ..BusApiOptions::default()
        };
        Self::open_named(broker, options, LOCAL)
            .await
            .with_queues()
            .await
    }

    async fn open_on(broker: Broker, options: BusApiOptions, origin: Origin) -> Self {
        let options = BusApiOptions {
            names: server_names([192, 0, 2, 1].into()),
            ..options
        };
        Self::open_named(broker, options, origin).await
    }

    async fn open_named(broker: Broker, options: BusApiOptions, origin: Origin) -> Self {
        fail_on_panics_of_the_server();
        let broker = handle_for_test(broker);
        let api = BusApi::open(broker.clone(), options).await.unwrap();
        Self {
            broker,
            api,
            origin,
        }
    }

    pub(crate) fn api(&self) -> BusApi {
        self.api.clone()
    }

    /// A connection on which nothing was sent yet.
    pub(crate) fn stream(&self) -> DuplexStream {
        self.stream_until(std::future::pending())
    }

    /// The same, until the server stops.
    pub(crate) fn stream_until(
        &self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let api = self.api.clone();
        let (permit, origin) = (api.admit(self.origin.peer).unwrap(), self.origin);
        tokio::spawn(async move { api.serve(theirs, origin, permit, shutdown).await });
        ours
    }

    /// Waits until so many receivers wait for messages.
    pub(crate) async fn waiting(&self, count: usize) {
        let watched = async {
            while self.broker.watch_count() != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let watched = tokio::time::timeout(Duration::from_secs(60), watched).await;
        watched.expect("receivers come and go");
    }

    /// How many commands the broker has decided.
    pub(crate) async fn decided(&self) -> u64 {
        let families = self.broker.metrics(0, Duration::from_secs(60)).await;
        let families = read(&page(families)).unwrap();
        let samples = &families["kew_log_batch_commands"].samples;
        let found = samples.iter().find(|it| it.0.ends_with("_sum"));
        // Counts are whole.
        format!("{}", found.unwrap().2).parse().unwrap()
    }

    /// The value of a metric of the broker. It is whole.
    pub(crate) async fn sample(&self, name: &str) -> u64 {
        let families = self.broker.metrics(0, Duration::from_secs(60)).await;
        let families = read(&page(families)).unwrap();
        let mut samples = families.values().flat_map(|family| &family.samples);
        let found = samples.find(|it| it.0 == name);
        format!("{}", found.unwrap().2).parse().unwrap()
    }

    /// How many receivers were woken.
    pub(crate) fn woken(&self) -> u64 {
        self.broker.woken_count()
    }

    /// Submits a command directly to the broker.
    pub(crate) async fn order(&self, command: BusCommand) -> BusOutcome {
        let answer = self.broker.submit(Command::Bus(command)).await;
        match answer.unwrap().outcome {
            Outcome::Bus(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn view(&self, queue: &str) -> BusQueueView {
        let queue = queue_named(queue);
        match self.order(BusCommand::ReadQueue { queue }).await {
            BusOutcome::Queue(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    /// A client that begins with this SASL mechanism and response.
    pub(crate) fn connect(&self, mechanism: &'static str, response: Option<&str>) -> Client {
        self.connect_over(self.stream(), mechanism, response)
    }

    /// The same, with this configuration of the connection.
    pub(crate) fn connect_with(
        &self,
        config: Config,
        mechanism: &'static str,
        response: Option<&str>,
    ) -> Client {
        Self::set_up(self.stream(), config, mechanism, response)
    }

    /// A client over any kind of stream.
    pub(crate) fn connect_over(
        &self,
        stream: DuplexStream,
        mechanism: &'static str,
        response: Option<&str>,
    ) -> Client {
        Self::set_up(stream, Config::default(), mechanism, response)
    }

    fn set_up(
        stream: DuplexStream,
        config: Config,
        mechanism: &'static str,
        response: Option<&str>,
    ) -> Client {
        let config = Config {
            sasl: Sasl::Client {
                mechanism: Symbol::from_static(mechanism),
                initial_response: response.map(|text| Bytes::copy_from_slice(text.as_bytes())),
            },
            ..config
        };
        let mut connection = Connection::client(config, WireLimits::default(), Millis(0));
        let session = connection.begin();
        Client {
            connection,
            stream,
            session,
            ended: VecDeque::new(),
        }
    }

    /// A client with all rights.
    pub(crate) async fn trusted(&self) -> Client {
        self.trusted_with(Config::default()).await
    }

    /// The same, with this configuration of the connection.
    pub(crate) async fn trusted_with(&self, config: Config) -> Client {
        let response = format!("\0{WELL_KNOWN_RULE}\0{WELL_KNOWN_KEY}");
        let mut client = self.connect_with(config, "PLAIN", Some(&response));
        client.begun().await;
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.broker.stop();
    }
}

pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) stream: DuplexStream,
    pub(crate) session: Option<SessionId>,
    /// Ends of other links that came while one was attached. The server may end a link at any
    /// time, so a test must not lose them.
    pub(crate) ended: VecDeque<Event>,
}

impl Client {
    /// Writes all output, and reads nothing.
    pub(crate) async fn say(&mut self) {
        let output = self.connection.take_output(Millis(0));
        self.stream.write_all(&output).await.unwrap();
    }

    /// The next event.
    pub(crate) async fn event(&mut self) -> Event {
        match self.ended.pop_front() {
            Some(event) => event,
            None => self.new_event().await,
        }
    }

    async fn new_event(&mut self) -> Event {
        loop {
            if let Some(event) = self.connection.poll_event() {
                return event;
            }
            // Reading may have written something.
            let output = self.connection.take_output(Millis(0));
            if !output.is_empty() {
                self.stream.write_all(&output).await.unwrap();
                continue;
            }
            let read = self.stream.read_buf(self.connection.input());
            let read = tokio::time::timeout(Duration::from_secs(600), read).await;
            assert!(read.expect("an answer").unwrap() > 0, "the server hung up");
            self.connection.fed(Millis(0));
        }
    }

    /// The next event of which the function makes something.
    pub(crate) async fn until<T>(&mut self, mut pick: impl FnMut(&Event) -> Option<T>) -> T {
        loop {
            let event = self.event().await;
            if let Some(found) = pick(&event) {
                return found;
            }
        }
    }

    /// Waits until a session has begun.
    pub(crate) async fn begun(&mut self) {
        if self.session.is_none() {
            self.until(|event| matches!(event, Event::Opened(_)).then_some(()))
                .await;
            self.session = self.connection.begin();
        }
        self.until(|event| matches!(event, Event::Begun { .. }).then_some(()))
            .await;
    }

    /// Attaches a link: a refusal is returned as its error.
    pub(crate) async fn attach(&mut self, attach: Attach) -> Result<(LinkId, Attach), Error> {
        let link = self
            .connection
            .attach(self.session.unwrap(), attach)
            .unwrap();
        let mut answer = None;
        loop {
            match self.new_event().await {
                Event::Attached { link: id, attach } if id == link => {
                    let is_refusal = match attach.role {
                        Role::Sender => attach.source.is_none(),
                        Role::Receiver => attach.target.is_none(),
                    };
                    if !is_refusal {
                        return Ok((link, *attach));
                    }
                    answer = Some(attach);
                }
                Event::Detached {
                    link: id, error, ..
                } if id == link => {
                    assert!(answer.is_some(), "a refusal begins with an attach");
                    return Err(error.unwrap());
                }
                ended @ Event::Detached { by: By::Peer, .. } => self.ended.push_back(ended),
                _ => {}
            }
        }
    }

    pub(crate) async fn sender(&mut self, address: &str) -> Result<LinkId, Error> {
        let mut attach = Attach::new(format!("to {address}").into(), Role::Sender);
        attach.source = Some(Source::new("here".into()));
        attach.target = Some(Target::new(address.into()));
        self.attach(attach).await.map(|(link, answer)| {
            assert_eq!(answer.target, Some(Target::new(address.into())));
            link
        })
    }

    pub(crate) async fn receiver(&mut self, address: &str) -> Result<LinkId, Error> {
        let mut attach = Attach::new(format!("from {address}").into(), Role::Receiver);
        attach.source = Some(Source::new(address.into()));
        attach.target = Some(Target::new("here".into()));
        attach.snd_settle_mode = SenderSettleMode::Unsettled;
        attach.rcv_settle_mode = ReceiverSettleMode::Second;
        self.attach(attach).await.map(|(link, answer)| {
            assert_eq!(answer.source, Some(Source::new(address.into())));
            link
        })
    }

    /// A link that receives and deletes.
    pub(crate) async fn taker(&mut self, address: &str) -> LinkId {
        let mut attach = Attach::new(format!("take from {address}").into(), Role::Receiver);
        attach.source = Some(Source::new(address.into()));
        attach.target = Some(Target::new("here".into()));
        attach.snd_settle_mode = SenderSettleMode::Settled;
        self.attach(attach).await.unwrap().0
    }

    /// Accepts a session by its id, which is also the name of the link.
    pub(crate) async fn session(&mut self, address: &str, id: &str) -> LinkId {
        let mut attach = Attach::new(id.into(), Role::Receiver);
        let mut source = Source::new(address.into());
        source.filter = Some(Map::build(|map| {
            map.entry(
                &Symbol::from_static("com.microsoft:session-filter"),
                &Text::from(id),
            );
        }));
        attach.source = Some(source);
        attach.target = Some(Target::new("here".into()));
        self.attach(attach).await.unwrap().0
    }

    /// Sends as soon as there is credit, and waits for the outcome.
    pub(crate) async fn send(
        &mut self,
        link: LinkId,
        format: u32,
        payload: Bytes,
    ) -> DeliveryState {
        self.send_in(link, format, payload, None).await
    }

    pub(crate) async fn send_in(
        &mut self,
        link: LinkId,
        message_format: u32,
        payload: Bytes,
        state: Option<DeliveryState>,
    ) -> DeliveryState {
        self.can_send(link).await;
        let outgoing = Outgoing {
            tag: Tag::from([7; 16]),
            message_format,
            is_settled: false,
            state,
        };
        let sent = self
            .connection
            .send(link, outgoing, [payload, Bytes::new()]);
        let sent = sent.unwrap();
        self.until(|event| match event {
            Event::Disposition {
                delivery, state, ..
            } if *delivery == sent => state.clone(),
            _ => None,
        })
        .await
    }

    /// Waits until there is credit and room to send something.
    pub(crate) async fn can_send(&mut self, link: LinkId) {
        while !self.connection.can_send(link) {
            self.event().await;
        }
    }

    pub(crate) async fn delivery(&mut self) -> Delivery {
        self.until(|event| match event {
            Event::Delivery(delivery) => Some(delivery.clone()),
            _ => None,
        })
        .await
    }

    /// Sends an outcome without settling, and waits for the answer.
    pub(crate) async fn tell(
        &mut self,
        delivery: &Delivery,
        state: DeliveryState,
    ) -> DeliveryState {
        self.connection.update(delivery.delivery, state);
        let own = delivery.delivery;
        self.until(|event| match event {
            Event::Disposition {
                delivery,
                is_settled: true,
                state,
                ..
            } if *delivery == own => state.clone(),
            _ => None,
        })
        .await
    }

    /// Sends a request to a node, and returns the application properties of the answer.
    pub(crate) async fn ask(&mut self, node: &str, properties: &Map, body: &impl Encode) -> Map {
        self.ask_for(node, properties, body)
            .await
            .application_properties()
    }

    /// Asks a node something, and returns the whole answer.
    pub(crate) async fn ask_for(
        &mut self,
        node: &str,
        properties: &Map,
        body: &impl Encode,
    ) -> Message {
        self.ask_in(node, properties, body, None).await
    }

    /// The same, in a transaction or outside.
    pub(crate) async fn ask_in(
        &mut self,
        node: &str,
        properties: &Map,
        body: &impl Encode,
        state: Option<DeliveryState>,
    ) -> Message {
        let mut payload = BytesMut::new();
        write_application_properties(&mut payload, properties);
        write_value(&mut payload, body);
        let requests = self.sender(node).await.unwrap();
        let answers = self.receiver(node).await.unwrap();
        self.connection.grant(answers, 1);
        // The outcome and the answer arrive in any order.
        self.can_send(requests).await;
        let outgoing = Outgoing {
            tag: Tag::from([8; 16]),
            message_format: 0,
            is_settled: true,
            state,
        };
        let parts = [payload.freeze(), Bytes::new()];
        self.connection.send(requests, outgoing, parts).unwrap();
        let answer = self.delivery().await;
        self.connection
            .settle(answer.delivery, Some(DeliveryState::ACCEPTED));
        for link in [requests, answers] {
            self.connection.detach(link, true, None);
        }
        Message::scan(answer.payload).unwrap()
    }

    /// Sends one message, and gives the link up.
    pub(crate) async fn send_one(&mut self, address: &str, body: &str) {
        let link = self.sender(address).await.unwrap();
        let verdict = self.send(link, 0, message(body)).await;
        assert_eq!(verdict, DeliveryState::ACCEPTED);
        self.connection.detach(link, true, None);
    }

    /// Puts a token, and returns the status.
    pub(crate) async fn put_token(&mut self, audience: &str, token: &str) -> i64 {
        self.put_token_for(audience, token).await.0
    }

    /// Puts a token, and returns the status and description of the answer.
    pub(crate) async fn put_token_for(&mut self, audience: &str, token: &str) -> (i64, String) {
        let properties = Map::build(|map| {
            map.entry("operation", "put-token");
            map.entry("type", "jwt");
            map.entry("name", audience);
        });
        let answer = self.ask("$cbs", &properties, &Text::from(token)).await;
        let status = answer.get("status-code").unwrap();
        let text = answer.get("status-description").unwrap();
        let text = text.value().as_str().unwrap().to_owned();
        (status.value().as_integer().unwrap(), text)
    }
}

pub(crate) fn queue_named(name: &str) -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: NAMESPACE.into(),
        name: name.into(),
    }
}

/// A token that is valid for some seconds.
pub(crate) fn token(resource: &str, key: &str, seconds: i64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let expiry = now.checked_add_signed(seconds).unwrap();
    token_by(WELL_KNOWN_RULE, resource, key, expiry)
}

/// A token of a rule, valid until a time in seconds since 1970.
pub(crate) fn token_by(rule: &str, resource: &str, key: &str, expiry: u64) -> String {
    let resource = resource.replace(':', "%3a").replace('/', "%2f");
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let signature = hmac::sign(&key, format!("{resource}\n{expiry}").as_bytes());
    let signature = STANDARD.encode(signature).replace('+', "%2B");
    let signature = signature.replace('/', "%2F").replace('=', "%3D");
    format!("SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule}")
}

/// The lock of a delivery's message: its tag, which is a GUID, in network order.
pub(crate) fn lock_of(delivery: &Delivery) -> [u8; 16] {
    let mut tag: [u8; 16] = delivery.tag.as_bytes().try_into().unwrap();
    tag[..4].reverse();
    tag[4..6].reverse();
    tag[6..8].reverse();
    tag
}

/// The body of a request that settles a delivery's message.
pub(crate) fn settling(delivery: &Delivery, status: &str) -> Map {
    let tag = lock_of(delivery);
    Map::build(|map| {
        map.entry("disposition-status", status);
        map.entry_with("lock-tokens", |out| {
            write_list(out, |list| list.field(&Uuid(tag)));
        });
    })
}

/// A message of these bytes.
pub(crate) fn message(body: &str) -> Bytes {
    let mut out = BytesMut::new();
    write_data(&mut out, body.as_bytes());
    out.freeze()
}
