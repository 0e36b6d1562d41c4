//! One connection under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use queue_load::{Client, Endpoint, Error, PutOptions};

use crate::ledger::{self, MARKER_LENGTH};
use crate::options::{Operation, Options};
use crate::tally::{Kind, Tally};

/// After this many failures in a row on one connection the server counts as down.
const FAILURES_MAX: u32 = 20;

/// The shared state of all connections of a run.
pub(crate) struct Run {
    options: Options,
    endpoint: Arc<Endpoint>,
    /// Differs from run to run, so that no two runs put the same text.
    number: u64,
    begins: Instant,
    ends: Instant,
    started_count: AtomicUsize,
    server_is_gone: AtomicBool,
    held: Vec<Held>,
}

/// A message that was received and not deleted yet.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) id: String,
    pub(crate) receipt: String,
    pub(crate) marker: String,
}

impl Run {
    /// A run that counts from `begins` to `ends` and may delete what is `held`.
    pub(crate) fn new(
        options: Options,
        endpoint: Arc<Endpoint>,
        (begins, ends): (Instant, Instant),
        held: Vec<Held>,
    ) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = since.unwrap_or_default().as_micros() & 0xffff_ffff_ffff;
        Self {
            options,
            endpoint,
            number: u64::try_from(micros).expect("48 bits"),
            begins,
            ends,
            started_count: AtomicUsize::new(0),
            server_is_gone: AtomicBool::new(false),
            held,
        }
    }

    /// Puts load on the server from all connections until the end.
    pub(crate) async fn load(self: &Arc<Self>) -> Tally {
        let tasks: Vec<_> = (0..self.options.concurrency)
            .map(|number| {
                let run = self.clone();
                tokio::spawn(async move { Worker::new(&run, number).run().await })
            })
            .collect();
        let mut all = Tally::default();
        for task in tasks {
            all.absorb(task.await.expect("a worker does not panic"));
        }
        all.sort();
        all
    }

    /// Receives messages until the queue is empty or `max` are held.
    pub(crate) async fn drain(self: &Arc<Self>, max: usize) -> Result<Vec<Held>, String> {
        let mut worker = Worker::new(self, 0);
        let mut held = Vec::new();
        while held.len() < max {
            let batch = u32::try_from(max - held.len()).unwrap_or(32).min(32);
            match worker.get(batch).await {
                Some(messages) if messages.is_empty() => break,
                Some(messages) => held.extend(messages),
                None => return Err(worker.tally.first_error.unwrap_or_default()),
            }
        }
        Ok(held)
    }
}

struct Worker<'a> {
    run: &'a Run,
    client: Client,
    number: u32,
    put_count: u64,
    text: String,
    tally: Tally,
    failures: u32,
}

impl<'a> Worker<'a> {
    fn new(run: &'a Run, number: u32) -> Self {
        Self {
            run,
            client: Client::new(run.endpoint.clone()),
            number,
            put_count: 0,
            text: filler(run.options.size, number),
            tally: Tally::default(),
            failures: 0,
        }
    }

    async fn run(mut self) -> Tally {
        let run = self.run;
        let batch = run.options.batch;
        match run.options.op {
            Operation::Put => {
                while self.going() && self.take().is_some() {
                    self.put().await;
                }
            }
            Operation::Get => {
                while self.going() && self.take().is_some() {
                    if self.get(batch).await.is_some_and(|held| held.is_empty()) {
                        break;
                    }
                }
            }
            Operation::Delete => {
                while self.going() {
                    let Some(held) = self.take().and_then(|at| run.held.get(at)) else {
                        break;
                    };
                    self.delete(held).await;
                }
            }
            Operation::Cycle => {
                while self.going() {
                    self.cycle(batch).await;
                }
            }
            Operation::Drain => while self.going() && self.drain(batch).await {},
            Operation::Verify | Operation::Clear => {}
        }
        self.tally
    }

    fn going(&self) -> bool {
        !self.run.server_is_gone.load(Relaxed) && Instant::now() < self.run.ends
    }

