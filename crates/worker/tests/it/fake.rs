//! A service in memory: messages, leases and faults, on the clock of tokio.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use kew_worker::{Attempt, Burial, ErrorKind, SourceError};
use tokio::sync::{Notify, Semaphore};
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
    pub(crate) visible_at: Option<Instant>,
    pub(crate) properties: Vec<(String, String)>,
    /// The message session that it belongs to.
    pub(crate) session: Option<u64>,
    /// The lock of the session under which it was handed out.
    pub(crate) taken_by: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) gets: u64,
    pub(crate) empty_gets: u64,
    pub(crate) depths: u64,
    pub(crate) renewals: u64,
    pub(crate) completes: u64,
    /// The most messages that were completed with one call.
    pub(crate) together_max: usize,
    pub(crate) largest_ask: u32,
    pub(crate) last_lease: Duration,
    pub(crate) leased_max: usize,
    pub(crate) last_delay: Duration,
    pub(crate) burials: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) messages: BTreeMap<u64, Stored>,
    pub(crate) sessions: BTreeMap<u64, Session>,
    next_id: u64,
    /// What a test says was done.
    done: BTreeSet<u64>,
    /// Steps of long work that were done.
    steps: BTreeMap<u64, BTreeSet<u32>>,
    /// How far the service has said that it keeps the progress of work.
    saved: BTreeMap<u64, u32>,
    pub(crate) buried: BTreeMap<u64, Burial>,
    deleted: BTreeSet<u64>,
    pub(crate) violations: Vec<String>,
    /// Handlers that work, for each message.
    at_work: BTreeMap<u64, u32>,
    /// Messages that were handed out twice by the service's fault.
    duplicated: BTreeSet<u64>,
    random: u64,
    /// What the next requests answer, before anything else.
    script: Vec<(&'static str, SourceError)>,
    counts: Counts,
}

/// A message session: its state, and who holds it.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Rises with each holder.
    pub(crate) lock: u64,
    pub(crate) locked_until: Option<Instant>,
    pub(crate) state: Option<Bytes>,
    /// The lock and the number of the last request that set the state: they are carried out in their order.
    pub(crate) last_set: (u64, u64),
}

impl State {
    /// The service's own fault lets two handlers work on it.
    pub(crate) fn duplicates(&mut self, id: u64) {
        self.duplicated.insert(id);
    }

    /// A message is handed out to a listener.
    pub(crate) fn hands_out(&mut self, id: u64, is_leased: bool) {
        if is_leased {
            self.duplicates(id);
        }
        if self.at_work.contains_key(&id) && !self.duplicated.contains(&id) {
            let text = format!("{id} was handed out while a handler worked on it");
            self.violations.push(text);
        }
    }

