//! The orders that a message is in. They follow from its state, and until when that lasts.

use super::Backlog;
use crate::bus::BusMessageState;
use crate::bus::effect::{BusWas, Standing};
use crate::vocabulary::SequenceNumber;

impl Backlog {
    pub(super) fn index(&mut self, number: SequenceNumber, standing: Standing, session: u32) {
        let Standing { state, until } = standing;
        match state {
            // The table has the order of the others.
            BusMessageState::Ready if self.is_in_order(state, session) => {}
            BusMessageState::Ready => self.sessions.change_messages(session, |messages| {
                messages.ready.insert(number);
            }),
            BusMessageState::Locked { .. } => {
                self.due.insert((until, number));
                if self.by_session {
                    self.sessions.change_messages(session, |messages| {
                        messages.locked.insert(number);
                    });
                }
            }
            BusMessageState::Scheduled => {
                self.due.insert((until, number));
                self.scheduled_count += 1;
                self.set_aside(number, session);
            }
            BusMessageState::Deferred => {
                self.deferred_count += 1;
                self.set_aside(number, session);
            }
        }
        if state != BusMessageState::Scheduled {
            self.oldest.0 = self.oldest.0.min(number);
        }
    }

    pub(super) fn unindex(&mut self, number: SequenceNumber, was: &BusWas) {
        let Standing { state, until } = was.standing;
        match state {
            BusMessageState::Ready if self.is_in_order(state, was.session) => {}
            BusMessageState::Ready => self.sessions.change_messages(was.session, |messages| {
                messages.ready.remove(&number);
            }),
            BusMessageState::Locked { .. } => {
                self.due.remove(&(until, number));
                if self.by_session {
                    self.sessions.change_messages(was.session, |messages| {
                        messages.locked.remove(&number);
                    });
                }
            }
            BusMessageState::Scheduled => {
                self.due.remove(&(until, number));
                self.scheduled_count = self.scheduled_count.saturating_sub(1);
                self.take_back(number, was.session);
            }
            BusMessageState::Deferred => {
                self.deferred_count = self.deferred_count.saturating_sub(1);
                self.take_back(number, was.session);
            }
        }
    }

    /// Keeps a message of its session that cannot be received from it.
    fn set_aside(&mut self, number: SequenceNumber, session: u32) {
        if self.by_session {
            self.sessions.change_messages(session, |messages| {
                messages.others.insert(number);
            });
        }
    }

    fn take_back(&mut self, number: SequenceNumber, session: u32) {
        if self.by_session {
            self.sessions.change_messages(session, |messages| {
                messages.others.remove(&number);
            });
        }
    }
}
