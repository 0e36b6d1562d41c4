//! Damaged partitions with bus queues: messages listed as lost are lost, and everything else is
//! unchanged.

mod rules;
mod topics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use kew_broker::{Losses, PartitionOptions, Repair};
use kew_engine::bus::{
    BusCommand, BusMessage, BusMessageState, BusOutcome, BusQueueOptions, DeadLetterCause,
    Disposition, ReceiveMode, Resubmission, Resubmit, ResubmitVerdict, SessionChoice, Verdict,
};
use kew_engine::storage::StorageCommand;
use kew_engine::{Command, EntityName, Outcome, SequenceNumber, Service, Token};
use kew_log::{FaultyStorage, verify};

use crate::damaged::{
    self, Bench, Dice, HEADS, Sizes, damage, damage_bytes, lose_pages, lose_some_pages,
};

const PLAIN: &str = "orders";
const SESSIONS: &str = "steps";
const DEAD_LETTERS: &str = "orders/$deadletterqueue";

fn options() -> PartitionOptions {
    let sizes = Sizes {
        segment_kib: 96,
        batch_kib: 56,
        turn_kib: 16,
        settlement_kib: 8,
    };
    sizes.options()
}

fn name(queue: &str) -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: queue.into(),
    }
}

fn body(number: u64) -> Bytes {
    let size = usize::try_from(number * 37 % 700).unwrap();
    // No body is within another.
    format!("#{number} {}", "x".repeat(size)).into()
}

/// The number of an unchanged body.
fn number(found: &Bytes) -> u64 {
    let text = std::str::from_utf8(found).unwrap();
    let number = text.split(['#', ' ']).nth(1).unwrap().parse().unwrap();
    assert_eq!(*found, body(number), "a body was altered");
    number
}

/// A message as a peek shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    queue: String,
    sequence_number: SequenceNumber,
    state: BusMessageState,
    cause: Option<DeadLetterCause>,
    delivery_count: u32,
}

struct Driver {
    bench: Bench,
}

impl Driver {
    fn on(storage: FaultyStorage) -> Self {
        Self {
            bench: Bench::on(storage, options()),
        }
    }

    fn create(&mut self, queue: &str, requires_session: bool) {
        let options = BusQueueOptions {
            requires_session,
            lock_duration_ms: 300_000,
            ..BusQueueOptions::default()
        };
        self.ask(BusCommand::CreateQueue {
            queue: name(queue),
            options,
        });
    }

    fn ask(&mut self, command: BusCommand) -> (BusOutcome, Vec<Bytes>) {
        let answered = self.bench.ask(Command::Bus(command)).unwrap();
        let bodies = answered.bodies.read().into_iter();
        let bodies = bodies.map(|body| body.unwrap()).collect();
        match answered.outcome {
            Outcome::Bus(outcome) => (outcome, bodies),
            other => panic!("{other:?}"),
        }
    }

    fn send(&mut self, queue: &str, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let message = BusMessage {
                body: body(number),
                message_id: None,
                session: (queue == SESSIONS).then(|| (number % 3).to_string().into()),
                time_to_live_ms: None,
                scheduled_at: None,
            };
            let (queue, messages) = (name(queue), vec![message]);
            self.ask(BusCommand::Send { queue, messages });
        }
    }

    fn receive(&mut self, count: u32) -> Vec<Token> {
        let (outcome, _) = self.ask(BusCommand::Receive {
            queue: name(PLAIN),
            count,
            mode: ReceiveMode::PeekLock,
            session: None,
        });
        let BusOutcome::Received(messages) = outcome else {
            panic!("a receive receives");
        };
        messages
            .iter()
            .map(|message| message.lock.unwrap())
            .collect()
    }

    fn settle(&mut self, lock: Token, disposition: Disposition) -> Verdict {
        let (outcome, _) = self.ask(BusCommand::Settle {
            queue: name(PLAIN),
            settlements: vec![(lock, disposition)],
        });
        let BusOutcome::Settled(verdicts) = outcome else {
            panic!("a settlement settles");
        };
        verdicts[0]
    }

    /// Sends a dead letter again, with another number.
    fn resubmit(&mut self, sequence_number: u64, number: u64) {
        let again = Resubmission {
            sequence_number: SequenceNumber::named(sequence_number),
            overlay_count: 0,
            body: body(number),
            message_id: None,
            session: None,
            time_to_live_ms: None,
        };
        let (outcome, _) = self.ask(BusCommand::Resubmit {
            queue: name(DEAD_LETTERS),
            resubmit: Resubmit {
                to: None,
                messages: vec![again],
            },
        });
        let BusOutcome::Resubmitted(verdicts) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(matches!(verdicts[..], [ResubmitVerdict::Resubmitted(_)]));
    }

    fn snapshot(&mut self) {
        self.bench.mark();
        self.bench.snapshot();
    }

    /// Every message of every queue, by its number. None is there twice.
    fn everything(&mut self) -> BTreeMap<u64, Found> {
        let (outcome, _) = self.ask(BusCommand::ListQueues {
            namespace: "ns".into(),
            from: "".into(),
            skip: 0,
            limit: 100,
        });
        let BusOutcome::Queues(queues) = outcome else {
            panic!("a listing lists");
        };
        let mut found = BTreeMap::new();
        for queue in queues {
            for part in ["", "/$deadletterqueue", "/$transfer/$deadletterqueue"] {
                let queue = format!("{}{part}", queue.name);
                let (outcome, bodies) = self.ask(BusCommand::Peek {
                    queue: name(&queue),
                    from: SequenceNumber::default(),
                    count: 5000,
                    session: None,
                });
                let BusOutcome::Peeked(messages) = outcome else {
                    panic!("a peek peeks");
                };
                for (message, body) in messages.iter().zip(&bodies) {
                    let one = Found {
                        queue: queue.clone(),
                        sequence_number: message.sequence_number,
                        state: message.state,
                        cause: message.cause,
                        delivery_count: message.delivery_count,
                    };
                    let twice = found.insert(number(body), one);
                    assert_eq!(twice, None, "{} is there twice", number(body));
                }
            }
        }
        found
    }
}

