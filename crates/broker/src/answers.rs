//! Answers to many commands in one place, for whoever has many under way.
//!
//! A front end that waits for each answer alone has a task for each, and is woken for each. Here the
//! answers of a commit come together, and wake whoever waits for them once.

use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, oneshot};

use crate::broker::lock;
use crate::{Rejection, Reply};

/// Where answers come to. Each has the key under which its command was submitted.
///
/// What comes when nobody takes it any more is dropped with this.
#[derive(Debug, Default)]
pub struct Answers {
    came: Mutex<Vec<(u64, Reply)>>,
    any: Notify,
}

impl Answers {
    /// Waits until an answer has come since the last one was taken. To drop the future loses nothing.
    pub async fn ready(&self) {
        self.any.notified().await;
    }

    /// Takes all that have come, in their order, in exchange for an empty vector.
    pub fn take(&self, empty: &mut Vec<(u64, Reply)>) {
        std::mem::swap(&mut *lock(&self.came), empty);
    }

    /// Says whether it is the first one, for which somebody may have to be woken.
    fn put(&self, key: u64, reply: Reply) -> bool {
        let mut came = lock(&self.came);
        came.push((key, reply));
        came.len() == 1
    }
}

/// Who is answered.
#[derive(Debug)]
pub(crate) enum Asker {
    /// Somebody who waits for this answer alone. To drop the sender tells that there is none.
    Alone(oneshot::Sender<Reply>),
    /// Somebody with many commands under way.
    Among(Among),
}

/// One command of many. It is answered once, also when it is dropped.
#[derive(Debug)]
pub(crate) struct Among {
    answers: Option<Arc<Answers>>,
    key: u64,
}

impl Among {
    pub(crate) fn new(answers: &Arc<Answers>, key: u64) -> Self {
        let answers = Some(Arc::clone(answers));
        Self { answers, key }
    }

    /// Nobody is answered: the command was not taken. Says which one.
    pub(crate) fn forget(mut self) -> u64 {
        self.answers = None;
        self.key
    }
}

impl Drop for Among {
    fn drop(&mut self) {
        if let Some(answers) = self.answers.take()
            && answers.put(self.key, Err(Rejection::Stopped))
        {
            answers.any.notify_one();
        }
    }
}

/// Hands out answers, and wakes those who wait for many when all are there.
#[derive(Debug, Default)]
pub(crate) struct HandOut {
    to_wake: Vec<Arc<Answers>>,
}

impl HandOut {
    pub(crate) fn answer(&mut self, asker: Asker, reply: Reply) {
        match asker {
            // Whoever asked may have gone away, which changes nothing about what was done.
            Asker::Alone(sender) => drop(sender.send(reply)),
            Asker::Among(mut among) => {
                if let Some(answers) = among.answers.take()
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
    fn answers_come_together() {
        let answers = Arc::<Answers>::default();
        let mut hand_out = HandOut::default();
        for key in [3, 1, 2] {
            let asker = Asker::Among(Among::new(&answers, key));
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
    fn a_command_that_is_dropped_is_answered_and_one_that_was_not_taken_is_not() {
        let answers = Arc::<Answers>::default();
        Among::new(&answers, 7).forget();
        assert!(!is_ready(&answers));
        drop(Among::new(&answers, 8));
        assert!(is_ready(&answers));
        assert_eq!(take(&answers), [8]);
    }
}
