//! Commands and what comes of them; and that a replay and a snapshot give the same state.

mod accounts;
mod cold;
mod effects;
mod flow;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::catalogue::Scope;
use crate::command::Command;
use crate::describe::tests::Promise;
use crate::event::Event;
use crate::outcome::Outcome;
use crate::outcome::Refusal;
use crate::snapshot::tests::{UnderWay, meanwhile};
use crate::state::State;
use crate::storage::{Metadata, ReceivedMessage, SentMessage};
use crate::table::BodyEncoding;
use crate::table::RunLength;
use crate::turn::Decision;
use crate::turn::Journal;
use crate::turn::missing::tests::{Cold, USUAL};
use crate::vocabulary::EntityName;
use crate::vocabulary::Timestamp;
use crate::vocabulary::Token;
use crate::vocabulary::{BodyLocation, Service, VisibilityTimeout};

/// A partition with a log in memory, and a clock that the test sets.
struct Partition {
    state: State,
    now: Timestamp,
    log: Log,
    /// The same with nothing in memory, unless the test changes the state by itself.
    cold: Option<Cold>,
}

#[derive(Default)]
struct Log {
    bodies: Vec<Vec<u8>>,
    events: Vec<Vec<u8>>,
}

impl Log {
    /// What a batch would take, with a tag, a length and a checksum for each.
    fn size_bytes(&self) -> u64 {
        let bodies = self.bodies.iter().map(|body| body.len() + 10);
        let events = self.events.iter().map(|event| event.len() + 6);
        bodies.chain(events).sum::<usize>() as u64
    }
}

impl Journal for Log {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.bodies.push(body.to_vec());
        BodyLocation::new(
            self.bodies.len() as u64 - 1,
            0,
            u32::try_from(body.len()).unwrap(),
        )
    }

    fn record(&mut self, event: &Event) {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        self.events.push(bytes);
    }
}

fn jobs() -> EntityName {
    EntityName::storage_queue("acct", "jobs")
}

fn seconds(seconds: u32) -> VisibilityTimeout {
    VisibilityTimeout::from_seconds(seconds).unwrap()
}

impl Partition {
    fn new() -> Self {
        let mut partition = Self {
            state: State::new(),
            now: Timestamp::from_ms(1_000_000),
            log: Log::default(),
            cold: Some(Cold::new()),
        };
        let initialize = Command::Initialize {
            secret: [42; 16],
            run_length: RunLength::TINY,
        };
        partition.ask(initialize).unwrap();
        partition
    }

    fn with_queue() -> Self {
        let mut partition = Self::new();
        partition.create(&[]).unwrap();
        partition
    }

    fn decide(&mut self, command: Command) -> Decision {
        let promise = Promise::of(&command, &self.state, self.now);
        let (before, before_bytes) = (self.log.events.len(), self.log.size_bytes());
        let mut turn = crate::Turn::new(&mut self.state, self.now, &mut self.log);
        let decision = turn.decide(command.clone());
        if let Some(cold) = &mut self.cold {
            let events = &self.log.events[before..];
            cold.decide(self.now, command, USUAL, &decision, events, &self.state);
        }
        let written_bytes = self.log.size_bytes() - before_bytes;
        promise.check(&self.state, &self.log.events[before..], written_bytes);
        if decision.result.is_err() {
            assert_eq!(self.log.events.len(), before, "a refusal changes nothing");
        }
        decision
    }

    fn ask(&mut self, command: Command) -> Result<Outcome, Refusal> {
        self.decide(command).result
    }

    fn create(&mut self, metadata: &[(&str, &str)]) -> Result<Outcome, Refusal> {
        self.ask(Command::Storage(StorageCommand::CreateQueue {
            queue: jobs(),
            metadata: metadata.iter().copied().collect(),
        }))
    }