/// A partition with messages in every state, in three segments and with two snapshots; and a lock.
fn filled() -> (FaultyStorage, BTreeMap<u64, Found>, Token) {
    fill(Driver::on(FaultyStorage::new()))
}

/// A partition whose next two snapshots retire the beginning of its log: nothing of that is needed.
fn begun() -> Driver {
    let mut driver = Driver::on(FaultyStorage::new());
    driver.create("first", false);
    driver.send("first", 1000..1400);
    for _ in 0..40 {
        driver.ask(BusCommand::Receive {
            queue: name("first"),
            count: 32,
            mode: ReceiveMode::ReceiveAndDelete,
            session: None,
        });
    }
    assert!(driver.everything().is_empty());
    driver
}

fn fill(mut driver: Driver) -> (FaultyStorage, BTreeMap<u64, Found>, Token) {
    driver.create(PLAIN, false);
    driver.create(SESSIONS, true);
    driver.send(PLAIN, 0..60);
    driver.send(SESSIONS, 100..130);
    let locks = driver.receive(30);
    for (index, lock) in locks[..25].iter().enumerate() {
        let disposition = match index % 5 {
            0 => Disposition::Complete,
            1 => Disposition::Abandon { overlay: None },
            2 => Disposition::Defer { overlay: None },
            3 => Disposition::DeadLetter { overlay: None },
            _ => Disposition::Release,
        };
        assert_eq!(driver.settle(*lock, disposition), Verdict::Settled);
    }
    driver.snapshot();
    driver.send(PLAIN, 200..300);
    let (outcome, _) = driver.ask(BusCommand::AcceptSession {
        queue: name(SESSIONS),
        session: SessionChoice::Named("1".into()),
    });
    let BusOutcome::SessionAccepted(session) = outcome else {
        panic!("a session is accepted");
    };
    driver.ask(BusCommand::SetSessionState {
        queue: name(SESSIONS),
        session: session.lock,
        state: Some(Bytes::from_static(b"half way")),
    });
    driver.snapshot();
    driver.resubmit(1, 700);
    driver.send(PLAIN, 300..360);
    driver.send(SESSIONS, 400..420);
    let found = driver.everything();
    driver.bench.mark();
    (driver.bench.storage, found, locks[27])
}

fn look(storage: &FaultyStorage) -> Repair {
    Repair::look(Arc::new(storage.clone()), "ns").unwrap()
}

/// Repairs, and returns the list of losses and the remaining messages.
fn repair(storage: &FaultyStorage) -> (Losses, BTreeMap<u64, Found>) {
    let repair = look(storage);
    let losses = repair.losses().clone();
    assert!(repair.is_needed());
    repair.carry_out(options(), 99, [2; 16]).unwrap();
    verify(storage).unwrap();
    assert!(!look(storage).is_needed());
    let found = Driver::on(storage.kill()).everything();
    (losses, found)
}

