//! Topics whose rules are damaged: no subscription goes without messages in silence.

use kew_broker::LostRules;
use kew_engine::bus::{BusQueueView, NewRule};
use kew_filter::{Definition, FilterDefinition};

use super::*;

pub(super) const TOPIC: &str = "t";

pub(super) fn subscription(of: &str) -> EntityName {
    name(&format!("{TOPIC}/subscriptions/{of}"))
}

impl Driver {
    pub(super) fn create_topic(&mut self) {
        self.ask(BusCommand::CreateTopic {
            topic: name(TOPIC),
            options: BusQueueOptions::default(),
        });
    }

    /// Gives the topic the subscriptions `a` and `b`.
    pub(super) fn subscribe(&mut self) {
        for of in ["a", "b"] {
            self.ask(BusCommand::CreateSubscription {
                topic: name(TOPIC),
                subscription: subscription(of),
                options: BusQueueOptions::default(),
                rule: None,
            });
        }
    }

    /// A topic with the subscriptions `a` and `b`.
    pub(super) fn with_topic(mut self) -> Self {
        self.create_topic();
        self.subscribe();
        self
    }

    fn add_rule(&mut self, to: &str, named: &str) {
        let rule = NewRule {
            name: named.into(),
            definition: Definition::new(FilterDefinition::False, None).unwrap(),
        };
        self.ask(BusCommand::AddRule {
            topic: name(TOPIC),
            subscription: subscription(to),
            rule: Box::new(rule),
        });
    }

    fn remove_rule(&mut self, of: &str, named: &str) {
        self.ask(BusCommand::RemoveRule {
            topic: name(TOPIC),
            subscription: subscription(of),
            name: named.into(),
        });
    }

    fn rules(&mut self, of: &EntityName) -> Vec<String> {
        let (outcome, _) = self.ask(BusCommand::ListRules {
            subscription: of.clone(),
            skip: 0,
            limit: 100,
        });
        let BusOutcome::Rules(rules) = outcome else {
            panic!("{outcome:?}");
        };
        rules.iter().map(|it| it.name.to_string()).collect()
    }

