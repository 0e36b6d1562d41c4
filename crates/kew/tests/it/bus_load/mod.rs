//! Clients of Service Bus under a ledger, beside those of Queue Storage on the same server.
//!
//! Senders and consumers use four queues: one plain, one with sessions, one that drops duplicates
//! and one that forwards to the plain one. The ledger checks every answer. The full check peeks at
//! everything, and checks that each message is in one place or completed:
//!
//! - a message that was accepted and not completed exists, once; a completed one does not; there is
//!   none that no client sent;
//! - a message that was sent twice under one id, or forwarded, exists once;
//! - no other client gets a message while its lock holds; the messages of a session come in order;
//! - failed deliveries count, across restarts too;
//! - a lock from before a restart settles its message after it.

mod ledger;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kew_amqp::Delivery;
use kew_amqp::codec::Uuid;
use kew_amqp::message::Message;
use kew_amqp::performative::{DeliveryState, Modified, Outcome, Rejected};
use kew_bus_client::{Client, Error, Rule, body_of, message, sequence_number};
use tokio::task::JoinSet;

use self::ledger::Ledger;
use crate::load::Random;
use crate::server::{PATIENCE, Server, show};

pub(crate) const PLAIN: &str = "bus-plain";
const SESSIONS: &str = "bus-sessions";
const ONCE: &str = "bus-once";
const FORWARDS: &str = "bus-forwards";
const DEAD_LETTERS: &str = "bus-plain/$deadletterqueue";

/// All places that a message can be in, the sources of forwarding first.
const PLACES: [&str; 5] = [FORWARDS, ONCE, SESSIONS, PLAIN, DEAD_LETTERS];

const CONFIG: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "bus-plain", "Properties": {"LockDuration": "PT10S", "MaxDeliveryCount": 1000}},
    {"Name": "bus-sessions", "Properties": {"LockDuration": "PT10S", "MaxDeliveryCount": 1000,
        "RequiresSession": true}},
    {"Name": "bus-once", "Properties": {"LockDuration": "PT10S", "MaxDeliveryCount": 1000,
        "RequiresDuplicateDetection": true, "DuplicateDetectionHistoryTimeWindow": "PT1H"}},
    {"Name": "bus-forwards", "Properties": {"ForwardTo": "bus-plain"}}
]}]}}"#;

/// Slightly longer than the longest lock.
const LOCKS_END: Duration = Duration::from_secs(11);

const SENDERS: u64 = 3;

/// The clients of one test, over any number of servers on the same data.
pub(crate) struct BusLoad {
    ledger: Arc<Ledger>,
    random: Random,
    told: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl BusLoad {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            ledger: Arc::default(),
            random: Random::new(seed),
            told: Arc::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Writes the file from which a server imports its queues.
    pub(crate) fn write_config(directory: &Path) -> PathBuf {
        let path = directory.join("Config.json");
        std::fs::write(&path, CONFIG).expect("writable");
        path
    }

    /// The arguments that a server needs.
    pub(crate) fn arguments(config: &Path) -> [&std::ffi::OsStr; 4] {
        [
            "--bus-listen".as_ref(),
            "127.0.0.1:0".as_ref(),
            "--import".as_ref(),
            config.as_ref(),
        ]
    }

    /// Starts all clients. They end when the server does.
    pub(crate) fn begin(&mut self, server: &Server) {
        let door = Door::of(server);
        self.told = Arc::default();
        for _ in 0..SENDERS {
            let client = self.one(&door);
            self.tasks
                .spawn(async move { client.send_for_ever().await });
        }
        for queue in [PLAIN, ONCE, DEAD_LETTERS] {
            let client = self.one(&door);
            self.tasks
                .spawn(async move { client.receive_for_ever(queue).await });
        }
        let client = self.one(&door);
        self.tasks
            .spawn(async move { client.take_sessions_for_ever().await });
    }

    fn one(&mut self, door: &Door) -> One {
        One {
            door: door.clone(),
            ledger: self.ledger.clone(),
            random: Random::new(self.random.next()),
            told: self.told.clone(),
        }
    }

    /// Waits for the clients of a server that has ended.
    pub(crate) async fn server_is_gone(&mut self) {
        self.told.store(true, Relaxed);
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.expect("no client panics");
            }
        };
        tokio::time::timeout(PATIENCE, all)
            .await
            .expect("the clients stop");
        self.ledger.assert_sound();
    }

    /// The full check of a server without other clients: every message is where it must be, and
    /// some locks from before the restart are used.
    pub(crate) async fn check(&mut self, server: &Server) {
        let door = Door::of(server);
        let mut client = door.connect().await.expect("it serves");
        self.look(&mut client).await;
        for (number, queue, lock) in self.ledger.some_locks() {
            self.ledger.completing(number);
            match client.complete_by_token(queue, lock).await {
                Ok(()) => self.ledger.completed_after_a_restart(number),
                Err(Error::Refused(why)) => self.ledger.lock_was_refused(number, &why),
                Err(error) => panic!("{error}"),
            }
        }
        self.look(&mut client).await;
        self.ledger.assert_sound();
    }

    /// Peeks at all messages.
    async fn look(&self, client: &mut Client) {
        let begun = Instant::now();
        let mut found: BTreeMap<u64, Vec<&'static str>> = BTreeMap::new();
        for place in PLACES {
            let mut messages = peek_all(client, place).await;
            while place == FORWARDS && !messages.is_empty() {
                assert!(begun.elapsed() < PATIENCE, "{messages:?} wait to go on");
                tokio::time::sleep(Duration::from_millis(5)).await;
                messages = peek_all(client, place).await;
            }
            for message in messages {
                let number = number_in(&message);
                self.ledger.seen(number, &message);
                found.entry(number).or_default().push(place);
            }
        }
        self.ledger.check_places(&found);
    }

    /// Empties all queues, after the locks of former clients have ended; then nothing is left.
    pub(crate) async fn empty_at_last(&mut self, server: &Server) {
        let door = Door::of(server);
        let mut client = door.connect().await.expect("it serves");
        tokio::time::sleep(LOCKS_END).await;
        self.ledger.all_locks_ended();
        for queue in [ONCE, PLAIN, DEAD_LETTERS] {
            let link = client.receiver(queue).await.expect("attached");
            client.connection.grant(link, u32::MAX);
            self.drain(&mut client, queue, None, link).await;
            client.detach(link).await.expect("detached");
        }
        for session in self.ledger.sessions_left() {
            let (link, _) = client
                .session_receiver(SESSIONS, Some(&session))
                .await
                .expect("it is not locked");
            client.connection.grant(link, u32::MAX);
            self.drain(&mut client, SESSIONS, Some(&session), link)
                .await;
            client.detach(link).await.expect("detached");
        }
        self.look(&mut client).await;
        self.ledger.assert_empty();
    }

    async fn drain(
        &self,
        client: &mut Client,
        queue: &'static str,
        session: Option<&str>,
        link: kew_amqp::LinkId,
    ) {
        while self.ledger.waits_in(queue, session) {
            let next = tokio::time::timeout(PATIENCE, client.delivery(link)).await;
            let delivery = next
                .unwrap_or_else(|_| panic!("what is left in {queue} does not come"))
                .expect("a delivery");
            let (number, _) = self.ledger.delivered(queue, &delivery);
            self.ledger.completing(number);
            let settled = client
                .settle(delivery.delivery, DeliveryState::ACCEPTED)
                .await;
            settled.expect("the lock of just now holds");
            self.ledger.completed(number);
        }
    }

    pub(crate) fn show_report(&self) {
        show(&self.ledger.report());
    }

    pub(crate) fn assert_tried(&self) {
        self.ledger.assert_tried();
    }
}

