//! Transactions: what is done in one is done as a whole, when it is committed, or not at all.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Array, Composite, Encode, Map, Raw, Symbol, Symbols, Value};
use kew_amqp::error::Error;
use kew_amqp::message::{BATCH_FORMAT, Message, write_batch, write_value};
use kew_amqp::performative::{
    Attach, Control, Coordinator, Declare, DeliveryState, Discharge, Flow, Modified, Outcome,
    Rejected, Role, Source, Tag, Target, TransactionalState,
};
use kew_amqp::{Delivery, Event, LinkId, Outgoing};
use kew_bus_api::{AuthorizationRule, Limits, Right};
use kew_engine::SequenceNumber;
use kew_engine::bus::{BreakTarget, BusCommand, BusQueueOptions, EntityStatus};

use tokio::io::AsyncWriteExt;

use crate::client::{Client, Server, message, queue_named, settling, token_by};
use crate::metrics::{Page, until};

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

    /// Sends in a transaction, which takes it.
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

    /// Settles in a transaction, which takes it.
    async fn retire(&mut self, delivery: &Delivery, id: &Bytes, outcome: Outcome) {
        let told = in_transaction(id, Some(outcome));
        assert_eq!(self.tell(delivery, told.clone()).await, told);
    }

    /// What an answer of `$management` says: status and condition.
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

/// Locks that hold until the end of a test, however slow the machine.
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

/// What queue and dead letters hold.
async fn held(server: &Server, queue: &str) -> (u64, u64) {
    let counts = server.view(queue).await.counts;
    (counts.active, counts.dead_letters)
}

#[tokio::test]
async fn what_is_done_in_a_transaction_is_seen_when_it_is_committed() {
    let server = start().await;
    let mut client = server.trusted().await;
    let (jobs, spare) = (
        client.sender("jobs").await.unwrap(),
        client.sender("spare").await.unwrap(),
    );
    client.fill(jobs, 5).await;
    let receiver = client.receiver("jobs").await.unwrap();
    let held_now = client.receive(receiver, 5).await;
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    client.post(spare, &id, "one").await;
    let mut batch = BytesMut::new();
    write_batch(&mut batch, &[message("two"), message("three")]);
    let state = Some(in_transaction(&id, None));
    let sent = client
        .send_in(spare, BATCH_FORMAT, batch.freeze(), state)
        .await;
    assert_eq!(sent, in_transaction(&id, Some(Outcome::Accepted)));
    for (delivery, outcome) in held_now.iter().zip([
        Outcome::Accepted,
        modified(false),
        modified(true),
        Outcome::Rejected(Rejected { error: None }),
        Outcome::Released,
    ]) {
        client.retire(delivery, &id, outcome).await;
    }
    assert_eq!(held(&server, "spare").await, (0, 0));
    assert_eq!(held(&server, "jobs").await, (5, 0));
    // What is done outside of it meanwhile is done at once.
    client.fill(spare, 1).await;
    client.commit(coordinator, &id).await;
    assert_eq!(held(&server, "spare").await, (4, 0));
    assert_eq!(held(&server, "jobs").await, (3, 1));
    let again = client.receive(receiver, 2).await;
    let counts = again.iter().map(|delivery| {
        let message = Message::scan(delivery.payload.clone()).unwrap();
        message.header().unwrap().delivery_count
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 0]);
    let twice = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&twice), UNKNOWN_ID);
}