    fn list(&mut self, command: BusCommand) -> Vec<BusQueueView> {
        match self.ask(command) {
            (BusOutcome::Queues(views), _) => views,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn topics(&mut self) -> Vec<BusQueueView> {
        self.list(BusCommand::ListTopics {
            namespace: "ns".into(),
            skip: 0,
            limit: 100,
        })
    }

    /// The only topic, and its subscriptions with their rules.
    pub(super) fn topic(&mut self) -> (String, Vec<(String, Vec<String>)>) {
        let topics = self.topics();
        let [topic] = &topics[..] else {
            panic!("{topics:?}");
        };
        let views = self.list(BusCommand::ListSubscriptions {
            topic: name(&topic.name),
            skip: 0,
            limit: 100,
        });
        let views = views.into_iter().map(|it| {
            let rules = self.rules(&name(&it.name));
            (it.name.to_string(), rules)
        });
        (topic.name.to_string(), views.collect())
    }

    pub(super) fn publish(&mut self, to: &str) {
        let message = BusMessage {
            body: body(1),
            message_id: None,
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        };
        let (queue, messages) = (name(to), vec![message]);
        self.ask(BusCommand::Send { queue, messages });
    }

    pub(super) fn active(&mut self, of: &EntityName) -> u64 {
        let queue = of.clone();
        match self.ask(BusCommand::ReadQueue { queue }) {
            (BusOutcome::Queue(view), _) => view.counts.active,
            other => panic!("{other:?}"),
        }
    }

    /// Runs a command. Returns the file that has its record, and a byte of that.
    pub(super) fn record(&mut self, command: impl FnOnce(&mut Self)) -> (String, u64) {
        let log = self.bench.partition.log();
        let (end, segment) = (log.end(), log.files().unwrap().segments().last().unwrap());
        let at = 4096 + end.as_u64() - segment.first.as_u64();
        let file = format!("segment-{:020}", segment.number);
        command(self);
        (file, at + 20)
    }

    /// Two snapshots, so that nothing needs what came before, and a record behind them.
    pub(super) fn snapshots(&mut self) {
        self.snapshot();
        self.send("first", 60..61);
        self.snapshot();
        self.send("first", 61..62);
    }

    pub(super) fn close(mut self) -> FaultyStorage {
        self.bench.mark();
        self.bench.storage.kill()
    }
}

/// Repairs, and returns what is lost, and the partition.
pub(super) fn repaired(storage: &FaultyStorage) -> (Losses, Driver) {
    let repair = look(storage);
    let losses = repair.losses().clone();
    assert!(repair.is_needed());
    repair.carry_out(options(), 99, [2; 16]).unwrap();
    verify(storage).unwrap();
    assert!(!look(storage).is_needed());
    (losses, Driver::on(storage.kill()))
}

#[test]
fn changes_of_rules_in_a_gap_are_told() {
    let mut driver = begun().with_topic();
    driver.add_rule("a", "red");
    driver.snapshots();
    let (file, at) = driver.record(|driver| driver.add_rule("b", "hidden"));
    driver.remove_rule("a", "$Default");
    driver.remove_rule("b", "$Default");
    driver.add_rule("b", "blue");
    let storage = driver.close();
    storage.flip(&file, at, 1);
    let (losses, mut driver) = repaired(&storage);
    let may_be_old = LostRules {
        topic: name(TOPIC),
        may_be_old: true,
        dropped: 0,
        opened: Vec::new(),
    };
    assert_eq!(losses.rules, [may_be_old]);
    // The rules of their creations are gone.
    assert_eq!(driver.rules(&subscription("a")), ["red"]);
    assert_eq!(driver.rules(&subscription("b")), ["blue"]);
    // Its rules select nothing.
    driver.publish(TOPIC);
    assert_eq!(driver.active(&subscription("a")), 0);
}

#[test]
fn without_the_pages_of_rules_subscriptions_get_everything() {
    let mut driver = begun().with_topic();
    driver.add_rule("a", "red");
    driver.remove_rule("a", "$Default");
    driver.snapshots();
    let storage = driver.close();
    assert!(lose_pages(&storage, damaged::RULES) > 0);
    let (losses, mut driver) = repaired(&storage);
    let lost = LostRules {
        topic: name(TOPIC),
        may_be_old: true,
        dropped: 0,
        opened: vec![subscription("a")],
    };
    assert_eq!(losses.rules, [lost]);
    assert_eq!(driver.rules(&subscription("a")), ["$Default"]);
    driver.publish(TOPIC);
    for of in ["a", "b"] {
        assert_eq!(driver.active(&subscription(of)), 1, "{of}");
    }
}

#[test]
fn without_the_pages_of_topics_and_subscriptions_their_rules_are_kept() {
    let mut driver = begun().with_topic();
    driver.publish(TOPIC);
    driver.add_rule("a", "red");
    driver.add_rule("b", "blue");
    driver.remove_rule("a", "$Default");
    driver.snapshots();
    driver.add_rule("b", "late");
    let storage = driver.close();
    assert!(lose_pages(&storage, HEADS) > 0);
    let (losses, mut driver) = repaired(&storage);
    assert_eq!(losses.dropped, []);
    let (topic, subscriptions) = driver.topic();
    assert!(topic.starts_with("recovered-"), "{topic}");
    let begin = format!("{topic}/subscriptions/recovered-");
    let mut names: Vec<_> = subscriptions.iter().map(|(name, _)| name.clone()).collect();
    assert!(
        names.iter().all(|name| name.starts_with(&begin)),
        "{names:?}"
    );
    let rules = subscriptions.iter().map(|(_, rules)| rules.clone());
    let mut rules: Vec<_> = rules.collect();
    rules.sort();
    // Whether they had the `$Default` of their creation is not known.
    assert_eq!(
        rules,
        [vec!["$Default", "blue", "late"], vec!["$Default", "red"]]
    );
    let [lost] = &losses.rules[..] else {
        panic!("{losses:?}");
    };
    let opened = lost.opened.iter().map(|it| it.name.to_string());
    let mut opened: Vec<_> = opened.collect();
    opened.sort();
    names.sort();
    assert_eq!((&*lost.topic.name, opened), (&*topic, names));
    // Their messages are there, too.
    for (subscription, _) in subscriptions {
        assert_eq!(driver.active(&name(&subscription)), 1, "{subscription}");
    }
}

/// Changes of rules are all that shows that it was a topic.
#[test]
fn a_topic_whose_creation_is_lost_is_one_again() {
    let mut driver = Driver::on(FaultyStorage::new());
    let (file, at) = driver.record(Driver::create_topic);
    driver.subscribe();
    driver.add_rule("a", "red");
    driver.remove_rule("a", "$Default");
    let storage = driver.close();
    storage.flip(&file, at, 1);
    let (losses, mut driver) = repaired(&storage);
    assert_eq!(losses.dropped, []);
    let [lost] = &losses.rules[..] else {
        panic!("{losses:?}");
    };
    assert!(lost.may_be_old && lost.opened.is_empty(), "{lost:?}");
    let (topic, subscriptions) = driver.topic();
    let rules = |of: &str, rule: &str| {
        let name = subscription(of).name.to_string();
        (name, vec![rule.to_owned()])
    };
    assert_eq!(subscriptions, [rules("a", "red"), rules("b", "$Default")]);
    driver.ask(BusCommand::RemoveRule {
        topic: name(&topic),
        subscription: subscription("a"),
        name: "red".into(),
    });
    driver.publish(&topic);
    assert_eq!(driver.active(&subscription("b")), 1);
}
