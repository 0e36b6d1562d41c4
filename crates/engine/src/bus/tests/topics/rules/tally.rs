//! What became of the messages of a topic, by a ledger of what was asked for.

use super::*;
use crate::overview::TopicOverview;

const DEFAULT: &str = "$Default";

fn texts(texts: &[&str]) -> Vec<BusMessage> {
    texts.iter().map(|it| text(it)).collect()
}

fn seen(p: &mut Partition) -> TopicOverview {
    let mut overview = p.state.overview(None, p.now, 1000);
    overview.topics.remove(0)
}

#[test]
fn counters_are_the_ledger_of_a_load() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.publish(texts(&["color=red"])).unwrap();
    assert_eq!(seen(&mut p).tally.unmatched, 1);
    let wanted = BusQueueOptions {
        dead_letters_filter_failures: true,
        ..BusQueueOptions::default()
    };
    p.subscribe("red", BusQueueOptions::default()).unwrap();
    p.set_rule("red", rule(DEFAULT, correlation("red")))
        .unwrap();
    for (name, options) in [("fails", wanted), ("drops", BusQueueOptions::default())] {
        p.subscribe(name, options).unwrap();
        p.set_rule(name, rule(DEFAULT, sql("10 / size > 1")))
            .unwrap();
    }
    assert_eq!(
        (seen(&mut p).rules, seen(&mut p).tally.filter_steps),
        (3, 0)
    );
    // A copy; a dead letter, and a failure that nobody wants; nothing.
    p.publish(texts(&["color=red\nsize=20", "size=0", "size=20"]))
        .unwrap();
    let TopicOverview { tally, pending, .. } = seen(&mut p);
    assert_eq!((tally.published, tally.copies, tally.unmatched), (4, 2, 2));
    assert_eq!((tally.filter_failures, pending), (2, 0));
    assert!(tally.filter_steps > 0);
    // A plain copy for each, and `$Default` is a rule.
    p.subscribe("all", BusQueueOptions::default()).unwrap();
    p.publish(texts(&["size=20"])).unwrap();
    let after = seen(&mut p);
    assert_eq!((after.tally.published, after.tally.copies), (5, 3));
    assert_eq!(after.rules, 4);
}

#[test]
fn a_replay_counts_nothing_of_topics() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.publish(texts(&["x=1"])).unwrap();
    assert_eq!(seen(&mut p).tally.copies, 1);
    let mut replayed = p.replayed();
    assert_eq!(replayed, p.state);
    let overview = replayed.overview(None, p.now, 1000);
    assert_eq!(overview.topics[0].tally, Default::default());
}

/// Nobody receives from a topic, but messages can stay there: some wait for their time, and some cannot go on.
#[test]
fn what_is_in_a_topic_itself_is_counted() {
    let mut p = Partition::with_topic(BusQueueOptions::default());
    p.subscribe_all(&["a"]);
    p.set_rule("a", rule(DEFAULT, correlation("red"))).unwrap();
    let later = BusMessage {
        scheduled_at: Some(p.now.plus_ms(60_000)),
        ..text("later")
    };
    p.publish(vec![later.clone(), later]).unwrap();
    p.copies_at_once = 0;
    p.publish(vec![text("color=red"); 3]).unwrap();
    let counts = |p: &mut Partition| {
        let topic = seen(p);
        assert_eq!(topic.size_bytes, p.view(&entity("t")).counts.size_bytes);
        [topic.pending, topic.scheduled, topic.failed_transfers]
    };
    assert_eq!(counts(&mut p), [3, 2, 0]);
    let of = p.topic_incarnation();
    let waiting = p.state.bus[&of].backlog.table().first_ready().unwrap();
    let body = p.state.bus[&of].backlog.get(waiting).unwrap().body;
    p.log.damaged.insert(body);
    if let Some(cold) = &mut p.cold {
        cold.damage(body);
    }
    p.tick();
    assert_eq!(counts(&mut p), [0, 2, 1]);
    assert_eq!(p.view(&subscription("a")).counts.active, 2);
}