#[tokio::test]
async fn a_rollback_leaves_everything_and_its_locks() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let spare = client.sender("spare").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    client.fill(jobs, 1).await;
    let delivery = client.receive(receiver, 1).await.remove(0);
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    client.post(spare, &id, "x").await;
    client.retire(&delivery, &id, Outcome::Accepted).await;
    // Nothing else settles it meanwhile, neither here nor elsewhere.
    let mut other = server.trusted().await;
    let completed = settling(&delivery, "completed");
    let refused = (400, "amqp:not-allowed".to_owned());
    for client in [&mut client, &mut other] {
        let told = client
            .manage("jobs", "update-disposition", &completed, None)
            .await;
        assert_eq!(told, refused);
    }
    // But it can be renewed.
    let told = other.manage("jobs", "renew-lock", &completed, None).await;
    assert_eq!(told, ok());
    let rolled_back = client.discharge(coordinator, &id, true).await;
    assert_eq!(rolled_back, DeliveryState::ACCEPTED);
    assert_eq!(held(&server, "spare").await, (0, 0));
    assert_eq!(held(&server, "jobs").await, (1, 0));
    let late = in_transaction(&id, None);
    let late = client.send_in(spare, 0, message("x"), Some(late)).await;
    assert_eq!(condition_of(&late), UNKNOWN_ID);
    // The lock is as good as it was.
    let told = other
        .manage("jobs", "update-disposition", &completed, None)
        .await;
    assert_eq!(told, ok());
    assert_eq!(held(&server, "jobs").await, (0, 0));
}

#[tokio::test]
async fn no_transaction_is_committed_without_a_delivery_that_another_had_taken() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    client.fill(jobs, 1).await;
    let delivery = client.receive(receiver, 1).await.remove(0);
    let coordinator = client.coordinator().await;
    let first = client.declare(coordinator).await;
    let second = client.declare(coordinator).await;
    client.post(jobs, &second, "x").await;
    let [taken, late] = [&first, &second].map(|id| in_transaction(id, Some(Outcome::Accepted)));
    assert!(client.connection.update(delivery.delivery, taken.clone()));
    // It is settled with the first by the time that the second comes.
    assert_eq!(client.tell(&delivery, late).await, taken);
    let rolled_back = client.discharge(coordinator, &first, true).await;
    assert_eq!(rolled_back, DeliveryState::ACCEPTED);
    let refused = client.discharge(coordinator, &second, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    assert_eq!(held(&server, "jobs").await, (1, 0));
}

#[tokio::test]
async fn a_transaction_goes_with_its_coordinator_link_and_with_its_connection() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    client.fill(jobs, 2).await;
    let deliveries = client.receive(receiver, 2).await;
    let [first, second] = [1, 2].map(|number| format!("coordinator {number}"));
    let first = client.coordinator_named(&first).await;
    let second = client.coordinator_named(&second).await;
    let ended = client.declare(first).await;
    let kept = client.declare(second).await;
    for id in [&ended, &kept] {
        client.post(jobs, id, "x").await;
    }
    client
        .retire(&deliveries[0], &ended, Outcome::Accepted)
        .await;
    client
        .retire(&deliveries[1], &kept, Outcome::Accepted)
        .await;
    client.connection.detach(first, true, None);
    client
        .until(|event| {
            matches!(event, Event::Detached { link, .. } if *link == first).then_some(())
        })
        .await;
    let gone = client.discharge(second, &ended, false).await;
    assert_eq!(condition_of(&gone), UNKNOWN_ID);
    assert_eq!(held(&server, "jobs").await, (2, 0));
    let mut other = server.trusted().await;
    let completed = |delivery| settling(delivery, "completed");
    let told = other
        .manage(
            "jobs",
            "update-disposition",
            &completed(&deliveries[0]),
            None,
        )
        .await;
    assert_eq!(told, ok());
    // An id is good on its own connection alone.
    let theirs = other.coordinator().await;
    let refused = other.discharge(theirs, &kept, false).await;
    assert_eq!(condition_of(&refused), UNKNOWN_ID);
    drop(client);
    // The server learns of it in its own time.
    let completed = completed(&deliveries[1]);
    while other
        .manage("jobs", "update-disposition", &completed, None)
        .await
        != ok()
    {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(held(&server, "jobs").await, (0, 0));
}

