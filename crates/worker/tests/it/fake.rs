//! A service in memory: messages, leases and faults, on the clock of tokio.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use kew_worker::{Attempt, Burial, ErrorKind, SourceError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// How a lock ends if nobody says so: that of a queue of Service Bus.
pub(crate) const LOCK: Duration = Duration::from_secs(30);

/// How often a request goes wrong, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// The service is busy; nothing happens.
    pub(crate) busy: u64,
    /// It happens, and the answer does not come.
    pub(crate) lost_answer: u64,
    /// It happens after up to twice the lock.
    pub(crate) slow: u64,
    /// A message that is leased is handed out again.
    pub(crate) duplicate: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    pub(crate) body: Bytes,
    pub(crate) attempt: u32,
    pub(crate) history: Vec<Attempt>,
    pub(crate) checkpoint: Option<Bytes>,
    /// Rises with each change of the lease: the receipt.
    pub(crate) receipt: u64,
    visible_at: Option<Instant>,
    pub(crate) properties: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) gets: u64,
    pub(crate) empty_gets: u64,
    pub(crate) depths: u64,
    pub(crate) renewals: u64,
    pub(crate) completes: u64,
    pub(crate) largest_ask: u32,
    pub(crate) last_lease: Duration,
    pub(crate) leased_max: usize,
    pub(crate) last_delay: Duration,
}

#[derive(Debug, Default)]
struct State {
    messages: BTreeMap<u64, Stored>,
    next_id: u64,
    /// What a test says was done.
    done: BTreeSet<u64>,
    buried: BTreeMap<u64, Burial>,
    deleted: BTreeSet<u64>,
    violations: Vec<String>,
    random: u64,
    /// What the next requests answer, before anything else.
    script: Vec<(&'static str, SourceError)>,
    counts: Counts,
}

#[derive(Debug, Default)]
pub(crate) struct Service {
    state: Mutex<State>,
    faults: Mutex<Faults>,
    pub(crate) arrived: Notify,
    /// Points left before everything stands still. Each request has three: before it, after it, and its answer.
    points: Mutex<Option<u64>>,
    pub(crate) crashed: Notify,
    /// How long each request takes until it has its effect, and its answer after that.
    latency: Mutex<Duration>,
    answer_latency: Mutex<Duration>,
}

impl Service {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let service = Self::default();
        service.state().random = seed;
        Arc::new(service)
    }

    pub(crate) fn put(&self, body: impl Into<Bytes>) -> u64 {
        self.put_with(body, Vec::new())
    }

    pub(crate) fn put_many(&self, count: u64) {
        for number in 0..count {
            self.put(number.to_string());
        }
    }

    pub(crate) fn put_with(
        &self,
        body: impl Into<Bytes>,
        properties: Vec<(String, String)>,
    ) -> u64 {
        let mut state = self.state();
        state.next_id += 1;
        let id = state.next_id;
        let stored = Stored {
            body: body.into(),
            properties,
            ..Stored::default()
        };
        state.messages.insert(id, stored);
        drop(state);
        self.arrived.notify_waiters();
        id
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }

    pub(crate) fn set_latency(&self, latency: Duration) {
        *self.latency.lock().unwrap() = latency;
    }

    pub(crate) fn set_answer_latency(&self, latency: Duration) {
        *self.answer_latency.lock().unwrap() = latency;
    }

    /// The next request of this name answers so, and has no effect unless its outcome is unknown.
    pub(crate) fn fail_next(&self, request: &'static str, error: SourceError) {
        self.state().script.push((request, error));
    }

    pub(crate) fn crash_after(&self, points: Option<u64>) {
        *self.points.lock().unwrap() = points;
    }

    pub(crate) fn did(&self, id: u64) {
        self.state().done.insert(id);
    }

    pub(crate) fn depth(&self) -> usize {
        self.state().messages.len()
    }

    pub(crate) fn counts<R>(&self, read: impl FnOnce(&Counts) -> R) -> R {
        read(&self.state().counts)
    }

    pub(crate) fn stored(&self, id: u64) -> Option<Stored> {
        self.state().messages.get(&id).cloned()
    }

    pub(crate) fn burial(&self, id: u64) -> Option<Burial> {
        self.state().buried.get(&id).cloned()
    }

