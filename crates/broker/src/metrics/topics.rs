//! Counts of topics, as metrics.

use kew_engine::TopicOverview;
use kew_metrics::{Family, Unit};

use super::queues::age_seconds;
use super::{label, none};
use crate::overview::{BUS_STATES, Counted as _, Picture};

/// Where a message can be that is in a topic itself: nobody receives there.
const TOPIC_STATES: [&str; 3] = ["active", "scheduled", "failed_transfer"];

/// A counter of topics: its name, its help and its value.
type Row = (&'static str, &'static str, fn(&TopicOverview) -> u64);

const COUNTERS: [Row; 6] = [
    (
        "kew_bus_topic_published",
        "Messages sent or forwarded to a topic, without duplicates",
        |it| it.tally.published,
    ),
    (
        "kew_bus_topic_duplicates",
        "Messages sent or forwarded to a topic that were dropped as duplicates",
        |it| it.duplicates,
    ),
    (
        "kew_bus_topic_copies",
        "Copies made in the subscriptions of a topic",
        |it| it.tally.copies,
    ),
    (
        "kew_bus_topic_unmatched",
        "Messages sent to a topic of which no subscription got a copy",
        |it| it.tally.unmatched,
    ),
    (
        "kew_bus_topic_filter_failures",
        "How often rules of a subscription failed on a message of a topic",
        |it| it.tally.filter_failures,
    ),
    (
        "kew_bus_topic_filter_steps",
        "Steps that comparing messages of a topic with rules took",
        |it| it.tally.filter_steps,
    ),
];

pub(super) fn topic_families(read: Option<&Picture>) -> Vec<Family> {
    let mut count = Family::gauge("kew_bus_topics", Unit::None, "Topics");
    let mut pending = Family::gauge(
        "kew_bus_topic_pending",
        Unit::None,
        "Messages of a topic that wait for their copies",
    );
    let mut oldest = Family::gauge(
        "kew_bus_topic_pending_age",
        Unit::Seconds,
        "Time since the oldest of these messages was sent; nothing if there is none",
    );
    let mut messages = Family::gauge(
        "kew_bus_topic_messages",
        Unit::None,
        "Messages that are in a topic itself: those that wait for their copies are active",
    );
    let mut sizes = Family::gauge(
        "kew_bus_topic_size",
        Unit::Bytes,
        "What a topic and its subscriptions take of the topic's quota",
    );
    let mut rules = Family::gauge(
        "kew_bus_topic_rules",
        Unit::None,
        "Rules in force of the subscriptions of a topic",
    );
    let of = |namespace: &str, topic: &str| {
        [label("namespace", namespace), label("topic", topic)].concat()
    };
    if let Some(read) = read {
        count = count.count(none(), read.topics.count);
        for (namespace, topic, sum) in read.topics.named() {
            pending = pending.count(of(namespace, topic), sum.pending);
            for (state, count) in BUS_STATES.iter().zip(sum.messages()) {
                if TOPIC_STATES.contains(state) {
                    let labels = [of(namespace, topic), label("state", state)].concat();
                    messages = messages.count(labels, count);
                }
            }
            sizes = sizes.count(of(namespace, topic), sum.size_bytes);
            rules = rules.count(of(namespace, topic), sum.rules);
            if let Some(oldest_at) = sum.oldest_at {
                oldest = oldest.amount(of(namespace, topic), age_seconds(&read.status, oldest_at));
            }
        }
    }
    let topics = read.map_or(&[][..], |read| read.topics.largest());
    let counters = COUNTERS.map(|(name, help, value)| {
        let family = Family::counter(name, Unit::None, help);
        topics.iter().fold(family, |family, topic| {
            let name = topic.name();
            family.count(of(&name.account, &name.name), value(topic))
        })
    });
    let mut families = vec![count, messages, sizes, pending, oldest, rules];
    families.extend(counters);
    families
}