#[tokio::test]
async fn a_transaction_ends_two_minutes_after_its_first_operation() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    let [empty, used, late] = [
        client.declare(coordinator).await,
        client.declare(coordinator).await,
        client.declare(coordinator).await,
    ];
    client.post(jobs, &used, "x").await;
    let pass = async |seconds: u64| {
        tokio::time::pause();
        tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    pass(119).await;
    client.post(jobs, &used, "y").await;
    client.post(jobs, &late, "in time").await;
    pass(2).await;
    let refused = in_transaction(&used, None);
    let refused = client.send_in(jobs, 0, message("z"), Some(refused)).await;
    assert_eq!(condition_of(&refused), TIMEOUT);
    let refused = client.discharge(coordinator, &used, false).await;
    assert_eq!(condition_of(&refused), TIMEOUT);
    let refused = client.discharge(coordinator, &used, false).await;
    assert_eq!(condition_of(&refused), UNKNOWN_ID);
    client.commit(coordinator, &empty).await;
    client.commit(coordinator, &late).await;
    assert_eq!(held(&server, "jobs").await, (1, 0));
}

#[tokio::test]
async fn a_commit_that_cannot_be_done_says_what_and_does_nothing() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let spare = client.sender("spare").await.unwrap();
    let steps = client.sender("steps").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    client.fill(jobs, 1).await;
    let delivery = client.receive(receiver, 1).await.remove(0);
    let id = client.declare(coordinator).await;
    client.post(spare, &id, "x").await;
    client.retire(&delivery, &id, Outcome::Accepted).await;
    let number = SequenceNumber::named(1);
    server
        .order(BusCommand::BreakLock {
            queue: queue_named("jobs"),
            target: BreakTarget::Message(number),
        })
        .await;
    let lost = error_of(&client.discharge(coordinator, &id, false).await);
    assert_eq!(lost.condition, ROLLBACK);
    let text = lost.description.unwrap();
    let says = |part: &str| assert!(text.as_str().contains(part), "{text}");
    says("operation 2, on 'jobs': com.microsoft:message-lock-lost");
    // A message without its session.
    let id = client.declare(coordinator).await;
    client.post(spare, &id, "x").await;
    client.post(steps, &id, "x").await;
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    // A queue that has no room, and one that takes nothing any more.
    let options = server.view("spare").await.options;
    for options in [
        BusQueueOptions {
            size_bytes_max: 100,
            ..options.clone()
        },
        BusQueueOptions {
            status: EntityStatus::SendDisabled,
            ..options
        },
    ] {
        let id = client.declare(coordinator).await;
        client.post(spare, &id, "x").await;
        client.post(jobs, &id, "x").await;
        server
            .order(BusCommand::UpdateQueue {
                queue: queue_named("spare"),
                options,
            })
            .await;
        let refused = client.discharge(coordinator, &id, false).await;
        assert_eq!(condition_of(&refused), ROLLBACK);
    }
    // One that is gone.
    let id = client.declare(coordinator).await;
    client.post(jobs, &id, "x").await;
    client.post(steps, &id, "x").await;
    server
        .order(BusCommand::DeleteQueue {
            queue: queue_named("steps"),
        })
        .await;
    let refused = client.discharge(coordinator, &id, false).await;
    let text = error_of(&refused).description.unwrap();
    assert!(
        text.as_str()
            .contains("operation 2, on 'steps': amqp:not-found"),
        "{text}"
    );
    assert_eq!(held(&server, "jobs").await, (1, 0));
    assert_eq!(held(&server, "spare").await, (0, 0));
}

