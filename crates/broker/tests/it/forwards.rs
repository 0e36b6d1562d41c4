//! Messages that are forwarded to a topic that looks their ids up, with nothing in memory: neither bodies nor records.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use kew_broker::PartitionOptions;
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueCounts, BusQueueOptions, DeadLetterCause, Format,
    Known, Made, NewRule, PeekedBusMessage, Unfit,
};
use kew_engine::{Command, EntityName, Outcome, RunLength, SequenceNumber};
use kew_filter::{
    Change, Definition, FilterDefinition, Message, SqlDefinition, SystemProperty, Value,
};
use kew_log::{FaultyStorage, Job, LogOptions};

use crate::bus::{damage, named, orders};
use crate::partition::Driver;
use crate::support::moment;

/// Messages whose first word is their id. All changes are the same.
#[derive(Debug)]
pub(crate) struct Words;

struct View<'a>(&'a str);

impl Format for Words {
    fn view<'a>(
        &self,
        message: &'a Bytes,
        _overlays: &'a [Bytes],
        _known: Known<'a>,
    ) -> Option<Box<dyn Message + 'a>> {
        let text = std::str::from_utf8(message).ok()?;
        Some(Box::new(View(text.split(' ').next()?)))
    }

    fn made_by(&self, _changes: &[Change]) -> Result<Made, Unfit> {
        Ok(Made {
            overlay: Bytes::from_static(b"changed"),
            ..Made::default()
        })
    }

    fn description(&self, _text: &str) -> Bytes {
        Bytes::from_static(b"failed")
    }
}

