//! A minimal broker in memory: what a driver of a [`Connection`] must do.
//!
//! It listens on a free port of the loopback interface and prints it. Every address is a queue.
//! `conformance/proton` runs independent clients against it.

#![expect(clippy::print_stdout, reason = "it tells its port")]

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Map, Symbol};
use kew_amqp::error::{Error, condition};
use kew_amqp::message::{Message, write_head};
use kew_amqp::performative::{Attach, DeliveryState, Modified, Outcome, Role, Source, Tag};
use kew_amqp::sasl::SaslCode;
use kew_amqp::{
    Config, Connection, Delivery, DeliveryId, Event, Limits, LinkId, Millis, Outgoing, Sasl,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Waiting messages by address, with their failed deliveries.
type Queues = BTreeMap<String, VecDeque<(Message, u32)>>;

#[derive(Default)]
struct Broker {
    queues: Mutex<Queues>,
    arrived: Notify,
}

impl Broker {
    fn with<T>(&self, work: impl FnOnce(&mut Queues) -> T) -> T {
        work(&mut self.queues.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_back(&self, address: &str, message: Message, count: u32) {
        self.with(|queues| {
            let queue = queues.entry(address.to_owned()).or_default();
            queue.push_front((message, count));
        });
        self.arrived.notify_waiters();
    }
}

/// One client.
struct Client {
    broker: Arc<Broker>,
    connection: Connection,
    /// Addresses of links.
    links: BTreeMap<LinkId, String>,
    /// Locked messages.
    locked: BTreeMap<DeliveryId, (String, Message, u32)>,
    next_token: u128,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    let broker = Arc::new(Broker::default());
    loop {
        let (socket, _) = listener.accept().await?;
        tokio::spawn(serve(socket, broker.clone()));
    }
}

async fn serve(mut socket: TcpStream, broker: Arc<Broker>) -> io::Result<()> {
    let began = Instant::now();
    let now = || Millis(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    let names = ["ANONYMOUS", "PLAIN", "EXTERNAL", "MSSBCBS"];
    let config = Config {
        // Small, so that messages of the tests are split into many frames.
        frame_size_max: 4_096,
        sasl: Sasl::Server {
            mechanisms: names.map(Symbol::from_static).to_vec(),
            is_optional: true,
        },
        ..Config::default()
    };
    let mut client = Client {
        connection: Connection::server(config, Limits::default(), now()),
        broker: broker.clone(),
        links: BTreeMap::new(),
        locked: BTreeMap::new(),
        next_token: 1,
    };
    loop {
        let arrived = broker.arrived.notified();
        client.turn();
        let output = client.connection.take_output(now());
        if !output.is_empty() {
            socket.write_all(&output).await?;
            continue;
        }
        if client.connection.is_closed() {
            break;
        }
        let timeout = client.connection.next_timeout();
        let wait = timeout.map_or(Duration::from_hours(1), |at| {
            Duration::from_millis(at.0.saturating_sub(now().0))
        });
        tokio::select! {
            read = socket.read_buf(client.connection.input()), if client.connection.wants_input() => {
                if read? == 0 {
                    break;
                }
                client.connection.fed(now());
            }
            () = arrived => {}
            () = tokio::time::sleep(wait) => client.connection.on_time(now()),
        }
    }
    for (_, (address, message, count)) in client.locked {
        broker.put_back(&address, message, count + 1);
    }
    Ok(())
}

impl Client {
    fn turn(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.on_event(event);
        }
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        for link in links {
            self.push(link);
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::SaslInit {
                mechanism,
                response,
                ..
            } => {
                let is_wrong =
                    mechanism == "PLAIN" && response.as_deref() != Some(b"\0user\0secret");
                let code = if is_wrong {
                    SaslCode::Auth
                } else {
                    SaslCode::Ok
                };
                self.connection.sasl_outcome(code);
            }
            Event::Attach { link, attach } => self.on_attach(link, &attach),
            Event::Delivery(delivery) => self.on_delivery(delivery),
            Event::Oversized(it) => {
                let verdict = DeliveryState::rejected(it.error);
                self.connection.settle(it.delivery, Some(verdict));
                self.connection.grant(it.link, 100);
            }
            Event::Disposition {
                delivery,
                is_settled,
                state,
                ..
            } => {
                self.on_outcome(delivery, is_settled, state);
            }
            Event::Credit {
                link,
                is_drain: true,
                ..
            } => {
                self.push(link);
                self.connection.drained(link);
            }
            Event::Detached { link, .. } => {
                self.links.remove(&link);
            }
            Event::Ended { session, .. } => self.links.retain(|link, _| link.session() != session),
            _ => {}
        }
    }

    fn on_attach(&mut self, link: LinkId, attach: &Attach) {
        let mut answer = attach.answer();
        let address = match attach.role {
            Role::Sender => attach.target.as_ref().and_then(|target| target.address()),
            Role::Receiver => attach
                .source
                .as_ref()
                .and_then(|s: &Source| s.address.as_ref()),
        };
        let Some(address) = address.filter(|address| address.as_str() != "missing") else {
            let error = Error::new(condition::NOT_FOUND, "there is no such queue");
            self.connection.refuse(link, attach, error);
            return;
        };
        if attach.role == Role::Sender {
            answer.max_message_size = Some(1 << 20);
        }
        self.links.insert(link, address.to_string());
        self.connection.accept(link, answer);
        if attach.role == Role::Sender {
            self.connection.grant(link, 100);
        }
    }

    fn on_delivery(&mut self, delivery: Delivery) {
        // The payload shares the buffer of the socket, which must not live as long as the message.
        let payload = Bytes::copy_from_slice(&delivery.payload);
        let verdict = match Message::scan(payload) {
            Ok(message) => {
                let address = self.links.get(&delivery.link).cloned().unwrap_or_default();
                self.broker.with(|queues| {
                    queues.entry(address).or_default().push_back((message, 0));
                });
                self.broker.arrived.notify_waiters();
                DeliveryState::ACCEPTED
            }
            Err(error) => DeliveryState::rejected(error.into()),
        };
        self.connection.settle(delivery.delivery, Some(verdict));
        if self.connection.credit(delivery.link) < 50 {
            self.connection.grant(delivery.link, 100);
        }
    }

    fn on_outcome(&mut self, id: DeliveryId, is_settled: bool, state: Option<DeliveryState>) {
        let Some((address, message, count)) = self.locked.remove(&id) else {
            return;
        };
        match state.as_ref().and_then(DeliveryState::outcome) {
            Some(Outcome::Accepted | Outcome::Rejected(_)) => {}
            Some(Outcome::Modified(Modified { .. })) => {
                self.broker.put_back(&address, message, count + 1);
            }
            _ => self.broker.put_back(&address, message, count),
        }
        if !is_settled {
            self.connection.settle(id, state);
        }
    }

    /// Sends messages while there is credit.
    fn push(&mut self, link: LinkId) {
        let Some(address) = self.links.get(&link).cloned() else {
            return;
        };
        while self.connection.can_send(link) {
            let next = self
                .broker
                .with(|queues| queues.get_mut(&address)?.pop_front());
            let Some((message, count)) = next else {
                return;
            };
            let Ok(mut header) = message.header() else {
                continue;
            };
            header.delivery_count = count;
            let mut head = BytesMut::new();
            let annotations = Map::build(|map| {
                let token = i64::try_from(self.next_token).unwrap_or(i64::MAX);
                map.entry(&Symbol::from_static("x-opt-sequence-number"), &token);
            });
            write_head(&mut head, &header, &Map::default(), &annotations);
            let outgoing = Outgoing {
                tag: Tag::from(self.next_token.to_be_bytes()),
                message_format: 0,
                is_settled: false,
                state: None,
            };
            self.next_token += 1;
            let payload = [head.freeze(), message.bare_and_footer()];
            match self.connection.send(link, outgoing, payload) {
                Ok(delivery) => {
                    self.locked
                        .insert(delivery, (address.clone(), message, count));
                }
                Err(_) => self.broker.put_back(&address, message, count),
            }
        }
    }
}
