//! Messages that are forwarded to topics that look their ids up. The partition of these tests gives each command and
//! tick to a state with nothing in memory too, and compares: here ids of topics are not in memory.

use proptest::prelude::*;

use super::*;
use crate::bus::EntityStatus;

/// Whatever time the tests take, ids are remembered, unless they say otherwise.
const LONG_MS: u64 = 600_000;

fn detects(window_ms: u64) -> BusQueueOptions {
    BusQueueOptions {
        duplicate_window_ms: Some(window_ms),
        ..BusQueueOptions::default()
    }
}

fn forwards_to(name: &str) -> BusQueueOptions {
    BusQueueOptions {
        forward_to: Some(name.into()),
        ..BusQueueOptions::default()
    }
}

fn second() -> EntityName {
    entity("u")
}

fn letters() -> EntityName {
    entity("letters")
}

/// A message that has an id for the one who sends it, and in its bytes for topics to which it is forwarded.
fn with_id(id: u64) -> BusMessage {
    BusMessage {
        message_id: Some(format!("id {id}").into()),
        ..text(&format!("sys.MessageId=id {id}"))
    }
}

impl Partition {
    /// A queue whose messages go to the topic `t`; a queue whose dead letters go to the topic `u`; a subscription of
    /// `t` that goes on to `u`, and one that goes back to `t`.
    fn with_chain(first: BusQueueOptions, last: BusQueueOptions) -> Self {
        let mut p = Self::with_topic(first);
        p.create_second(last);
        p.subscribe_all(&["keeps"]);
        p.subscribe("on", forwards_to("u")).unwrap();
        p.subscribe("back", forwards_to("t")).unwrap();
        p.create(&jobs(), forwards_to("t")).unwrap();
        let options = BusQueueOptions {
            forward_dead_letters_to: Some("u".into()),
            dead_letters_expired: true,
            ..BusQueueOptions::default()
        };
        p.create(&letters(), options).unwrap();
        p
    }

    fn create_second(&mut self, options: BusQueueOptions) {
        let topic = second();
        self.ask(BusCommand::CreateTopic { topic, options })
            .unwrap();
        self.ask(BusCommand::CreateSubscription {
            topic: second(),
            subscription: entity("u/subscriptions/end"),
            options: BusQueueOptions::default(),
            rule: None,
        })
        .unwrap();
    }

    fn bring(&mut self, queue: EntityName, message: BusMessage) {
        let messages = vec![message];
        // A topic may be full.
        let _ = self.ask(BusCommand::Send { queue, messages });
    }

    /// The topic gets these ids, without messages that stay, and has none of them in memory then.
    fn remember(&mut self, ids: std::ops::Range<u64>) {
        for id in ids {
            self.bring(topic(), with_id(id));
        }
        self.leave_memory();
    }

    fn ids_read_by_ticks(&self) -> u64 {
        self.cold.as_ref().unwrap().ids_read_by_ticks
    }

    fn active_in(&mut self, name: &EntityName) -> u64 {
        self.view(name).counts.active
    }

    fn set(&mut self, queue: EntityName, options: BusQueueOptions) {
        self.ask(BusCommand::UpdateQueue { queue, options })
            .unwrap();
    }
}

fn with_source(options: BusQueueOptions) -> Partition {
    let mut p = Partition::with_topic(options);
    p.create(&jobs(), forwards_to("t")).unwrap();
    p
}

#[test]
fn a_forwarded_message_is_a_duplicate_of_one_whose_id_is_not_in_memory() {
    let mut p = with_source(detects(LONG_MS));
    p.remember(0..40);
    p.subscribe_all(&["a"]);
    for id in [3, 17, 50, 31, 50] {
        p.bring(jobs(), with_id(id));
    }
    p.leave_memory();
    p.tick();
    assert!(p.ids_read_by_ticks() >= 3, "{}", p.ids_read_by_ticks());
    assert_eq!((p.counts().active, p.counts().dead_letters), (0, 0));
    let copies = p.receive_from(&subscription("a"), None);
    assert_eq!(p.texts(&copies), ["sys.MessageId=id 50"]);
    p.check_whole();
}

