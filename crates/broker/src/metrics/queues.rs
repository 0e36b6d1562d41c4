//! Counts of queues, as metrics.

use std::time::Duration;

use kew_engine::{Flow, Timestamp};
use kew_metrics::{Family, Unit};

use super::{label, none};
use crate::overview::{BUS_STATES, Counted, Picture, Queues, Status};

/// A counter of what came into a queue, or left it: its name, its help and its value.
type Row = (&'static str, &'static str, fn(&Flow) -> u64);

/// Counters of what came into each queue and left it.
fn flow_families<Q: Counted, const N: usize>(
    rows: [Row; N],
    queues: Option<&Queues<Q>>,
    account: &'static str,
    flow: impl Fn(&Q) -> Flow,
) -> [Family; N] {
    let queues = queues.map(Queues::largest).unwrap_or_default();
    rows.map(|(name, help, value)| {
        let family = Family::counter(name, Unit::None, help);
        queues.iter().fold(family, |family, queue| {
            let name = queue.name();
            let of = [label(account, &name.account), label("queue", &name.name)].concat();
            family.count(of, value(&flow(queue)))
        })
    })
}

pub(super) fn age_seconds(status: &Status, at: Timestamp) -> f64 {
    let age_ms = status.now.as_ms().saturating_sub(at.as_ms());
    Duration::from_millis(age_ms).as_secs_f64()
}

pub(super) fn queue_families(read: Option<&Picture>) -> Vec<Family> {
    let mut queues = Family::gauge("kew_queues", Unit::None, "Queues");
    let mut messages = Family::gauge(
        "kew_messages",
        Unit::None,
        "Messages of all queues, visible and invisible (leased or delayed)",
    );
    let mut by_queue = Family::gauge(
        "kew_queue_messages",
        Unit::None,
        "Messages of a queue, visible and invisible (leased or delayed)",
    );
    let mut oldest = Family::gauge(
        "kew_queue_oldest_message_age",
        Unit::Seconds,
        "Time since the oldest message of a queue was sent; nothing for an empty queue",
    );
    if let Some(read) = read {
        let counted = &read.queues;
        queues = queues.count(none(), counted.count);
        let all = counted.total();
        messages = messages
            .count(label("state", "visible"), all.visible())
            .count(label("state", "invisible"), all.hidden);
        for (account, queue, sum) in counted.named() {
            let of = || vec![("account", account.to_owned()), ("queue", queue.to_owned())];
            let with = |state: &str| [of(), label("state", state)].concat();
            by_queue = by_queue
                .count(with("visible"), sum.visible())
                .count(with("invisible"), sum.hidden);
            if let Some(oldest_at) = sum.oldest_at {
                oldest = oldest.amount(of(), age_seconds(&read.status, oldest_at));
            }
        }
    }
    let flows: [Row; 2] = [
        (
            "kew_queue_messages_arrived",
            "Messages that came into a queue; not for (other)",
            |it| it.arrived,
        ),
        (
            "kew_queue_messages_completed",
            "Messages deleted from a queue, without expired and cleared ones; not for (other)",
            |it| it.completed,
        ),
    ];
    let flows = flow_families(flows, read.map(|read| &read.queues), "account", |it| {
        it.flow
    });
    [vec![queues, messages, by_queue, oldest], flows.into()].concat()
}

pub(super) fn bus_queue_families(read: Option<&Picture>) -> Vec<Family> {
    let mut queues = Family::gauge("kew_bus_queues", Unit::None, "Queues of Service Bus");
    let mut messages = Family::gauge(
        "kew_bus_messages",
        Unit::None,
        "Messages of all queues, subscriptions and topics of Service Bus and of their sub-queues",
    );
    let mut by_queue = Family::gauge(
        "kew_bus_queue_messages",
        Unit::None,
        "Messages of a queue of Service Bus and of its sub-queues",
    );
    let mut sizes = Family::gauge(
        "kew_bus_queue_size",
        Unit::Bytes,
        "What a queue of Service Bus and its sub-queues take of the queue's quota",
    );
    let mut sessions = Family::gauge(
        "kew_bus_queue_sessions_locked",
        Unit::None,
        "Sessions of a queue of Service Bus that a receiver has locked",
    );
    let mut oldest = Family::gauge(
        "kew_bus_queue_oldest_message_age",
        Unit::Seconds,
        "Time since the oldest message came into a queue of Service Bus, but for scheduled ones and \
         sub-queues; nothing if there is none",
    );
    if let Some(read) = read {
        let counted = &read.bus_queues;
        queues = queues.count(none(), counted.count);
        let of_topics = read.topics.total().messages();
        let all = counted.total().messages.into_iter().zip(of_topics);
        for (state, (of_queues, of_topics)) in BUS_STATES.iter().zip(all) {
            messages = messages.count(label("state", state), of_queues + of_topics);
        }
        for (namespace, queue, sum) in counted.named() {
            let of = || [label("namespace", namespace), label("queue", queue)].concat();
            for (state, count) in BUS_STATES.iter().zip(sum.messages) {
                by_queue = by_queue.count([of(), label("state", state)].concat(), count);
            }
            sizes = sizes.count(of(), sum.size_bytes);
            sessions = sessions.count(of(), sum.sessions_locked);
            if let Some(oldest_at) = sum.oldest_at {
                oldest = oldest.amount(of(), age_seconds(&read.status, oldest_at));
            }
        }
    }
    let flows: [Row; 3] = [
        (
            "kew_bus_queue_messages_arrived",
            "Messages that came into a queue of Service Bus, scheduled ones when they became active; not for (other)",
            |it| it.arrived,
        ),
        (
            "kew_bus_queue_messages_completed",
            "Messages that left a queue of Service Bus, without expired ones and cancelled schedules; not for (other)",
            |it| it.completed,
        ),
        (
            "kew_bus_queue_duplicates",
            "Messages sent to a queue of Service Bus that were dropped as duplicates; not for (other)",
            |it| it.duplicates,
        ),
    ];
    let flows = flow_families(
        flows,
        read.map(|read| &read.bus_queues),
        "namespace",
        |it| it.flow,
    );
    let states = vec![queues, messages, by_queue, sizes, sessions, oldest];
    [states, flows.into()].concat()
}
