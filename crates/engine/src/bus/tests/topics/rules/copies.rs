//! Which copies rules make of a message: of correlation and SQL, of actions, and of failures.

use super::*;

/// The rule `$Default` in place of the one of the creation.
const DEFAULT: &str = "$Default";

fn with_filter(name: &str, filter: FilterDefinition, action: &str) -> NewRule {
    let action = SqlDefinition {
        text: action.into(),
        ..SqlDefinition::default()
    };
    NewRule {
        name: name.into(),
        definition: Definition::new(filter, Some(action)).unwrap(),
    }
}

/// A message as it is in an entity: its text, and its changes in one text.
type Shown = (String, String);

fn plain(text: &str) -> Shown {
    (text.into(), String::new())
}

fn changed(text: &str, changes: &str) -> Shown {
    (text.into(), changes.into())
}

impl Partition {
    pub(super) fn bytes(&self, at: BodyLocation) -> String {
        let bytes = &self.log.bodies[usize::try_from(at.record).unwrap()];
        String::from_utf8(bytes.clone()).unwrap()
    }

    pub(super) fn peeked(&mut self, queue: EntityName) -> Vec<PeekedBusMessage> {
        let peeked = self.ask(BusCommand::Peek {
            queue,
            from: SequenceNumber::default(),
            count: u32::MAX,
            session: None,
        });
        match peeked {
            Ok(BusOutcome::Peeked(messages)) => messages,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn shown(&mut self, queue: EntityName) -> Vec<Shown> {
        let messages = self.peeked(queue);
        let all = messages.iter().map(|message| {
            let overlays = message.overlays.iter().map(|it| self.bytes(*it));
            (self.bytes(message.body), overlays.collect())
        });
        all.collect()
    }

    fn of(&mut self, name: &str) -> Vec<Shown> {
        self.shown(subscription(name))
    }

    fn dead_letters(&mut self, name: &str) -> Vec<Shown> {
        self.shown(dead_of(name))
    }

    /// With a topic, and subscriptions that have this rule in place of their own.
    fn with_rules(rules: &[(&str, NewRule)]) -> Self {
        let mut p = Self::with_topic(BusQueueOptions::default());
        for (name, rule) in rules {
            p.subscribe_all(&[name]);
            p.set_rule(name, rule.clone()).unwrap();
        }
        p
    }

    fn publish_texts(&mut self, texts: &[&str]) -> Result<BusOutcome, BusRefusal> {
        self.publish(texts.iter().map(|it| text(it)).collect())
    }
}

#[test]
fn each_subscription_gets_what_one_of_its_rules_selects() {
    let mut p = Partition::with_rules(&[
        ("red", rule(DEFAULT, correlation("red"))),
        ("large", rule(DEFAULT, sql("size > 5"))),
        ("none", rule(DEFAULT, FilterDefinition::False)),
        ("all", rule(DEFAULT, FilterDefinition::True)),
    ]);
    p.subscribe_all(&["created", "removed", "two"]);
    p.remove_rule("removed", DEFAULT).unwrap();
    p.set_rule("two", rule(DEFAULT, correlation("red")))
        .unwrap();
    p.add_rule("two", rule("large", sql("size > 5"))).unwrap();
    let texts = [
        "color=red\nsize=1",
        "color=blue\nsize=9",
        "color=red\nsize=9",
        "x",
    ];
    let (bodies, events) = (p.log.bodies.len(), p.log.events.len());
    let sent = p.publish_texts(&texts);
    let numbers = (1..=4).map(|number| Some(SequenceNumber::new(number)));
    assert_eq!(sent, Ok(BusOutcome::Sent(numbers.collect())));
    let [red_small, blue_large, red_large, other] = texts.map(plain);
    let all = [&red_small, &blue_large, &red_large, &other].map(Shown::clone);
    assert_eq!(p.of("red"), [red_small.clone(), red_large.clone()]);
    assert_eq!(p.of("large"), [blue_large.clone(), red_large.clone()]);
    assert_eq!(p.of("none"), []);
    assert_eq!(p.of("all"), all);
    assert_eq!(p.of("created"), all);
    assert_eq!(p.of("removed"), []);
    // Rules without an action give one copy together.
    assert_eq!(p.of("two"), [red_small, blue_large, red_large]);
    // Each body is stored once, and all copies are one event.
    assert_eq!(p.log.bodies.len(), bodies + 4);
    let recorded = p.facts_from(events);
    let copies = recorded
        .iter()
        .filter(|fact| matches!(fact, Fact::Bus(BusFact::Messages { .. })));
    assert_eq!(copies.count(), 1, "{recorded:?}");
    p.check_rules();

    // What no rule selects is accepted, and nothing of it is kept.
    p.delete(subscription("all")).unwrap();
    p.delete(subscription("created")).unwrap();
    let bodies = p.log.bodies.len();
    let sent = p.publish_texts(&["color=green"]);
    let number = Some(SequenceNumber::new(5));
    assert_eq!(sent, Ok(BusOutcome::Sent(vec![number])));
    assert_eq!(p.log.bodies.len(), bodies);
    p.check_rules();
}

#[test]
fn a_rule_counts_from_its_creation_to_its_end() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.publish_texts(&["color=red\nn=1"]).unwrap();
    p.set_rule("a", rule(DEFAULT, correlation("blue"))).unwrap();
    p.publish_texts(&["color=red\nn=2", "color=blue\nn=3"])
        .unwrap();
    p.add_rule("a", rule("red", correlation("red"))).unwrap();
    p.publish_texts(&["color=red\nn=4"]).unwrap();
    p.set_rule("a", rule("red", correlation("green"))).unwrap();
    p.publish_texts(&["color=red\nn=5", "color=green\nn=6"])
        .unwrap();
    p.remove_rule("a", "red").unwrap();
    p.publish_texts(&["color=green\nn=7"]).unwrap();
    let expected = [
        "color=red\nn=1",
        "color=blue\nn=3",
        "color=red\nn=4",
        "color=green\nn=6",
    ];
    assert_eq!(p.of("a"), expected.map(plain));
    p.check_rules();
}

/// Source: Service Bus, *Topic filters and actions*: two rules without actions and three with: four messages, or one copy
/// for each rule with an action and one for all others.
#[test]
fn each_rule_with_an_action_gives_a_copy_of_its_own() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.add_rule("a", with_action("one", "SET size = size + 1"))
        .unwrap();
    p.add_rule("a", rule("red", correlation("red"))).unwrap();
    let blue = with_filter("blue", correlation("blue"), "SET size = 0");
    p.add_rule("a", blue).unwrap();
    let red = with_filter(
        "RED",
        sql("color = 'red'"),
        "REMOVE color; SET sys.Label = 'x'",
    );
    p.add_rule("b", red).unwrap();
    p.remove_rule("b", DEFAULT).unwrap();
    p.add_rule("a", with_action("two", "SET color = 'none'"))
        .unwrap();
    let message = "color=red\nsize=5";
    let bodies = p.log.bodies.len();
    p.publish_texts(&[message]).unwrap();
    let of_a = [
        plain(message),
        changed(message, "+size=6\n+RuleName=one\n"),
        changed(message, "+color=none\n+RuleName=two\n"),
    ];
    assert_eq!(p.of("a"), of_a);
    let of_b = [changed(message, "-color\n+sys.Label=x\n+RuleName=RED\n")];
    assert_eq!(p.of("b"), of_b);
    // One body, and each change has a place of its own.
    assert_eq!(p.log.bodies.len(), bodies + 4);
    let all: Vec<_> = ["a", "b"]
        .iter()
        .flat_map(|it| p.peeked(subscription(it)))
        .collect();
    assert!(all.iter().all(|it| it.body.is_same_place(all[0].body)));
    p.check_rules();

