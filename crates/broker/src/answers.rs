//! Answers to many commands in one place, for a front end that has many commands under way.
//!
//! A front end that waits for each answer separately needs a task and a wake-up for each. Here all answers
//! of one commit arrive together and cause one wake-up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, oneshot};

use crate::broker::lock;
use crate::{Rejection, Reply};

/// The place where answers arrive. Each has the key under which its command was submitted.
///
/// Answers that are not taken are dropped with it.
#[derive(Default)]
pub struct Answers {
    came: Mutex<Vec<(u64, Reply)>>,
    any: Notify,
    /// Commands without an answer so far whose answers nobody needs.
    given_up: Mutex<BTreeSet<u64>>,
    /// Nobody needs any of the answers that are to come.
    is_closed: AtomicBool,
    /// What else is to hear that they are given up.
    hear: Mutex<BTreeMap<u64, Hear>>,
}

/// Hears that nobody waits for an answer any more.
type Hear = Box<dyn FnOnce() + Send>;

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers")
            .field("came", &self.came)
            .field("given_up", &self.given_up)
            .finish_non_exhaustive()
    }
}

impl Answers {
    /// Waits until an answer has arrived since the last [`take`](Self::take). Dropping the future loses
    /// nothing.
    pub async fn ready(&self) {
        self.any.notified().await;
    }

    /// Takes all answers that have arrived, in order, in exchange for an empty vector.
    pub fn take(&self, empty: &mut Vec<(u64, Reply)>) {
        std::mem::swap(&mut *lock(&self.came), empty);
    }

    /// Says that nobody needs an answer any more. If its command waits to hand messages out and remove them, it is not
    /// carried out then. The answer comes all the same.
    pub fn give_up(&self, key: u64) {
        lock(&self.given_up).insert(key);
        let hear = lock(&self.hear).remove(&key);
        if let Some(hear) = hear {
            hear();
        }
    }

    /// Says the same of all commands without an answer: the front end has gone, and submits no more.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        let hear = std::mem::take(&mut *lock(&self.hear));
        for hear in hear.into_values() {
            hear();
        }
    }

    /// Notes that a command was answered that was given up, if it was.
    pub fn forget_given_up(&self, key: u64) {
        lock(&self.given_up).remove(&key);
    }

    fn is_waiting(&self, key: u64) -> bool {
        !self.is_closed.load(Ordering::Relaxed) && !lock(&self.given_up).contains(&key)
    }

    /// Adds an answer. Returns whether it is the first one, so that the caller may have to wake the front
    /// end.
    fn put(&self, key: u64, reply: Reply) -> bool {
        let mut came = lock(&self.came);
        came.push((key, reply));
        came.len() == 1
    }
}

/// The recipient of an answer. It is answered once. If it is dropped, the partition has stopped.
#[derive(Debug)]
pub struct Asker(To);

#[derive(Debug)]
enum To {
    /// A caller that waits for this answer alone. Dropping the sender means that there is no answer.
    Alone(oneshot::Sender<Reply>),
    /// A caller with many commands under way.
    Among(Among),
}

impl Asker {
    pub(crate) fn alone(sender: oneshot::Sender<Reply>) -> Self {
        Self(To::Alone(sender))
    }

    /// The caller whose answers arrive at one place, with the key of this one.
    pub(crate) fn among(answers: &Arc<Answers>, key: u64) -> Self {
        Self(To::Among(Among::new(answers, key)))
    }

    /// The key of a command that was not accepted, so that it gets no answer. `None` if its caller waits for it alone.
    pub(crate) fn forget(self) -> Option<u64> {
        match self.0 {
            To::Alone(_) => None,
            To::Among(among) => Some(among.forget()),
        }
    }

    /// Gives the answer.
    pub fn answer(self, reply: Reply) {
        let mut hand_out = HandOut::default();
        hand_out.answer(self, reply);
        hand_out.wake();
    }

