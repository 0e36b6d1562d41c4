//! Rules of subscriptions: how they change, what is refused, and that they are the same after a restart.

mod budgets;
mod bytes;
mod copies;
mod damaged;
mod fan_out;
mod forwards;
mod limits;
mod many;
mod random;
mod resubmit;
mod schedules;
mod selects;
mod tally;
mod unmatched;
mod unread;
mod waiting;

use kew_filter::{Equality, OwnedValue, SqlDefinition};

use super::*;
use crate::bus::rules::RETIRED_RULES_MAX;

fn sql(text: &str) -> FilterDefinition {
    FilterDefinition::Sql(SqlDefinition {
        text: text.into(),
        ..SqlDefinition::default()
    })
}

fn correlation(color: &str) -> FilterDefinition {
    FilterDefinition::Correlation(vec![Equality::User {
        name: "color".into(),
        value: OwnedValue::Text(color.into()),
    }])
}

fn rule(name: &str, filter: FilterDefinition) -> NewRule {
    NewRule {
        name: name.into(),
        definition: Definition::new(filter, None).unwrap(),
    }
}

fn with_action(name: &str, action: &str) -> NewRule {
    let action = SqlDefinition {
        text: action.into(),
        ..SqlDefinition::default()
    };
    NewRule {
        name: name.into(),
        definition: Definition::new(FilterDefinition::True, Some(action)).unwrap(),
    }
}

impl Partition {
    fn add_rule(&mut self, to: &str, rule: NewRule) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::AddRule {
            topic: topic(),
            subscription: subscription(to),
            rule: Box::new(rule),
        })
    }

    fn set_rule(&mut self, of: &str, rule: NewRule) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::SetRule {
            topic: topic(),
            subscription: subscription(of),
            rule: Box::new(rule),
        })
    }

    fn remove_rule(&mut self, of: &str, name: &str) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::RemoveRule {
            topic: topic(),
            subscription: subscription(of),
            name: name.into(),
        })
    }

    fn read_rule(&mut self, of: &str, name: &str) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::ReadRule {
            subscription: subscription(of),
            name: name.into(),
        })
    }

    fn rules(&mut self, of: &str, skip: u32, limit: u32) -> Vec<BusRuleView> {
        let listed = self.ask(BusCommand::ListRules {
            subscription: subscription(of),
            skip,
            limit,
        });
        match listed {
            Ok(BusOutcome::Rules(rules)) => rules,
            other => panic!("{other:?}"),
        }
    }

    fn rule_names(&mut self, of: &str) -> Vec<String> {
        let rules = self.rules(of, 0, u32::MAX).into_iter();
        rules.map(|rule| rule.name.into()).collect()
    }

    fn topic_incarnation(&self) -> Incarnation {
        self.state.catalogue.find(&topic()).unwrap()
    }

    /// What the topic knows of rules.
    fn of_topic(&self) -> &crate::bus::rules::Topic {
        let entity = &self.state.bus[&self.topic_incarnation()];
        entity.topic.as_ref().unwrap()
    }

    fn check_rules(&self) {
        self.of_topic().check(RunLength::TINY);
        self.check_whole();
    }

    /// Adds many rules to a subscription in one event. Nothing else has to be true of the log.
    fn add_many(&mut self, to: &str, count: usize, filter: &FilterDefinition) {
        self.cold = None;
        let first = self.of_topic().next_rule();
        let definition = Definition::new(filter.clone(), None).unwrap();
        let ids = first..first + count as u64;
        let added = ids.map(|id| AddedRule {
            id,
            name: format!("rule {id}").into(),
            definition: definition.bytes().into(),
        });
        let fact = BusFact::RulesChanged {
            topic: self.topic_incarnation(),
            subscription: self.state.catalogue.find(&subscription(to)).unwrap(),
            from: SequenceNumber::FIRST,
            retired: Vec::new(),
            added: added.collect(),
        };
        self.record(fact);
    }

    fn record(&mut self, fact: BusFact) {
        let event = Event {
            at: self.now,
            fact: Fact::Bus(fact),
        };
        self.log.record(&event);
        self.state.apply(event);
    }
}

fn not_found(rule: &str) -> BusRefusal {
    BusRefusal::RuleNotFound { rule: rule.into() }
}

