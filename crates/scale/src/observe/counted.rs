//! What the page of an instance says of each queue that it handles.

use std::collections::BTreeMap;
use std::time::Duration;

use super::page::{Families, whole};

/// A queue of an account, in small letters. Programs choose the name of the account themselves.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Key {
    account: String,
    queue: String,
}

impl Key {
    pub(super) fn new(account: &str, queue: &str) -> Self {
        Self {
            account: account.to_ascii_lowercase(),
            queue: queue.to_ascii_lowercase(),
        }
    }

    /// Whether both name the same queue, perhaps of different accounts.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.queue == other.queue
    }
}

/// What was counted of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// Messages that were completed or moved to another queue.
    pub(super) completed: u64,
    /// Messages handled, and the seconds that they took together.
    pub(super) handled: (f64, f64),
    pub(super) tasks: f64,
}

/// Counts by queue.
pub(super) type Counted = BTreeMap<Key, Counts>;

/// What an instance has used of its processors since it started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Processors {
    seconds: f64,
    count: f64,
}

impl Processors {
    /// What a page says, if it says that.
    pub(super) fn on(page: &Families) -> Option<Self> {
        let only = |name: &str| {
            let family = page.get(name)?;
            let value = family.samples.first()?.2;
            (value.is_finite() && value >= 0.0).then_some(value)
        };
        let seconds = only("process_cpu_seconds")?;
        let count = only("kew_worker_processors").filter(|it| *it > 0.0)?;
        Some(Self { seconds, count })
    }

    /// Processor time used since an earlier reading, and what there was of it. `None` if the instance began again.
    pub(super) fn used_since(self, before: Self, elapsed: Duration) -> Option<(f64, f64)> {
        let used = self.seconds - before.seconds;
        (used >= 0.0).then_some((used, self.count * elapsed.as_secs_f64()))
    }
}

/// What a page says.
pub(super) fn counted(page: &Families) -> Counted {
    let mut counted = Counted::new();
    let families = [
        "kew_worker_completed",
        "kew_worker_buried",
        "kew_worker_active_tasks",
        "kew_worker_handling_seconds",
    ];
    let families = families.iter().filter_map(|it| page.get(*it));
    for (name, labels, value) in families.flat_map(|it| &it.samples) {
        let label = |name: &str| labels.get(name).map_or("", String::as_str);
        let key = Key::new(label("account"), label("queue"));
        let counts = counted.entry(key).or_default();
        match name.as_str() {
            "kew_worker_active_tasks" => counts.tasks += value,
            "kew_worker_handling_seconds_count" => counts.handled.0 += value,
            "kew_worker_handling_seconds_sum" => counts.handled.1 += value,
            "kew_worker_handling_seconds_bucket" => {}
            // Names of counters end in some formats.
            _ => {
                let count = whole(*value).unwrap_or(0);
                counts.completed = counts.completed.saturating_add(count);
            }
        }
    }
    counted
}

/// What was counted between two readings of one instance.
pub(super) fn between(before: Option<&Counted>, now: &Counted) -> Counted {
    let more = |(key, now): (&Key, &Counts)| {
        let then = before.map(|it| it.get(key).copied().unwrap_or_default());
        (key.clone(), now.since(then))
    };
    now.iter().map(more).collect()
}

impl Counts {
    fn since(self, before: Option<Self>) -> Self {
        // An instance that is new may have been there for long, without being seen.
        let then = before.unwrap_or(self);
        let is_later = then.handled.0 <= self.handled.0;
        let handled = (
            self.handled.0 - then.handled.0,
            self.handled.1 - then.handled.1,
        );
        Self {
            // Of an instance that begins again, all counts.
            completed: self
                .completed
                .checked_sub(then.completed)
                .unwrap_or(self.completed),
            handled: if is_later { handled } else { (0.0, 0.0) },
            tasks: self.tasks,
        }
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.completed = self.completed.saturating_add(more.completed);
        self.handled.0 += more.handled.0;
        self.handled.1 += more.handled.1;
        self.tasks += more.tasks;
    }
}
