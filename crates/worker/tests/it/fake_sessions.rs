//! Message sessions of the service in memory, as a source: a lock for all messages of a session, their order, and a
//! state that belongs to the session.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kew_worker::{
    Ask, Attempt, Burial, Checkpoints, ErrorKind, Incoming, Intake, Lease, Meta, Source,
    SourceError, SourceName,
};
use tokio::time::{Instant, timeout};

use crate::fake::{LOCK, Service, State, Stored};

/// How long an intake waits for the next message of its session.
const SESSION_IDLE: Duration = Duration::from_secs(2);

/// A queue with sessions.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    service: Arc<Service>,
    name: SourceName,
}

impl Sessions {
    pub(crate) fn new(service: &Arc<Service>) -> Self {
        Self {
            service: service.clone(),
            name: SourceName::new("account", "jobs"),
        }
    }
}

impl Source for Sessions {
    type Lease = SessionLease;
    type Intake = SessionIntake;
    const IS_ORDERED: bool = true;

    fn name(&self) -> &SourceName {
        &self.name
    }

    fn batch_size_max(&self) -> u32 {
        1
    }

    async fn open(&self) -> Result<SessionIntake, SourceError> {
        Ok(SessionIntake {
            service: self.service.clone(),
            held: None,
            taking: None,
        })
    }

    async fn depth(&self) -> Result<Option<u64>, SourceError> {
        self.service.count().await.map(Some)
    }
}

/// A session under lock.
#[derive(Debug)]
struct Held {
    session: u64,
    lock: u64,
    /// A message was handed out and is not settled for certain.
    is_unsettled: AtomicBool,
    /// Requests that set the state.
    sets: AtomicU64,
    ends_at: Mutex<Instant>,
    state: Mutex<Option<Bytes>>,
}

type Taking = Pin<Box<dyn Future<Output = Result<Option<Arc<Held>>, SourceError>> + Send>>;

pub(crate) struct SessionIntake {
    service: Arc<Service>,
    held: Option<Arc<Held>>,
    /// It outlives the futures of receives, as in the real source.
    taking: Option<Taking>,
}

/// Takes the first session that has messages and no holder. By a fault also one that has a holder.
async fn take(service: Arc<Service>) -> Result<Option<Arc<Held>>, SourceError> {
    let takes_again = service.strikes(|it| it.duplicate);
    let asked_at = Instant::now();
    let taken = service.request("take", move |state| {
        let now = Instant::now();
        let with_messages: Vec<u64> = state
            .messages
            .values()
            .filter_map(|it| it.session)
            .collect();
        let is_free = |until: Option<Instant>| until.is_none_or(|at| at <= now);
        let mut sessions = state.sessions.iter_mut();
        let found = sessions.find(|(id, it)| {
            with_messages.contains(id) && (takes_again || is_free(it.locked_until))
        });
        let Some((id, session)) = found else {
            return Ok(None);
        };
        let was_locked = !is_free(session.locked_until);
        session.lock += 1;
        session.locked_until = Some(now + LOCK);
        let taken = (*id, session.lock, session.state.clone());
        if was_locked {
            // The former holder may work on any of its messages.
            let ids: Vec<u64> = of_session(state, taken.0).collect();
            for id in ids {
                state.duplicates(id);
            }
        }
        Ok(Some(taken))
    });
    let held = taken.await?.map(|(session, lock, state)| Held {
        session,
        lock,
        is_unsettled: AtomicBool::new(false),
        sets: AtomicU64::new(0),
        ends_at: Mutex::new(asked_at + LOCK),
        state: Mutex::new(state),
    });
    Ok(held.map(Arc::new))
}

fn of_session(state: &State, session: u64) -> impl Iterator<Item = u64> {
    let messages = state.messages.iter();
    messages.filter_map(move |(id, it)| (it.session == Some(session)).then_some(*id))
}

/// Refuses if the lock is not the session's, or is over.
fn check(state: &State, session: u64, lock: u64) -> Result<(), SourceError> {
    let session = &state.sessions[&session];
    let is_over = session.locked_until.is_none_or(|at| at <= Instant::now());
    match session.lock != lock || is_over {
        true => Err(SourceError::lease_lost("the lock of the session is lost")),
        false => Ok(()),
    }
}

/// The next message of a session that was not handed out under this lock. To drop the future loses nothing: its effect
/// comes last. None may overtake another.
async fn next(service: &Service, held: &Held) -> Result<Option<(u64, Stored)>, SourceError> {
    service.point().await;
    if service.strikes(|it| it.lost_answer) {
        return Err(SourceError::new(
            ErrorKind::TryAgainLater,
            "the link was lost",
        ));
    }
    let mut state = service.state();
    check(&state, held.session, held.lock)?;
    let is_taken = |id: &u64| state.messages[id].taken_by == Some(held.lock);
    let mut ids = of_session(&state, held.session).skip_while(is_taken);
    let Some(id) = ids.next() else {
        return Ok(None);
    };
    let first = of_session(&state, held.session).next();
    drop(ids);
    if let Some(first) = first.filter(|first| *first != id) {
        let text = format!("{id} was handed out before {first} of its session was settled");
        state.violations.push(text);
    }
    state.hands_out(id, false);
    let stored = state.messages.get_mut(&id).expect("it was found just now");
    stored.attempt += 1;
    stored.taken_by = Some(held.lock);
    held.is_unsettled.store(true, Ordering::SeqCst);
    Ok(Some((id, stored.clone())))
}

impl Intake for SessionIntake {
    type Lease = SessionLease;
    const WAITS: bool = true;

