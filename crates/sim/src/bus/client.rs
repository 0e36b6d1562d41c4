//! What the client does, and what it may see.

use bytes::Bytes;
use kew_engine::EntityName;
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusRefusal, DeliveredMessage, Disposition, ReceiveMode,
    SessionChoice, Verdict,
};

use super::{DELIVERIES_MAX, Known, LOCK_MS, WINDOW_MS, World, named};
use crate::checker::{Violation, violated};

const ANSWERS_FIT: &str = "an answer fits its question";
const LOCKS: &str = "a lock is one receiver's until it ends";
const DELIVERY_COUNT: &str = "every failed delivery counts once";
const ONE_PLACE: &str = "a message is in one place, or gone";
const DUPLICATES: &str = "a repeated id is dropped within the window, and only there";
const SESSIONS: &str = "a session has one receiver and keeps its state";

const DEAD_LETTERS: &str = "plain/$deadletterqueue";

impl World {
    pub(super) fn step(&mut self) -> Result<(), Violation> {
        let passed_ms = self.random.below(3_000);
        self.now = self.now.plus_ms(passed_ms);
        self.end_locks();
        match self.random.below(12) {
            0..=3 => self.send(),
            4..=6 => self.receive(),
            7..=9 => self.settle(),
            _ => self.use_session(),
        }
    }

    /// What time alone has done.
    fn end_locks(&mut self) {
        for message in self.messages.values_mut() {
            if message
                .lock
                .is_some_and(|(_, until)| until.has_passed(self.now))
            {
                message.fail();
            }
        }
        if self
            .session
            .is_some_and(|(_, until)| until.has_passed(self.now))
        {
            self.session = None;
        }
    }

