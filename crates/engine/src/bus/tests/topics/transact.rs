//! Transactions with parts that send to topics, and parts that settle in subscriptions.

mod transfers;
mod via;

use super::*;

fn part(queue: &EntityName, work: TransactionWork) -> TransactionPart {
    TransactionPart {
        incarnation: None,
        queue: queue.clone(),
        work,
    }
}

fn sends(queue: &EntityName, messages: Vec<BusMessage>) -> TransactionPart {
    part(queue, TransactionWork::Send(messages))
}

/// What a message with this text counts for.
fn size_of(text: &str) -> u64 {
    text.len() as u64 + OVERHEAD_BYTES
}

fn completes(queue: &EntityName, lock: Token) -> TransactionPart {
    part(queue, TransactionWork::Settle(lock, Disposition::Complete))
}

fn sends_via(via: &EntityName, to: &EntityName, messages: Vec<BusMessage>) -> TransactionPart {
    part(via, TransactionWork::SendVia(to.clone(), messages))
}

/// A queue `in`, a queue `out`, and the topic with one subscription.
fn with_ways(out: BusQueueOptions) -> Partition {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.create(&entity("in"), BusQueueOptions::default()).unwrap();
    p.create(&entity("out"), out).unwrap();
    p
}

impl Partition {
    fn send_to(&mut self, queue: &EntityName, message: BusMessage) {
        self.ask(BusCommand::Send {
            queue: queue.clone(),
            messages: vec![message],
        })
        .unwrap();
    }

    fn texts_at(&mut self, queue: &EntityName) -> Vec<String> {
        let received = self.receive_from(queue, None);
        self.texts(&received)
    }
}

#[test]
fn what_a_transaction_sends_to_a_topic_waits_and_is_copied_in_order() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.publish(vec![text("first")]).unwrap();
    let held = locks(&p.receive_from(&subscription("a"), None));
    let done = p.transact(vec![
        sends(&topic(), vec![text("one"), text("two")]),
        completes(&subscription("a"), held[0]),
        sends(&jobs(), vec![text("job")]),
    ]);
    assert_eq!(done, Ok(BusOutcome::Transacted));
    // It is stored, and what is published later comes behind it.
    assert_eq!(p.view(&topic()).counts.active, 2);
    p.publish(vec![text("last")]).unwrap();
    assert_eq!(p.view(&topic()).counts.active, 3);
    assert_eq!(p.texts_at(&jobs()), ["job"]);
    assert_eq!(p.view(&subscription("a")).counts.active, 0);
    p.check_whole();
    p.cold = None;
    p.state = p.restored();
    p.tick();
    assert_eq!(p.texts_at(&subscription("a")), ["one", "two", "last"]);
    assert_eq!(
        p.texts_at(&subscription("b")),
        ["first", "one", "two", "last"]
    );
    assert_eq!(p.view(&topic()).counts.active, 0);
    p.check_whole();
}

#[test]
fn one_part_that_cannot_be_done_leaves_topics_and_subscriptions_as_they_were() {
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 1 << 20,
        message_size_bytes_max: 400_000,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a", "b"]);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.publish(vec![text("first")]).unwrap();
    let held = locks(&p.receive_from(&subscription("a"), None))[0];
    let of_size = |count: usize| BusMessage {
        body: vec![b'x'; count].into(),
        ..text("")
    };
    let failed = entity("t/$transfer/$deadletterqueue");
    let queue = |name: &EntityName| name.name.clone();
    for (bad, why) in [
        (
            sends(&failed, vec![text("x")]),
            PartRefusal::Refused(BusRefusal::NotSendable {
                queue: queue(&failed),
            }),
        ),
        (
            sends(&dead_of("a"), vec![text("x")]),
            PartRefusal::Refused(BusRefusal::NotSendable {
                queue: queue(&dead_of("a")),
            }),
        ),
        (
            sends(&subscription("a"), vec![text("x")]),
            PartRefusal::Refused(BusRefusal::NotSendableSubscription {
                queue: queue(&subscription("a")),
            }),
        ),
        (
            sends(&topic(), vec![of_size(400_001)]),
            PartRefusal::Refused(BusRefusal::MessageTooLarge {
                size_bytes: 400_001,
                limit_bytes: 400_000,
            }),
        ),
        (
            completes(&subscription("b"), held),
            PartRefusal::Unsettled(Verdict::LockLost),
        ),
    ] {
        let parts = vec![
            sends(&topic(), vec![text("one")]),
            completes(&subscription("a"), held),
            bad,
        ];
        assert_eq!(p.refused(parts), (3, why));
    }
    // However many copies there are going to be, each message counts once.
    let parts = vec![sends(&topic(), vec![of_size(400_000)]); 3];
    let (part, why) = p.refused(parts.clone());
    assert!(
        matches!(
            why,
            PartRefusal::Refused(BusRefusal::QuotaExceeded { limit_bytes, .. }) if limit_bytes == 1 << 20
        ),
        "{why:?}"
    );
    assert_eq!(part, 3);
    p.transact(parts[..2].to_vec()).unwrap();
    p.update_topic_status(EntityStatus::SendDisabled);
    let (_, why) = p.refused(vec![sends(&topic(), vec![text("x")])]);
    let queue = queue(&topic());
    assert_eq!(why, PartRefusal::Refused(BusRefusal::Disabled { queue }));
}

impl Partition {
    fn update_topic_status(&mut self, status: EntityStatus) {
        let options = BusQueueOptions {
            status,
            size_bytes_max: 1 << 20,
            message_size_bytes_max: 400_000,
            ..BusQueueOptions::default()
        };
        self.ask(BusCommand::UpdateQueue {
            queue: topic(),
            options,
        })
        .unwrap();
    }
}

