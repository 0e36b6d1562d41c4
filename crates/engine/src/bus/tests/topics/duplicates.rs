//! Numbers of topics, and the ids that topics remember.

use super::*;
use crate::bus::{Effect, Effects, OwnEffect};
use crate::table::MESSAGE_OVERHEAD_BYTES;

const WINDOW_MS: u64 = 20_000;
const ID_SIZE_BYTES: u64 = 128;

fn detects() -> BusQueueOptions {
    BusQueueOptions {
        duplicate_window_ms: Some(WINDOW_MS),
        ..BusQueueOptions::default()
    }
}

fn with_id(body: &str, id: &str) -> BusMessage {
    BusMessage {
        message_id: Some(id.into()),
        ..text(body)
    }
}

impl Partition {
    /// The numbers that the topic gives to these messages. 0 for one that it drops.
    fn numbers(&mut self, messages: Vec<BusMessage>) -> Vec<u64> {
        let Ok(BusOutcome::Sent(numbers)) = self.publish(messages) else {
            panic!("not accepted");
        };
        let numbers = numbers.into_iter();
        numbers
            .map(|it| it.map_or(0, SequenceNumber::as_u64))
            .collect()
    }

    /// What a subscription has: each body, with the number and the first number of its message.
    fn seen_numbers(&mut self, name: &str) -> Vec<(String, u64, u64)> {
        let received = self.receive_from(&subscription(name), None);
        let texts = self.texts(&received);
        let numbers = received.iter().map(|it| {
            let numbers = [it.sequence_number, it.first_sequence_number];
            numbers.map(SequenceNumber::as_u64)
        });
        let shown = texts.into_iter().zip(numbers);
        shown
            .map(|(text, [own, first])| (text, own, first))
            .collect()
    }

    /// The same partition, started again from a snapshot.
    fn restarted(self) -> Self {
        Self {
            state: self.restored(),
            cold: None,
            ..self
        }
    }
}

fn line(text: &str, own: u64, first: u64) -> (String, u64, u64) {
    (text.to_owned(), own, first)
}

#[test]
fn a_duplicate_is_dropped_by_the_topic_for_all_its_subscriptions() {
    let mut p = Partition::with_topic(detects());
    p.subscribe_all(&["a", "b"]);
    // In one batch, too.
    let sent = vec![
        with_id("one", "1"),
        with_id("again", "1"),
        text("two"),
        text("three"),
    ];
    assert_eq!(p.numbers(sent), [1, 0, 2, 3]);
    let bodies = p.log.bodies.len();
    p.pass_ms(WINDOW_MS - 1);
    assert_eq!(p.numbers(vec![with_id("late", "1")]), [0]);
    assert_eq!(p.log.bodies.len(), bodies, "a duplicate is not stored");
    p.check_whole();

    // The same after a restart, by events and by a snapshot.
    let mut p = p.restarted();
    assert_eq!(p.numbers(vec![with_id("late", "1")]), [0]);
    let state = p.replayed();
    let mut p = Partition { state, ..p };
    assert_eq!(p.numbers(vec![with_id("late", "1")]), [0]);

    p.pass_ms(1);
    assert_eq!(p.numbers(vec![with_id("new", "1")]), [4]);
    let expected = [("one", 1), ("two", 2), ("three", 3), ("new", 4)];
    let expected = expected.map(|(text, number)| line(text, number, number));
    assert_eq!(p.seen_numbers("a"), expected);
    assert_eq!(p.seen_numbers("b"), expected);
    p.check_whole();
}

#[test]
fn a_copy_keeps_the_number_of_the_topic() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    assert_eq!(p.numbers(vec![text("nobody's")]), [1]);
    p.subscribe_all(&["a"]);
    assert_eq!(p.numbers(vec![text("one"), text("two")]), [2, 3]);
    let forwards = BusQueueOptions {
        forward_to: Some("jobs".into()),
        ..BusQueueOptions::default()
    };
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.subscribe("on", forwards).unwrap();
    p.send(text("before")).unwrap();
    assert_eq!(p.numbers(vec![text("three")]), [4]);
    let of_a = [line("one", 1, 2), line("two", 2, 3), line("three", 3, 4)];
    assert_eq!(p.seen_numbers("a"), of_a);
    // A copy that is forwarded, too.
    p.tick();
    let received = p.receive();
    let numbers = received.iter().map(|it| it.first_sequence_number.as_u64());
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 4]);
    p.check_whole();
}

#[test]
fn a_topic_without_subscriptions_remembers_ids() {
    let mut p = Partition::with_topic(detects());
    let bodies = p.log.bodies.len();
    assert_eq!(p.numbers(vec![with_id("nobody's", "1")]), [1]);
    assert_eq!(p.log.bodies.len(), bodies);
    p.subscribe_all(&["a"]);
    assert_eq!(p.numbers(vec![with_id("late", "1")]), [0]);
    assert_eq!(p.view(&subscription("a")).counts.active, 0);
    p.check_whole();
}