    pub(crate) fn deleted(&self) -> usize {
        self.state().deleted.len()
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Ends every lease, as if its time were over.
    pub(crate) fn end_leases(&self) {
        for stored in self.state().messages.values_mut() {
            stored.visible_at = None;
        }
        self.arrived.notify_waiters();
    }

    pub(crate) fn random(&self, below: u64) -> u64 {
        let mut state = self.state();
        state.random = state.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    }

    /// A place where everything can stand still.
    pub(crate) async fn point(&self) {
        let crashes = {
            let mut points = self.points.lock().unwrap();
            match points.as_mut() {
                Some(0) => true,
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            }
        };
        if crashes {
            self.crashed.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// A request: its effect happens once, or not at all, whatever comes back.
    async fn request<R>(
        &self,
        name: &'static str,
        effect: impl FnOnce(&mut State) -> Result<R, SourceError>,
    ) -> Result<R, SourceError> {
        self.point().await;
        let latency = *self.latency.lock().unwrap();
        sleep(latency).await;
        let scripted = {
            let mut state = self.state();
            let found = state.script.iter().position(|(it, _)| *it == name);
            found.map(|index| state.script.remove(index).1)
        };
        let faults = *self.faults.lock().unwrap();
        let strikes = |rate| rate > 0 && self.random(1_000) < rate;
        if let Some(error) = scripted {
            if error.kind() == ErrorKind::OutcomeUnknown {
                let _ = effect(&mut self.state());
            }
            return Err(error);
        }
        if strikes(faults.busy) {
            return Err(SourceError::busy("503"));
        }
        if strikes(faults.slow) {
            let most = u64::try_from(LOCK.as_millis()).unwrap() * 2;
            sleep(Duration::from_millis(self.random(most))).await;
        }
        let result = effect(&mut self.state());
        // The depth is known at once, so that it does not come after every other answer.
        if name != "depth" {
            let latency = *self.answer_latency.lock().unwrap();
            sleep(latency).await;
        }
        self.point().await;
        if strikes(faults.lost_answer) {
            return Err(SourceError::new(
                ErrorKind::OutcomeUnknown,
                "no answer came",
            ));
        }
        result
    }

    pub(crate) async fn get(
        &self,
        count: u32,
        lease: Duration,
    ) -> Result<Vec<(u64, Stored)>, SourceError> {
        let duplicate = self.faults.lock().unwrap().duplicate;
        let hands_out_again = duplicate > 0 && self.random(1_000) < duplicate;
        self.request("get", |state| {
            let now = Instant::now();
            state.counts.gets += 1;
            state.counts.largest_ask = state.counts.largest_ask.max(count);
            state.counts.last_lease = lease;
            let visible = |it: &Stored| it.visible_at.is_none_or(|at| at <= now);
            let ready = state.messages.iter_mut();
            let ready = ready.filter(|(_, it)| hands_out_again || visible(it));
            let mut got = Vec::new();
            for (id, stored) in ready.take(count as usize) {
                stored.attempt += 1;
                stored.receipt += 1;
                stored.visible_at = Some(now + lease);
                got.push((*id, stored.clone()));
            }
            if got.is_empty() {
                state.counts.empty_gets += 1;
            }
            let leased = state.messages.values().filter(|it| !visible(it)).count();
            state.counts.leased_max = state.counts.leased_max.max(leased);
            Ok(got)
        })
        .await
    }

    pub(crate) async fn count(&self) -> Result<u64, SourceError> {
        self.request("depth", |state| {
            state.counts.depths += 1;
            Ok(u64::try_from(state.messages.len()).unwrap())
        })
        .await
    }

    /// Changes a leased message, and returns its new receipt.
    pub(crate) async fn change(
        &self,
        name: &'static str,
        id: u64,
        receipt: u64,
        hidden_for: Duration,
        change: impl FnOnce(&mut Stored),
    ) -> Result<u64, SourceError> {
        self.request(name, |state| {
            if name == "renew" {
                state.counts.renewals += 1;
            }
            if name == "release" {
                state.counts.last_delay = hidden_for;
            }
            let stored = leased(&mut state.messages, id, receipt)?;
            change(stored);
            stored.receipt += 1;
            stored.visible_at = Some(Instant::now() + hidden_for);
            Ok(stored.receipt)
        })
        .await
        .inspect(|_| self.arrived.notify_waiters())
    }

    pub(crate) async fn complete(&self, id: u64, receipt: u64) -> Result<(), SourceError> {
        self.request("complete", |state| {
            state.counts.completes += 1;
            leased(&mut state.messages, id, receipt)?;
            state.messages.remove(&id);
            state.deleted.insert(id);
            if !state.done.contains(&id) {
                state
                    .violations
                    .push(format!("{id} was deleted before it was done"));
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn bury(
        &self,
        id: u64,
        receipt: u64,
        burial: Burial,
    ) -> Result<(), SourceError> {
        self.request("bury", |state| {
            leased(&mut state.messages, id, receipt)?;
            state.messages.remove(&id);
            state.buried.insert(id, burial);
            Ok(())
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// A receipt works until the message is handed out again or deleted, as in later versions of Queue Storage.
fn leased(
    messages: &mut BTreeMap<u64, Stored>,
    id: u64,
    receipt: u64,
) -> Result<&mut Stored, SourceError> {
    let stored = messages.get_mut(&id).filter(|it| it.receipt == receipt);
    stored.ok_or_else(|| SourceError::lease_lost("the receipt holds the message no longer"))
}
