//! Transactions: all operations of one take effect at its commit, or none.

mod commit;
mod coordinator;
mod ends;
mod first;
mod requests;
mod via;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Composite, Encode, Map, Symbol, Symbols, Value};
use kew_amqp::error::Error;
use kew_amqp::message::write_value;
use kew_amqp::performative::{
    Attach, Control, Coordinator, Declare, DeliveryState, Discharge, Modified, Outcome, Rejected,
    Role, Source, Tag, Target, TransactionalState,
};
use kew_amqp::{Delivery, Event, LinkId, Outgoing};
use kew_bus_api::Limits;
use kew_engine::bus::{BusCommand, BusQueueOptions};
use tokio::io::AsyncWriteExt;

use crate::client::{Client, Server, message, queue_named};

const UNKNOWN_ID: &str = "amqp:transaction:unknown-id";
const ROLLBACK: &str = "amqp:transaction:rollback";
const TIMEOUT: &str = "amqp:transaction:timeout";

fn encoded(body: &impl Encode) -> Bytes {
    let mut payload = BytesMut::new();
    write_value(&mut payload, body);
    payload.freeze()
}

fn in_transaction(id: &Bytes, outcome: Option<Outcome>) -> DeliveryState {
    DeliveryState::Transactional(TransactionalState {
        txn_id: id.clone(),
        outcome,
    })
}

fn error_of(state: &DeliveryState) -> Error {
    match state {
        DeliveryState::Outcome(Outcome::Rejected(Rejected { error: Some(error) })) => error.clone(),
        other => panic!("{other:?}"),
    }
}

fn condition_of(state: &DeliveryState) -> String {
    error_of(state).condition.to_string()
}

impl Client {
    async fn coordinator_named(&mut self, name: &str) -> LinkId {
        let mut attach = Attach::new(name.into(), Role::Sender);
        attach.source = Some(Source::new("here".into()));
        let local = Symbol::from_static("amqp:local-transactions");
        let asked = [
            local.clone(),
            Symbol::from_static("amqp:distributed-transactions"),
        ];
        let target = |capabilities: &[Symbol]| {
            let capabilities = Symbols::new(capabilities);
            Some(Target::Coordinator(Coordinator { capabilities }))
        };
        attach.target = target(&asked);
        let (link, answer) = self.attach(attach).await.unwrap();
        assert_eq!(answer.target, target(&[local]), "only what it can do");
        link
    }

    async fn coordinator(&mut self) -> LinkId {
        self.coordinator_named("coordinator").await
    }

    async fn control(&mut self, link: LinkId, control: Control) -> DeliveryState {
        self.send(link, 0, encoded(&control)).await
    }

    async fn declare(&mut self, link: LinkId) -> Bytes {
        let declare = Control::Declare(Declare { global_id: None });
        match self.control(link, declare).await {
            DeliveryState::Outcome(Outcome::Declared(declared)) => {
                assert!((1..=32).contains(&declared.txn_id.len()));
                declared.txn_id
            }
            other => panic!("{other:?}"),
        }
    }

    async fn discharge(&mut self, link: LinkId, id: &Bytes, fail: bool) -> DeliveryState {
        let discharge = Control::Discharge(Discharge {
            txn_id: id.clone(),
            fail: Some(fail),
        });
        self.control(link, discharge).await
    }

    async fn commit(&mut self, link: LinkId, id: &Bytes) {
        let state = self.discharge(link, id, false).await;
        assert_eq!(state, DeliveryState::ACCEPTED);
    }

    /// Sends in a transaction, which accepts the message.
    async fn post(&mut self, link: LinkId, id: &Bytes, body: &str) {
        let state = Some(in_transaction(id, None));
        let sent = self.send_in(link, 0, message(body), state).await;
        assert_eq!(sent, in_transaction(id, Some(Outcome::Accepted)));
    }

    /// Sends so many messages outside of any transaction.
    async fn fill(&mut self, link: LinkId, count: usize) {
        for _ in 0..count {
            let sent = self.send(link, 0, message("m")).await;
            assert_eq!(sent, DeliveryState::ACCEPTED);
        }
    }

    async fn receive(&mut self, link: LinkId, count: u32) -> Vec<Delivery> {
        self.connection.grant(link, count);
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.delivery().await);
        }
        all
    }

    /// Settles in a transaction, which accepts the outcome.
    async fn retire(&mut self, delivery: &Delivery, id: &Bytes, outcome: Outcome) {
        let told = in_transaction(id, Some(outcome));
        assert_eq!(self.tell(delivery, told.clone()).await, told);
    }

    /// Detaches a link, and waits for the answer.
    async fn detach(&mut self, link: LinkId) {
        self.connection.detach(link, true, None);
        self.detached(link).await;
    }

    /// Waits for the end of a link: its error, if the server has ended it.
    async fn detached(&mut self, own: LinkId) -> Option<Error> {
        self.until(|event| match event {
            Event::Detached { link, error, .. } if *link == own => Some(error.clone()),
            _ => None,
        })
        .await
    }

    /// Writes a frame that the test client's connection does not know.
    async fn say_by_hand(&mut self, frame: &impl Composite) {
        self.say().await;
        let mut bytes = BytesMut::new();
        frame.write(&mut bytes);
        let size = u32::try_from(bytes.len() + 8).unwrap();
        self.stream.write_all(&size.to_be_bytes()).await.unwrap();
        self.stream.write_all(&[2, 0, 0, 0]).await.unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// Status and condition of an answer of `$management`.
    async fn manage(
        &mut self,
        queue: &str,
        operation: &str,
        body: &Map,
        id: Option<&Bytes>,
    ) -> (i64, String) {
        let name = format!("com.microsoft:{operation}");
        let properties = Map::build(|map| map.entry("operation", name.as_str()));
        let state = id.map(|id| in_transaction(id, None));
        let node = format!("{queue}/$management");
        let answer = self.ask_in(&node, &properties, body, state).await;
        let told = answer.application_properties();
        let condition = told.get("errorCondition").map(|raw| raw.value());
        (
            told.get("statusCode")
                .unwrap()
                .value()
                .as_integer()
                .unwrap(),
            condition.map_or(String::new(), |it| it.as_str().unwrap().to_owned()),
        )
    }
}

/// The options of a message that wants an answer.
fn plain(state: Option<DeliveryState>) -> Outgoing {
    Outgoing {
        tag: Tag::from([9; 16]),
        message_format: 0,
        is_settled: false,
        state,
    }
}

fn ok() -> (i64, String) {
    (200, String::new())
}

fn modified(is_elsewhere: bool) -> Outcome {
    Outcome::Modified(Modified {
        delivery_failed: None,
        undeliverable_here: Some(is_elsewhere),
        message_annotations: None,
    })
}

async fn start() -> Server {
    start_with(Limits::default()).await
}

/// Locks that last until the end of a test, even on a slow machine.
async fn start_with(limits: Limits) -> Server {
    let server = Server::start_with(limits).await;
    let options = BusQueueOptions {
        lock_duration_ms: 300_000,
        ..server.view("jobs").await.options
    };
    let queue = queue_named("jobs");
    server
        .order(BusCommand::UpdateQueue { queue, options })
        .await;
    server
}

/// The message counts of a queue and its dead letters.
async fn held(server: &Server, queue: &str) -> (u64, u64) {
    let counts = server.view(queue).await.counts;
    (counts.active, counts.dead_letters)
}