#[test]
fn a_remembered_id_counts_once_in_the_size_of_its_topic() {
    let copy_bytes = 1 + MESSAGE_OVERHEAD_BYTES;
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 2 + 3 * MESSAGE_OVERHEAD_BYTES + 2 * ID_SIZE_BYTES - 1,
        ..detects()
    });
    p.subscribe_all(&["a", "b"]);
    assert_eq!(p.numbers(vec![with_id("x", "1")]), [1]);
    let size_bytes = 1 + 2 * MESSAGE_OVERHEAD_BYTES + ID_SIZE_BYTES;
    assert_eq!(p.view(&topic()).counts.size_bytes, size_bytes);
    assert_eq!(p.view(&subscription("a")).counts.size_bytes, copy_bytes);

    let full = p.publish(vec![with_id("y", "2")]);
    let limit_bytes = 2 + 3 * MESSAGE_OVERHEAD_BYTES + 2 * ID_SIZE_BYTES - 1;
    let size_bytes = limit_bytes + 1;
    let full_with = BusRefusal::QuotaExceeded {
        size_bytes,
        limit_bytes,
    };
    assert_eq!(full, Err(full_with));
    // The id of a message that was refused is not remembered, and a message without one fits.
    assert_eq!(p.numbers(vec![text("y")]), [2]);

    // The ids go with their window, as due work of the topic.
    p.pass_ms(WINDOW_MS + 1000);
    let copies = 2 + 4 * MESSAGE_OVERHEAD_BYTES;
    assert_eq!(p.view(&topic()).counts.size_bytes, copies);
    p.pass_ms(1_000);
    p.tick();
    let incarnation = p.view(&topic()).incarnation;
    let remembered = &p.state.bus.get(&incarnation).unwrap().duplicates;
    assert_eq!(remembered.kept_count(), 0);
    p.check_whole();
}

#[test]
fn a_window_that_grows_brings_no_id_back() {
    let mut p = Partition::with_topic(detects());
    assert_eq!(p.numbers(vec![with_id("one", "1")]), [1]);
    p.pass_ms(WINDOW_MS + 1);
    let options = BusQueueOptions {
        duplicate_window_ms: Some(10 * WINDOW_MS),
        ..BusQueueOptions::default()
    };
    let queue = topic();
    p.ask(BusCommand::UpdateQueue { queue, options }).unwrap();
    assert_eq!(p.numbers(vec![with_id("new", "1")]), [2]);
    p.pass_ms(2 * WINDOW_MS);
    assert_eq!(p.numbers(vec![with_id("late", "1")]), [0]);
    p.check_whole();
}

/// Topics of earlier versions gave out no numbers.
#[test]
fn a_log_of_a_topic_without_numbers_is_gone_on_with() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.publish(vec![text("one"), text("two")]).unwrap();
    let unnumbered = |effect: &Effect| match effect.clone() {
        Effect::Own(OwnEffect::Passed { .. }) => None,
        Effect::Arrived { to, message } => Some(Effect::Arrived {
            to,
            message: message.with(|rest| rest.side.first_number = None),
        }),
        other => Some(other),
    };
    for bytes in &mut p.log.events {
        let mut event = Event::decode(bytes).unwrap();
        if let Fact::Bus(BusFact::Messages { effects }) = &mut event.fact {
            *effects = effects.iter().filter_map(unnumbered).collect::<Effects>();
            bytes.clear();
            event.encode(bytes);
        }
    }
    let state = p.replayed();
    let mut p = Partition {
        state,
        cold: None,
        ..p
    };
    assert_eq!(p.numbers(vec![text("three")]), [1]);
    let expected = [line("one", 1, 1), line("two", 2, 2), line("three", 3, 1)];
    assert_eq!(p.seen_numbers("a"), expected);
    p.check_whole();
}

#[test]
fn a_repair_keeps_what_a_topic_remembers() {
    let mut p = Partition::with_topic(detects());
    p.subscribe_all(&["a"]);
    p.publish(vec![with_id("one", "1")]).unwrap();
    // Another reading has another id, and both are remembered.
    let mut other = State::new();
    for event in &p.log.events {
        other.apply(Event::decode(event).unwrap());
    }
    let incarnation = p.view(&topic()).incarnation;
    let passed = Effect::Own(OwnEffect::Passed {
        topic: crate::vocabulary::Place {
            entity: incarnation,
            number: SequenceNumber::new(2),
        },
        id_hash: Some(p.state.catalogue.cipher().hash(b"2")),
    });
    other.apply(Event {
        at: p.now,
        fact: Fact::Bus(BusFact::Messages {
            effects: passed.into(),
        }),
    });
    let mut state = p.restored();
    assert!(state.absorb(other).is_empty());
    let mut repaired = Partition {
        state,
        cold: None,
        ..p
    };
    assert_eq!(
        repaired.numbers(vec![with_id("late", "2"), with_id("late", "1")]),
        [0, 0]
    );
    assert_eq!(repaired.numbers(vec![text("new")]), [3]);
}