    // The changes count in the sizes, and end with their copy.
    let overlays: u64 = all
        .iter()
        .flat_map(|it| &it.overlays)
        .map(|it| u64::from(it.length))
        .sum();
    let copies = message.len() as u64 + 4 * crate::table::MESSAGE_OVERHEAD_BYTES;
    assert_eq!(p.view(&topic()).counts.size_bytes, copies + overlays);
    for name in ["a", "b"] {
        for lock in locks(&p.receive_from(&subscription(name), None)) {
            let settled = p.settle_in(&subscription(name), lock, Disposition::Complete);
            assert_eq!(settled, Verdict::Settled);
        }
    }
    assert_eq!(p.state.live_bytes(), 0);
    p.check_rules();
}

/// Changes of a settlement come on top, and a copy that becomes a dead letter keeps both.
#[test]
fn a_copy_of_an_action_is_settled_like_any_other() {
    let mut p = Partition::with_rules(&[("a", with_action(DEFAULT, "SET size = 1"))]);
    p.publish_texts(&["x"]).unwrap();
    let made = "+size=1\n+RuleName=$Default\n";
    let settle = |p: &mut Partition, disposition| {
        let received = p.receive_from(&subscription("a"), None);
        p.settle_in(&subscription("a"), locks(&received)[0], disposition)
    };
    let overlay = Some(Bytes::from_static(b"+seen=1\n"));
    settle(&mut p, Disposition::Abandon { overlay });
    assert_eq!(p.of("a"), [changed("x", &format!("{made}+seen=1\n"))]);
    let large = |size_bytes: usize| Some(Bytes::from(vec![b'y'; size_bytes]));
    // A message has 64 KiB for all its changes.
    let room = 64 * 1024 - made.len() - 8;
    let refused = settle(
        &mut p,
        Disposition::Defer {
            overlay: large(room + 1),
        },
    );
    assert_eq!(refused, Verdict::TooManyChanges);
    p.pass_ms(3_600_000);
    p.tick();
    let overlay = Some(Bytes::from_static(b"+dead=1\n"));
    assert_eq!(
        settle(&mut p, Disposition::DeadLetter { overlay }),
        Verdict::Settled
    );
    let all = format!("{made}+seen=1\n+dead=1\n");
    assert_eq!(p.dead_letters("a"), [changed("x", &all)]);
    p.check_rules();
}