/// The address of Service Bus, and the credential.
#[derive(Clone)]
pub(crate) struct Door {
    address: SocketAddr,
    rule: Rule,
}

impl Door {
    pub(crate) fn of(server: &Server) -> Self {
        let fact = |name| server.facts(name).first().expect("it is served");
        let connection = fact("KEW_BUS_CONNECTION_STRING").trim_matches('\'');
        let part = |name: &str| {
            let part = connection.split(';').find_map(|it| it.strip_prefix(name));
            part.expect("it is printed").to_owned()
        };
        Self {
            address: fact("KEW_BUS_LISTEN").parse().expect("an address"),
            rule: Rule {
                name: part("SharedAccessKeyName="),
                key: part("SharedAccessKey="),
            },
        }
    }

    pub(crate) async fn connect(&self) -> Result<Client, Error> {
        Client::connect(self.address, &self.rule).await
    }
}

/// One client.
struct One {
    door: Door,
    ledger: Arc<Ledger>,
    random: Random,
    told: Arc<AtomicBool>,
}

impl One {
    fn is_over(&self) -> bool {
        self.told.load(Relaxed)
    }

    /// Judges the end of a client: the server disappeared, or it broke a promise.
    fn ended(&self, how: Result<(), Error>) {
        match how {
            Ok(()) | Err(Error::Gone(_)) => {}
            Err(error) => self.ledger.broken(format!("a client: {error}")),
        }
    }

    async fn send_for_ever(mut self) {
        let how = self.sends().await;
        self.ended(how);
    }

    async fn sends(&mut self) -> Result<(), Error> {
        let mut client = self.door.connect().await?;
        let mut links = BTreeMap::new();
        for queue in [PLAIN, SESSIONS, ONCE, FORWARDS] {
            links.insert(queue, client.sender(queue).await?);
        }
        let mut sent_once = None;
        while !self.is_over() {
            let queue = self.random.pick(&[PLAIN, SESSIONS, ONCE, ONCE, FORWARDS]);
            let session = (queue == SESSIONS).then(|| self.random.below(6).to_string());
            // Now and then the same again, which is dropped.
            let again = sent_once.filter(|_| queue == ONCE && self.random.percent(30));
            let number = again.unwrap_or_else(|| self.ledger.sending(queue, session.clone()));
            let size = self.random.below(600);
            let body = body(number, size);
            let sent = client
                .send(links[queue], message(&body, number, session.as_deref()))
                .await;
            match sent {
                Ok(()) => self.ledger.sent(number, again.is_some()),
                Err(error) => return Err(error),
            }
            if queue == ONCE {
                sent_once = Some(number);
            }
        }
        Ok(())
    }

