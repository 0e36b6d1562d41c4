//! What instances say of themselves on their metrics pages: their tasks, how long a message takes, and what they have
//! completed.
//!
//! The counters of an instance end with it, so what it has completed is added up here. Of an instance that is new, only
//! what it completes from now on counts: it may have run for long. If one page cannot be read, completions are not known
//! at that look, because fewer of them would look like a smaller load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kew_client::Dial;
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout_at};

use super::page::{Families, Page, whole};
use super::{Seen, Workers};
use crate::config::PageUrl;

/// As many instances are asked at most.
const INSTANCES_MAX: usize = 1_000;
/// As many are remembered: an instance that is away for a look must not count again.
const REMEMBERED_MAX: usize = 10_000;

/// The pages of a group's instances.
pub(super) struct WorkerPages {
    urls: Vec<PageUrl>,
    dial: Option<Arc<dyn Dial>>,
    /// What each instance has counted.
    before: BTreeMap<String, Counted>,
    /// What all of them have completed of each queue, while the agent looked.
    completed: BTreeMap<String, u64>,
    /// What the last look has found.
    pub(super) last: Workers,
}

impl std::fmt::Debug for WorkerPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WorkerPages").field(&self.urls).finish()
    }
}

/// What the page of an instance says.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counted {
    /// Messages completed, by the queue in small letters.
    completed: BTreeMap<String, u64>,
    /// Messages handled, and the seconds that they took together.
    handled: (f64, f64),
    tasks: f64,
}

impl WorkerPages {
    pub(super) fn new(urls: &[PageUrl], dial: Option<Arc<dyn Dial>>) -> Self {
        Self {
            urls: urls.to_vec(),
            dial,
            before: BTreeMap::new(),
            completed: BTreeMap::new(),
            last: Workers::default(),
        }
    }

    /// Reads the pages of all instances until `end`.
    pub(super) async fn read(&mut self, end: Instant) {
        let found = timeout_at(end, self.instances()).await;
        let (instances, unknown) = found.unwrap_or_else(|_| (Vec::new(), self.urls.len()));
        let pages = instances.iter().map(|(name, page)| async move {
            let read = timeout_at(end, page.families()).await;
            (name, read.ok().and_then(Result::ok))
        });
        let pages = join_all(pages).await;
        let mut looked = Looked::default();
        for (name, families) in pages {
            match families {
                Some(families) => {
                    let counted = Counted::of(&families);
                    let before = self.before.insert(name.clone(), counted.clone());
                    looked.add(&counted, before.as_ref());
                }
                None => looked.silent += 1,
            }
        }
        if self.before.len() > REMEMBERED_MAX {
            let is_there = |name: &str| instances.iter().any(|it| it.0 == name);
            self.before.retain(|name, _| is_there(name));
        }
        for (queue, count) in looked.completed.clone() {
            let all = self.completed.entry(queue).or_default();
            *all = all.saturating_add(count);
        }
        self.last = looked.workers(unknown);
    }

    /// Completions of sources that do not count them, if all pages were read.
    pub(super) fn complete<'a>(&self, seen: impl Iterator<Item = (&'a str, &'a mut Seen)>) {
        if self.last.silent > 0 {
            return;
        }
        for (queue, source) in seen {
            let counted = self.completed.get(&queue.to_ascii_lowercase()).copied();
            if let Ok(reading) = &mut source.reading
                && reading.completed.is_none()
            {
                reading.completed = counted;
            }
        }
    }

    /// Each instance with its name and its page, and how many names lead nowhere.
    async fn instances(&self) -> (Vec<(String, Page)>, usize) {
        let mut instances = Vec::new();
        let mut unknown = 0;
        for url in &self.urls {
            let hosts = match &self.dial {
                Some(_) => vec![url.host.clone()],
                None => match lookup_host((&*url.host, url.port)).await {
                    Ok(found) => found.map(|it| it.ip().to_string()).collect(),
                    Err(_) => Vec::new(),
                },
            };
            unknown += usize::from(hosts.is_empty());
            for host in hosts {
                let name = format!("{host} {url}");
                let mut url = url.clone();
                url.host = host;
                let dial = self.dial.clone();
                instances.push((name, Page { url, dial }));
            }
        }
        instances.truncate(INSTANCES_MAX);
        (instances, unknown)
    }
}

/// What one look adds up.
#[derive(Debug, Default)]
struct Looked {
    answered: u32,
    silent: usize,
    tasks: f64,
    handled: (f64, f64),
    completed: BTreeMap<String, u64>,
}

impl Looked {
    fn add(&mut self, counted: &Counted, before: Option<&Counted>) {
        self.answered += 1;
        self.tasks += counted.tasks;
        for (queue, now) in &counted.completed {
            // It may have been there for long, without being seen.
            let then = before.map_or(*now, |it| it.completed.get(queue).copied().unwrap_or(0));
            // Of an instance that begins again, all counts.
            let more = now.checked_sub(then).unwrap_or(*now);
            *self.completed.entry(queue.clone()).or_default() += more;
        }
        if let Some(before) = before.filter(|it| it.handled.0 <= counted.handled.0) {
            self.handled.0 += counted.handled.0 - before.handled.0;
            self.handled.1 += counted.handled.1 - before.handled.1;
        }
    }

    fn workers(&self, unknown: usize) -> Workers {
        let mean = |all: f64, of: f64| (of > 0.0).then_some(all / of);
        let handling = mean(self.handled.1, self.handled.0);
        let handling = handling.and_then(|it| Duration::try_from_secs_f64(it).ok());
        let tasks = mean(self.tasks, f64::from(self.answered)).map(f64::ceil);
        let tasks = tasks.and_then(whole).and_then(|it| u32::try_from(it).ok());
        Workers {
            answered: self.answered,
            silent: self.silent + unknown,
            // Those that are idle have ended their tasks, and start them again.
            tasks: tasks.filter(|it| *it > 0),
            handling: handling.filter(|it| !it.is_zero()),
        }
    }
}

impl Counted {
    fn of(page: &Families) -> Self {
        let mut counted = Self::default();
        let samples = |family: &str| page.get(family).map_or(&[][..], |it| &it.samples);
        for (_, labels, value) in samples("kew_worker_completed") {
            let queue = labels.get("queue").map_or("", String::as_str);
            let count = counted
                .completed
                .entry(queue.to_ascii_lowercase())
                .or_default();
            *count = count.saturating_add(whole(*value).unwrap_or(0));
        }
        for (_, _, value) in samples("kew_worker_active_tasks") {
            counted.tasks += value;
        }
        for (name, _, value) in samples("kew_worker_handling_seconds") {
            match name.as_str() {
                "kew_worker_handling_seconds_count" => counted.handled.0 += value,
                "kew_worker_handling_seconds_sum" => counted.handled.1 += value,
                _ => {}
            }
        }
        counted
    }
}
