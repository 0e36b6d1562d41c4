//! What an operator puts into a subscription.

use super::*;

impl Partition {
    fn deposit(
        &mut self,
        queue: EntityName,
        messages: Vec<BusMessage>,
    ) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::Deposit { queue, messages })
    }
}

fn lives(body: &str, ms: u64) -> BusMessage {
    BusMessage {
        time_to_live_ms: Some(ms),
        ..text(body)
    }
}

#[test]
fn a_message_comes_into_one_subscription_alone() {
    let mut p = Partition::with_topic(BusQueueOptions {
        default_time_to_live_ms: 60_000,
        duplicate_window_ms: Some(20_000),
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a", "b"]);
    // No rule looks at it.
    p.ask(BusCommand::RemoveRule {
        topic: topic(),
        subscription: subscription("a"),
        name: "$Default".into(),
    })
    .unwrap();
    let with_id = |body: &str| BusMessage {
        message_id: Some("id".into()),
        scheduled_at: Some(p.now.plus_ms(1_000)),
        ..text(body)
    };
    let both = vec![with_id("one"), with_id("two")];
    let numbers = [1, 2].map(|it| Some(SequenceNumber::new(it)));
    let put = p.deposit(subscription("a"), both);
    assert_eq!(put, Ok(BusOutcome::Sent(numbers.into())));
    p.deposit(subscription("a"), vec![lives("three", 1_000)])
        .unwrap();
    let received = p.receive_from(&subscription("a"), None);
    assert_eq!(p.texts(&received), ["one", "two", "three"]);
    let lives = received.iter().map(|it| it.expires_at);
    let expected = [60_000, 60_000, 1_000].map(|ms| p.now.plus_ms(ms));
    assert!(lives.eq(expected));
    let holds = received.iter().map(|it| it.body.hold());
    assert!(holds.eq([Hold::Alone; 3]));
    assert_eq!(p.view(&subscription("b")).counts.active, 0);
    // The topic has given out no number, and knows no id.
    let sent = p.publish(vec![BusMessage {
        message_id: Some("id".into()),
        ..text("four")
    }]);
    let first = Some(SequenceNumber::FIRST);
    assert_eq!(sent, Ok(BusOutcome::Sent(vec![first])));
    assert_eq!(p.view(&subscription("b")).counts.active, 1);
    p.check_whole();
}

#[test]
fn a_queue_and_a_topic_get_what_is_sent() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.deposit(topic(), vec![text("x")]).unwrap();
    p.deposit(jobs(), vec![text("x")]).unwrap();
    for queue in [subscription("a"), subscription("b"), jobs()] {
        assert_eq!(p.view(&queue).counts.active, 1, "{queue:?}");
    }
    for queue in [dead(), dead_of("a")] {
        let refused = p.deposit(queue.clone(), vec![text("x")]);
        let queue = queue.name;
        assert_eq!(refused, Err(BusRefusal::NotSendable { queue }));
    }
    p.check_whole();
}

#[test]
fn a_message_without_a_session_becomes_a_dead_letter() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let options = BusQueueOptions {
        requires_session: true,
        status: EntityStatus::Disabled,
        ..BusQueueOptions::default()
    };
    p.subscribe("a", options).unwrap();
    // Its status is as little in the way as it is of copies.
    let put = p.deposit(
        subscription("a"),
        vec![text("none"), of_session("some", "s")],
    );
    let numbers = vec![None, Some(SequenceNumber::FIRST)];
    assert_eq!(put, Ok(BusOutcome::Sent(numbers)));
    let counts = p.view(&subscription("a")).counts;
    assert_eq!((counts.active, counts.dead_letters), (1, 1));
    p.check_whole();
}

#[test]
fn the_limits_are_those_of_the_topic() {
    let each = OVERHEAD_BYTES + 10;
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 3 * each,
        message_size_bytes_max: 10,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a", "b"]);
    let ten = || text("0123456789");
    let refused = p.deposit(subscription("a"), vec![text("0123456789x")]);
    let too_large = BusRefusal::MessageTooLarge {
        size_bytes: 11,
        limit_bytes: 10,
    };
    assert_eq!(refused, Err(too_large));
    let events = p.log.events.len();
    let refused = p.deposit(subscription("a"), vec![ten(), ten(), ten(), ten()]);
    let full = |count: u64| {
        Err(BusRefusal::QuotaExceeded {
            size_bytes: count * each,
            limit_bytes: 3 * each,
        })
    };
    assert_eq!(refused, full(4));
    assert_eq!(p.log.events.len(), events);
    p.deposit(subscription("a"), vec![ten(), ten()]).unwrap();
    assert_eq!(p.view(&topic()).counts.size_bytes, 2 * each);
    // Each has a body of its own: what is in both counts twice.
    p.deposit(subscription("b"), vec![ten()]).unwrap();
    assert_eq!(p.view(&topic()).counts.size_bytes, 3 * each);
    assert_eq!(p.deposit(subscription("b"), vec![ten()]), full(4));
    // Room that a receiver makes is there.
    let lock = p.receive_from(&subscription("a"), None)[0].lock.unwrap();
    p.settle_in(&subscription("a"), lock, Disposition::Complete);
    p.deposit(subscription("b"), vec![ten()]).unwrap();
    p.check_whole();

    let disabled = BusQueueOptions {
        status: EntityStatus::Disabled,
        ..p.view(&topic()).options
    };
    let queue = topic();
    let update = BusCommand::UpdateQueue {
        queue,
        options: disabled,
    };
    p.ask(update).unwrap();
    let queue = topic().name;
    let refused = p.deposit(subscription("b"), vec![ten()]);
    assert_eq!(refused, Err(BusRefusal::Disabled { queue }));
    p.check_whole();
}
