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

use super::counted::{Counted, Counts, Key, between, counted};
use super::page::{Page, whole};
use super::{Seen, Workers};
use crate::config::PageUrl;

/// As many instances are asked at most.
const INSTANCES_MAX: usize = 1_000;
/// As many are remembered: an instance that is away for a look must not count again.
const REMEMBERED_MAX: usize = 10_000;

/// The pages of a group's instances.
pub(super) struct WorkerPages {
    urls: Vec<PageUrl>,
    /// The queues of the sources, in their order.
    queues: Vec<Key>,
    dial: Option<Arc<dyn Dial>>,
    /// What each instance has counted.
    before: BTreeMap<String, Counted>,
    /// What all of them have completed of each queue, while the agent looked.
    completed: BTreeMap<Key, u64>,
    /// What the last look has found.
    pub(super) last: Workers,
}

impl std::fmt::Debug for WorkerPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WorkerPages").field(&self.urls).finish()
    }
}

impl WorkerPages {
    pub(super) fn new(urls: &[PageUrl], queues: Vec<Key>, dial: Option<Arc<dyn Dial>>) -> Self {
        Self {
            urls: urls.to_vec(),
            queues,
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
                    let now = counted(&families);
                    looked.add(&between(self.before.get(name), &now));
                    self.before.insert(name.clone(), now);
                }
                None => looked.silent += 1,
            }
        }
        if self.before.len() > REMEMBERED_MAX {
            let is_there = |name: &str| instances.iter().any(|it| it.0 == name);
            self.before.retain(|name, _| is_there(name));
        }
        for (key, counts) in &looked.counts {
            let all = self.completed.entry(key.clone()).or_default();
            *all = all.saturating_add(counts.completed);
        }
        self.last = looked.workers(unknown, |key| self.is_of_group(key));
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
    counts: Counted,
}

impl Looked {
    fn add(&mut self, more: &Counted) {
        self.answered += 1;
        for (key, counts) in more {
            self.counts.entry(key.clone()).or_default().add(counts);
        }
    }

    /// What instances say of the queues of the group.
    fn workers(&self, unknown: usize, is_of_group: impl Fn(&Key) -> bool) -> Workers {
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
            silent: self.silent + unknown,
            // Those that are idle have ended their tasks, and start them again.
            tasks: tasks.filter(|it| *it > 0),
            handling: handling.filter(|it| !it.is_zero()),
        }
    }
}