#[test]
fn a_failure_is_a_dead_letter_where_it_is_wanted() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let unwanted = BusQueueOptions {
        dead_letters_filter_failures: false,
        ..BusQueueOptions::default()
    };
    let wanted = BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    for (name, options) in [("wants", &wanted), ("not", &unwanted), ("also", &wanted)] {
        p.subscribe(name, options.clone()).unwrap();
        p.set_rule(name, rule(DEFAULT, sql("10 / size > 1")))
            .unwrap();
    }
    // One dead letter for all failures, because of the first rule that failed. The others count.
    p.add_rule("also", with_action("sum", "SET sum = color - 1"))
        .unwrap();
    p.add_rule("also", with_action("set", "SET set = 1"))
        .unwrap();
    p.add_rule("also", rule("any", FilterDefinition::True))
        .unwrap();
    p.publish_texts(&["size=2", "size=0\ncolor=red"]).unwrap();
    assert_eq!(p.of("wants"), [plain("size=2")]);
    assert_eq!(p.of("not"), [plain("size=2")]);
    assert_eq!(p.dead_letters("not"), []);
    let zero = "size=0\ncolor=red";
    let why = "+why=column 4: division by zero\n";
    assert_eq!(p.dead_letters("wants"), [changed(zero, why)]);
    assert_eq!(p.dead_letters("also"), [changed(zero, why)]);
    let set = "+set=1\n+RuleName=set\n";
    // `color` is unknown in the first message, so the action changes nothing but the name.
    let of_also = [
        plain("size=2"),
        changed("size=2", "+RuleName=sum\n"),
        changed("size=2", set),
        plain(zero),
        changed(zero, set),
    ];
    assert_eq!(p.of("also"), of_also);
    let dead = p.receive_from(&dead_of("wants"), None);
    assert_eq!(dead[0].cause, Some(DeadLetterCause::FilterFailed));
    assert_eq!(dead[0].expires_at, Timestamp::NEVER);
    p.check_rules();
}

#[test]
fn an_action_that_fails_is_a_failure_of_its_rule() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let wanted = BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("a", wanted).unwrap();
    p.set_rule("a", with_action(DEFAULT, "SET sys.SessionId = s + s"))
        .unwrap();
    let long = format!("s={}", "x".repeat(257));
    p.publish_texts(&[&long, "s=x"]).unwrap();
    assert_eq!(
        p.of("a"),
        [changed("s=x", "+sys.SessionId=xx\n+RuleName=$Default\n")]
    );
    let why = "+why=the action cannot set sys.SessionId: expected a text of at most 512 bytes\n";
    assert_eq!(p.dead_letters("a"), [changed(&long, why)]);
    p.check_rules();
}