#[test]
fn ids_and_sums_are_those_of_a_publish() {
    let mut p = Partition::with_topic(BusQueueOptions {
        duplicate_window_ms: Some(60_000),
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a"]);
    let with_id = |body: &str| BusMessage {
        message_id: Some("id".into()),
        ..text(body)
    };
    p.transact(vec![
        sends(&topic(), vec![with_id("one")]),
        sends(&topic(), vec![with_id("again"), text("two")]),
    ])
    .unwrap();
    let again = p.publish(vec![with_id("again")]);
    assert_eq!(again, Ok(BusOutcome::Sent(vec![None])));
    let of = p.state.catalogue.find(&topic()).unwrap();
    let published = |p: &Partition| {
        let topic = p.state.bus[&of].topic.as_ref().unwrap();
        (topic.tally.published, topic.tally.copies)
    };
    assert_eq!(published(&p), (2, 0));
    p.state.take_copied();
    p.tick();
    assert_eq!(published(&p), (2, 2));
    assert_eq!(p.texts_at(&subscription("a")), ["one", "two"]);
    p.check_whole();
}

/// A message that becomes active in a second.
fn later(p: &Partition, body: &str) -> BusMessage {
    BusMessage {
        scheduled_at: Some(p.now.plus_ms(1000)),
        ..text(body)
    }
}

#[test]
fn messages_are_scheduled_in_a_topic_by_parts_and_via_an_entity() {
    let mut p = with_ways(BusQueueOptions::default());
    p.transact(vec![
        sends(&topic(), vec![later(&p, "one"), text("now")]),
        sends_via(&entity("in"), &topic(), vec![later(&p, "two")]),
        sends_via(&entity("in"), &entity("out"), vec![later(&p, "three")]),
    ])
    .unwrap();
    let sent = p.ask(BusCommand::SendVia {
        via: entity("in"),
        to: topic(),
        messages: vec![later(&p, "four"), later(&p, "five")],
    });
    let numbers = [4, 5].map(SequenceNumber::named);
    assert_eq!(sent, Ok(BusOutcome::Sent(numbers.map(Some).to_vec())));
    let counts = p.view(&topic()).counts;
    assert_eq!((counts.active, counts.scheduled), (1, 4));
    // A transaction that is refused leaves them as they are.
    let cancels = |numbers: &[SequenceNumber]| {
        part(&topic(), TransactionWork::CancelScheduled(numbers.to_vec()))
    };
    let (refused, _) = p.refused(vec![cancels(&numbers[..1]), cancels(&numbers[..1])]);
    assert_eq!(refused, 2);
    p.transact(vec![cancels(&numbers[..1])]).unwrap();
    p.check_whole();
    p.cold = None;
    p.state = p.restored();
    p.tick();
    assert_eq!(p.texts_at(&subscription("a")), ["now"]);
    // Who subscribes until then gets them, too.
    p.subscribe_all(&["b"]);
    p.now = p.now.plus_ms(1000);
    p.tick();
    for name in ["a", "b"] {
        let texts = p.texts_at(&subscription(name));
        assert_eq!(texts, ["one", "two", "five"], "{name}");
    }
    assert_eq!(p.texts_at(&entity("out")), ["three"]);
    p.check_whole();
}

#[test]
fn copies_of_what_a_transaction_sends_have_one_body() {
    let mut p = with_ways(BusQueueOptions::default());
    p.subscribe_all(&["b"]);
    p.transact(vec![
        sends(&topic(), vec![text("one")]),
        sends_via(&entity("in"), &topic(), vec![text("two")]),
    ])
    .unwrap();
    p.tick();
    let holds = |p: &Partition, name: &str| {
        let of = p.state.catalogue.find(&subscription(name)).unwrap();
        let messages = p.state.bus[&of].backlog.messages();
        messages.map(|it| it.body.hold()).collect::<Vec<_>>()
    };
    assert_eq!(holds(&p, "a"), [Hold::Lends; 2]);
    assert_eq!(holds(&p, "b"), [Hold::Borrows; 2]);
    p.check_whole();
}

#[test]
fn a_message_that_ends_in_one_subscription_frees_no_room_that_another_takes() {
    let body = "x".repeat(1000);
    let mut p = Partition::with_topic(BusQueueOptions {
        size_bytes_max: 2 * size_of(&body) + size_of("") - 1,
        ..BusQueueOptions::default()
    });
    p.subscribe_all(&["a", "b"]);
    p.publish(vec![text(&body)]).unwrap();
    let [a, b] = ["a", "b"].map(|it| locks(&p.receive_from(&subscription(it), None))[0]);
    let full = sends(&topic(), vec![text(&body), text("")]);
    let is_refused = |(part, why): (u64, PartRefusal)| {
        let is_full = matches!(why, PartRefusal::Refused(BusRefusal::QuotaExceeded { .. }));
        assert!(is_full && part == 2, "{part} {why:?}");
    };
    // The other subscription still has the body.
    is_refused(p.refused(vec![completes(&subscription("a"), a), full.clone()]));
    is_refused(p.refused(vec![completes(&subscription("b"), b), full.clone()]));
    p.transact(vec![completes(&subscription("a"), a)]).unwrap();
    p.transact(vec![completes(&subscription("b"), b)]).unwrap();
    // Nobody has it any more: the largest subscription is looked for again.
    p.state.take_copied();
    p.transact(vec![full]).unwrap();
    assert_eq!(p.state.take_copied(), 2);
    p.check_whole();
}