#[test]
fn an_intact_partition_needs_no_repair() {
    let (storage, found, _) = filled();
    assert!(!look(&storage).is_needed());
    assert_eq!(Driver::on(storage).everything(), found);
    let states: BTreeSet<_> = found.values().map(|it| format!("{:?}", it.state)).collect();
    assert!(states.len() >= 3, "{states:?}");
    let dead = found.values().filter(|it| it.queue == DEAD_LETTERS);
    assert_eq!(dead.count(), 4);
}

/// All others are unchanged: in their places, with their counts, locked, deferred and
/// dead-lettered.
#[test]
fn a_damaged_body_costs_only_that_message() {
    let (storage, before, lock) = filled();
    // One deferred message, one locked message and one that was never received.
    for victim in [2, 26, 250] {
        let disk = storage.kill();
        damage_bytes(&disk, &body(victim));
        let (losses, after) = repair(&disk);
        let lost = &before[&victim];
        assert_eq!(losses.gaps, []);
        let listed: Vec<_> = losses.messages.iter().collect();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(*listed[0].queue.name, *lost.queue);
        assert_eq!(listed[0].sequence_number, lost.sequence_number);
        let mut expected = before.clone();
        expected.remove(&victim);
        assert_eq!(after, expected);
        let mut driver = Driver::on(disk);
        let verdict = driver.settle(lock, Disposition::Complete);
        assert_eq!(verdict, Verdict::Settled, "a lock outlives the repair");
    }
}

/// The earlier records of its send and its dead-lettering are lost: the record of a resubmission
/// has everything that it needs.
#[test]
fn a_message_that_was_sent_again_outlives_where_it_was() {
    let mut driver = Driver::on(FaultyStorage::new());
    driver.create(PLAIN, false);
    driver.send(PLAIN, 0..3);
    let lock = driver.receive(1)[0];
    let disposition = Disposition::DeadLetter { overlay: None };
    assert_eq!(driver.settle(lock, disposition), Verdict::Settled);
    driver.resubmit(1, 700);
    driver.send(PLAIN, 4..6);
    let before = driver.everything();
    assert_eq!(before[&700].queue, PLAIN);
    driver.bench.mark();
    let disk = driver.bench.storage.kill();
    damage_bytes(&disk, &body(0));
    let (losses, after) = repair(&disk);
    assert_eq!(losses.gaps.len(), 1);
    assert_eq!(losses.messages, []);
    assert_eq!(after, before);
}

/// Repairs after all pages of a kind are lost.
fn without_pages(kind: u8) -> (FaultyStorage, Losses, [BTreeMap<u64, Found>; 2]) {
    let (storage, before, _) = fill(begun());
    assert!(lose_pages(&storage, kind) > 0);
    let (losses, after) = repair(&storage);
    assert!(!losses.gaps.is_empty());
    (storage, losses, [before, after])
}

/// The numbers of messages by queue, in the order of queues.
fn by_queue(found: &BTreeMap<u64, Found>) -> Vec<Vec<u64>> {
    let mut queues = BTreeMap::<&str, Vec<u64>>::new();
    for (number, it) in found {
        queues.entry(&it.queue).or_default().push(*number);
    }
    let mut queues: Vec<_> = queues.into_values().collect();
    queues.sort_unstable();
    queues
}

#[test]
fn without_the_pages_of_queues_and_sub_queues_their_messages_are_kept() {
    let (_, losses, [before, after]) = without_pages(HEADS);
    assert_eq!((losses.messages, losses.dropped), (vec![], vec![]));
    assert_eq!(losses.renamed.len(), 2);
    assert_eq!(by_queue(&after), by_queue(&before));
    let is_dead = |it: &&Found| it.queue.ends_with("/$deadletterqueue");
    assert_eq!(after.values().filter(is_dead).count(), 4);
}

#[test]
fn without_the_pages_of_sessions_their_messages_can_be_received() {
    let (storage, losses, [before, after]) = without_pages(damaged::SESSIONS);
    assert_eq!((losses.messages, losses.renamed), (vec![], vec![]));
    assert_eq!(by_queue(&after), by_queue(&before));
    let mut driver = Driver::on(storage);
    let mut received = BTreeSet::new();
    for _ in 0..3 {
        let (outcome, _) = driver.ask(BusCommand::AcceptSession {
            queue: name(SESSIONS),
            session: SessionChoice::Next,
        });
        let BusOutcome::SessionAccepted(session) = outcome else {
            panic!("{outcome:?}");
        };
        let (_, bodies) = driver.ask(BusCommand::Receive {
            queue: name(SESSIONS),
            count: 1000,
            mode: ReceiveMode::PeekLock,
            session: Some(session.lock),
        });
        let numbers: BTreeSet<u64> = bodies.iter().map(number).collect();
        let sessions: BTreeSet<u64> = numbers.iter().map(|number| number % 3).collect();
        assert_eq!(sessions.len(), 1, "a session stays together");
        received.extend(numbers);
    }
    let sent = before.iter().filter(|(_, it)| it.queue == SESSIONS);
    assert_eq!(received, sent.map(|(number, _)| *number).collect());
}