#[tokio::test]
async fn a_transaction_in_which_something_was_refused_is_not_committed() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    client.fill(jobs, 2).await;
    let deliveries = client.receive(receiver, 2).await;
    let garbage = Bytes::from_static(b"\x00");
    // Not settled by its sender, and settled: the client is told, or is not.
    let id = client.declare(coordinator).await;
    client.post(jobs, &id, "x").await;
    let state = || Some(in_transaction(&id, None));
    let refused = client.send_in(jobs, 0, garbage.clone(), state()).await;
    assert_eq!(condition_of(&refused), "amqp:decode-error");
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    for (payload, count) in [(message("x"), 3), (garbage, 3)] {
        let id = client.declare(coordinator).await;
        let settled = Outgoing {
            tag: Tag::from([9; 16]),
            message_format: 0,
            is_settled: true,
            state: Some(in_transaction(&id, None)),
        };
        client
            .connection
            .send(jobs, settled, [payload, Bytes::new()])
            .unwrap();
        let _ = client.discharge(coordinator, &id, false).await;
        assert_eq!(held(&server, "jobs").await, (count, 0));
    }
    // An outcome that is none, and none at all.
    let id = client.declare(coordinator).await;
    let told = client.tell(&deliveries[0], in_transaction(&id, None)).await;
    assert_eq!(condition_of(&told), "amqp:not-allowed");
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    // In two transactions at once.
    let (one, two) = (
        client.declare(coordinator).await,
        client.declare(coordinator).await,
    );
    client.retire(&deliveries[1], &one, Outcome::Accepted).await;
    let completed = settling(&deliveries[1], "completed");
    let told = client
        .manage("jobs", "update-disposition", &completed, Some(&two))
        .await;
    assert_eq!(told, (400, "amqp:not-allowed".into()));
    let refused = client.discharge(coordinator, &two, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    client.commit(coordinator, &one).await;
    assert_eq!(held(&server, "jobs").await, (2, 0));
}

#[tokio::test]
async fn requests_about_messages_can_be_part_of_a_transaction() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let receiver = client.receiver("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    client.fill(jobs, 1).await;
    let delivery = client.receive(receiver, 1).await.remove(0);
    let mut later = BytesMut::new();
    kew_amqp::message::write_head(
        &mut later,
        &kew_amqp::message::Header::default(),
        &Map::default(),
        &Map::build(|map| {
            let at = kew_amqp::codec::Timestamp(i64::MAX / 4);
            map.entry(&Symbol::from_static("x-opt-scheduled-enqueue-time"), &at);
        }),
    );
    later.extend_from_slice(&message("later"));
    let sent = client.send(jobs, 0, later.freeze()).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
    let cancel = Map::build(|map| {
        map.entry("sequence-numbers", &Value::Array(Array::longs([2])));
    });
    let completed = settling(&delivery, "completed");
    for commits in [false, true] {
        let id = client.declare(coordinator).await;
        for (operation, body) in [
            ("cancel-scheduled-message", &cancel),
            ("renew-lock", &completed),
            ("update-disposition", &completed),
        ] {
            let told = client.manage("jobs", operation, body, Some(&id)).await;
            assert_eq!(told, ok(), "{operation}");
        }
        let counts = server.view("jobs").await.counts;
        assert_eq!((counts.active, counts.scheduled), (1, 1));
        let state = client.discharge(coordinator, &id, !commits).await;
        assert_eq!(state, DeliveryState::ACCEPTED);
    }
    let counts = server.view("jobs").await.counts;
    assert_eq!((counts.active, counts.scheduled), (0, 0));
    let unknown = Bytes::from_static(b"?");
    let told = client
        .manage("jobs", "renew-lock", &completed, Some(&unknown))
        .await;
    assert_eq!(told, (400, UNKNOWN_ID.into()));
    for operation in [
        "schedule-message",
        "receive-by-sequence-number",
        "batch-delete-messages",
    ] {
        let id = client.declare(coordinator).await;
        let told = client.manage("jobs", operation, &cancel, Some(&id)).await;
        assert_eq!(told, (501, "amqp:not-implemented".into()), "{operation}");
        let refused = client.discharge(coordinator, &id, false).await;
        assert_eq!(condition_of(&refused), ROLLBACK);
    }
}