    fn send(&mut self) -> Result<(), Violation> {
        let body = self.messages.len() as u64 + 1;
        let id = self.random.below(12);
        let message = BusMessage {
            body: Bytes::copy_from_slice(&body.to_be_bytes()),
            message_id: Some(id.to_string().into()),
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        };
        let before = self.ids.get(&id).copied();
        let seen = self.ask(BusCommand::Send {
            queue: named("plain"),
            messages: vec![message],
        })?;
        let mut known = Known {
            is_certain: true,
            ..Known::default()
        };
        match seen {
            None => {
                known.is_certain = false;
                self.ids.insert(id, None);
            }
            Some(Ok((BusOutcome::Sent(numbers), _))) => {
                let is_dropped = numbers == [None];
                let is_repeat = match before {
                    None => Some(false),
                    Some(at) => at.map(|at| !at.plus_ms(WINDOW_MS).has_passed(self.now)),
                };
                if is_repeat.is_some_and(|is_repeat| is_repeat != is_dropped) {
                    return violated!(DUPLICATES, "id {id} dropped: {is_dropped}");
                }
                known.is_gone = is_dropped;
                if !is_dropped {
                    self.ids.insert(id, Some(self.now));
                }
            }
            Some(other) => return violated!(ANSWERS_FIT, "{other:?}"),
        }
        self.messages.insert(body, known);
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Violation> {
        let count = 1 + self.random.below_u32(4);
        if self.receive_from(named("plain"), count)?.is_none() {
            // It may have locked any.
            for message in self.messages.values_mut() {
                message.is_certain &= message.is_gone;
            }
        }
        Ok(())
    }

    fn receive_from(
        &mut self,
        queue: EntityName,
        count: u32,
    ) -> Result<Option<Vec<(u64, DeliveredMessage)>>, Violation> {
        let is_dead = &*queue.name == DEAD_LETTERS;
        let seen = self.ask(BusCommand::Receive {
            queue,
            count,
            mode: ReceiveMode::PeekLock,
            session: None,
        })?;
        let (messages, bodies) = match seen {
            None => return Ok(None),
            Some(Ok((BusOutcome::Received(messages), bodies))) => (messages, bodies),
            Some(other) => return violated!(ANSWERS_FIT, "{other:?}"),
        };
        let is_in_order = messages.is_sorted_by_key(|message| message.sequence_number);
        if !is_in_order || bodies.len() < messages.len() {
            return violated!(ANSWERS_FIT, "{messages:?}");
        }
        let mut taken = Vec::new();
        for (message, body) in messages.into_iter().zip(bodies) {
            let body = <[u8; 8]>::try_from(&*body).map_or(0, u64::from_be_bytes);
            let Some(known) = self.messages.get_mut(&body) else {
                return violated!(ONE_PLACE, "{body} was never sent");
            };
            if known.is_gone {
                return violated!(ONE_PLACE, "{body} is gone and was shown");
            }
            if known.is_certain {
                if known.lock.is_some() {
                    return violated!(LOCKS, "{body} was given to two");
                }
                if known.is_dead != is_dead {
                    return violated!(ONE_PLACE, "{body} dead: {}", known.is_dead);
                }
                if known.failures != message.delivery_count {
                    let counted = message.delivery_count;
                    return violated!(DELIVERY_COUNT, "{body}: {counted}, {}", known.failures);
                }
            }
            // Whatever happened before, this is how it is now.
            known.is_certain = true;
            known.is_dead = is_dead;
            known.failures = message.delivery_count;
            known.lock = message.lock.map(|lock| (lock, self.now.plus_ms(LOCK_MS)));
            taken.push((body, message));
        }
        Ok(Some(taken))
    }

    fn settle(&mut self) -> Result<(), Violation> {
        let held = self.messages.iter();
        let held: Vec<_> = held
            .filter_map(|(body, known)| Some((*body, known.lock?.0)))
            .collect();
        if held.is_empty() {
            return self.receive();
        }
        let (body, lock) = held[self.random.index(held.len())];
        let disposition = match self.random.below(5) {
            0 | 1 => Disposition::Complete,
            2 => Disposition::Abandon { overlay: None },
            3 => Disposition::DeadLetter { overlay: None },
            _ => Disposition::Release,
        };
        let seen = self.ask(BusCommand::Settle {
            queue: named("plain"),
            settlements: vec![(lock, disposition.clone())],
        })?;
        let Some(known) = self.messages.get_mut(&body) else {
            return Ok(());
        };
        match seen {
            None => {
                known.is_certain = false;
                known.lock = None;
            }
            Some(Ok((BusOutcome::Settled(verdicts), _))) if verdicts == [Verdict::Settled] => {
                known.lock.take();
                match disposition {
                    Disposition::Complete => known.is_gone = true,
                    Disposition::Abandon { .. } => known.fail(),
                    Disposition::DeadLetter { .. } => known.is_dead = true,
                    Disposition::Defer { .. } | Disposition::Release => {}
                }
            }
            Some(other) if known.is_certain => {
                return violated!(LOCKS, "{body} is locked, and its lock refused: {other:?}");
            }
            Some(_) => known.lock = None,
        }
        Ok(())
    }

    fn use_session(&mut self) -> Result<(), Violation> {
        let queue = named("sessions");
        let Some((lock, _)) = self.session.filter(|_| !self.random.happens(300)) else {
            return self.accept_session();
        };
        if self.random.happens(500) {
            let state = Some(Bytes::from(self.random.next().to_string()));
            let seen = self.ask(BusCommand::SetSessionState {
                queue,
                session: lock,
                state: state.clone(),
            })?;
            match seen {
                None => self.states.push(state),
                Some(Ok(_)) => self.states = vec![state],
                Some(Err(refusal)) => return violated!(SESSIONS, "{refusal}"),
            }
            return Ok(());
        }
        let read = BusCommand::ReadSessionState {
            queue,
            session: lock,
        };
        match self.ask(read)? {
            None => Ok(()),
            Some(Ok((BusOutcome::SessionState(_), bodies))) => {
                let state = bodies.into_iter().next();
                if !self.states.contains(&state) {
                    return violated!(SESSIONS, "{state:?} was shown, not of {:?}", self.states);
                }
                self.states = vec![state];
                Ok(())
            }
            Some(other) => violated!(SESSIONS, "{other:?}"),
        }
    }

    fn accept_session(&mut self) -> Result<(), Violation> {
        let seen = self.ask(BusCommand::AcceptSession {
            queue: named("sessions"),
            session: SessionChoice::Named("one".into()),
        })?;
        match seen {
            None => self.session_is_certain = self.session.is_some(),
            Some(Ok((BusOutcome::SessionAccepted(lock), _))) => {
                if self.session.is_some() {
                    return violated!(SESSIONS, "two have its lock");
                }
                self.session = Some((lock.lock, lock.locked_until));
                self.session_is_certain = true;
            }
            Some(Err(BusRefusal::SessionCannotBeLocked { .. })) => {
                if self.session.is_none() && self.session_is_certain {
                    return violated!(SESSIONS, "nobody has its lock, and it is refused");
                }
            }
            Some(other) => return violated!(ANSWERS_FIT, "{other:?}"),
        }
        Ok(())
    }

    /// No more crashes: all that was taken in comes out, from one place.
    pub(super) fn drain(&mut self) -> Result<(), Violation> {
        for _ in 0..2 {
            self.now = self.now.plus_ms(2 * LOCK_MS);
            self.end_locks();
            for queue in ["plain", DEAD_LETTERS] {
                self.drain_queue(&named(queue))?;
            }
        }
        let left = self.messages.iter();
        let mut left = left.filter(|(_, known)| known.is_certain && !known.is_gone);
        if let Some((body, known)) = left.next() {
            return violated!(ONE_PLACE, "{body} is lost: {known:?}");
        }
        let queue = named("plain");
        match self.ask(BusCommand::ReadQueue { queue })? {
            Some(Ok((BusOutcome::Queue(view), _)))
                if view.counts.active + view.counts.dead_letters + view.counts.size_bytes == 0 =>
            {
                Ok(())
            }
            other => violated!(ONE_PLACE, "an empty queue counts: {other:?}"),
        }
    }

    fn drain_queue(&mut self, queue: &EntityName) -> Result<(), Violation> {
        loop {
            let taken = self.receive_from(queue.clone(), 100)?.unwrap_or_default();
            if taken.is_empty() {
                return Ok(());
            }
            let locks = taken.iter().filter_map(|(_, message)| message.lock);
            let settlements = locks.map(|lock| (lock, Disposition::Complete)).collect();
            self.ask(BusCommand::Settle {
                queue: queue.clone(),
                settlements,
            })?;
            for (body, _) in taken {
                if let Some(known) = self.messages.get_mut(&body) {
                    known.is_gone = true;
                    known.lock = None;
                }
            }
        }
    }
}

impl Known {
    /// A delivery came to nothing.
    fn fail(&mut self) {
        self.lock = None;
        self.failures += 1;
        self.is_dead |= self.failures >= DELIVERIES_MAX;
    }
}
