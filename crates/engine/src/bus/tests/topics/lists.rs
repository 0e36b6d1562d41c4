//! Lists of topics and subscriptions, their settings after a restart, and the bytes of their parts.

use super::*;

/// Sub-queues do not have the settings that only topics and subscriptions have.
#[test]
fn all_settings_of_a_subscription_are_the_same_after_a_restart() {
    let both = BusQueueOptions {
        filters_before_publishing: true,
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    let mut p = Partition::with_topic(BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    });
    p.subscribe("a", both.clone()).unwrap();
    assert_eq!(p.view(&subscription("a")).options, both);
    p.check_whole();
}

#[test]
fn topics_and_their_subscriptions_are_listed_in_pages() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["b", "c", "a"]);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.ask(BusCommand::CreateTopic {
        topic: entity("t/more"),
        options: BusQueueOptions::default(),
    })
    .unwrap();
    let list = |p: &mut Partition, command| match p.ask(command) {
        Ok(BusOutcome::Queues(views)) => views,
        other => panic!("{other:?}"),
    };
    let topics = |p: &mut Partition, skip, limit| {
        let namespace = "ns".into();
        list(
            p,
            BusCommand::ListTopics {
                namespace,
                skip,
                limit,
            },
        )
    };
    let views = topics(&mut p, 0, 10);
    assert_eq!(names(&views), ["t", "t/more"]);
    assert_eq!(views[0].counts.subscriptions, 3);
    assert_eq!(names(&topics(&mut p, 1, 10)), ["t/more"]);
    assert_eq!(names(&topics(&mut p, 0, 1)), ["t"]);
    let subscriptions = |p: &mut Partition, topic, skip, limit| {
        list(p, BusCommand::ListSubscriptions { topic, skip, limit })
    };
    let views = subscriptions(&mut p, topic(), 1, 2);
    assert_eq!(names(&views), ["t/subscriptions/b", "t/subscriptions/c"]);
    assert!(subscriptions(&mut p, entity("t/more"), 0, 2).is_empty());
    let refused = p.ask(BusCommand::ListSubscriptions {
        topic: jobs(),
        skip: 0,
        limit: 1,
    });
    let queue = jobs().name;
    assert_eq!(refused, Err(BusRefusal::QueueNotFound { queue }));
}

/// Topics are found without a look at the names of queues, and queues without a look at those of subscriptions.
#[test]
fn a_list_counts_what_it_looks_at() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    for number in 0..20 {
        p.create(&entity(&format!("q{number}")), BusQueueOptions::default())
            .unwrap();
    }
    let namespace: std::sync::Arc<str> = "ns".into();
    let list = |p: &mut Partition| {
        p.state.take_copied();
        p.ask(BusCommand::ListTopics {
            namespace: "ns".into(),
            skip: 0,
            limit: 100,
        })
        .unwrap();
        p.state.take_copied()
    };
    assert_eq!(list(&mut p), 0);
    // The size of a topic is at least that of its largest subscription. If that has shrunk, both are looked at, once.
    p.publish(vec![text("x")]).unwrap();
    let of_b = locks(&p.receive_from(&subscription("b"), None));
    p.settle_in(&subscription("b"), of_b[0], Disposition::Complete);
    assert_eq!(list(&mut p), 2);
    assert_eq!(list(&mut p), 0);
    // So does an update, which shows it, too.
    p.publish(vec![text("x")]).unwrap();
    let of_a = locks(&p.receive_from(&subscription("a"), None));
    p.settle_in(&subscription("a"), of_a[0], Disposition::Complete);
    p.settle_in(&subscription("a"), of_a[1], Disposition::Complete);
    p.state.take_copied();
    p.ask(BusCommand::UpdateQueue {
        queue: topic(),
        options: BusQueueOptions::default(),
    })
    .unwrap();
    assert_eq!(p.state.take_copied(), 2);
    assert_eq!(list(&mut p), 0);
    p.ask(BusCommand::ListQueues {
        namespace,
        from: "".into(),
        skip: 0,
        limit: 100,
    })
    .unwrap();
    assert_eq!(p.state.take_copied(), 0);
    assert_eq!(p.state.catalogue.bus_queues.len(), 20);
}

/// A list shows counts. So it waits for the messages that it counts, and not only for the entities that it lists.
#[test]
fn a_list_waits_for_what_it_counts() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.cold = None;
    let mut scope = |command: BusCommand| {
        let mut turn = Turn::new(&mut p.state, p.now, &mut p.log);
        let decision = turn.decide(Command::Bus(command));
        decision.result.unwrap();
        decision.scope
    };
    let (skip, limit) = (0, 10);
    let queues = scope(BusCommand::ListQueues {
        namespace: "ns".into(),
        from: "".into(),
        skip,
        limit,
    });
    assert_eq!(queues, Scope::Everything);
    let topics = scope(BusCommand::ListTopics {
        namespace: "ns".into(),
        skip,
        limit,
    });
    assert_eq!(topics, Scope::Everything);
    let subscriptions = scope(BusCommand::ListSubscriptions {
        topic: topic(),
        skip,
        limit,
    });
    assert_eq!(subscriptions, Scope::Everything);
}

/// These parts are read by every later version.
#[test]
fn the_parts_of_topics_and_subscriptions_have_these_bytes() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.pass_ms(1);
    let options = BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("a", options).unwrap();
    p.pass_ms(1);
    p.publish(vec![text("x")]).unwrap();
    let mut parts = Vec::new();
    p.state.snapshot(|part| parts.push(part.to_vec()));
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect::<String>()
    };
    let of_kind = |kind: u8| -> Vec<String> {
        let found = parts.iter().filter(|part| part[0] == kind);
        found.map(|part| hex(part)).collect()
    };
    let options = "e0d4030affffffffffffffffff01000000ffffffffffffffffff01000001808080800480804000";
    let topic = format!("250101 02026e7301 74 {options} c1843d c1843d c3843d 02 00 00 02 00");
    assert_eq!(of_kind(37), [topic.replace(' ', "")]);
    let name = hex(b"t/subscriptions/a");
    let head = format!("260104 02026e7311 {name} {options} c2843d c2843d c2843d 02 00");
    let subscription = format!("{head} 02 01 01 01 01");
    assert_eq!(of_kind(38), [subscription.replace(' ', "")]);
}