    async fn cycle(&mut self, batch: u32) {
        let (start, errors) = (Instant::now(), self.tally.error_count);
        for _ in 0..batch {
            self.put().await;
        }
        let held = self.get(batch).await.unwrap_or_default();
        for held in &held {
            self.delete(held).await;
        }
        if !held.is_empty() && self.tally.error_count == errors && start >= self.run.begins {
            self.tally.note_cycle(micros_since(start));
        }
    }

    /// Gets messages and deletes them, but for those that stay. Returns false when the queue is empty.
    async fn drain(&mut self, batch: u32) -> bool {
        let Some(all) = self.get(batch).await else {
            return true;
        };
        for held in &all {
            let place = self.run.started_count.fetch_add(1, Relaxed);
            let keep_every = self.run.options.keep_every;
            if keep_every == 0 || !place.is_multiple_of(keep_every) {
                self.delete(held).await;
            }
        }
        !all.is_empty()
    }

    /// The index of the next operation, if `--count` leaves one.
    fn take(&self) -> Option<usize> {
        let index = self.run.started_count.fetch_add(1, Relaxed);
        let limit = self.run.options.count;
        (limit == 0 || index < limit).then_some(index)
    }

    async fn put(&mut self) {
        self.put_count += 1;
        let marker = format!(
            "{:012x}{:06x}{:014x}",
            self.run.number, self.number, self.put_count
        );
        self.text.replace_range(..MARKER_LENGTH, &marker);
        let start = Instant::now();
        let queue = &self.run.options.queue;
        let result = self
            .client
            .put(queue, &self.text, PutOptions::default())
            .await;
        if self.check(start, Kind::Put, result).await.is_some() {
            self.note('P', &marker);
        }
    }

    async fn get(&mut self, batch: u32) -> Option<Vec<Held>> {
        let start = Instant::now();
        let options = &self.run.options;
        let result = self
            .client
            .get(&options.queue, batch, options.visibility)
            .await;
        if result.as_ref().is_ok_and(Vec::is_empty) {
            // An empty answer contains no message, so it does not count as an operation.
            self.tally.empty_count += 1;
            return Some(Vec::new());
        }
        let messages = self.check(start, Kind::Get, result).await?;
        self.tally.received_count += messages.len() as u64;
        let held = messages.into_iter().map(|message| Held {
            id: message.id,
            receipt: message.receipt.expect("a get brings receipts").value,
            marker: ledger::marker(&message.text),
        });
        Some(held.collect())
    }

    async fn delete(&mut self, held: &Held) {
        self.note('d', &held.marker);
        let start = Instant::now();
        let queue = &self.run.options.queue;
        let result = self.client.delete(queue, &held.id, &held.receipt).await;
        if self.check(start, Kind::Delete, result).await.is_some() {
            self.note('D', &held.marker);
        }
    }

    fn note(&mut self, what: char, marker: &str) {
        if self.run.options.ledger.is_some() {
            self.tally.ledger.push(format!("{what} {marker}"));
        }
    }

    async fn check<T>(
        &mut self,
        start: Instant,
        kind: Kind,
        result: Result<T, Error>,
    ) -> Option<T> {
        let error = match result {
            Ok(value) => {
                self.failures = 0;
                if start >= self.run.begins {
                    self.tally.acknowledge(kind, micros_since(start));
                }
                return Some(value);
            }
            Err(error) => error,
        };
        self.tally.error(format!("{kind:?}: {error}"));
        if error.refusal().is_none() {
            self.failures += 1;
            if self.failures >= FAILURES_MAX {
                self.run.server_is_gone.store(true, Relaxed);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }
}

fn micros_since(start: Instant) -> u32 {
    u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX)
}

/// Text that does not compress and differs from connection to connection.
fn filler(size: u32, number: u32) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut x = 0x9E37_79B9_7F4A_7C15_u64 ^ u64::from(number) << 32;
    (0..size)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            char::from(ALPHABET[usize::from(x.to_be_bytes()[0] >> 2)])
        })
        .collect()
}
