//! Sessions whose lock runs out: the link that held one is detached, so that its client learns of it
//! also while it has nothing to ask.

use std::time::Duration;

use kew_amqp::{LinkId, Millis};
use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, BusRefusal};
use kew_engine::{Refusal, Timestamp, Token};

use super::turn::{REQUEST_STEPS, steps_to_look_at};
use super::{Client, Done, Link};
use crate::ground::refusal::error_of;
use crate::ground::submit::Submitted;

/// How long after a look another one is due, if the lock held all the same: the broker's clock is not
/// the system's.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Client {
    /// Notes when a link's session lock runs out, unless it is renewed.
    pub(super) fn note_session_end(&mut self, link: LinkId, at: Timestamp) {
        self.forget_session_end(link);
        if let Some(Link::Receiver(receiver)) = self.links.get_mut(link) {
            receiver.session_ends_at = Some(at);
            self.session_ends.insert((at, link));
        }
    }

    /// The link holds it no more, or until another time.
    pub(super) fn forget_session_end(&mut self, link: LinkId) {
        if let Some(Link::Receiver(receiver)) = self.links.get_mut(link)
            && let Some(at) = receiver.session_ends_at.take()
        {
            self.session_ends.remove(&(at, link));
        }
    }

    /// A request has renewed this lock.
    pub(super) fn on_session_renewed(&mut self, lock: Token, until: Timestamp) {
        self.steps.charge(steps_to_look_at(self.links.len()));
        let link = self.links.iter().find_map(|(id, link)| match link {
            Link::Receiver(receiver) => {
                let session = receiver.session.as_ref()?;
                (session.lock == lock).then_some(*id)
            }
            _ => None,
        });
        if let Some(link) = link {
            self.note_session_end(link, until);
        }
    }

    /// When the first session lock runs out.
    pub(super) fn next_session_end(&self, now: Millis) -> Option<Millis> {
        let (at, _) = self.session_ends.first()?;
        let left_ms = at.as_ms().saturating_sub(self.shared.clock.now_ms());
        // The system's clock may jump: it is looked at once an hour.
        Some(Millis(now.0.saturating_add(left_ms.min(3_600_000))))
    }

    /// Asks the broker about the session locks that should have run out.
    pub(super) fn look_at_session_ends(&mut self) {
        let now_ms = self.shared.clock.now_ms();
        // What is due and not looked at now is due again at once.
        while self.steps.are_left()
            && let Some(&(at, link)) = self.session_ends.first()
            && at.as_ms() <= now_ms
        {
            self.steps.charge(REQUEST_STEPS);
            self.forget_session_end(link);
            let Some(Link::Receiver(receiver)) = self.links.get(&link) else {
                continue;
            };
            let Some(session) = &receiver.session else {
                continue;
            };
            let lock = session.lock;
            let read = BusCommand::ReadSessionState {
                queue: receiver.attached.entity.clone(),
                session: lock,
            };
            let submitted = Submitted::new(&self.shared.broker, read);
            self.tasks.spawn(async move {
                let held = submitted.answer().await.map(drop);
                Done::SessionLookedAt(link, lock, held)
            });
        }
    }

    pub(super) fn on_session_looked_at(
        &mut self,
        link: LinkId,
        lock: Token,
        held: Result<(), Rejection>,
    ) {
        let Some(Link::Receiver(receiver)) = self.links.get(&link) else {
            return;
        };
        let is_it = receiver.session.as_ref().is_some_and(|it| it.lock == lock);
        if !is_it {
            return;
        }
        if let Err(
            rejection @ Rejection::Refused(Refusal::Bus(
                BusRefusal::SessionLockLost | BusRefusal::QueueNotFound { .. },
            )),
        ) = &held
        {
            return self.detach(link, error_of(rejection));
        }
        if receiver.session_ends_at.is_none() {
            let pause_ms = u64::try_from(LOOK_AGAIN.as_millis()).unwrap_or(u64::MAX);
            let at = self.shared.clock.now_ms().saturating_add(pause_ms);
            self.note_session_end(link, Timestamp::from_ms(at));
        }
    }
}