    /// The same recipient, which calls this once if nobody waits for the answer any more before it comes. For a door that
    /// leads to another process. To be called within a runtime of Tokio.
    #[must_use]
    pub fn hearing(self, given_up: impl FnOnce() + Send + 'static) -> Self {
        match self.0 {
            To::Alone(mut to) => {
                let (sender, answer) = oneshot::channel();
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        // Without an answer the caller has none, either.
                        answered = answer => if let Ok(reply) = answered {
                            drop(to.send(reply));
                        },
                        () = to.closed() => given_up(),
                    }
                });
                Self::alone(sender)
            }
            To::Among(mut among) => {
                among.hear(Box::new(given_up));
                Self(To::Among(among))
            }
        }
    }

    /// Whether somebody waits for the answer.
    pub(crate) fn is_waiting(&self) -> bool {
        match &self.0 {
            To::Alone(sender) => !sender.is_closed(),
            To::Among(among) => {
                let answers = among.answers.as_ref();
                answers.is_some_and(|answers| answers.is_waiting(among.key))
            }
        }
    }
}

/// One command of many. It is answered exactly once: if it is dropped, the partition has stopped.
#[derive(Debug)]
struct Among {
    answers: Option<Arc<Answers>>,
    key: u64,
    /// Whether something hears that it is given up.
    is_heard: bool,
}

impl Among {
    fn new(answers: &Arc<Answers>, key: u64) -> Self {
        Self {
            answers: Some(Arc::clone(answers)),
            key,
            is_heard: false,
        }
    }

    /// Gives no answer, because the command was not accepted. Returns the command's key.
    fn forget(mut self) -> u64 {
        self.take();
        self.key
    }

    fn hear(&mut self, hear: Hear) {
        let Some(answers) = &self.answers else {
            return;
        };
        self.is_heard = true;
        let before = lock(&answers.hear).insert(self.key, hear);
        debug_assert!(before.is_none(), "a command is under way once");
    }

    /// The place for its answer, for the last time.
    fn take(&mut self) -> Option<Arc<Answers>> {
        let answers = self.answers.take()?;
        if self.is_heard {
            lock(&answers.hear).remove(&self.key);
        }
        Some(answers)
    }
}

impl Drop for Among {
    fn drop(&mut self) {
        if let Some(answers) = self.take()
            && answers.put(self.key, Err(Rejection::Stopped))
        {
            answers.any.notify_one();
        }
    }
}

/// Hands out answers. Wakes callers that wait for many answers once all of them are there.
#[derive(Debug, Default)]
pub(crate) struct HandOut {
    to_wake: Vec<Arc<Answers>>,
}

impl HandOut {
    pub(crate) fn answer(&mut self, asker: Asker, reply: Reply) {
        match asker.0 {
            // The caller may have gone away. The command's effect stays.
            To::Alone(sender) => drop(sender.send(reply)),
            To::Among(mut among) => {
                if let Some(answers) = among.take()
                    && answers.put(among.key, reply)
                {
                    self.to_wake.push(answers);
                }
            }
        }
    }

    pub(crate) fn wake(&mut self) {
        for answers in self.to_wake.drain(..) {
            answers.any.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_ready(answers: &Answers) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(answers.ready()).poll(&mut context).is_ready()
    }

    fn take(answers: &Answers) -> Vec<u64> {
        let mut came = Vec::new();
        answers.take(&mut came);
        came.into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn answers_of_one_commit_arrive_together() {
        let answers = Arc::<Answers>::default();
        let mut hand_out = HandOut::default();
        for key in [3, 1, 2] {
            let asker = Asker::among(&answers, key);
            hand_out.answer(asker, Err(Rejection::Busy));
        }
        assert!(!is_ready(&answers));
        hand_out.wake();
        assert!(is_ready(&answers));
        assert_eq!(take(&answers), [3, 1, 2]);
        assert!(!is_ready(&answers));
        assert_eq!(take(&answers), []);
    }

    #[test]
    fn a_caller_that_has_gone_waits_for_nothing() {
        let (sender, answer) = oneshot::channel();
        let alone = Asker::alone(sender);
        assert!(alone.is_waiting());
        drop(answer);
        assert!(!alone.is_waiting());
        let answers = Arc::<Answers>::default();
        let among = Asker::among(&answers, 1);
        answers.give_up(2);
        assert!(among.is_waiting());
        answers.give_up(1);
        assert!(!among.is_waiting());
        answers.forget_given_up(1);
        assert!(among.is_waiting());
        answers.close();
        assert!(!among.is_waiting());
    }

    #[test]
    fn a_dropped_command_is_answered_and_a_refused_one_is_not() {
        let answers = Arc::<Answers>::default();
        Among::new(&answers, 7).forget();
        assert!(!is_ready(&answers));
        drop(Among::new(&answers, 8));
        assert!(is_ready(&answers));
        assert_eq!(take(&answers), [8]);
    }
}