#[test]
fn without_the_pages_of_ids_no_message_is_lost() {
    let mut driver = begun();
    let options = BusQueueOptions {
        duplicate_window_ms: Some(600_000),
        ..BusQueueOptions::default()
    };
    driver.ask(BusCommand::CreateQueue {
        queue: name(PLAIN),
        options,
    });
    let message = |number: u64| BusMessage {
        body: body(number),
        message_id: Some(number.to_string().into()),
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    };
    let send = |driver: &mut Driver, number| {
        let (queue, messages) = (name(PLAIN), vec![message(number)]);
        driver.ask(BusCommand::Send { queue, messages });
    };
    (0..19).for_each(|number| send(&mut driver, number));
    driver.snapshot();
    send(&mut driver, 19);
    driver.snapshot();
    driver.send(PLAIN, 30..31);
    let before = driver.everything();
    driver.bench.mark();
    let storage = driver.bench.storage.kill();
    let lost = lose_pages(&storage, damaged::IDS);
    assert!(lost > 0);
    let (losses, after) = repair(&storage);
    assert_eq!((losses.messages, losses.renamed), (vec![], vec![]));
    assert_eq!(losses.gaps.len(), lost);
    assert_eq!(after, before);
    // Only the ids are forgotten.
    let mut driver = Driver::on(storage);
    send(&mut driver, 5);
    let messages = driver.bench.partition.state().messages();
    let there = messages.filter(|it| *it.queue_name.name == *PLAIN);
    assert_eq!(there.count(), 22);
}

/// Nothing in their pages says of which service they are: what comes later does.
#[test]
fn a_queue_that_is_lost_gets_the_service_that_later_records_show() {
    let mut driver = begun();
    driver
        .bench
        .ask(Command::Storage(StorageCommand::CreateQueue {
            queue: EntityName::storage_queue("acct", "other"),
            metadata: Default::default(),
        }))
        .unwrap();
    driver.create(PLAIN, false);
    driver.send(PLAIN, 0..29);
    driver.snapshot();
    driver.send(PLAIN, 29..30);
    driver.snapshot();
    driver.send(PLAIN, 30..40);
    let before = driver.everything();
    driver.bench.mark();
    let storage = driver.bench.storage.kill();
    assert!(lose_pages(&storage, HEADS) > 1);
    let (losses, after) = repair(&storage);
    assert_eq!((losses.messages, losses.dropped), (vec![], vec![]));
    assert_eq!(by_queue(&after), by_queue(&before));
}

/// Three queues whose messages look like those of Queue Storage. The pages of queues are lost, and there is `more`, and
/// records `behind` the snapshots. Returns the names of the queues that have messages after a repair.
fn idle_queues(more: fn(&mut Driver), behind: fn(&mut Driver)) -> Vec<EntityName> {
    let mut driver = begun();
    driver.create(PLAIN, false);
    driver.send(PLAIN, 0..29);
    driver.create("letters", false);
    driver.send("letters", 30..59);
    more(&mut driver);
    driver.snapshot();
    driver.send("first", 60..61);
    driver.snapshot();
    behind(&mut driver);
    driver.bench.mark();
    let storage = driver.bench.storage.kill();
    assert!(lose_pages(&storage, HEADS) > 0);
    repair(&storage);
    let driver = Driver::on(storage.kill());
    let messages = driver.bench.partition.state().messages();
    let names: BTreeSet<_> = messages.map(|it| it.queue_name.clone()).collect();
    names.into_iter().collect()
}

fn is_bus(name: &&EntityName) -> bool {
    name.service == Service::ServiceBus
}

#[test]
fn idle_queues_beside_others_of_service_bus_are_of_that() {
    let sessions = |driver: &mut Driver| {
        driver.create(SESSIONS, true);
        driver.send(SESSIONS, 100..130);
    };
    let names = idle_queues(sessions, |_| {});
    assert_eq!(names.len(), 4);
    assert_eq!(names.iter().filter(is_bus).count(), 4, "{names:?}");
}

