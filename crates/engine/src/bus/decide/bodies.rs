//! Bodies that a decision needs: those of messages that it hands out and removes.
//!
//! A message is removed only once its bytes were read and are whole, wherever they were before. So a decision asks for
//! them as for records, and what happens to be in memory changes nothing.

use super::super::message::Message;
use super::super::{BusCommand, BusQueue, ReceiveMode};
use super::Turn;
use crate::table::Missing;
use crate::vocabulary::{BodyLocation, BodyRead, EntityName, Incarnation, SequenceNumber};

/// How many messages behind those that a receiver takes are read ahead, at most, and how many bytes of them: a receiver
/// that takes one message at a time does not wait for a read each time.
const AHEAD_COUNT: usize = 1024;
const AHEAD_SIZE_BYTES: u64 = 1024 * 1024;

impl Turn<'_> {
    /// Asks for the bodies that a decision needs. The records that it needs are in memory.
    pub(super) fn ask_for_bodies(&mut self, command: &BusCommand, missing: &mut Missing) {
        let Some((queue, chosen)) = self.to_hand_out(command) else {
            return;
        };
        let mut is_any_missing = false;
        let mut needed = Vec::with_capacity(chosen.len());
        for number in &chosen {
            self.with_bodies(queue, *number, |turn, body| {
                is_any_missing |= turn.0.read_body(body) == BodyRead::Missing;
                needed.push(body);
            });
        }
        if is_any_missing {
            missing.bodies.extend(needed);
            let taken = chosen.last().copied();
            missing.ahead = self.bodies_behind(command, queue, taken);
        }
    }

    /// The messages that the decision is going to hand out and remove.
    fn to_hand_out(&self, command: &BusCommand) -> Option<(Incarnation, Vec<SequenceNumber>)> {
        let find = |turn: &Self, name: &EntityName| {
            let found = turn.catalogue().find(name);
            found.filter(|queue| turn.queues().contains_key(queue))
        };
        match command {
            BusCommand::Receive {
                queue,
                count,
                mode: mode @ ReceiveMode::ReceiveAndDelete,
                session,
            } => {
                let queue = find(self, queue)?;
                self.check_receivable(queue).ok()?;
                let session = self.session_of_receiver(queue, *session).ok()?;
                // A message that turns out to be damaged may take more room, so that fewer are handed out.
                Some((queue, self.choose_ready(queue, *count, *mode, session)))
            }
            BusCommand::ReceiveDeferred { read } if read.mode == ReceiveMode::ReceiveAndDelete => {
                let queue = find(self, &read.queue)?;
                Some((queue, self.choose_deferred(queue, read).ok()?))
            }
            BusCommand::TakeMessage {
                queue,
                number,
                mode: ReceiveMode::ReceiveAndDelete,
            } => Some((find(self, queue)?, vec![*number])),
            // They hand nothing out, or leave it in its queue.
            BusCommand::Receive { .. }
            | BusCommand::ReceiveDeferred { .. }
            | BusCommand::TakeMessage { .. }
            | BusCommand::CreateQueue { .. }
            | BusCommand::UpdateQueue { .. }
            | BusCommand::DeleteQueue { .. }
            | BusCommand::ReadQueue { .. }
            | BusCommand::ListQueues { .. }
            | BusCommand::Send { .. }
            | BusCommand::Settle { .. }
            | BusCommand::RenewLocks { .. }
            | BusCommand::Peek { .. }
            | BusCommand::ReadLocked { .. }
            | BusCommand::CancelScheduled { .. }
            | BusCommand::DeleteBatch { .. }
            | BusCommand::Purge { .. }
            | BusCommand::ClearSessionStates { .. }
            | BusCommand::DeleteMessage { .. }
            | BusCommand::BreakLock { .. }
            | BusCommand::Resubmit { .. }
            | BusCommand::Transact { .. }
            | BusCommand::AcceptSession { .. }
            | BusCommand::RenewSession { .. }
            | BusCommand::ReleaseSession { .. }
            | BusCommand::ReadSessionState { .. }
            | BusCommand::SetSessionState { .. }
            | BusCommand::ListSessions { .. } => None,
        }
    }

    fn with_bodies(
        &mut self,
        queue: Incarnation,
        number: SequenceNumber,
        mut work: impl FnMut(&mut Self, BodyLocation),
    ) {
        let Some(message) = self.bus_backlog(queue).get(number) else {
            return;
        };
        let (sent, changes) = (message.body, message.overlays());
        // Few messages have changes.
        let changes = match changes {
            [] => Vec::new(),
            changes => changes.to_vec(),
        };
        work(self, sent);
        for change in changes {
            work(self, change);
        }
    }

    /// Bodies of the next messages that a receiver is likely to take, as far as their records are in memory.
    fn bodies_behind(
        &self,
        command: &BusCommand,
        queue: Incarnation,
        taken: Option<SequenceNumber>,
    ) -> Vec<BodyLocation> {
        let BusCommand::Receive { session, .. } = command else {
            return Vec::new();
        };
        let Ok(session) = self.session_of_receiver(queue, *session) else {
            return Vec::new();
        };
        let BusQueue { backlog, .. } = self.bus(queue);
        let ready = backlog.ready_seen(session, self.now());
        let behind = ready.skip_while(|(number, _)| Some(*number) <= taken);
        let mut size_bytes = 0;
        let mut bodies = Vec::new();
        for message in behind.take(AHEAD_COUNT).map_while(|(_, entry)| entry) {
            size_bytes += message.size_bytes();
            if size_bytes > AHEAD_SIZE_BYTES {
                break;
            }
            bodies.extend(message.bodies());
        }
        bodies
    }

    /// Whether bytes of a message were read and are not what was written.
    pub(super) fn is_damaged(&self, message: Message<'_>) -> bool {
        message.bodies().any(|body| self.0.is_damaged(body))
    }
}