impl Message for View<'_> {
    fn user(&self, _name: &str) -> Option<Value<'_>> {
        None
    }

    fn system(&self, property: SystemProperty) -> Value<'_> {
        match property == SystemProperty::MessageId {
            true => Value::Text(self.0),
            false => Value::Null,
        }
    }

    fn visit_user(&self, _visit: &mut dyn FnMut(&str, Value<'_>)) {}
}

fn with_budget(tick_budget: u32) -> PartitionOptions {
    PartitionOptions {
        log: LogOptions {
            recent_bytes_max: 0,
            ..LogOptions::default()
        },
        tick_budget,
        // Copies are made by ticks, which write their changes.
        copies_at_once: 0,
        run_length: RunLength::TINY,
        format: Arc::new(Words),
        ..PartitionOptions::default()
    }
}

fn body(id: u32) -> Bytes {
    format!("id-{id:03} {}", "x".repeat(900)).into()
}

fn sent_to(queue: EntityName, ids: &[u32]) -> Command {
    let message = |id: &u32| BusMessage {
        body: body(*id),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    };
    let messages = ids.iter().map(message).collect();
    Command::Bus(BusCommand::Send { queue, messages })
}

fn forwards() -> BusQueueOptions {
    BusQueueOptions {
        forward_to: Some("next".into()),
        ..BusQueueOptions::default()
    }
}

fn end() -> EntityName {
    named("next/subscriptions/end")
}

fn changing() -> EntityName {
    named("t/subscriptions/s")
}

impl Driver {
    fn outcome_of(&mut self, command: BusCommand) -> BusOutcome {
        match self.ask(Command::Bus(command)).unwrap().outcome {
            Outcome::Bus(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// A topic `t` whose only copies are changed and go on to the topic `next`, which looks ids up; and a queue.
    fn with_forwards(tick_budget: u32) -> Self {
        let mut driver = Self::with(FaultyStorage::new(), with_budget(tick_budget));
        let detects = BusQueueOptions {
            duplicate_window_ms: Some(600_000),
            ..BusQueueOptions::default()
        };
        for (name, options) in [("t", BusQueueOptions::default()), ("next", detects)] {
            let topic = named(name);
            driver.outcome_of(BusCommand::CreateTopic { topic, options });
        }
        let action = SqlDefinition {
            text: "SET x = 1".into(),
            ..SqlDefinition::default()
        };
        let rule = NewRule {
            name: "$Default".into(),
            definition: Definition::new(FilterDefinition::True, Some(action)).unwrap(),
        };
        for (topic, subscription, options, rule) in [
            ("next", end(), BusQueueOptions::default(), None),
            ("t", changing(), forwards(), Some(Box::new(rule))),
        ] {
            driver.outcome_of(BusCommand::CreateSubscription {
                topic: named(topic),
                subscription,
                options,
                rule,
            });
        }
        driver.outcome_of(BusCommand::CreateQueue {
            queue: orders(),
            options: BusQueueOptions::default(),
        });
        driver
    }

    fn update(&mut self, options: BusQueueOptions) {
        let queue = orders();
        self.outcome_of(BusCommand::UpdateQueue { queue, options });
    }

    fn leave_memory(&mut self) {
        self.partition.snapshot();
        self.jobs(&mut Vec::new());
        self.partition.evict_if(|_, may| may);
    }

    /// Turns until nothing goes on any more. Before each of them, nothing is in memory.
    fn pass_all_on(&mut self) {
        for _ in 0..2_000 {
            self.leave_memory();
            self.rest();
            let state = self.partition.state();
            let names = [orders(), named("t"), changing(), named("next")];
            let mut all = names.iter().flat_map(|it| state.incarnations_of(it));
            if !all.any(|it| state.passes_on(it)) {
                return;
            }
        }
        panic!("messages still wait");
    }

    fn peeked(&mut self, queue: EntityName) -> Vec<PeekedBusMessage> {
        let peek = BusCommand::Peek {
            queue,
            from: SequenceNumber::default(),
            count: 1_000,
            session: None,
        };
        match self.outcome_of(peek) {
            BusOutcome::Peeked(messages) => messages,
            other => panic!("{other:?}"),
        }
    }

    fn counted(&mut self, queue: EntityName) -> BusQueueCounts {
        match self.outcome_of(BusCommand::ReadQueue { queue }) {
            BusOutcome::Queue(view) => view.counts,
            other => panic!("{other:?}"),
        }
    }
}

/// The changes that a tick writes are read by a later one, and each id goes on once.
#[test]
fn changed_copies_go_on_to_a_topic_that_looks_ids_up() {
    for tick_budget in [2, 256] {
        let mut driver = Driver::with_forwards(tick_budget);
        for ids in [&[1, 2, 3, 1][..], &[4], &[2, 5], &[6]] {
            driver.ask(sent_to(named("t"), ids)).unwrap();
        }
        driver.pass_all_on();
        let copies = driver.peeked(end());
        assert_eq!(copies.len(), 6, "{tick_budget}");
        assert!(copies.iter().all(|it| it.overlays.len() == 1));
        let counts = driver.counted(changing());
        assert_eq!((counts.active, counts.dead_letters), (0, 0));
    }
}

#[test]
fn a_backlog_goes_on_whose_bodies_are_read_and_one_of_which_is_damaged() {
    for tick_budget in [2, 256] {
        let mut driver = Driver::with_forwards(tick_budget);
        for id in 0..40 {
            driver.ask(sent_to(orders(), &[id])).unwrap();
        }
        driver.leave_memory();
        damage(&driver.storage, &body(20));
        driver.update(forwards());
        driver.pass_all_on();
        assert_eq!(driver.counted(end()).active, 39, "{tick_budget}");
        let dead = driver.peeked(named("orders/$deadletterqueue"));
        let causes: Vec<_> = dead.iter().map(|it| it.cause).collect();
        assert_eq!(causes, [Some(DeadLetterCause::BodyDamaged)]);
    }
}

/// What is read for a source that does not need it any more is dropped.
#[test]
fn a_source_changes_while_its_bodies_are_read() {
    let stays = BusCommand::UpdateQueue {
        queue: orders(),
        options: BusQueueOptions::default(),
    };
    let ends = BusCommand::DeleteQueue { queue: orders() };
    for (change, left) in [(stays, 3), (ends, 0)] {
        let mut driver = Driver::with_forwards(256);
        driver.ask(sent_to(orders(), &[1, 2, 3])).unwrap();
        let queue = orders();
        let options = forwards();
        let update = BusCommand::UpdateQueue { queue, options };
        let mut replies = Vec::new();
        let mut reads: Vec<Job> = Vec::new();
        // The reads wait until the next command is decided.
        for command in [Some(update), None, Some(change)] {
            let mut commands = VecDeque::new();
            commands.extend(command.map(|it| (0, Command::Bus(it))));
            let now = moment(driver.now);
            driver.partition.turn(now, &mut commands, &mut replies);
            while let Some(job) = driver.partition.next_job() {
                if job.kind() == kew_log::JobKind::Load {
                    reads.push(job);
                    continue;
                }
                let outcome = job.run();
                driver.partition.complete(outcome, &mut replies).unwrap();
            }
        }
        assert!(!reads.is_empty());
        for job in reads {
            let outcome = job.run();
            driver.partition.complete(outcome, &mut replies).unwrap();
        }
        driver.pass_all_on();
        assert!(
            replies.iter().all(|(_, reply)| reply.is_ok()),
            "{replies:?}"
        );
        assert!(!driver.partition.is_due_work_waiting());
        let state = driver.partition.state();
        let own = state.incarnations_of(&orders());
        assert_eq!(own.is_empty(), left == 0);
        if left > 0 {
            assert_eq!(driver.counted(orders()).active, left);
        }
        assert_eq!(driver.counted(end()).active, 0);
    }
}