#[test]
fn a_dead_letter_shows_of_which_service_its_queue_is() {
    fn other() -> EntityName {
        EntityName::storage_queue("acct", "other")
    }
    fn ask(driver: &mut Driver, command: StorageCommand) {
        driver.bench.ask(Command::Storage(command)).unwrap();
    }
    let letter = |driver: &mut Driver| {
        let lock = driver.receive(1)[0];
        let disposition = Disposition::DeadLetter { overlay: None };
        driver.settle(lock, disposition);
        let metadata = Default::default();
        let queue = other();
        ask(driver, StorageCommand::CreateQueue { queue, metadata });
    };
    // There is a queue of Queue Storage, too.
    let names = idle_queues(letter, |driver| {
        let metadata = [("colour", "green")].into_iter().collect();
        let queue = other();
        ask(driver, StorageCommand::SetQueueMetadata { queue, metadata });
    });
    // One of them is the sub-queue.
    assert_eq!(names.len(), 4);
    assert_eq!(names.iter().filter(is_bus).count(), 4, "{names:?}");
}

/// Its entities are on two pages, and one of them is lost. That it was deleted is lost too, and another queue has its
/// name now.
#[test]
fn a_queue_whose_name_is_taken_is_kept_under_another_one() {
    let mut driver = begun();
    driver
        .bench
        .ask(Command::Storage(StorageCommand::CreateQueue {
            queue: EntityName::storage_queue("acct", "other"),
            metadata: Default::default(),
        }))
        .unwrap();
    // A page has the entities of 64 numbers.
    let mut next = 5;
    while next % 64 != 63 {
        driver.create(&format!("queue-{next}"), false);
        next += 3;
    }
    driver.create(PLAIN, false);
    driver.create("last", false);
    driver.send(PLAIN, 0..29);
    driver.snapshot();
    driver.send("last", 30..31);
    driver.snapshot();
    let log = driver.bench.partition.log();
    let (end, segment) = (log.end(), log.files().unwrap().segments().last().unwrap());
    driver.ask(BusCommand::DeleteQueue { queue: name(PLAIN) });
    driver.create(PLAIN, false);
    driver.send(PLAIN, 40..50);
    driver.bench.mark();
    let storage = driver.bench.storage.kill();
    // That of storage queues comes first, and the queue begins at the end of the third of bus queues.
    let lost = lose_some_pages(&storage, |at, kind| kind == HEADS && at == 3);
    assert_eq!(lost, 1);
    let deleted = 4096 + end.as_u64() - segment.first.as_u64();
    storage.flip(&format!("segment-{:020}", segment.number), deleted + 20, 1);
    let (losses, after) = repair(&storage);
    assert_eq!(losses.dropped, []);
    let kept: BTreeSet<u64> = after.keys().copied().collect();
    let expected = (0..29).chain(30..31).chain(40..50);
    assert_eq!(kept, expected.collect());
    assert_eq!(after[&40].queue, PLAIN);
    assert!(after[&0].queue.starts_with("recovered-"), "{:?}", after[&0]);
}

/// Any damage in any place, one to three at once: no message is silently lost, altered or
/// duplicated.
#[test]
fn random_damage_is_repaired() {
    let (storage, before, _) = filled();
    let mut repaired = 0;
    for seed in 0..200u64 {
        let disk = storage.kill();
        damage(&disk, &mut Dice(seed));
        if !look(&disk).is_needed() {
            continue;
        }
        repaired += 1;
        let (losses, after) = repair(&disk);
        let listed: BTreeSet<_> = losses
            .messages
            .iter()
            .map(|lost| (lost.queue.name.to_string(), lost.sequence_number))
            .collect();
        for (number, was) in &before {
            let place = (was.queue.clone(), was.sequence_number);
            // The list has its last known place.
            let is_told = listed.contains(&place) || !losses.gaps.is_empty();
            assert!(
                after.contains_key(number) || is_told,
                "seed {seed}: {number}, {was:?}, is lost and not listed: {losses:?}"
            );
        }
        for (number, is) in &after {
            let was_there = before.contains_key(number) || !losses.may_return.is_empty();
            assert!(
                was_there,
                "seed {seed}: {number}, {is:?}, came back: {losses:?}"
            );
        }
        // It works on as a partition does.
        let mut driver = Driver::on(disk);
        driver.ask(BusCommand::CreateQueue {
            queue: name("new"),
            options: BusQueueOptions::default(),
        });
        driver.send("new", 900..901);
        let mut again = Driver::on(driver.bench.storage);
        assert_eq!(again.everything().len(), after.len() + 1, "seed {seed}");
    }
    assert!(repaired > 60, "{repaired} repairs");
}