#[tokio::test]
async fn a_transaction_gives_no_rights() {
    let server = start().await;
    let mut owner = server.trusted().await;
    let jobs = owner.sender("jobs").await.unwrap();
    let receiver = owner.receiver("jobs").await.unwrap();
    owner.fill(jobs, 1).await;
    let delivery = owner.receive(receiver, 1).await.remove(0);
    let rule =
        AuthorizationRule::generate("sends", [Right::Send].into_iter().collect(), 1).unwrap();
    server.api.add_rule(Some("jobs"), rule).await.unwrap();
    let rule = server.api.rule(Some("jobs"), "sends").await.unwrap();
    // Before anything is known of a client it can declare, and do nothing.
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    let coordinator = client.coordinator().await;
    let id = client.declare(coordinator).await;
    let refused = client.sender("jobs").await.unwrap_err();
    assert_eq!(refused.condition, "amqp:unauthorized-access");
    let token = token_by(
        "sends",
        "sb://localhost/jobs",
        &rule.primary_key,
        9_000_000_000,
    );
    assert_eq!(client.put_token("sb://localhost/jobs", &token).await, 202);
    let jobs = client.sender("jobs").await.unwrap();
    client.post(jobs, &id, "x").await;
    client.commit(coordinator, &id).await;
    let id = client.declare(coordinator).await;
    let completed = settling(&delivery, "completed");
    let told = client.manage_as_sender("jobs", &completed, &id).await;
    assert_eq!(told, "amqp:unauthorized-access");
    let refused = client.discharge(coordinator, &id, false).await;
    assert_eq!(condition_of(&refused), ROLLBACK);
    assert_eq!(held(&server, "jobs").await, (2, 0));
}

impl Client {
    async fn manage_as_sender(&mut self, queue: &str, body: &Map, id: &Bytes) -> String {
        let told = self
            .manage(queue, "update-disposition", body, Some(id))
            .await;
        assert_eq!(told.0, 401);
        told.1
    }
}

#[tokio::test]
async fn what_a_coordinator_does_not_know_is_refused_where_it_is() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    for (payload, expected) in [
        (message("x"), "amqp:decode-error"),
        (encoded(&Map::default()), "amqp:decode-error"),
        (Bytes::from_static(b"\x00"), "amqp:decode-error"),
        (Bytes::new(), "amqp:decode-error"),
        (
            encoded(&Control::Declare(Declare {
                global_id: Some(Raw::of(&7)),
            })),
            "amqp:not-implemented",
        ),
    ] {
        let refused = client.send(coordinator, 0, payload).await;
        assert_eq!(condition_of(&refused), expected);
    }
    let id = client.declare(coordinator).await;
    let state = Some(in_transaction(&id, None));
    let declare = encoded(&Control::Declare(Declare { global_id: None }));
    let refused = client.send_in(coordinator, 0, declare.clone(), state).await;
    assert_eq!(condition_of(&refused), "amqp:not-allowed");
    // Ids that are too short, too long, and nobody's.
    for id in [0, 1, 16, 32, 4000] {
        let id = Bytes::from(vec![b'x'; id]);
        let refused = client.discharge(coordinator, &id, false).await;
        assert_eq!(condition_of(&refused), UNKNOWN_ID);
        let state = Some(in_transaction(&id, None));
        let refused = client.send_in(jobs, 0, message("x"), state).await;
        assert_eq!(condition_of(&refused), UNKNOWN_ID);
    }
    // What cannot be answered ends the link.
    let settled = Outgoing {
        tag: Tag::from([9; 16]),
        message_format: 0,
        is_settled: true,
        state: None,
    };
    client
        .connection
        .send(coordinator, settled, [declare, Bytes::new()])
        .unwrap();
    let error = client
        .until(|event| match event {
            Event::Detached { error, .. } => Some(error.clone()),
            _ => None,
        })
        .await;
    assert_eq!(error.unwrap().condition, "amqp:not-allowed");
    client.fill(jobs, 1).await;
}