#[test]
fn rules_are_added_read_replaced_and_removed() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    let created_at = p.now;
    p.pass_ms(1_000);
    let red = rule("Red", sql("color = 'red'"));
    let view = |rule: &NewRule, created_at| BusRuleView {
        name: rule.name.clone(),
        definition: rule.definition.bytes().into(),
        created_at,
    };
    let added = view(&red, p.now);
    let answer = p.add_rule("a", red.clone());
    assert_eq!(answer, Ok(BusOutcome::RuleAdded(added.clone())));
    // The name is the same in any case, and belongs to one subscription.
    assert_eq!(p.read_rule("a", "rED"), Ok(BusOutcome::Rule(added.clone())));
    assert_eq!(p.read_rule("b", "Red"), Err(not_found("Red")));
    let again = p.add_rule("a", rule("RED", FilterDefinition::True));
    let rule_name = "RED".into();
    assert_eq!(
        again,
        Err(BusRefusal::RuleAlreadyExists { rule: rule_name })
    );
    p.add_rule("b", red).unwrap();
    p.check_rules();

    // A replacement is another rule with a new time, and the new spelling.
    p.pass_ms(1_000);
    let blue = with_action("RED", "SET size = 1");
    let replaced = view(&blue, p.now);
    let answer = p.set_rule("a", blue.clone());
    assert_eq!(answer, Ok(BusOutcome::RuleReplaced(replaced.clone())));
    let default = view(&rule("$Default", FilterDefinition::True), created_at);
    assert_eq!(p.rules("a", 0, 10), [default.clone(), replaced]);
    assert_eq!(p.read_rule("a", "$DEFAULT"), Ok(BusOutcome::Rule(default)));
    p.check_rules();

    assert_eq!(p.remove_rule("a", "red"), Ok(BusOutcome::RuleRemoved));
    assert_eq!(p.remove_rule("a", "red"), Err(not_found("red")));
    assert_eq!(p.set_rule("a", blue), Err(not_found("RED")));
    assert_eq!(p.rule_names("a"), ["$Default"]);
    assert_eq!(p.rule_names("b"), ["$Default", "Red"]);
    // Numbers are not used again.
    assert_eq!(p.of_topic().next_rule(), 6);
    p.check_rules();
}

#[test]
fn a_subscription_is_created_with_a_rule() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let create = |p: &mut Partition, name: &str, rule: NewRule| {
        p.ask(BusCommand::CreateSubscription {
            topic: topic(),
            subscription: subscription(name),
            options: BusQueueOptions::default(),
            rule: Some(Box::new(rule)),
        })
    };
    let bad = create(&mut p, "a", rule("Red", sql("color =")));
    assert!(
        matches!(bad, Err(BusRefusal::InvalidRule { .. })),
        "{bad:?}"
    );
    let long = create(&mut p, "a", rule(&"x".repeat(51), FilterDefinition::True));
    assert!(
        matches!(long, Err(BusRefusal::InvalidOption(_))),
        "{long:?}"
    );
    // Nothing of it was done.
    assert!(p.state.catalogue.find(&subscription("a")).is_none());

    create(&mut p, "a", rule("Red", sql("color = 'red'"))).unwrap();
    create(&mut p, "b", with_action("$Default", "SET a = 1")).unwrap();
    assert_eq!(p.rule_names("a"), ["Red"]);
    assert_eq!(p.read_rule("a", "$Default"), Err(not_found("$Default")));
    let shown = &p.rules("b", 0, 10)[..];
    let own = with_action("$Default", "SET a = 1");
    assert_eq!(shown.len(), 1);
    assert_eq!(*shown[0].definition, *own.definition.bytes());
    // It is like a rule that was added.
    p.add_rule("a", rule("$Default", FilterDefinition::True))
        .unwrap();
    p.remove_rule("b", "$default").unwrap();
    assert_eq!(p.rule_names("b"), Vec::<String>::new());
    p.check_rules();
}

#[test]
fn the_default_rule_is_a_rule_like_others() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    let default = rule("$default", FilterDefinition::False);
    let exists = p.add_rule("a", default.clone());
    let name = "$default".into();
    assert_eq!(exists, Err(BusRefusal::RuleAlreadyExists { rule: name }));
    p.remove_rule("a", "$DEFAULT").unwrap();
    assert_eq!(p.read_rule("a", "$Default"), Err(not_found("$Default")));
    assert_eq!(p.rule_names("a"), Vec::<String>::new());
    assert_eq!(p.rule_names("b"), ["$Default"]);
    p.check_rules();

    // Without a rule, nothing comes.
    p.publish(vec![text("x")]).unwrap();
    assert_eq!(p.view(&subscription("a")).counts.active, 0);
    assert_eq!(p.view(&subscription("b")).counts.active, 1);

    p.add_rule("a", default).unwrap();
    p.set_rule("b", rule("$DEFAULT", sql("1 = 1"))).unwrap();
    assert_eq!(p.rule_names("a"), ["$default"]);
    assert_eq!(p.rule_names("b"), ["$DEFAULT"]);
    p.check_rules();
}