    fn send_with(&mut self, body: &str, ttl: Option<u32>, hidden: u32) -> Result<Outcome, Refusal> {
        self.ask(Command::Storage(StorageCommand::Send {
            queue: jobs(),
            body: Bytes::copy_from_slice(body.as_bytes()),
            encoding: BodyEncoding::Text,
            time_to_live_seconds: ttl,
            visibility_timeout: seconds(hidden),
        }))
    }

    fn send(&mut self, body: &str) -> SentMessage {
        match self.send_with(body, None, 0) {
            Ok(Outcome::Storage(StorageOutcome::Sent(sent))) => sent,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self, count: u32, hidden: u32) -> Vec<ReceivedMessage> {
        match self.ask(Command::Storage(StorageCommand::Receive {
            queue: jobs(),
            count,
            visibility_timeout: seconds(hidden),
        })) {
            Ok(Outcome::Storage(StorageOutcome::Received(messages))) => messages,
            other => panic!("{other:?}"),
        }
    }

    fn bodies(&self, messages: &[ReceivedMessage]) -> Vec<&str> {
        let body = |message: &ReceivedMessage| {
            let index = usize::try_from(message.body.record).unwrap();
            std::str::from_utf8(&self.log.bodies[index]).unwrap()
        };
        messages.iter().map(body).collect()
    }

    fn peek_count(&mut self) -> usize {
        match self.ask(Command::Storage(StorageCommand::Peek {
            queue: jobs(),
            count: 32,
        })) {
            Ok(Outcome::Storage(StorageOutcome::Peeked(messages))) => messages.len(),
            other => panic!("{other:?}"),
        }
    }

    fn delete(&mut self, message: Token, receipt: Token) -> Result<Outcome, Refusal> {
        self.ask(Command::Storage(StorageCommand::Delete {
            queue: jobs(),
            message,
            receipt,
        }))
    }

    fn update(
        &mut self,
        message: Token,
        receipt: Token,
        hidden: u32,
        body: Option<&str>,
    ) -> Result<Token, Refusal> {
        let outcome = self.ask(Command::Storage(StorageCommand::Update {
            queue: jobs(),
            message,
            receipt,
            visibility_timeout: seconds(hidden),
            body: body.map(|body| {
                let body = Bytes::copy_from_slice(body.as_bytes());
                (BodyEncoding::Text, body)
            }),
        }))?;
        match outcome {
            Outcome::Storage(StorageOutcome::Updated { receipt, .. }) => Ok(receipt),
            other => panic!("{other:?}"),
        }
    }

    fn count(&mut self) -> u64 {
        match self.ask(Command::Storage(StorageCommand::ReadQueue {
            queue: jobs(),
        })) {
            Ok(Outcome::Storage(StorageOutcome::Queue(view))) => view.approximate_message_count,
            other => panic!("{other:?}"),
        }
    }

    fn wait_seconds(&mut self, seconds: u64) {
        self.now = self.now.plus_seconds(seconds);
    }

    fn tick(&mut self, budget: u32) -> bool {
        let before = self.log.events.len();
        let ticked = crate::Turn::new(&mut self.state, self.now, &mut self.log).tick(budget);
        if let Some(cold) = &mut self.cold {
            let events = &self.log.events[before..];
            cold.tick(self.now, budget, &ticked, events, &self.state);
        }
        ticked.more_is_due
    }

    /// What a restart makes of the log, and of a snapshot.
    fn check_restart(&self) {
        self.state.check_live_bytes();
        let mut replayed = State::new();
        for event in &self.log.events {
            let event = Event::decode(event).unwrap();
            assert!(replayed.is_described_by(&event.fact), "{event:?}");
            replayed.apply(event);
        }
        assert_eq!(replayed.counts(), self.state.counts());
        assert!(replayed == self.state, "a replay gives the same state");

        let mut restored = State::new();
        self.state.snapshot(|part| restored.restore(part).unwrap());
        let (mut a, mut b) = (Vec::new(), Vec::new());
        self.state.snapshot(|part| a.push(part.to_vec()));
        restored.snapshot(|part| b.push(part.to_vec()));
        assert!(a == b, "a snapshot gives the same state");
        assert_eq!(restored.catalogue, self.state.catalogue);
        assert_eq!(restored.catalogue.accounts, self.state.catalogue.accounts);
        assert_eq!(restored.catalogue.usage, self.state.catalogue.usage);
        assert_eq!(
            restored.catalogue.service_properties,
            self.state.catalogue.service_properties
        );
        for (id, entity) in self.state.storage.iter() {
            let mine: Vec<_> = entity.backlog.visible(self.now).collect();
            let its: Vec<_> = restored.storage[id].backlog.visible(self.now).collect();
            assert_eq!(mine, its);
        }
    }
}

#[test]
fn the_founding_scenario() {
    // Two consumers, one of which crashes: its message shows again and nothing is lost.
    let mut p = Partition::with_queue();
    p.send("one");
    p.send("two");
    let first = p.receive(1, 30);
    let second = p.receive(1, 30);
    assert_eq!(p.bodies(&first), ["one"]);
    assert_eq!(p.bodies(&second), ["two"]);
    p.delete(second[0].message, second[0].receipt).unwrap();
    assert!(p.receive(1, 30).is_empty());
    p.wait_seconds(30);
    let again = p.receive(1, 30);
    assert_eq!(p.bodies(&again), ["one"]);
    assert_eq!(again[0].delivery_count, 2);
    assert_eq!(
        p.delete(first[0].message, first[0].receipt),
        Err(Refusal::Storage(StorageRefusal::PopReceiptMismatch))
    );
    p.delete(again[0].message, again[0].receipt).unwrap();
    assert_eq!(p.count(), 0);
    p.check_restart();
}

#[test]
fn create_is_idempotent_for_the_same_metadata() {
    let mut p = Partition::new();
    assert_eq!(
        p.create(&[("A", "1")]),
        Ok(Outcome::Storage(StorageOutcome::QueueCreated))
    );
    assert_eq!(
        p.create(&[("a", "1")]),
        Ok(Outcome::Storage(StorageOutcome::QueueUnchanged))
    );
    let queue = "jobs".into();
    assert_eq!(
        p.create(&[]),
        Err(Refusal::Storage(StorageRefusal::QueueAlreadyExists {
            queue
        }))
    );
}

#[test]
fn what_is_missing_is_said_to_be_missing() {
    let mut p = Partition::new();
    let missing = Err(Refusal::Storage(StorageRefusal::QueueNotFound {
        queue: "jobs".into(),
    }));
    assert_eq!(p.send_with("x", None, 0), missing);
    assert_eq!(
        p.ask(Command::Storage(StorageCommand::Clear { queue: jobs() })),
        missing
    );
    let decision = p.decide(Command::Storage(StorageCommand::DeleteQueue {
        queue: jobs(),
    }));
    assert_eq!(decision.result, missing);
    // The absence may be news that a crash would take back: it rests on the catalogue.
    assert_eq!(decision.scope, Scope::Catalogue);
}

#[test]
fn deleting_a_large_queue_is_one_event() {
    let mut p = Partition::with_queue();
    for _ in 0..20_000 {
        p.send("x");
    }
    let before = p.log.events.len();
    p.ask(Command::Storage(StorageCommand::DeleteQueue {
        queue: jobs(),
    }))
    .unwrap();
    assert_eq!(p.log.events.len(), before + 1);
    assert_eq!(p.state.bodies().count(), 0, "every body is dead");
}

#[test]
fn a_receipt_outlives_its_timeout_but_not_the_next_receive() {
    let mut p = Partition::with_queue();
    p.send("x");
    let first = p.receive(1, 1)[0];
    p.wait_seconds(100);
    let renewed = p.update(first.message, first.receipt, 5, None).unwrap();
    assert_eq!(
        p.delete(first.message, first.receipt),
        Err(Refusal::Storage(StorageRefusal::PopReceiptMismatch))
    );
    p.wait_seconds(5);
    let second = p.receive(1, 1)[0];
    assert_eq!(second.delivery_count, 2, "an update is no delivery");
    assert_eq!(
        p.delete(first.message, renewed),
        Err(Refusal::Storage(StorageRefusal::PopReceiptMismatch))
    );
    p.delete(second.message, second.receipt).unwrap();
    assert_eq!(
        p.delete(second.message, second.receipt),
        Err(Refusal::Storage(StorageRefusal::MessageNotFound))
    );
    p.check_restart();
}

#[test]
fn the_receipt_of_a_send_is_good_at_once() {
    let mut p = Partition::with_queue();
    let sent = p.send("x");
    let renewed = p.update(sent.message, sent.receipt, 0, Some("y")).unwrap();
    let received = p.receive(1, 30);
    assert_eq!(p.bodies(&received), ["y"]);
    assert_eq!(
        p.delete(sent.message, renewed),
        Err(Refusal::Storage(StorageRefusal::PopReceiptMismatch))
    );
    p.check_restart();
}

#[test]
fn the_end_of_a_lease_is_sharp() {
    let mut p = Partition::with_queue();
    p.send("x");
    let received = p.receive(1, 30);
    p.now = Timestamp::from_ms(received[0].visible_at.as_ms() - 1);
    assert!(p.receive(1, 30).is_empty());
    p.now = received[0].visible_at;
    assert_eq!(p.receive(1, 30).len(), 1);
}

#[test]
fn an_expired_message_is_gone_before_any_tick() {
    let mut p = Partition::with_queue();
    p.send_with("x", Some(10), 0).unwrap();
    let received = p.receive(1, 100);
    p.send_with("y", Some(10), 0).unwrap();
    p.wait_seconds(10);
    assert_eq!(p.peek_count(), 0);
    assert!(p.receive(32, 1).is_empty());
    assert_eq!(
        p.delete(received[0].message, received[0].receipt),
        Err(Refusal::Storage(StorageRefusal::MessageNotFound))
    );
    assert_eq!(
        p.count(),
        2,
        "the count may include what no tick has removed"
    );
    assert!(!p.tick(10));
    assert_eq!(p.count(), 0);
    assert_eq!(p.state.next_deadline(), None);
    p.check_restart();
}

#[test]
fn a_tick_keeps_to_its_budget() {
    let mut p = Partition::with_queue();
    for _ in 0..3 * RunLength::TINY.as_u64() {
        p.send_with("x", Some(10), 0).unwrap();
    }
    p.wait_seconds(10);
    assert!(p.tick(2));
    assert!(p.count() > 0);
    assert!(!p.tick(2));
    assert_eq!(p.count(), 0);
    p.check_restart();
}

#[test]
fn hidden_beyond_its_expiry_is_refused() {
    let mut p = Partition::with_queue();
    let refused = Refusal::Storage(StorageRefusal::HiddenBeyondExpiry {
        visibility_timeout_seconds: 10,
        time_to_live_seconds: 10,
    });
    assert_eq!(p.send_with("x", Some(10), 10), Err(refused));
    assert!(p.send_with("x", Some(10), 9).is_ok());
    assert!(p.send_with("x", None, 604_800).is_ok());
}

#[test]
fn a_body_has_a_limit() {
    let mut p = Partition::with_queue();
    assert!(p.send_with(&"x".repeat(65_536), None, 0).is_ok());
    let refused = Refusal::Storage(StorageRefusal::BodyTooLarge {
        size_bytes: 65_537,
        limit_bytes: 65_536,
    });
    let large = "x".repeat(65_537);
    assert_eq!(p.send_with(&large, None, 0), Err(refused.clone()));
    let sent = p.send("x");
    assert_eq!(
        p.update(sent.message, sent.receipt, 0, Some(&large)),
        Err(refused)
    );
}

#[test]
fn nothing_of_an_old_incarnation_means_the_new_one() {
    let mut p = Partition::with_queue();
    let old = p.send("old");
    p.ask(Command::Storage(StorageCommand::DeleteQueue {
        queue: jobs(),
    }))
    .unwrap();
    p.create(&[]).unwrap();
    let new = p.send("new");
    assert_eq!(
        p.delete(old.message, old.receipt),
        Err(Refusal::Storage(StorageRefusal::MessageNotFound))
    );
    assert_eq!(
        p.delete(new.message, old.receipt),
        Err(Refusal::Storage(StorageRefusal::PopReceiptMismatch))
    );
    assert_eq!(p.count(), 1);
    p.check_restart();
}

#[test]
fn clear_takes_hidden_messages_too_and_numbers_go_on() {
    let mut p = Partition::with_queue();
    let first = p.send("a");
    p.receive(1, 30);
    p.send("b");
    p.ask(Command::Storage(StorageCommand::Clear { queue: jobs() }))
        .unwrap();
    assert_eq!(p.count(), 0);
    let next = p.send("c");
    assert_ne!(next.message, first.message);
    let received = p.receive(32, 30);
    assert_eq!(p.bodies(&received), ["c"]);
    p.check_restart();
}

#[test]
fn listings_go_page_by_page_in_the_order_of_bytes() {
    let mut p = Partition::new();
    for (account, name) in [
        ("acct", "b"),
        ("acct", "a1"),
        ("acct", "a"),
        ("acct", "a-2"),
        ("zeta", "a3"),
    ] {
        let queue = EntityName::storage_queue(account, name);
        let metadata = Metadata::default();
        p.ask(Command::Storage(StorageCommand::CreateQueue {
            queue,
            metadata,
        }))
        .unwrap();
    }
    let mut list = |prefix: &str, from: &str, limit| {
        let outcome = p.ask(Command::Storage(StorageCommand::ListQueues {
            service: Service::QueueStorage,
            account: "acct".into(),
            prefix: prefix.into(),
            from: from.into(),
            limit,
            metadata_size_bytes_max: None,
        }));
        match outcome {
            Ok(Outcome::Storage(StorageOutcome::Queues(page))) => {
                let names: Vec<String> = page.queues.iter().map(|q| q.name.to_string()).collect();
                (names.join(" "), page.next.map(String::from))
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(list("", "", 10), ("a a-2 a1 b".into(), None));
    assert_eq!(list("", "", 2), ("a a-2".into(), Some("a1".into())));
    assert_eq!(list("", "a1", 2), ("a1 b".into(), None));
    assert_eq!(list("a", "", 3), ("a a-2 a1".into(), None));
    assert_eq!(list("a", "a-3", 3), ("a1".into(), None));
    assert_eq!(list("c", "", 3), ("".into(), None));
}

#[test]
fn a_listing_has_the_metadata_that_is_wanted_and_not_much_more() {
    let mut p = Partition::new();
    for name in ["a", "b", "c"] {
        let queue = EntityName::storage_queue("acct", name);
        let metadata = [("k", "123")].into_iter().collect();
        p.ask(Command::Storage(StorageCommand::CreateQueue {
            queue,
            metadata,
        }))
        .unwrap();
    }
    let mut list = |metadata_size_bytes_max| {
        let outcome = p.ask(Command::Storage(StorageCommand::ListQueues {
            service: Service::QueueStorage,
            account: "acct".into(),
            prefix: "".into(),
            from: "".into(),
            limit: 3,
            metadata_size_bytes_max,
        }));
        let Ok(Outcome::Storage(StorageOutcome::Queues(page))) = outcome else {
            panic!("{outcome:?}");
        };
        let sizes: Vec<usize> = page
            .queues
            .iter()
            .map(|q| q.metadata.size_bytes())
            .collect();
        (sizes, page.next.map(String::from))
    };
    assert_eq!(list(None), (vec![0, 0, 0], None));
    assert_eq!(list(Some(5)), (vec![4, 4], Some("c".into())));
    assert_eq!(list(Some(4)), (vec![4], Some("b".into())));
    assert_eq!(list(Some(100)), (vec![4, 4, 4], None));
}

#[test]
fn time_never_goes_back() {
    let mut p = Partition::new();
    p.now = Timestamp::from_ms(5);
    let turn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| p.peek_count()));
    assert!(turn.is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Send { ttl: Option<u32>, hidden: u32 },
    Receive { count: u32, hidden: u32 },
    Settle { nth: usize, keep: bool },
    Clear,
    Recreate,
    Tick,
    Wait { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (prop::option::of(1u32..60), prop_oneof![2 => Just(0u32), 1 => 0u32..30])
            .prop_map(|(ttl, hidden)| Step::Send { ttl, hidden }),
        4 => (1u32..8, 1u32..20).prop_map(|(count, hidden)| Step::Receive { count, hidden }),
        4 => (0usize..50, any::<bool>()).prop_map(|(nth, keep)| Step::Settle { nth, keep }),
        1 => prop_oneof![8 => Just(Step::Tick), 1 => Just(Step::Clear), 1 => Just(Step::Recreate)],
        3 => (0u64..10).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// A partition after these steps.
fn run(steps: Vec<Step>) -> Partition {
    let mut p = Partition::with_queue();
    p.carry_out(steps, &mut Vec::new());
    p
}

impl Partition {
    fn carry_out(&mut self, steps: Vec<Step>, held: &mut Vec<ReceivedMessage>) {
        let p = self;
        for step in steps {
            match step {
                Step::Send { ttl, hidden } => {
                    let _ = p.send_with("x", ttl, hidden);
                }
                Step::Receive { count, hidden } => held.extend(p.receive(count, hidden)),
                Step::Settle { nth, keep } if nth < held.len() => {
                    let message = held.swap_remove(nth);
                    if keep {
                        let _ = p.update(message.message, message.receipt, 3, Some("y"));
                    } else {
                        let _ = p.delete(message.message, message.receipt);
                    }
                }
                Step::Settle { .. } => {}
                Step::Clear => {
                    p.ask(Command::Storage(StorageCommand::Clear { queue: jobs() }))
                        .unwrap();
                }
                Step::Recreate => {
                    p.ask(Command::Storage(StorageCommand::DeleteQueue {
                        queue: jobs(),
                    }))
                    .unwrap();
                    p.create(&[]).unwrap();
                }
                Step::Tick => {
                    p.tick(3);
                }
                Step::Wait { seconds } => p.wait_seconds(seconds),
            }
        }
    }
}

proptest! {
    #[test]
    fn a_restart_at_any_time_gives_the_same_state(steps in prop::collection::vec(step(), 1..200)) {
        run(steps).check_restart();
    }

    #[test]
    fn a_snapshot_is_of_the_position_at_which_it_began(
        steps in prop::collection::vec((step(), meanwhile()), 1..200),
        others in prop::collection::vec((0_usize..6, any::<bool>()), 1..200),
    ) {
        let mut p = Partition::with_queue();
        let (mut held, mut snapshots) = (Vec::new(), UnderWay::default());
        for ((step, meanwhile), (which, is_created)) in steps.into_iter().zip(others) {
            let queue = EntityName::storage_queue("acct", format!("other{which}"));
            p.carry_out(vec![step], &mut held);
            // Queues come and go before and after the one that is used.
            let _ = p.ask(Command::Storage(if is_created {
                StorageCommand::CreateQueue { queue, metadata: Metadata::default() }
            } else {
                StorageCommand::DeleteQueue { queue }
            }));
            snapshots.pass(&mut p.state, meanwhile);
        }
        snapshots.finish(&mut p.state);
        p.check_restart();
    }

    #[test]
    fn restoring_never_panics(mut part: Vec<u8>, kind in 0u8..8) {
        if let Some(first) = part.first_mut() {
            *first = kind;
        }
        if let Some(second) = part.get_mut(1) {
            *second = 1;
        }
        let mut state = Partition::with_queue().state;
        let _ = state.restore(&part);
    }
}
