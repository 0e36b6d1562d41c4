//! New settings of topics and subscriptions.

use super::*;

impl Partition {
    fn set_options(
        &mut self,
        queue: EntityName,
        options: BusQueueOptions,
    ) -> Result<BusOutcome, BusRefusal> {
        self.ask(BusCommand::UpdateQueue { queue, options })
    }
}

#[test]
fn a_topic_gets_new_settings() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    let created_at = p.now;
    p.pass_ms(1000);
    let events = p.log.events.len();
    let options = BusQueueOptions {
        default_time_to_live_ms: 60_000,
        message_size_bytes_max: 10,
        description: b"new".as_slice().into(),
        ..BusQueueOptions::default()
    };
    let changed = p.set_options(topic(), options.clone());
    let Ok(BusOutcome::QueueUpdated(view)) = changed else {
        panic!("{changed:?}");
    };
    assert_eq!((view.kind, &view.options), (EntityKind::Topic, &options));
    assert_eq!((view.created_at, view.updated_at), (created_at, p.now));
    assert_eq!(view.counts.subscriptions, 1);
    let updated = BusFact::EntityUpdated {
        entity: view.incarnation,
        options,
        ids_from: Timestamp::ZERO,
    };
    assert_eq!(p.facts_from(events), [Fact::Bus(updated)]);

    // They hold for what comes from now on, in a subscription that keeps its own.
    let refused = p.publish(vec![text("12345678901")]);
    let too_large = BusRefusal::MessageTooLarge {
        size_bytes: 11,
        limit_bytes: 10,
    };
    assert_eq!(refused, Err(too_large));
    p.publish(vec![text("1")]).unwrap();
    let received = p.receive_from(&subscription("a"), None);
    assert_eq!(received[0].expires_at, p.now.plus_ms(60_000));
    let of_a = p.view(&subscription("a"));
    assert_eq!(
        (of_a.options.default_time_to_live_ms, of_a.updated_at),
        (u64::MAX, created_at)
    );
    p.check_whole();
}

#[test]
fn a_subscription_gets_new_settings() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a", "b"]);
    p.create(&jobs(), BusQueueOptions::default()).unwrap();
    p.publish(vec![text("before")]).unwrap();
    let options = BusQueueOptions {
        lock_duration_ms: 5_000,
        max_delivery_count: 1,
        dead_letters_filter_failures: true,
        status: EntityStatus::ReceiveDisabled,
        ..BusQueueOptions::default()
    };
    p.set_options(subscription("a"), options.clone()).unwrap();
    let view = p.view(&subscription("a"));
    assert_eq!(
        (view.kind, &view.options),
        (EntityKind::Subscription, &options)
    );
    let refused = p.ask(BusCommand::Receive {
        queue: subscription("a"),
        count: 1,
        mode: ReceiveMode::PeekLock,
        session: None,
    });
    let queue = subscription("a").name;
    assert_eq!(refused, Err(BusRefusal::Disabled { queue }));
    // It still gets copies.
    p.publish(vec![text("after")]).unwrap();
    assert_eq!(p.view(&subscription("a")).counts.active, 2);
    p.check_whole();

    let active = BusQueueOptions {
        status: EntityStatus::Active,
        ..options
    };
    p.set_options(subscription("a"), active.clone()).unwrap();
    let received = p.receive_from(&subscription("a"), None);
    assert_eq!(p.texts(&received), ["before", "after"]);
    assert_eq!(received[0].locked_until, p.now.plus_ms(5_000));
    for lock in locks(&received) {
        p.settle_in(
            &subscription("a"),
            lock,
            Disposition::Abandon { overlay: None },
        );
    }
    assert_eq!(p.view(&subscription("a")).counts.dead_letters, 2);

    // What is there is forwarded, too.
    let forwards = BusQueueOptions {
        forward_to: Some("jobs".into()),
        ..BusQueueOptions::default()
    };
    p.set_options(subscription("b"), forwards).unwrap();
    p.tick();
    let received = p.receive_from(&jobs(), None);
    assert_eq!(p.texts(&received), ["before", "after"]);
    p.check_whole();
}

#[test]
fn a_change_is_a_use_of_its_subscription() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    let idle = BusQueueOptions {
        auto_delete_on_idle_ms: 300_000,
        ..BusQueueOptions::default()
    };
    p.subscribe("changed", idle.clone()).unwrap();
    p.subscribe("idle", idle.clone()).unwrap();
    p.pass_ms(200_000);
    p.set_options(subscription("changed"), idle).unwrap();
    p.pass_ms(200_000);
    p.tick();
    assert_eq!(p.view(&topic()).counts.subscriptions, 1);
    p.view(&subscription("changed"));
    p.check_whole();
}

#[test]
fn a_change_is_refused_like_a_new_entity_with_these_settings() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    let events = p.log.events.len();
    let with = |change: fn(&mut BusQueueOptions)| {
        let mut options = BusQueueOptions::default();
        change(&mut options);
        options
    };
    let fixed = |option| BusRefusal::UnchangeableOption { option };
    for (queue, options, refusal) in [
        (
            topic(),
            with(|it| it.duplicate_window_ms = Some(20_000)),
            fixed(FixedOption::RequiresDuplicateDetection),
        ),
        (
            subscription("a"),
            with(|it| it.requires_session = true),
            fixed(FixedOption::RequiresSession),
        ),
        (
            subscription("a"),
            with(|it| it.forward_to = Some("t/subscriptions/a".into())),
            BusRefusal::DestinationNotFound {
                queue: "t/subscriptions/a".into(),
            },
        ),
        (
            subscription("a"),
            with(|it| it.lock_duration_ms = 4_999),
            BusRefusal::InvalidOption(InvalidOption {
                option: RangedOption::LockDuration,
                value: 4_999,
            }),
        ),
        (
            dead_of("a"),
            BusQueueOptions::default(),
            BusRefusal::QueueNotFound {
                queue: dead_of("a").name,
            },
        ),
        (
            subscription("b"),
            BusQueueOptions::default(),
            BusRefusal::QueueNotFound {
                queue: subscription("b").name,
            },
        ),
    ] {
        assert_eq!(p.set_options(queue, options), Err(refusal));
    }
    assert_eq!(p.log.events.len(), events);
}

/// Its events and its part of a snapshot have none.
#[test]
fn a_queue_has_no_place_for_flags() {
    let mut p = Partition::new();
    let options = BusQueueOptions {
        filters_before_publishing: true,
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    p.create(&jobs(), options.clone()).unwrap();
    assert_eq!(p.view(&jobs()).options, BusQueueOptions::default());
    let options = BusQueueOptions {
        max_delivery_count: 3,
        ..options
    };
    p.set_options(jobs(), options).unwrap();
    let expected = BusQueueOptions {
        max_delivery_count: 3,
        ..BusQueueOptions::default()
    };
    assert_eq!(p.view(&jobs()).options, expected);
    p.check_whole();
}