#[test]
fn an_action_changes_the_session_and_the_life_of_its_copy() {
    let mut p = Partition::with_topic(BusQueueOptions {
        default_time_to_live_ms: 3_600_000,
        ..BusQueueOptions::default()
    });
    let sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("ordered", sessions).unwrap();
    p.set_rule("ordered", with_action(DEFAULT, "SET sys.SessionId = color"))
        .unwrap();
    p.add_rule("ordered", with_action("none", "REMOVE sys.SessionId"))
        .unwrap();
    p.subscribe_all(&["short", "long", "own"]);
    p.set_rule(
        "short",
        with_action(DEFAULT, "SET sys.TimeToLive = '00:00:10'"),
    )
    .unwrap();
    p.set_rule(
        "long",
        with_action(DEFAULT, "SET sys.TimeToLive = '10000000.00:00:00'"),
    )
    .unwrap();
    p.set_rule("own", with_action(DEFAULT, "REMOVE sys.TimeToLive"))
        .unwrap();
    let message = BusMessage {
        time_to_live_ms: Some(60_000),
        ..of_session("color=red", "s")
    };
    p.publish(vec![message]).unwrap();
    let removed = changed("color=red", "-sys.SessionId\n+RuleName=none\n");
    assert_eq!(p.dead_letters("ordered"), [removed]);
    let dead = p.receive_from(&dead_of("ordered"), None);
    assert_eq!(dead[0].cause, Some(DeadLetterCause::SessionIdIsNull));
    let accepted = p.ask(BusCommand::AcceptSession {
        queue: subscription("ordered"),
        session: SessionChoice::Named("red".into()),
    });
    let Ok(BusOutcome::SessionAccepted(lock)) = accepted else {
        panic!("{accepted:?}");
    };
    assert_eq!(
        p.receive_from(&subscription("ordered"), Some(lock.lock))
            .len(),
        1
    );
    let lives = ["short", "long", "own"].map(|name| {
        let message = p.peeked(subscription(name)).pop().unwrap();
        message.expires_at.as_ms() - p.now.as_ms()
    });
    assert_eq!(lives, [10_000, 3_600_000, 3_600_000]);
    p.check_rules();

    // Without a limit of the topic, no time is behind the year 9999.
    let mut p = Partition::with_rules(&[(
        "long",
        with_action(DEFAULT, "SET sys.TimeToLive = '10000000.00:00:00'"),
    )]);
    p.publish_texts(&["x"]).unwrap();
    assert_eq!(
        p.peeked(subscription("long"))[0].expires_at,
        Timestamp::NEVER
    );
}

/// Each message, rule and call has another one.
#[test]
fn new_ids_differ() {
    let action = "SET id = newid(); SET other = newid()";
    let mut p = Partition::with_rules(&[
        ("a", with_action(DEFAULT, action)),
        ("b", with_action(DEFAULT, action)),
    ]);
    p.add_rule("a", with_action("more", action)).unwrap();
    let sessions = BusQueueOptions {
        requires_session: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("dead", sessions).unwrap();
    p.set_rule("dead", with_action(DEFAULT, action)).unwrap();
    for _ in 0..3 {
        p.publish_texts(&["x", "y"]).unwrap();
    }
    let mut all = p.of("a");
    all.extend(p.of("b"));
    all.extend(p.dead_letters("dead"));
    assert_eq!(all.len(), 24);
    let ids = all.iter().flat_map(|(_, changes)| changes.lines());
    let ids = ids
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| *name != "+RuleName");
    let ids: Vec<_> = ids.map(|(_, id)| id.to_owned()).collect();
    assert!(
        ids.iter().all(|id| id.len() == 32 && &id[12..13] == "4"),
        "{ids:?}"
    );
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 48);
}

#[test]
fn a_rule_that_cannot_be_compiled_fails() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let wanted = BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("a", wanted).unwrap();
    // No command adds such a rule.
    p.add_many("a", 1, &sql("color = = 1"));
    p.publish_texts(&["x"]).unwrap();
    assert_eq!(p.of("a"), [plain("x")]);
    let why = "+why=the rule cannot be read by this version of the server\n";
    assert_eq!(p.dead_letters("a"), [changed("x", why)]);
    p.remove_rule("a", "rule 2").unwrap();
    p.publish_texts(&["y"]).unwrap();
    assert_eq!(p.dead_letters("a").len(), 1);
    p.check_rules();
}

/// No front end sends such bytes. Where no rule looks at them, they are copied like any others.
#[test]
fn what_is_no_message_is_refused_where_a_rule_looks_at_it() {
    let mut p = Partition::with_rules(&[
        ("all", rule(DEFAULT, FilterDefinition::True)),
        ("none", rule(DEFAULT, FilterDefinition::False)),
    ]);
    p.publish_texts(&["!color=red"]).unwrap();
    assert_eq!(p.of("all"), [plain("!color=red")]);
    p.add_rule("none", rule("red", correlation("red"))).unwrap();
    let refused = p.publish_texts(&["color=red", "!color=red"]);
    assert_eq!(refused, Err(BusRefusal::NotAMessage));
    assert_eq!((p.of("all").len(), p.of("none").len()), (1, 0));
    p.check_rules();
}
