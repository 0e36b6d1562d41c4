//! `kew bus watch`: counts of queues, topics and subscriptions and their growth, again and again.

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use super::entity::{all_queues, entity_named};
use super::settings::EntityView;
use super::topics::topics_with_subscriptions;
use super::{Doors, Session};
use crate::bus_tool_args::WatchArgs;
use crate::queue_command::{
    Align, Failure, INTERVAL_MIN, Output, draw, end_signal, growth, note, rfc3339,
};

/// One look at all entities, as JSON on a line.
#[derive(Serialize)]
struct LookReport<'a> {
    time: String,
    queues: &'a [Row],
}

/// The observed state of a queue, topic or subscription. The counts are `None` if it does not exist.
#[derive(Serialize)]
struct Row {
    queue: String,
    active_messages: Option<u64>,
    scheduled_messages: Option<u64>,
    dead_letters: Option<u64>,
    failed_transfers: Option<u64>,
    /// Growth of the active messages per second since the last look; `None` at the first.
    growth_per_second: Option<f64>,
}

/// The previous look.
#[derive(Default)]
struct Past {
    at: Option<Instant>,
    counts: BTreeMap<String, u64>,
}

pub(super) fn watch(it: &mut Session, args: &WatchArgs) -> Result<(), Failure> {
    if args.interval < INTERVAL_MIN {
        return Err(Failure::Usage("--interval must be at least 100ms".into()));
    }
    let end = end_signal()?;
    let mut past = Past::default();
    let (mut looks, mut is_slow) = (0, false);
    loop {
        let begun = Instant::now();
        let seen = look(&it.doors, args, &mut past);
        is_slow = is_slow || note_slow(begun.elapsed(), args.interval);
        match seen {
            Ok(rows) => show(&rows, args.interval, &mut it.output)?,
            // If a server restarts, watching continues. If it never answered, the command ends.
            Err(failure) if looks > 0 && failure.is_temporary() => note(&failure.message()),
            Err(failure) => return Err(failure),
        }
        it.output.flush()?;
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        match end.recv_timeout(args.interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Many topics need many requests. Says so if a look takes longer than the time between two.
fn note_slow(took: Duration, interval: Duration) -> bool {
    let is_slow = took > interval;
    if is_slow {
        note(&format!(
            "a look took {:.1} s, longer than the interval of {:.1} s: name some queues, or use --prefix",
            took.as_secs_f64(),
            interval.as_secs_f64()
        ));
    }
    is_slow
}

fn look(doors: &Doors, args: &WatchArgs, past: &mut Past) -> Result<Vec<Row>, Failure> {
    let mut seen: Vec<(String, Option<EntityView>)> = Vec::new();
    if args.names.is_empty() {
        let prefix = args.prefix.as_str();
        let mut all = all_queues(doors)?;
        all.extend(topics_with_subscriptions(doors, |topic| {
            may_begin_with(topic, prefix)
        })?);
        all.retain(|it| it.name.starts_with(prefix));
        seen.extend(all.into_iter().map(|it| (it.name.clone(), Some(it))));
    }
    for name in &args.names {
        let found = entity_named(doors, name)?;
        let found = found.and_then(|found| EntityView::of(found, name));
        seen.push((name.clone(), found));
    }
    let now = Instant::now();
    let seconds = past.at.map(|at| now.duration_since(at).as_secs_f64());
    let mut counts = BTreeMap::new();
    let rows = seen
        .into_iter()
        .map(|(queue, found)| {
            let active = found.as_ref().and_then(|it| it.active_messages);
            if let Some(active) = active {
                counts.insert(queue.clone(), active);
            }
            Row {
                growth_per_second: growth(past.counts.get(&queue).copied(), active, seconds),
                active_messages: active,
                scheduled_messages: found.as_ref().and_then(|it| it.scheduled_messages),
                dead_letters: found.as_ref().and_then(|it| it.dead_letters),
                failed_transfers: found.as_ref().and_then(|it| it.failed_transfers),
                queue,
            }
        })
        .collect();
    *past = Past {
        at: Some(now),
        counts,
    };
    Ok(rows)
}

/// Whether the name of a subscription of a topic can begin so: it has the topic's name and a slash before its own.
fn may_begin_with(topic: &str, prefix: &str) -> bool {
    let rest = prefix.strip_prefix(topic);
    topic.starts_with(prefix) || rest.is_some_and(|rest| rest.starts_with('/'))
}

fn show(rows: &[Row], interval: Duration, output: &mut Output) -> Result<(), Failure> {
    let time = rfc3339(SystemTime::now());
    if output.json {
        return Ok(output.object(&LookReport { time, queues: rows })?);
    }
    let columns = [
        ("QUEUE", Align::Left),
        ("ACTIVE", Align::Right),
        ("SCHEDULED", Align::Right),
        ("DEAD", Align::Right),
        ("FAILED", Align::Right),
        ("GROWTH/S", Align::Right),
    ];
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    draw(&time, interval, &columns, &cells, output)
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let count = |count: Option<u64>| count.map_or_else(|| "-".into(), |it| it.to_string());
        let active = self.active_messages;
        let growth = self.growth_per_second;
        vec![
            self.queue.clone(),
            active.map_or_else(|| "not there".into(), |it| it.to_string()),
            count(self.scheduled_messages),
            count(self.dead_letters),
            count(self.failed_transfers),
            growth.map_or_else(|| "-".into(), |growth| format!("{growth:+.1}")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_slow_if_it_takes_longer_than_the_interval() {
        let ms = Duration::from_millis;
        assert!(note_slow(ms(101), ms(100)));
        assert!(!note_slow(ms(100), ms(100)));
    }

    #[test]
    fn topics_whose_subscriptions_cannot_match_are_not_asked() {
        for (topic, prefix, expected) in [
            ("news", "", true),
            ("news", "ne", true),
            ("news", "news", true),
            ("news", "news/subscriptions/a", true),
            ("news", "newspaper", false),
            ("news", "old", false),
        ] {
            assert_eq!(may_begin_with(topic, prefix), expected, "{topic} {prefix}");
        }
    }
}
