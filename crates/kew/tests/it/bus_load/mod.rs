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
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kew_client::{
    BusClient, BusNamespace, BusOptions, Error, ErrorKind, Locked, Message, Received, Receiver,
    ReceiverOptions, Retry, SessionChoice, SessionReceiver,
};
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
        let client = Door::of(server).client();
        self.look(&client).await;
        for kept in self.ledger.some_locks() {
            self.ledger.completing(kept.number);
            match client.held(kept.queue, kept.lock).complete().await {
                Ok(()) => self.ledger.completed_after_a_restart(kept.number),
                Err(error) if error.kind() == ErrorKind::Refused => {
                    self.ledger.lock_was_refused(&kept, error.text());
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.look(&client).await;
        self.ledger.assert_sound();
    }

    /// Peeks at all messages.
    async fn look(&self, client: &BusClient) {
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
        let client = Door::of(server).client();
        tokio::time::sleep(LOCKS_END).await;
        self.ledger.all_locks_ended();
        let options = ReceiverOptions { prefetch: 100 };
        for queue in [ONCE, PLAIN, DEAD_LETTERS] {
            let mut receiver = client.receiver(queue, options).await.expect("attached");
            while self.ledger.waits_in(queue, None) {
                let next = tokio::time::timeout(PATIENCE, receiver.receive()).await;
                self.complete_last(queue, next).await;
            }
            receiver.close().await.expect("closed");
        }
        for session in self.ledger.sessions_left() {
            let choice = SessionChoice::named(&session);
            let receiver = client.session(SESSIONS, choice, options).await;
            let mut receiver = receiver.expect("it is not locked");
            while self.ledger.waits_in(SESSIONS, Some(&session)) {
                let next = tokio::time::timeout(PATIENCE, receiver.receive()).await;
                self.complete_last(SESSIONS, next).await;
            }
            receiver.close().await.expect("closed");
        }
        self.look(&client).await;
        self.ledger.assert_empty();
    }

    /// Completes one of the last messages of a queue.
    async fn complete_last(
        &self,
        queue: &'static str,
        next: Result<Result<Locked, Error>, tokio::time::error::Elapsed>,
    ) {
        let message = next
            .unwrap_or_else(|_| panic!("what is left in {queue} does not come"))
            .expect("a message");
        let (number, _) = self.ledger.delivered(queue, &message);
        self.ledger.completing(number);
        let settled = message.complete().await;
        settled.expect("the lock of just now holds");
        self.ledger.completed(number);
    }

    pub(crate) fn show_report(&self) {
        show(&self.ledger.report());
    }

    pub(crate) fn assert_tried(&self) {
        self.ledger.assert_tried();
    }
}

/// The way to a server's Service Bus.
#[derive(Clone)]
pub(crate) struct Door(BusNamespace);

impl Door {
    pub(crate) fn of(server: &Server) -> Self {
        let fact = |name| server.facts(name).first().expect("it is served");
        let connection = fact("KEW_BUS_CONNECTION_STRING").trim_matches('\'');
        Self(BusNamespace::parse(connection).expect("a connection string"))
    }

    pub(crate) fn namespace(&self) -> &BusNamespace {
        &self.0
    }

    /// A client that tries nothing again, and waits as long as it takes: a request without an answer is one that the
    /// server did not give.
    pub(crate) fn client(&self) -> BusClient {
        let options = BusOptions {
            timeout: Some(Duration::from_hours(1)),
            retry: Retry {
                retries: 0,
                first_delay: Duration::ZERO,
                busy_delay: Duration::ZERO,
                ..Retry::default()
            },
            ..BusOptions::default()
        };
        BusClient::new(self.0.clone(), options).expect("no TLS is needed")
    }
}

/// Whether the server disappeared: it refused nothing, and said nothing of why.
pub(crate) fn is_gone(error: &Error) -> bool {
    let code = error.code();
    let is_silent = code.is_none() || code == Some("amqp:connection:forced");
    error.kind() != ErrorKind::Refused && is_silent
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
            Ok(()) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => self.ledger.broken(format!("a client: {error}")),
        }
    }

    async fn send_for_ever(mut self) {
        let how = self.sends().await;
        self.ended(how);
    }

    async fn sends(&mut self) -> Result<(), Error> {
        let client = self.door.client();
        let mut senders = BTreeMap::new();
        for queue in [PLAIN, SESSIONS, ONCE, FORWARDS] {
            senders.insert(queue, client.sender(queue).await?);
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
            let message = Message {
                id: Some(number.to_string()),
                session_id: session,
                ..Message::new(body)
            };
            senders[queue].send(&message).await?;
            self.ledger.sent(number, again.is_some());
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
        let client = self.door.client();
        let options = ReceiverOptions { prefetch: 8 };
        let mut receiver = client.receiver(queue, options).await?;
        while !self.is_over() {
            if let Some(message) = next(&mut receiver).await? {
                self.deal_with(queue, message).await?;
            }
        }
        Ok(())
    }

    async fn deal_with(&mut self, queue: &'static str, message: Locked) -> Result<(), Error> {
        let (number, _) = self.ledger.delivered(queue, &message);
        match self.random.below(100) {
            // Held on to: its lock outlives the connection.
            0..5 if queue != DEAD_LETTERS => self.ledger.keeps(number, &message),
            5..20 => {
                self.ledger.giving_back(number);
                message.abandon(Vec::new()).await?;
                self.ledger.gave_back(number);
            }
            20..28 if queue == PLAIN => {
                self.ledger.ending_lock(number);
                message.dead_letter("", "", Vec::new()).await?;
                self.ledger.became_a_dead_letter(number);
            }
            _ => {
                self.ledger.completing(number);
                message.complete().await?;
                self.ledger.completed(number);
            }
        }
        Ok(())
    }

    async fn take_sessions_for_ever(mut self) {
        let how = match self.takes_sessions().await {
            // A session ends with its connection too: that is no broken promise if the server disappeared.
            Err(error) if error.is_lock_lost() && self.server_disappeared().await => Ok(()),
            how => how,
        };
        self.ended(how);
    }

    async fn server_disappeared(&self) -> bool {
        let peeked = self.door.client().peek(SESSIONS, 0, 1).await;
        peeked.is_err_and(|error| is_gone(&error))
    }

    /// Accepts sessions by id: after a kill they stay locked for a while.
    async fn takes_sessions(&mut self) -> Result<(), Error> {
        let client = self.door.client();
        while !self.is_over() {
            let session = self.random.below(6).to_string();
            let choice = SessionChoice::named(&session);
            let options = ReceiverOptions { prefetch: 4 };
            let mut receiver = match client.session(SESSIONS, choice, options).await {
                Ok(receiver) => receiver,
                Err(error) if error.kind() == ErrorKind::Refused => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.empty_session(&session, &mut receiver).await?;
            if self.is_over() {
                return Ok(());
            }
            receiver.close().await?;
        }
        Ok(())
    }

    /// Completes the messages of a session until it has none for a moment.
    async fn empty_session(
        &self,
        session: &str,
        receiver: &mut SessionReceiver,
    ) -> Result<(), Error> {
        let mut last = 0;
        while let Some(message) = within_a_moment(receiver.receive()).await? {
            let (number, place) = self.ledger.delivered(SESSIONS, &message);
            if place <= last {
                self.ledger.broken(format!(
                    "session {session}: {place} came after {last}, message {number}"
                ));
            }
            last = place;
            self.ledger.completing(number);
            message.complete().await?;
            self.ledger.completed(number);
            if self.is_over() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The next message, if one arrives before the clients are told to stop.
async fn next(receiver: &mut Receiver) -> Result<Option<Locked>, Error> {
    within_a_moment(receiver.receive()).await
}

async fn within_a_moment(
    next: impl Future<Output = Result<Locked, Error>>,
) -> Result<Option<Locked>, Error> {
    match tokio::time::timeout(Duration::from_millis(50), next).await {
        Ok(message) => message.map(Some),
        Err(_) => Ok(None),
    }
}

/// A body that begins with its number.
fn body(number: u64, size: u64) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    body.extend((0..size).map(|at| (number.wrapping_mul(31).wrapping_add(at) & 0xff) as u8));
    body
}

/// The number of a message. Its body must be unchanged.
fn number_in(message: &Received) -> u64 {
    let bytes = message.body();
    let first = bytes.first_chunk::<8>().expect("a number");
    let number = u64::from_be_bytes(*first);
    assert_eq!(
        bytes,
        body(number, bytes.len() as u64 - 8),
        "message {number}"
    );
    number
}

pub(crate) async fn peek_all(client: &BusClient, place: &str) -> Vec<Received> {
    let mut all = Vec::new();
    let mut from = 0;
    loop {
        let page = client.peek(place, from, 1000).await.expect("shown");
        let Some(last) = page.last().and_then(Received::sequence_number) else {
            return all;
        };
        all.extend(page);
        from = last + 1;
    }
}