#[test]
fn rules_are_listed_in_pages_by_name() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.add_rule("b", rule("other", FilterDefinition::True))
        .unwrap();
    for name in ["m", "Z", "!first", "b"] {
        p.add_rule("a", rule(name, correlation(name))).unwrap();
    }
    let all = ["!first", "$Default", "b", "m", "Z"];
    assert_eq!(p.rule_names("a"), all);
    for skip in 0..6 {
        for limit in 0..6 {
            let page = p.rules("a", u32::try_from(skip).unwrap(), limit);
            let page: Vec<_> = page.iter().map(|rule| &*rule.name).collect();
            let expected = all.iter().skip(skip).take(limit as usize).copied();
            assert_eq!(page, expected.collect::<Vec<_>>());
        }
    }
    // An answer has a bounded size, and at least one rule.
    let large = correlation(&"x".repeat(30_000));
    p.add_many("b", 40, &large);
    let (mut names, mut pages) = (Vec::new(), 0);
    loop {
        let page = p.rules("b", u32::try_from(names.len()).unwrap(), u32::MAX);
        if page.is_empty() {
            break;
        }
        assert!(page.iter().map(|it| it.definition.len()).sum::<usize>() <= 1 << 20);
        names.extend(page.into_iter().map(|rule| rule.name));
        pages += 1;
    }
    assert_eq!((names.len(), pages), (42, 2));
    assert!(names.is_sorted());
}

#[test]
fn what_is_no_rule_is_refused() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.ask(BusCommand::CreateTopic {
        topic: entity("other"),
        options: BusQueueOptions::default(),
    })
    .unwrap();
    let events = p.log.events.len();
    let any = || rule("any", FilterDefinition::True);
    for name in [String::new(), "n".repeat(51)] {
        let refused = p.add_rule("a", rule(&name, FilterDefinition::True));
        let invalid = InvalidOption {
            option: RangedOption::RuleNameLength,
            value: name.len() as u64,
        };
        assert_eq!(refused, Err(BusRefusal::InvalidOption(invalid)));
    }
    let refused = p.add_rule("a", rule("bad", sql("color = = 1")));
    let why = "the filter is not valid: column 9: found \"=\", expected a value, a property, a function, a parameter, \
               a sign or \"(\"";
    let why = why.into();
    assert_eq!(refused, Err(BusRefusal::InvalidRule { why }));
    let refused = p.set_rule("a", with_action("$Default", "SET sys.MessageId"));
    assert!(
        matches!(&refused, Err(BusRefusal::InvalidRule { why }) if why.starts_with("the action is not valid")),
        "{refused:?}"
    );

    let missing = |queue: &EntityName| BusRefusal::QueueNotFound {
        queue: queue.name.clone(),
    };
    let on = |topic: EntityName, subscription: EntityName| BusCommand::AddRule {
        topic,
        subscription,
        rule: Box::new(any()),
    };
    for (of, to) in [
        (topic(), subscription("b")),
        (topic(), jobs()),
        (topic(), topic()),
        (topic(), dead_of("a")),
        (entity("other"), subscription("a")),
        (entity("missing"), subscription("a")),
    ] {
        assert_eq!(p.ask(on(of, to.clone())), Err(missing(&to)));
    }
    for queue in [topic(), jobs(), subscription("b")] {
        let read = BusCommand::ListRules {
            subscription: queue.clone(),
            skip: 0,
            limit: 10,
        };
        assert_eq!(p.ask(read), Err(missing(&queue)));
    }
    assert_eq!(p.log.events.len(), events);
}

#[test]
fn rules_of_a_disabled_subscription_do_not_change() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    for (name, status, is_allowed) in [
        ("on", EntityStatus::Active, true),
        ("sends", EntityStatus::SendDisabled, true),
        ("waits", EntityStatus::ReceiveDisabled, false),
        ("off", EntityStatus::Disabled, false),
    ] {
        let options = BusQueueOptions {
            status,
            ..BusQueueOptions::default()
        };
        p.subscribe(name, options).unwrap();
        let queue = subscription(name).name;
        let disabled = BusRefusal::Disabled { queue };
        for answer in [
            p.add_rule(name, rule("any", FilterDefinition::True)),
            p.set_rule(name, rule("$Default", FilterDefinition::True)),
            p.remove_rule(name, "$Default"),
        ] {
            match is_allowed {
                true => assert!(answer.is_ok(), "{answer:?}"),
                false => assert_eq!(answer, Err(disabled.clone())),
            }
        }
        assert!(!p.rules(name, 0, 10).is_empty());
    }
}

