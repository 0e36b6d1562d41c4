//! What instances say of themselves on their metrics pages: their tasks, how long a message takes, what they have
//! completed, and how busy their processors are.
//!
//! The counters of an instance end with it, so what it has completed is added up here. Of an instance that is new, only
//! what it completes from now on counts: it may have run for long. If one page cannot be read, completions are not known
//! at that look, because fewer of them would look like a smaller load.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use tokio::time::Instant;

use super::counted::{Counted, Counts, Key, Processors, between};
use super::instances::{Answer, Hosts, Instance};
use super::page::whole;
use super::{Seen, Workers};

/// As many instances are asked at most.
const INSTANCES_MAX: usize = 1_000;
/// As many pages are read at the same time.
const AT_ONCE_MAX: usize = 32;
/// As many are remembered: an instance that is away for a look must not count again.
const REMEMBERED_MAX: usize = 10_000;

/// The pages of a group's instances.
#[derive(Debug)]
pub(super) struct WorkerPages {
    pub(super) hosts: Hosts,
    /// The queues of the sources, in their order.
    queues: Vec<Key>,
    /// What each instance has counted.
    before: BTreeMap<String, Before>,
    /// What all of them have completed of each queue, while the agent looked.
    completed: BTreeMap<Key, u64>,
    /// What the last look has found.
    pub(super) last: Workers,
}

/// What an instance has said at its last reading.
#[derive(Debug)]
struct Before {
    at: Instant,
    counted: Counted,
    processors: Option<Processors>,
}

impl WorkerPages {
    pub(super) fn new(hosts: Hosts, queues: Vec<Key>) -> Self {
        Self {
            hosts,
            queues,
            before: BTreeMap::new(),
            completed: BTreeMap::new(),
            last: Workers::default(),
        }
    }

    /// Reads the pages of all instances until `end`.
    pub(super) async fn read(&mut self, end: Instant) {
        let (mut instances, errors) = self.hosts.find(end).await;
        let mut looked = Looked::default();
        errors.into_iter().for_each(|it| looked.fail(it));
        for left_out in instances.drain(INSTANCES_MAX.min(instances.len())..) {
            looked.fail(format!(
                "above the limit of {INSTANCES_MAX} instances: {}",
                left_out.name
            ));
        }
        let there: BTreeSet<String> = instances.iter().map(|it| it.name.clone()).collect();
        let pages = instances.into_iter().map(|it: Instance| it.read(end));
        let pages = stream::iter(pages).buffered(AT_ONCE_MAX);
        let mut answers: Vec<Answer> = pages.collect().await;
        self.hosts.of_one_family(&mut answers);
        for (instance, answer) in answers {
            match answer {
                Ok((counted, processors, at)) => {
                    let before = self.before.get(&instance.name);
                    looked.add(&between(before.map(|it| &it.counted), &counted));
                    let used = before.and_then(|before| {
                        let elapsed = at.duration_since(before.at);
                        processors?.used_since(before.processors?, elapsed)
                    });
                    looked.used(used);
                    looked.own.extend(instance.own.map(|it| it.instance));
                    let now = Before {
                        at,
                        counted,
                        processors,
                    };
                    self.before.insert(instance.name, now);
                }
                // It has not answered yet, so nothing that was known of it is missing.
                Err(_) if instance.own.is_some_and(|it| it.is_starting) => {}
                Err(error) => looked.fail(error),
            }
        }
        if self.before.len() > REMEMBERED_MAX {
            self.before.retain(|name, _| there.contains(name));
        }
        for (key, counts) in &looked.counts {
            let all = self.completed.entry(key.clone()).or_default();
            *all = all.saturating_add(counts.completed);
        }
        self.last = looked.workers(|key| self.is_of_group(key));
    }

    /// Completions of sources that do not count them, if all pages were read. Sources are those of the group, in order.
    pub(super) fn complete<'a>(&self, seen: impl Iterator<Item = &'a mut Seen>) {
        if self.last.silent > 0 {
            return;
        }
        for (queue, source) in self.queues.iter().zip(seen) {
            let counted = self.named(queue).and_then(|it| self.completed.get(it));
            if let Ok(reading) = &mut source.reading
                && reading.completed.is_none()
            {
                reading.completed = counted.copied();
            }
        }
    }

    /// How instances name a queue: by its account; or by another name, if that leaves no doubt.
    fn named(&self, queue: &Key) -> Option<&Key> {
        if let Some((own, _)) = self.completed.get_key_value(queue) {
            return Some(own);
        }
        let mut like = self.completed.keys().filter(|it| it.is_like(queue));
        let first = like.next()?;
        let sources = self.queues.iter().filter(|it| it.is_like(queue));
        (like.next().is_none() && sources.count() == 1).then_some(first)
    }

    fn is_of_group(&self, key: &Key) -> bool {
        self.queues.iter().any(|it| self.named(it) == Some(key))
    }
}

/// What one look adds up.
#[derive(Debug, Default)]
struct Looked {
    answered: u32,
    own: BTreeSet<u64>,
    silent: usize,
    error: Option<String>,
    counts: Counted,
    /// Seconds of processors that were used, and that there were.
    processors: (f64, f64),
}

impl Looked {
    fn fail(&mut self, error: String) {
        self.silent += 1;
        self.error.get_or_insert(error);
    }

    fn used(&mut self, more: Option<(f64, f64)>) {
        let (used, there) = more.unwrap_or_default();
        self.processors.0 += used;
        self.processors.1 += there;
    }

    fn add(&mut self, more: &Counted) {
        self.answered += 1;
        for (key, counts) in more {
            self.counts.entry(key.clone()).or_default().add(counts);
        }
    }

    /// What instances say of the queues of the group.
    fn workers(self, is_of_group: impl Fn(&Key) -> bool) -> Workers {
        let mut all = Counts::default();
        for (_, counts) in self.counts.iter().filter(|it| is_of_group(it.0)) {
            all.add(counts);
        }
        let mean = |all: f64, of: f64| (of > 0.0).then_some(all / of);
        let handling = mean(all.handled.1, all.handled.0);
        let handling = handling.and_then(|it| Duration::try_from_secs_f64(it).ok());
        let tasks = mean(all.tasks, f64::from(self.answered)).map(f64::ceil);
        let tasks = tasks.and_then(whole).and_then(|it| u32::try_from(it).ok());
        Workers {
            answered: self.answered,
            own: self.own,
            silent: self.silent,
            error: self.error,
            // Those that are idle have ended their tasks, and start them again.
            tasks: tasks.filter(|it| *it > 0),
            handling: handling.filter(|it| !it.is_zero()),
            cpu: mean(self.processors.0, self.processors.1).map(|it| it.min(1.0)),
        }
    }
}
