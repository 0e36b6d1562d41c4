//! A topic that refuses messages that no rule selects.

use super::*;

const WINDOW_MS: u64 = 20_000;

fn filters() -> BusQueueOptions {
    BusQueueOptions {
        filters_before_publishing: true,
        ..BusQueueOptions::default()
    }
}

fn unmatched(message: u64) -> Result<BusOutcome, BusRefusal> {
    let queue = topic().name;
    Err(BusRefusal::NoMatchingSubscription { queue, message })
}

impl Partition {
    /// A topic that filters, with a subscription that gets red messages.
    fn that_filters(options: BusQueueOptions) -> Self {
        let mut p = Self::with_topic(options);
        p.subscribe_all(&["a"]);
        p.set_rule("a", rule("$Default", correlation("red")))
            .unwrap();
        p
    }

    fn send_texts(&mut self, texts: &[&str]) -> Result<BusOutcome, BusRefusal> {
        self.publish(texts.iter().map(|it| text(it)).collect())
    }

    fn count_in(&mut self, name: &str) -> u64 {
        self.view(&subscription(name)).counts.active
    }
}

#[test]
fn a_message_that_no_rule_selects_is_refused() {
    let mut p = Partition::with_topic(filters());
    let events = p.log.events.len();
    // Nobody is there.
    assert_eq!(p.send_texts(&["color=red"]), unmatched(1));
    assert_eq!(p.log.events.len(), events);
    p.subscribe_all(&["a"]);
    p.send_texts(&["color=red"]).unwrap();
    p.set_rule("a", rule("$Default", correlation("red")))
        .unwrap();
    p.subscribe_all(&["b"]);
    p.remove_rule("b", "$Default").unwrap();

    // All are sent, or none.
    let (events, bodies) = (p.log.events.len(), p.log.bodies.len());
    for (texts, refused) in [
        (&["color=blue"][..], 1),
        (&["color=red", "color=blue"], 2),
        (&["x", "color=red"], 1),
    ] {
        assert_eq!(p.send_texts(texts), unmatched(refused), "{texts:?}");
    }
    assert_eq!((p.log.events.len(), p.log.bodies.len()), (events, bodies));
    let numbers = [2, 3].map(|it| Some(SequenceNumber::new(it)));
    let sent = p.send_texts(&["color=red", "color=red"]);
    assert_eq!(sent, Ok(BusOutcome::Sent(numbers.into())));
    assert_eq!((p.count_in("a"), p.count_in("b")), (3, 0));
    p.add_rule("b", with_action("all", "SET x = 1")).unwrap();
    p.send_texts(&["color=blue"]).unwrap();
    assert_eq!((p.count_in("a"), p.count_in("b")), (3, 1));
    p.check_rules();
}

/// A rule without a filter selects all, and the message is not even looked at.
#[test]
fn the_setting_changes() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.send_texts(&["x"]).unwrap();
    let set = |p: &mut Partition, options| {
        let queue = topic();
        p.ask(BusCommand::UpdateQueue { queue, options }).unwrap();
    };
    set(&mut p, filters());
    assert_eq!(p.view(&topic()).options, filters());
    assert_eq!(p.send_texts(&["x"]), unmatched(1));
    p.check_whole();
    p.state = p.restored();
    p.cold = None;
    assert_eq!(p.send_texts(&["x"]), unmatched(1));
    set(&mut p, BusQueueOptions::default());
    p.send_texts(&["x"]).unwrap();
    set(&mut p, filters());
    p.subscribe_all(&["a"]);
    p.send_texts(&["x"]).unwrap();
    assert_eq!(p.count_in("a"), 1);
    p.check_whole();
}

/// A dead letter is a copy, too.
#[test]
fn a_failure_selects_if_it_becomes_a_dead_letter() {
    let mut p = Partition::with_topic(filters());
    let wants = BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    p.subscribe_all(&["silent"]);
    p.set_rule("silent", rule("$Default", sql("1 / size = 1")))
        .unwrap();
    assert_eq!(p.send_texts(&["size=0"]), unmatched(1));
    p.subscribe("wants", wants).unwrap();
    p.set_rule("wants", rule("$Default", sql("1 / size = 1")))
        .unwrap();
    p.send_texts(&["size=0"]).unwrap();
    let counts = p.view(&subscription("wants")).counts;
    assert_eq!((counts.active, counts.dead_letters), (0, 1));
    p.check_rules();
}

/// It was accepted before, and a repeated send learns that, whatever rules say now.
#[test]
fn a_duplicate_is_accepted() {
    let mut p = Partition::that_filters(BusQueueOptions {
        duplicate_window_ms: Some(WINDOW_MS),
        ..filters()
    });
    let red = BusMessage {
        message_id: Some("id".into()),
        ..text("color=red")
    };
    p.publish(vec![red.clone()]).unwrap();
    p.set_rule("a", rule("$Default", correlation("blue")))
        .unwrap();
    let again = p.publish(vec![red.clone()]);
    assert_eq!(again, Ok(BusOutcome::Sent(vec![None])));
    // Without rules that look at messages, too.
    p.remove_rule("a", "$Default").unwrap();
    let again = p.publish(vec![red.clone()]);
    assert_eq!(again, Ok(BusOutcome::Sent(vec![None])));
    p.pass_ms(WINDOW_MS);
    assert_eq!(p.publish(vec![red]), unmatched(1));
    p.check_rules();
}