#[test]
fn rules_of_a_disabled_topic_do_not_change() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    for (status, is_allowed) in [
        (EntityStatus::Disabled, false),
        (EntityStatus::SendDisabled, true),
        (EntityStatus::Active, true),
    ] {
        let options = BusQueueOptions {
            status,
            ..BusQueueOptions::default()
        };
        p.cold = None;
        p.record(BusFact::EntityUpdated {
            entity: p.topic_incarnation(),
            options,
            ids_from: Timestamp::ZERO,
        });
        let disabled = BusRefusal::Disabled {
            queue: topic().name,
        };
        for answer in [
            p.add_rule("a", rule("any", FilterDefinition::True)),
            p.set_rule("a", rule("any", FilterDefinition::True)),
            p.remove_rule("a", "any"),
        ] {
            match is_allowed {
                true => assert!(answer.is_ok(), "{answer:?}"),
                false => assert_eq!(answer, Err(disabled.clone())),
            }
        }
        assert!(!p.rules("a", 0, 10).is_empty());
    }
}

#[test]
fn rules_end_with_their_subscription() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    for name in ["1", "2", "3"] {
        p.add_rule("a", rule(name, sql("color = 'red'"))).unwrap();
        p.add_rule("b", rule(name, correlation(name))).unwrap();
    }
    p.delete(subscription("a")).unwrap();
    assert_eq!(p.of_topic().rule_count(), 3);
    p.check_rules();
    // A later subscription of that name has none of them.
    p.subscribe_all(&["a"]);
    assert_eq!(p.rule_names("a"), ["$Default"]);
    assert_eq!(p.rule_names("b"), ["$Default", "1", "2", "3"]);
    p.delete(topic()).unwrap();
    p.check_whole();
    p.create_topic(BusQueueOptions::default()).unwrap();
    assert_eq!(p.of_topic().next_rule(), 1);
}

#[test]
fn a_change_of_rules_is_a_use_and_a_look_is_none() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let idle_ms = 300_000;
    let idle = BusQueueOptions {
        auto_delete_on_idle_ms: idle_ms,
        ..BusQueueOptions::default()
    };
    p.subscribe("changed", idle.clone()).unwrap();
    p.subscribe("seen", idle).unwrap();
    for count in 0..12 {
        p.pass_ms(idle_ms / 10);
        let filter = sql(&format!("size = {count}"));
        p.set_rule("changed", rule("$Default", filter)).unwrap();
        if count < 9 {
            assert_eq!(p.rule_names("seen"), ["$Default"]);
            p.read_rule("seen", "$Default").unwrap();
        }
        p.tick();
    }
    assert_eq!(p.view(&topic()).counts.subscriptions, 1);
    assert_eq!(p.view(&topic()).used_at, p.now);
    assert_eq!(p.rule_names("changed"), ["$Default"]);
    p.check_rules();
}

/// Answers about rules rest on the subscription, which every change of its rules names.
#[test]
fn an_answer_waits_for_the_change_that_it_shows() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.cold = None;
    let entity = p.state.catalogue.find(&subscription("a")).unwrap();
    let events = p.log.events.len();
    let mut scope = |command: BusCommand| {
        let mut turn = Turn::new(&mut p.state, p.now, &mut p.log);
        turn.decide(Command::Bus(command)).scope
    };
    let add = || BusCommand::AddRule {
        topic: topic(),
        subscription: subscription("a"),
        rule: Box::new(rule("any", FilterDefinition::True)),
    };
    assert_eq!(scope(add()), Scope::BusQueue(entity));
    assert_eq!(scope(add()), Scope::Everything);
    let list = BusCommand::ListRules {
        subscription: subscription("a"),
        skip: 0,
        limit: 1,
    };
    assert_eq!(scope(list), Scope::BusQueue(entity));
    let event = Event::decode(&p.log.events[events]).unwrap();
    let named = [p.topic_incarnation(), entity];
    assert_eq!(event.entities().collect::<Vec<_>>(), named);
}