    /// A message is deleted after its work, or after its burial.
    pub(crate) fn deletes(&mut self, id: u64) {
        self.messages.remove(&id);
        self.deleted.insert(id);
        // Of one that is buried, the delete may come with a later delivery.
        if !self.done.contains(&id) && !self.buried.contains_key(&id) {
            let text = format!("{id} was deleted before it was done");
            self.violations.push(text);
        }
    }
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
    /// Of deletes, beside that of all requests.
    delete_latency: Mutex<Duration>,
    /// How many requests are under way at once, in the order in which they were made.
    connections: Mutex<Option<Arc<Semaphore>>>,
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
        self.add(Stored {
            body: body.into(),
            properties,
            ..Stored::default()
        })
    }

    pub(crate) fn add(&self, stored: Stored) -> u64 {
        let mut state = self.state();
        state.next_id += 1;
        let id = state.next_id;
        if let Some(session) = stored.session {
            state.sessions.entry(session).or_default();
        }
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

    pub(crate) fn set_connections(&self, count: usize) {
        *self.connections.lock().unwrap() = Some(Arc::new(Semaphore::new(count)));
    }

    pub(crate) fn set_delete_latency(&self, latency: Duration) {
        *self.delete_latency.lock().unwrap() = latency;
    }

    pub(crate) fn set_answer_latency(&self, latency: Duration) {
        *self.answer_latency.lock().unwrap() = latency;
    }

    /// The next request of this name answers so, and has no effect unless its outcome is unknown.
    /// `get` is also what a source that waits does.
    pub(crate) fn fail_next(&self, request: &'static str, error: SourceError) {
        self.state().script.push((request, error));
    }

    pub(crate) fn crash_after(&self, points: Option<u64>) {
        *self.points.lock().unwrap() = points;
    }

    pub(crate) fn did(&self, id: u64) {
        self.state().done.insert(id);
    }

    /// How many messages were done.
    pub(crate) fn done(&self) -> usize {
        self.state().done.len()
    }

    /// A step of long work was done.
    pub(crate) fn did_step(&self, id: u64, step: u32) {
        self.state().steps.entry(id).or_default().insert(step);
    }

    /// The service has answered that it keeps so many steps.
    pub(crate) fn saved(&self, id: u64, steps: u32) {
        self.state().saved.insert(id, steps);
    }

    /// Work begins, or resumes after so many steps.
    pub(crate) fn resumes(&self, id: u64, steps: u32) {
        let mut state = self.state();
        let saved = state.saved.get(&id).copied().unwrap_or(0);
        let is_done = |step| state.steps.get(&id).is_some_and(|it| it.contains(&step));
        let violation = if steps < saved {
            format!("{id} resumes after {steps} steps, and {saved} were kept")
        } else if !(0..steps).all(is_done) {
            format!("{id} resumes after {steps} steps, and not all of them were done")
        } else {
            return;
        };
        state.violations.push(violation);
    }

    /// So many messages are completed with one call.
    pub(crate) fn completes_together(&self, count: usize) {
        let counts = &mut self.state().counts;
        counts.together_max = counts.together_max.max(count);
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

    /// Messages that were deleted after their work, or buried, or both after lost answers.
    pub(crate) fn settled(&self) -> usize {
        let state = self.state();
        let buried = state.buried.keys().filter(|id| !state.deleted.contains(id));
        state.deleted.len() + buried.count()
    }

    /// A handler works on a message until this is dropped. The service notes whether it hands it out meanwhile.
    pub(crate) fn works_on(self: &Arc<Self>, id: u64) -> AtWork {
        *self.state().at_work.entry(id).or_default() += 1;
        AtWork(self.clone(), id)
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

    /// A request: its effect happens once, or not at all, whatever comes back. A slow one happens also if nobody waits
    /// for it any more.
    pub(crate) async fn request<R: Send + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        effect: impl FnOnce(&mut State) -> Result<R, SourceError> + Send + 'static,
    ) -> Result<R, SourceError> {
        self.point().await;
        let connections = self.connections.lock().unwrap().clone();
        let _connection = match connections {
            Some(connections) => Some(connections.acquire_owned().await.unwrap()),
            None => None,
        };
        let mut latency = *self.latency.lock().unwrap();
        if name == "complete" {
            latency += *self.delete_latency.lock().unwrap();
        }
        sleep(latency).await;
        let scripted = {
            let mut state = self.state();
            let scripted = if name == "receive" { "get" } else { name };
            let found = state.script.iter().position(|(it, _)| *it == scripted);
            found.map(|index| state.script.remove(index).1)
        };
        if let Some(error) = scripted {
            if error.kind() == ErrorKind::OutcomeUnknown {
                let _ = effect(&mut self.state());
            }
            return Err(error);
        }
        if self.strikes(|it| it.busy) {
            return Err(SourceError::busy("503"));
        }
        let result = match self.strikes(|it| it.slow) {
            true => {
                let most = u64::try_from(LOCK.as_millis()).unwrap() * 2;
                let (service, late) = (self.clone(), Duration::from_millis(self.random(most)));
                let late = async move {
                    sleep(late).await;
                    effect(&mut service.state())
                };
                match name {
                    // What nobody waits for stays in the queue, as in the inbox of a link.
                    "receive" => late.await,
                    _ => tokio::spawn(late).await.unwrap(),
                }
            }
            false => effect(&mut self.state()),
        };
        // The depth is known at once, so that it does not come after every other answer.
        if name != "depth" {
            let latency = *self.answer_latency.lock().unwrap();
            sleep(latency).await;
        }
        self.point().await;
        if self.strikes(|it| it.lost_answer) {
            return Err(SourceError::new(
                ErrorKind::OutcomeUnknown,
                "no answer came",
            ));
        }
        result
    }

    /// `get` as on Queue Storage, `receive` as on Service Bus.
    pub(crate) async fn get(
        self: &Arc<Self>,
        name: &'static str,
        count: u32,
        lease: Duration,
    ) -> Result<Vec<(u64, Stored)>, SourceError> {
        let hands_out_again = self.strikes(|it| it.duplicate);
        self.request(name, move |state| {
            let now = Instant::now();
            state.counts.gets += 1;
            state.counts.largest_ask = state.counts.largest_ask.max(count);
            state.counts.last_lease = lease;
            let visible = |it: &Stored| it.visible_at.is_none_or(|at| at <= now);
            let ready = state.messages.iter();
            let ready = ready.filter(|(_, it)| hands_out_again || visible(it));
            let ready = ready.take(count as usize);
            let ready: Vec<_> = ready.map(|(id, it)| (*id, !visible(it))).collect();
            let mut got = Vec::new();
            for (id, is_leased) in ready {
                state.hands_out(id, is_leased);
                let stored = state.messages.get_mut(&id).unwrap();
                stored.attempt += 1;
                stored.receipt += 1;
                stored.visible_at = Some(now + lease);
                got.push((id, stored.clone()));
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

    pub(crate) async fn count(self: &Arc<Self>) -> Result<u64, SourceError> {
        self.request("depth", |state| {
            state.counts.depths += 1;
            Ok(u64::try_from(state.messages.len()).unwrap())
        })
        .await
    }

    /// Changes a leased message, and returns its new receipt.
    pub(crate) async fn change(
        self: &Arc<Self>,
        name: &'static str,
        id: u64,
        receipt: u64,
        hidden_for: Duration,
        change: impl FnOnce(&mut Stored) + Send + 'static,
    ) -> Result<u64, SourceError> {
        self.request(name, move |state| {
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

    pub(crate) async fn complete(
        self: &Arc<Self>,
        id: u64,
        receipt: u64,
    ) -> Result<(), SourceError> {
        self.request("complete", move |state| {
            state.counts.completes += 1;
            leased(&mut state.messages, id, receipt)?;
            state.deletes(id);
            Ok(())
        })
        .await
    }

    pub(crate) async fn bury(
        self: &Arc<Self>,
        id: u64,
        receipt: u64,
        burial: Burial,
    ) -> Result<(), SourceError> {
        self.request("bury", move |state| {
            leased(&mut state.messages, id, receipt)?;
            state.messages.remove(&id);
            state.counts.burials += 1;
            state.buried.insert(id, burial);
            Ok(())
        })
        .await
    }

    /// The first half of a burial where the service has no dead letters.
    pub(crate) async fn bury_copy(
        self: &Arc<Self>,
        id: u64,
        burial: Burial,
    ) -> Result<(), SourceError> {
        self.request("bury", move |state| {
            state.counts.burials += 1;
            state.buried.insert(id, burial);
            Ok(())
        })
        .await
    }

    /// The second half.
    pub(crate) async fn delete_buried(
        self: &Arc<Self>,
        id: u64,
        receipt: u64,
    ) -> Result<(), SourceError> {
        self.request("complete", move |state| {
            leased(&mut state.messages, id, receipt)?;
            state.messages.remove(&id);
            if !state.buried.contains_key(&id) {
                let text = format!("{id} was deleted before it was buried");
                state.violations.push(text);
            }
            Ok(())
        })
        .await
    }

    /// Whether a fault strikes now.
    pub(crate) fn strikes(&self, rate: impl Fn(&Faults) -> u64) -> bool {
        let rate = rate(&self.faults.lock().unwrap());
        rate > 0 && self.random(1_000) < rate
    }

    pub(crate) fn violates(&self, text: String) {
        self.state().violations.push(text);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// A handler that works.
pub(crate) struct AtWork(Arc<Service>, u64);

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut state = self.0.state();
        let count = state.at_work.entry(self.1).or_default();
        *count -= 1;
        if *count == 0 {
            state.at_work.remove(&self.1);
        }
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