    async fn receive(&mut self, _: Ask) -> Result<Vec<SessionLease>, SourceError> {
        loop {
            let Some(held) = self.held.clone() else {
                let service = self.service.clone();
                let taking = self.taking.get_or_insert_with(|| Box::pin(take(service)));
                let taken = taking.await;
                self.taking = None;
                self.held = taken?;
                if self.held.is_none() {
                    let arrived = self.service.arrived.notified();
                    let _ = timeout(Duration::from_secs(1), arrived).await;
                }
                continue;
            };
            if held.is_unsettled.load(Ordering::SeqCst) {
                // The next message would overtake it.
                self.give_back();
                continue;
            }
            match next(&self.service, &held).await {
                Ok(Some((id, stored))) => {
                    let service = self.service.clone();
                    return Ok(vec![SessionLease::new(service, id, stored, held)]);
                }
                Ok(None) => {
                    let arrived = self.service.arrived.notified();
                    if timeout(SESSION_IDLE, arrived).await.is_err() {
                        self.give_back();
                    }
                }
                Err(error) if error.is_lease_lost() => self.held = None,
                Err(error) => {
                    self.held = None;
                    return Err(error);
                }
            }
        }
    }

    async fn close(mut self) -> Result<(), SourceError> {
        self.taking = None;
        self.give_back();
        Ok(())
    }
}

impl SessionIntake {
    /// As an intake would be that does not care for the order.
    pub(crate) fn forgets_what_is_unsettled(&mut self) {
        let held = self.held.as_ref().expect("it holds a session");
        held.is_unsettled.store(false, Ordering::SeqCst);
    }

    fn give_back(&mut self) {
        // By a fault the service learns nothing of it: then the lock has to end.
        let is_lost = self.service.strikes(|it| it.lost_answer);
        let Some(held) = self.held.take().filter(|_| !is_lost) else {
            return;
        };
        let mut state = self.service.state();
        if check(&state, held.session, held.lock).is_ok() {
            let session = state.sessions.get_mut(&held.session);
            session.expect("sessions stay").locked_until = None;
        }
    }
}

/// A message of a session.
pub(crate) struct SessionLease {
    service: Arc<Service>,
    id: u64,
    incoming: Incoming,
    held: Arc<Held>,
}

impl SessionLease {
    fn new(service: Arc<Service>, id: u64, stored: Stored, held: Arc<Held>) -> Self {
        let mut meta = Meta::new("jobs".into(), id.to_string(), stored.attempt);
        meta.history = stored.history;
        meta.checkpoint.clone_from(&held.state.lock().unwrap());
        Self {
            service,
            id,
            incoming: Incoming {
                body: stored.body,
                meta: meta.into(),
            },
            held,
        }
    }

    /// Does something to the message, if the session is still held.
    async fn settle(
        &self,
        name: &'static str,
        effect: impl FnOnce(&mut State, u64) + Send + 'static,
    ) -> Result<(), SourceError> {
        let (id, session, lock) = (self.id, self.held.session, self.held.lock);
        let settled = self.service.request(name, move |state| {
            check(state, session, lock)?;
            match state.messages.contains_key(&id) {
                true => effect(state, id),
                false => return Err(SourceError::lease_lost("the message is not there any more")),
            }
            Ok(())
        });
        settled.await?;
        self.held.is_unsettled.store(false, Ordering::SeqCst);
        self.service.arrived.notify_waiters();
        Ok(())
    }
}

impl Lease for SessionLease {
    fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    fn ends_at(&self) -> Instant {
        *self.held.ends_at.lock().unwrap()
    }

    async fn renew(&mut self, _: Duration) -> Result<(), SourceError> {
        let (session, lock) = (self.held.session, self.held.lock);
        let asked_at = Instant::now();
        let renewed = self.service.request("renew", move |state| {
            check(state, session, lock)?;
            let session = state.sessions.get_mut(&session);
            session.expect("sessions stay").locked_until = Some(Instant::now() + LOCK);
            Ok(())
        });
        renewed.await?;
        *self.held.ends_at.lock().unwrap() = asked_at + LOCK;
        Ok(())
    }

    async fn complete(&mut self) -> Result<(), SourceError> {
        self.settle("complete", State::deletes).await
    }

    fn hides_released(&self) -> bool {
        false
    }

    async fn release(&mut self, delay: Duration, history: &[Attempt]) -> Result<(), SourceError> {
        assert!(delay.is_zero(), "it cannot hide messages");
        let history = history.to_vec();
        let release = move |state: &mut State, id| {
            let stored = state.messages.get_mut(&id).expect("it is there");
            stored.history = history;
            stored.taken_by = None;
        };
        self.settle("release", release).await
    }

    async fn bury(&mut self, burial: &Burial) -> Result<(), SourceError> {
        let burial = burial.clone();
        let bury = move |state: &mut State, id| {
            state.messages.remove(&id);
            state.buried.insert(id, burial);
        };
        self.settle("bury", bury).await
    }
}

impl Checkpoints for SessionLease {
    /// Replaces the state of the session.
    async fn save(&mut self, progress: Bytes) -> Result<(), SourceError> {
        let (session, lock, kept) = (self.held.session, self.held.lock, progress.clone());
        let number = self.held.sets.fetch_add(1, Ordering::SeqCst);
        let saved = self.service.request("save", move |state| {
            check(state, session, lock)?;
            let session = state.sessions.get_mut(&session).expect("sessions stay");
            // A late one came before those that were carried out meanwhile.
            if (lock, number) >= session.last_set {
                session.last_set = (lock, number);
                session.state = Some(kept);
            }
            Ok(())
        });
        saved.await?;
        *self.held.state.lock().unwrap() = Some(progress.clone());
        Arc::make_mut(&mut self.incoming.meta).checkpoint = Some(progress);
        Ok(())
    }
}