/// The first one of an id is sent, and the others are dropped, whatever they are.
#[test]
fn a_duplicate_inside_one_send_is_dropped() {
    let mut p = Partition::that_filters(BusQueueOptions {
        duplicate_window_ms: Some(WINDOW_MS),
        ..filters()
    });
    let with_id = |id: &str, body| BusMessage {
        message_id: Some(id.into()),
        ..text(body)
    };
    let sent = p.publish(vec![
        with_id("1", "color=red"),
        with_id("1", "color=blue"),
        with_id("2", "color=red"),
        with_id("2", "color=blue"),
    ]);
    let numbers = [Some(1), None, Some(2), None].map(|it| it.map(SequenceNumber::new));
    assert_eq!(sent, Ok(BusOutcome::Sent(numbers.into())));
    assert_eq!(p.count_in("a"), 2);
    // What a topic does not accept makes no other one a duplicate.
    let refused = p.publish(vec![with_id("3", "color=blue"), with_id("3", "color=red")]);
    assert_eq!(refused, unmatched(1));
    // Without rules that look at messages, too.
    p.remove_rule("a", "$Default").unwrap();
    let later = BusMessage {
        scheduled_at: Some(p.now.plus_ms(1_000)),
        ..with_id("4", "x")
    };
    let sent = p.publish(vec![later, with_id("4", "x")]);
    let numbers = [Some(3), None].map(|it| it.map(SequenceNumber::new));
    assert_eq!(sent, Ok(BusOutcome::Sent(numbers.into())));
    p.check_rules();
}

#[test]
fn rules_decide_about_a_scheduled_message_when_it_becomes_active() {
    let mut p = Partition::that_filters(filters());
    let at = |ms| Some(Timestamp::from_ms(1_000_000).plus_ms(ms));
    let scheduled = |body, ms| BusMessage {
        scheduled_at: at(ms),
        ..text(body)
    };
    p.pass_ms(1_000);
    // What is due already is not scheduled.
    assert_eq!(p.publish(vec![scheduled("color=blue", 500)]), unmatched(1));
    p.publish(vec![
        scheduled("color=blue\n1", 2_000),
        scheduled("color=blue\n2", 4_000),
    ])
    .unwrap();
    // Nobody gets the first one: no sender waits for an answer any more.
    p.pass_ms(2_000);
    p.tick();
    p.set_rule("a", rule("$Default", correlation("blue")))
        .unwrap();
    p.pass_ms(2_000);
    p.tick();
    assert_eq!(p.copies_in("a"), [("color=blue\n2".to_owned(), None)]);
    assert_eq!(p.view(&topic()).counts.scheduled, 0);
    p.check_rules();
}

#[test]
fn a_forward_is_not_refused() {
    let mut p = Partition::that_filters(filters());
    let options = BusQueueOptions {
        forward_to: Some("t".into()),
        ..BusQueueOptions::default()
    };
    p.create(&jobs(), options).unwrap();
    p.send(text("color=blue")).unwrap();
    p.send(text("color=red")).unwrap();
    p.tick();
    assert_eq!(p.copies_in("a"), [("color=red".to_owned(), None)]);
    let of_topic = p.view(&topic()).counts;
    assert_eq!((of_topic.active, of_topic.failed_transfers), (0, 0));
    assert_eq!(p.counts().dead_letters, 0);
    p.check_rules();
}

/// What waits behind others is compared, too.
#[test]
fn a_topic_that_falls_behind_refuses_the_same() {
    let mut p = Partition::that_filters(filters());
    p.copies_at_once = 1;
    p.send_texts(&["color=red\n1", "color=red\n2"]).unwrap();
    assert_eq!(p.view(&topic()).counts.active, 1);
    let events = p.log.events.len();
    assert_eq!(p.send_texts(&["color=red\n3", "x"]), unmatched(2));
    assert_eq!(p.log.events.len(), events);
    p.send_texts(&["color=red\n3"]).unwrap();
    assert_eq!(p.view(&topic()).counts.active, 2);
    p.tick();
    assert_eq!(p.count_in("a"), 3);
    p.check_rules();
}

/// So many steps are for all messages of a send, also if one of them waits.
#[test]
fn what_takes_too_many_steps_counts_as_selected() {
    let mut p = Partition::that_filters(filters());
    let slow = format!("a={}", "x".repeat(60_000));
    p.subscribe_all(&["b"]);
    p.set_rule("b", rule("$Default", sql("a LIKE '%y%'")))
        .unwrap();
    // One alone is compared in any case.
    assert_eq!(p.publish(vec![text(&slow)]), unmatched(1));
    let red = format!("color=red\n{slow}");
    p.state.take_copied();
    p.publish(vec![text(&red), text("x"), text(&slow)]).unwrap();
    let steps = p.state.take_copied();
    assert!((60_000..62_000).contains(&steps), "{steps}");
    assert_eq!(p.view(&topic()).counts.active, 2);
    p.tick();
    // Nobody got the others.
    assert_eq!((p.count_in("a"), p.count_in("b")), (1, 0));
    assert_eq!(p.view(&topic()).counts.active, 0);
    p.check_rules();
}
