//! A service that does what a test says: what Kew does rarely, or cannot be made to do at a given moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Decode as _, Encode as _, Map, Reader, Symbol};
use kew_amqp::error::Error;
use kew_amqp::message::{Message, Properties, write_application_properties, write_value};
use kew_amqp::performative::{
    Attach, Control, Declared, DeliveryState, Outcome, Role, SenderSettleMode, Tag,
};
use kew_amqp::sasl::SaslCode;
use kew_amqp::{
    Config, Connection, Delivery, DeliveryId, Event, Limits, LinkId, Millis, Outgoing, Sasl,
};
use kew_client::{BusClient, BusNamespace, BusOptions, Dial, DialFuture, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The emulator's connection string.
pub(crate) const CONNECTION_STRING: &str = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
     SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;";

/// How a link to the coordinator of transactions is called here.
pub(crate) const COORDINATOR: &str = "coordinator";

/// What becomes of a message.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Accept,
    Release,
    Reject(&'static str),
    /// Nothing is said, until the test says so.
    Wait,
    /// The connection breaks.
    Cut,
    /// Nothing is read or said any more.
    Freeze,
}

/// What the service does and has seen.
pub(crate) struct Script {
    /// For the next messages. All others are accepted.
    pub(crate) verdicts: VecDeque<Verdict>,
    /// The status for the next tokens, and 0 for no answer. All others are taken.
    pub(crate) token_statuses: VecDeque<i32>,
    /// The status for the next requests to other nodes. All others succeed.
    pub(crate) statuses: VecDeque<i32>,
    /// The bodies of requests to such nodes, as they are shown.
    pub(crate) requests: Vec<String>,
    /// For the next discharges. All others are accepted.
    pub(crate) discharges: VecDeque<Verdict>,
    /// What the coordinator was told.
    pub(crate) controls: Vec<Control>,
    /// Messages are accepted as if they were in no transaction.
    pub(crate) ignores_transactions: bool,
    pub(crate) credit: u32,
    pub(crate) messages: Vec<Bytes>,
    pub(crate) tokens: Vec<String>,
    /// Addresses of links, as they were attached.
    pub(crate) attached: Vec<String>,
    /// The same, as they were detached.
    pub(crate) detached: Vec<String>,
    pub(crate) connections: usize,
    /// Messages for receivers, handed out as credit comes.
    pub(crate) deliveries: VecDeque<Bytes>,
    /// How receivers settled them.
    pub(crate) outcomes: Vec<Option<DeliveryState>>,
    /// For the next settlements by receivers. All others are accepted.
    pub(crate) refusals: VecDeque<&'static str>,
    /// Messages that wait are accepted now.
    releases: bool,
    /// What becomes now of one of those that wait: its place among them, and why it is rejected, if it is.
    late: Vec<(usize, Option<&'static str>)>,
    /// Detaches the links to this address, with this error.
    detaches: Option<(String, &'static str)>,
}

pub(crate) struct Peer {
    script: Mutex<Script>,
    /// Something was seen.
    seen: Notify,
    /// There is something to do.
    orders: Notify,
}

impl Peer {
    pub(crate) fn start() -> Arc<Self> {
        let script = Script {
            verdicts: VecDeque::new(),
            token_statuses: VecDeque::new(),
            statuses: VecDeque::new(),
            requests: Vec::new(),
            discharges: VecDeque::new(),
            controls: Vec::new(),
            ignores_transactions: false,
            credit: 100,
            messages: Vec::new(),
            tokens: Vec::new(),
            attached: Vec::new(),
            detached: Vec::new(),
            connections: 0,
            deliveries: VecDeque::new(),
            outcomes: Vec::new(),
            refusals: VecDeque::new(),
            releases: false,
            late: Vec::new(),
            detaches: None,
        };
        Arc::new(Self {
            script: Mutex::new(script),
            seen: Notify::new(),
            orders: Notify::new(),
        })
    }

    /// What connects to it.
    pub(crate) fn door(self: &Arc<Self>) -> Arc<dyn Dial> {
        Arc::new(Door(self.clone()))
    }

    pub(crate) fn client(self: &Arc<Self>, options: BusOptions) -> BusClient {
        let namespace = BusNamespace::parse(CONNECTION_STRING).unwrap();
        self.client_of(namespace, options)
    }

    pub(crate) fn client_of(
        self: &Arc<Self>,
        namespace: BusNamespace,
        options: BusOptions,
    ) -> BusClient {
        let options = BusOptions {
            dial: Some(self.door()),
            ..options
        };
        BusClient::new(namespace, options).unwrap()
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Script) -> T) -> T {
        work(&mut self.script.lock().unwrap())
    }

    /// Waits until that is so.
    pub(crate) async fn until(&self, is_so: impl Fn(&Script) -> bool) {
        loop {
            let seen = self.seen.notified();
            if self.with(|script| is_so(script)) {
                return;
            }
            seen.await;
        }
    }

    /// Accepts the messages that wait.
    pub(crate) fn release(&self) {
        self.with(|script| script.releases = true);
        self.orders.notify_waiters();
    }

    /// Accepts or rejects one of the messages that wait, by its place among them.
    pub(crate) fn decide(&self, place: usize, rejection: Option<&'static str>) {
        self.with(|script| script.late.push((place, rejection)));
        self.orders.notify_waiters();
    }

    /// Detaches the one link to an address, and waits until the client has taken note.
    pub(crate) async fn detach(&self, address: &str, condition: &'static str) {
        let count = |script: &Script| script.detached.iter().filter(|it| *it == address).count();
        let before = self.with(|script| {
            script.detaches = Some((address.to_owned(), condition));
            count(script)
        });
        self.orders.notify_waiters();
        self.until(|script| count(script) > before).await;
    }
}

struct Served {
    peer: Arc<Peer>,
    connection: Connection,
    addresses: BTreeMap<LinkId, (Role, String)>,
    /// Links whose messages are settled when they are sent.
    deleting: BTreeSet<LinkId>,
    waiting: Vec<DeliveryId>,
    is_cut: bool,
    is_frozen: bool,
    sent: u64,
}

async fn serve(peer: Arc<Peer>, mut stream: DuplexStream) {
    let began = Instant::now();
    let now = || Millis(u64::try_from(began.elapsed().as_millis()).unwrap());
    let config = Config {
        sasl: Sasl::Server {
            mechanisms: vec![Symbol::from_static("ANONYMOUS")],
            is_optional: false,
        },
        ..Config::default()
    };
    let mut served = Served {
        connection: Connection::server(config, Limits::default(), now()),
        addresses: BTreeMap::new(),
        deleting: BTreeSet::new(),
        waiting: Vec::new(),
        is_cut: false,
        is_frozen: false,
        sent: 0,
        peer,
    };
    let peer = served.peer.clone();
    loop {
        let orders = peer.orders.notified();
        served.obey();
        while let Some(event) = served.connection.poll_event() {
            served.on_event(event);
        }
        peer.seen.notify_waiters();
        if served.is_cut {
            return;
        }
        if served.is_frozen {
            std::future::pending().await
        }
        let output = served.connection.take_output(now());
        if !output.is_empty() {
            if stream.write_all(&output).await.is_err() {
                return;
            }
            continue;
        }
        if served.connection.is_closed() {
            return;
        }
        let wait = served.connection.next_timeout();
        let wait = wait.map_or(Duration::from_hours(1), |at| {
            Duration::from_millis(at.0.saturating_sub(now().0))
        });
        tokio::select! {
            read = stream.read_buf(served.connection.input()) => match read {
                Ok(size) if size > 0 => served.connection.fed(now()),
                _ => return,
            },
            () = orders => {}
            () = tokio::time::sleep(wait) => served.connection.on_time(now()),
        }
    }
}

impl Served {
    fn obey(&mut self) {
        let (releases, late, detaches) = self.peer.with(|script| {
            let releases = std::mem::take(&mut script.releases);
            let late = std::mem::take(&mut script.late);
            (releases, late, script.detaches.take())
        });
        for (place, rejection) in late {
            let state = rejection.map_or(DeliveryState::ACCEPTED, |condition| {
                DeliveryState::rejected(Error::new(condition, "no"))
            });
            let delivery = self.waiting.remove(place);
            self.connection.settle(delivery, Some(state));
        }
        if releases {
            for delivery in self.waiting.drain(..) {
                self.connection
                    .settle(delivery, Some(DeliveryState::ACCEPTED));
            }
        }
        if let Some((address, condition)) = detaches {
            let found = self.addresses.iter().filter(|(_, it)| it.1 == address);
            let found: Vec<LinkId> = found.map(|(&link, _)| link).collect();
            for link in found {
                self.connection
                    .detach(link, true, Some(Error::new(condition, "so it is")));
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::SaslInit { .. } => self.connection.sasl_outcome(SaslCode::Ok),
            Event::Opened(_) => self.peer.with(|script| script.connections += 1),
            Event::Attach { link, attach } => self.accept(link, &attach),
            Event::Delivery(delivery) => self.on_delivery(&delivery),
            Event::Credit { link, is_drain, .. } => {
                self.hand_out(link);
                if is_drain {
                    self.connection.drained(link);
                }
            }
            Event::Disposition {
                delivery, state, ..
            } => {
                let refusal = self.peer.with(|script| {
                    script.outcomes.push(state.clone());
                    script.refusals.pop_front()
                });
                let refusal = refusal.map(|it| DeliveryState::rejected(Error::new(it, "no")));
                self.connection.settle(delivery, refusal.or(state));
            }
            Event::Detached { link, .. } => {
                let (_, address) = self.addresses.remove(&link).unwrap();
                self.peer.with(|script| script.detached.push(address));
            }
            _ => {}
        }
    }

    fn accept(&mut self, link: LinkId, attach: &Attach) {
        let address = match attach.role {
            Role::Sender => attach.target.as_ref().and_then(|it| it.address()).cloned(),
            Role::Receiver => attach.source.as_ref().and_then(|it| it.address.clone()),
        };
        let address = address.map_or(COORDINATOR.to_owned(), |it| it.as_str().to_owned());
        self.connection.accept(link, attach.answer());
        let credit = self.peer.with(|script| {
            script.attached.push(address.clone());
            match address.contains('$') {
                true => 100,
                false => script.credit,
            }
        });
        if attach.role == Role::Sender {
            self.connection.grant(link, credit);
        }
        if attach.snd_settle_mode == SenderSettleMode::Settled {
            self.deleting.insert(link);
        }
        self.addresses.insert(link, (attach.role, address));
    }

    fn hand_out(&mut self, link: LinkId) {
        if self.addresses[&link].1.contains('$') {
            return;
        }
        while self.connection.can_send(link)
            && let Some(payload) = self.peer.with(|script| script.deliveries.pop_front())
        {
            self.sent += 1;
            let outgoing = Outgoing {
                tag: Tag::from(u128::from(self.sent).to_be_bytes()),
                message_format: 0,
                is_settled: self.deleting.contains(&link),
                state: None,
            };
            let payload = [payload, Bytes::new()];
            self.connection.send(link, outgoing, payload).unwrap();
        }
    }

    fn on_delivery(&mut self, delivery: &Delivery) {
        let (_, address) = &self.addresses[&delivery.link];
        if address.contains('$') {
            self.answer(&address.clone(), &delivery.payload);
            return;
        }
        if address == COORDINATOR {
            self.control(delivery);
            return;
        }
        let ignores = self.peer.with(|script| script.ignores_transactions);
        let transaction = delivery.state.clone().filter(|_| !ignores);
        let verdict = self.peer.with(|script| {
            script.messages.push(delivery.payload.clone());
            script.verdicts.pop_front().unwrap_or(Verdict::Accept)
        });
        self.carry_out(verdict, delivery.delivery, transaction);
    }

    fn control(&mut self, delivery: &Delivery) {
        let message = Message::scan(delivery.payload.clone()).unwrap();
        let body = message.body_values().next().unwrap();
        let control = Control::decode(&mut Reader::new(body.as_bytes())).unwrap();
        let verdict = self.peer.with(|script| {
            script.controls.push(control.clone());
            match control {
                Control::Declare(_) => None,
                Control::Discharge(_) => {
                    Some(script.discharges.pop_front().unwrap_or(Verdict::Accept))
                }
            }
        });
        match verdict {
            Some(verdict) => self.carry_out(verdict, delivery.delivery, None),
            None => {
                let txn_id = Bytes::from_static(b"t1");
                let declared = Outcome::Declared(Declared { txn_id });
                let declared = Some(DeliveryState::Outcome(declared));
                self.connection.settle(delivery.delivery, declared);
            }
        }
    }

    fn carry_out(
        &mut self,
        verdict: Verdict,
        delivery: DeliveryId,
        transaction: Option<DeliveryState>,
    ) {
        let state = match verdict {
            Verdict::Accept => match transaction {
                Some(DeliveryState::Transactional(mut state)) => {
                    state.outcome = Some(Outcome::Accepted);
                    DeliveryState::Transactional(state)
                }
                _ => DeliveryState::ACCEPTED,
            },
            Verdict::Release => DeliveryState::Outcome(Outcome::Released),
            Verdict::Reject(condition) => DeliveryState::rejected(Error::new(condition, "no")),
            Verdict::Wait => {
                self.waiting.push(delivery);
                return;
            }
            Verdict::Cut => {
                self.is_cut = true;
                return;
            }
            Verdict::Freeze => {
                self.is_frozen = true;
                return;
            }
        };
        self.connection.settle(delivery, Some(state));
    }

    /// Answers a token as the script says, and anything else with success and nothing more.
    fn answer(&mut self, node: &str, request: &Bytes) {
        let request = Message::scan(request.clone()).unwrap();
        let body = request.body_values().next().unwrap().value();
        let status = self.peer.with(|script| {
            let token = body.as_str().filter(|_| node == "$cbs");
            script.tokens.extend(token.map(str::to_owned));
            if token.is_none() {
                script.requests.push(format!("{body:?}"));
            }
            let status = match token {
                Some(_) => script.token_statuses.pop_front(),
                None => script.statuses.pop_front(),
            };
            status.unwrap_or(202)
        });
        if status == 0 {
            return;
        }
        let mut answers = self.addresses.iter();
        let answers = answers.find(|(_, it)| **it == (Role::Receiver, node.to_owned()));
        let properties = Properties {
            correlation_id: request.properties().unwrap().message_id,
            ..Properties::default()
        };
        let mut out = BytesMut::new();
        properties.encode(&mut out);
        let said = Map::build(|map| {
            map.entry("status-code", &status);
            map.entry("status-description", "so it is");
        });
        write_application_properties(&mut out, &said);
        write_value(&mut out, &true);
        self.sent += 1;
        let outgoing = Outgoing {
            tag: Tag::new(&self.sent.to_be_bytes()).unwrap(),
            message_format: 0,
            is_settled: true,
            state: None,
        };
        let payload = [out.freeze(), Bytes::new()];
        self.connection
            .send(*answers.unwrap().0, outgoing, payload)
            .unwrap();
    }
}

/// Connects clients to the peer.
struct Door(Arc<Peer>);

impl Dial for Door {
    fn dial<'a>(&'a self, _: &'a str, _: u16) -> DialFuture<'a> {
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            tokio::spawn(serve(self.0.clone(), theirs));
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}