/// Nothing is read for a message that cannot go there anyway.
#[test]
fn a_message_that_its_topic_refuses_needs_no_ids() {
    let disabled = BusQueueOptions {
        status: EntityStatus::SendDisabled,
        ..detects(LONG_MS)
    };
    let full = BusQueueOptions {
        size_bytes_max: 1_000,
        ..detects(LONG_MS)
    };
    for refuses in [disabled, full] {
        let mut p = with_source(detects(LONG_MS));
        p.remember(0..40);
        p.bring(jobs(), with_id(3));
        p.set(topic(), refuses.clone());
        p.leave_memory();
        p.tick();
        assert_eq!(p.ids_read_by_ticks(), 0, "{refuses:?}");
        assert_eq!((p.counts().active, p.counts().dead_letters), (0, 1));
        p.check_whole();
    }
}

/// What a client does next.
#[derive(Clone, Debug)]
enum Step {
    /// A message of an id, to a queue or to a topic, that becomes due so much later.
    Send {
        to: u8,
        id: u64,
        delay_ms: Option<u64>,
    },
    /// A message expires, and becomes a dead letter that goes on.
    Expire(u64),
    /// Dead letters by a receiver.
    Bury,
    UpdateFirst(u8),
    ReplaceSecond,
    Pass(u64),
    Tick(u32),
    LeaveMemory,
}

fn step() -> impl Strategy<Value = Step> {
    let delay = || proptest::option::weighted(0.3, 0u64..4_000);
    prop_oneof![
        10 => (0u8..4, 0u64..60, delay())
            .prop_map(|(to, id, delay_ms)| Step::Send { to, id, delay_ms }),
        2 => (0u64..60).prop_map(Step::Expire),
        1 => Just(Step::Bury),
        1 => (0u8..4).prop_map(Step::UpdateFirst),
        1 => Just(Step::ReplaceSecond),
        2 => (0u64..6_000).prop_map(Step::Pass),
        5 => (2u32..12).prop_map(Step::Tick),
        2 => Just(Step::LeaveMemory),
    ]
}

fn carry_out(p: &mut Partition, step: &Step) {
    match *step {
        Step::Send { to, id, delay_ms } => {
            let queue = [jobs(), topic(), second(), letters()][usize::from(to)].clone();
            let scheduled_at = delay_ms.map(|ms| p.now.plus_ms(ms));
            let message = BusMessage {
                scheduled_at,
                ..with_id(id)
            };
            p.bring(queue, message);
        }
        Step::Expire(id) => {
            let message = BusMessage {
                time_to_live_ms: Some(1_000),
                ..with_id(id)
            };
            p.bring(letters(), message);
        }
        Step::Bury => {
            for lock in locks(&p.receive_from(&letters(), None)) {
                p.settle_in(&letters(), lock, Disposition::DeadLetter { overlay: None });
            }
        }
        Step::UpdateFirst(how) => {
            let status = match how {
                0 => EntityStatus::SendDisabled,
                _ => EntityStatus::Active,
            };
            let options = BusQueueOptions {
                status,
                size_bytes_max: if how == 1 { 4_000 } else { 1 << 30 },
                ..detects(20_000)
            };
            p.set(topic(), options);
        }
        Step::ReplaceSecond => {
            p.delete(second()).unwrap();
            p.create_second(detects(10_000));
        }
        Step::Pass(ms) => p.pass_ms(ms),
        Step::Tick(budget) => drop(p.tick_once(budget)),
        Step::LeaveMemory => p.leave_memory(),
    }
}

proptest! {
    /// Each step is compared with what a state decides that has nothing in memory.
    #[test]
    fn ids_of_topics_decide_the_same_in_memory_or_not(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut p = Partition::with_chain(detects(20_000), detects(10_000));
        p.remember(0..12);
        for step in &steps {
            carry_out(&mut p, step);
        }
        p.tick();
        prop_assert_eq!(p.active_in(&jobs()), 0);
        p.check_whole();
    }
}