#[tokio::test]
async fn messages_are_not_received_in_a_transaction() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    client.fill(jobs, 1).await;
    client.receiver("jobs").await.unwrap();
    let id = Bytes::from_static(b"t");
    let flow = Flow {
        next_incoming_id: Some(0),
        incoming_window: 100,
        next_outgoing_id: 100,
        outgoing_window: 100,
        // The receiver's: they are given in order.
        handle: Some(1),
        delivery_count: Some(0),
        link_credit: Some(1),
        available: None,
        drain: false,
        echo: false,
        properties: Some(Map::build(|map| {
            map.entry(&Symbol::from_static("txn-id"), &id)
        })),
    };
    client.say().await;
    let mut frame = BytesMut::new();
    flow.write(&mut frame);
    let size = u32::try_from(frame.len() + 8).unwrap();
    client.stream.write_all(&size.to_be_bytes()).await.unwrap();
    client.stream.write_all(&[2, 0, 0, 0]).await.unwrap();
    client.stream.write_all(&frame).await.unwrap();
    let error = client
        .until(|event| match event {
            Event::Detached { error, .. } => Some(error.clone()),
            _ => None,
        })
        .await;
    assert_eq!(error.unwrap().condition, "amqp:not-implemented");
    client.fill(jobs, 1).await;
}

#[tokio::test]
async fn transactions_have_bounds() {
    let server = start_with(Limits {
        transactions_max: 3,
        transactions_size_bytes_max: 60_000,
        ..Limits::default()
    })
    .await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(client.declare(coordinator).await);
    }
    let declare = Control::Declare(Declare { global_id: None });
    let limit = "amqp:resource-limit-exceeded";
    let refused = client.control(coordinator, declare).await;
    assert_eq!(condition_of(&refused), limit);
    // Messages, and bytes of all of them together.
    for _ in 0..100 {
        client.post(jobs, &ids[0], "x").await;
    }
    let large = "x".repeat(20_000);
    client.post(jobs, &ids[1], &large).await;
    let sent = |id: &Bytes, body: &str| (message(body), Some(in_transaction(id, None)));
    for (payload, state) in [sent(&ids[0], "x"), sent(&ids[1], &"x".repeat(45_000))] {
        let refused = client.send_in(jobs, 0, payload, state).await;
        assert_eq!(condition_of(&refused), limit);
    }
    // What has failed holds nothing any more.
    client.post(jobs, &ids[2], &"x".repeat(50_000)).await;
    for (id, is_done) in ids.iter().zip([false, false, true]) {
        let state = client.discharge(coordinator, id, false).await;
        assert_eq!(state == DeliveryState::ACCEPTED, is_done, "{state:?}");
    }
    assert_eq!(held(&server, "jobs").await, (1, 0));
    client.declare(coordinator).await;
}

#[tokio::test]
async fn transactions_are_counted_and_what_they_hold() {
    let server = start().await;
    let mut client = server.trusted().await;
    let jobs = client.sender("jobs").await.unwrap();
    let coordinator = client.coordinator().await;
    let held = |page: &Page| page.sum("kew_amqp_held_bytes", &[]);
    for commits in [false, true] {
        let id = client.declare(coordinator).await;
        client.post(jobs, &id, &"x".repeat(50_000)).await;
        until(&server, |page| held(page) >= 50_000).await;
        let sent = Page::of(&server).sum("kew_bus_messages_sent_total", &[]);
        assert_eq!(sent, 0);
        let state = client.discharge(coordinator, &id, !commits).await;
        assert_eq!(state, DeliveryState::ACCEPTED);
        until(&server, |page| held(page) < 50_000).await;
    }
    let id = Bytes::from_static(b"?");
    client.discharge(coordinator, &id, false).await;
    let page = Page::of(&server);
    let requests = |operation, status, code| {
        let labels = [("operation", operation), ("status", status), ("code", code)];
        page.sum("kew_requests_total", &labels)
    };
    assert_eq!(requests("declare", "200", ""), 2);
    assert_eq!(requests("rollback", "200", ""), 1);
    assert_eq!(requests("commit", "200", ""), 1);
    assert_eq!(requests("commit", "400", UNKNOWN_ID), 1);
    assert_eq!(page.sum("kew_bus_messages_sent_total", &[]), 1);
}