    async fn receive_for_ever(mut self, queue: &'static str) {
        let how = self.receives(queue).await;
        self.ended(how);
    }

    async fn receives(&mut self, queue: &'static str) -> Result<(), Error> {
        let mut client = self.door.connect().await?;
        let link = client.receiver(queue).await?;
        client.connection.grant(link, 8);
        while !self.is_over() {
            let Some(delivery) = self.next(&mut client, link).await? else {
                continue;
            };
            self.deal_with(&mut client, queue, delivery).await?;
            if client.connection.credit(link) < 4 {
                client.connection.grant(link, 8);
            }
        }
        Ok(())
    }

    /// The next message, if one arrives before the clients are told to stop.
    async fn next(
        &self,
        client: &mut Client,
        link: kew_amqp::LinkId,
    ) -> Result<Option<Delivery>, Error> {
        let next = client.delivery(link);
        match tokio::time::timeout(Duration::from_millis(50), next).await {
            Ok(delivery) => delivery.map(Some),
            Err(_) => Ok(None),
        }
    }

    async fn deal_with(
        &mut self,
        client: &mut Client,
        queue: &'static str,
        delivery: Delivery,
    ) -> Result<(), Error> {
        let (number, _) = self.ledger.delivered(queue, &delivery);
        let id = delivery.delivery;
        match self.random.below(100) {
            // Held on to: its lock outlives the connection.
            0..5 if queue != DEAD_LETTERS => self.ledger.keeps(number, &delivery),
            5..20 => {
                self.ledger.giving_back(number);
                let failed = Modified {
                    delivery_failed: Some(true),
                    undeliverable_here: None,
                    message_annotations: None,
                };
                client.settle(id, Outcome::Modified(failed).into()).await?;
                self.ledger.gave_back(number);
            }
            20..28 if queue == PLAIN => {
                self.ledger.ending_lock(number);
                let rejected = Rejected { error: None };
                client
                    .settle(id, Outcome::Rejected(rejected).into())
                    .await?;
                self.ledger.became_a_dead_letter(number);
            }
            _ => {
                self.ledger.completing(number);
                client.settle(id, DeliveryState::ACCEPTED).await?;
                self.ledger.completed(number);
            }
        }
        Ok(())
    }

    async fn take_sessions_for_ever(mut self) {
        let how = self.takes_sessions().await;
        self.ended(how);
    }

    /// Accepts sessions by id: after a kill they stay locked for a while.
    async fn takes_sessions(&mut self) -> Result<(), Error> {
        let mut client = self.door.connect().await?;
        while !self.is_over() {
            let session = self.random.below(6).to_string();
            let taken = client.session_receiver(SESSIONS, Some(&session)).await;
            let link = match taken {
                Ok((link, _)) => link,
                Err(Error::Refused(_)) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            client.connection.grant(link, 4);
            let mut last = 0;
            while let Some(delivery) = self.next(&mut client, link).await? {
                let (number, place) = self.ledger.delivered(SESSIONS, &delivery);
                if place <= last {
                    self.ledger.broken(format!(
                        "session {session}: {place} came after {last}, message {number}"
                    ));
                }
                last = place;
                self.ledger.completing(number);
                client
                    .settle(delivery.delivery, DeliveryState::ACCEPTED)
                    .await?;
                self.ledger.completed(number);
                if client.connection.credit(link) < 2 {
                    client.connection.grant(link, 4);
                }
                if self.is_over() {
                    return Ok(());
                }
            }
            client.detach(link).await?;
        }
        Ok(())
    }
}

/// A body that begins with its number.
fn body(number: u64, size: u64) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    body.extend((0..size).map(|at| (number.wrapping_mul(31).wrapping_add(at) & 0xff) as u8));
    body
}

/// The number of a message. Its body must be unchanged.
fn number_in(message: &Message) -> u64 {
    let bytes = body_of(message).expect("a body of bytes");
    let first = bytes.first_chunk::<8>().expect("a number");
    let number = u64::from_be_bytes(*first);
    assert_eq!(
        bytes,
        body(number, bytes.len() as u64 - 8),
        "message {number}"
    );
    number
}

pub(crate) async fn peek_all(client: &mut Client, place: &str) -> Vec<Message> {
    let mut all = Vec::new();
    let mut from = 0;
    loop {
        let page = client.peek(place, from, 1000).await.expect("shown");
        let Some(last) = page.last().and_then(sequence_number) else {
            return all;
        };
        all.extend(page);
        from = last + 1;
    }
}

/// The lock token of a delivery: its tag is a GUID in .NET's order.
fn lock_of(delivery: &Delivery) -> Option<Uuid> {
    let [d, c, b, a, f, e, h, g, rest @ ..] = <[u8; 16]>::try_from(delivery.tag.as_bytes()).ok()?;
    let [i, j, k, l, m, n, o, p] = rest;
    Some(Uuid([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]))
}
