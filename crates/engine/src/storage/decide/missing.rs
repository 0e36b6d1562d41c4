//! What decisions about storage queues need: the records that are not in memory.
//!
//! Each function walks as its decision does, over bits where there are no records.

use super::Turn;
use crate::queues::{Receiving, Walk};
use crate::storage::backlog::{SCAN_MAX, stored};
use crate::storage::{ENDED_COUNT_MAX, StorageCommand};
use crate::table::{Missing, Seen};
use crate::vocabulary::token::TokenKind;
use crate::vocabulary::{EntityName, Incarnation, Token};

impl Turn<'_> {
    /// What deciding the command needs.
    pub(crate) fn missing(&self, command: &StorageCommand) -> Missing {
        let mut missing = Missing::default();
        match command {
            StorageCommand::Receive { queue, count, .. }
            | StorageCommand::Peek { queue, count } => {
                self.ask_visible(queue, *count as usize, &mut missing);
            }
            StorageCommand::Update { queue, message, .. }
            | StorageCommand::Delete { queue, message, .. } => {
                self.ask_named(queue, *message, &mut missing);
            }
            // Bits and counts are enough.
            StorageCommand::CreateQueue { .. }
            | StorageCommand::DeleteQueue { .. }
            | StorageCommand::ReadQueue { .. }
            | StorageCommand::SetQueueMetadata { .. }
            | StorageCommand::ListQueues { .. }
            | StorageCommand::Send { .. }
            | StorageCommand::Clear { .. }
            | StorageCommand::SetQueuePolicies { .. } => {}
        }
        missing
    }

    /// Who receives messages from a queue with the command, if their records may not be in memory.
    pub(crate) fn receiving(&self, command: &StorageCommand) -> Option<Receiving> {
        let (queue, count) = match command {
            StorageCommand::Receive { queue, count, .. } => (queue, *count),
            StorageCommand::CreateQueue { .. }
            | StorageCommand::DeleteQueue { .. }
            | StorageCommand::ReadQueue { .. }
            | StorageCommand::SetQueueMetadata { .. }
            | StorageCommand::SetQueuePolicies { .. }
            | StorageCommand::ListQueues { .. }
            | StorageCommand::Send { .. }
            | StorageCommand::Peek { .. }
            | StorageCommand::Update { .. }
            | StorageCommand::Delete { .. }
            | StorageCommand::Clear { .. } => return None,
        };
        let (entity, queue) = self.0.queues().find(self.catalogue(), queue)?;
        let is_cold = queue.backlog.table().has_cold();
        is_cold.then_some(Receiving {
            entity,
            session: 0,
            count: count as usize,
        })
    }

    /// Messages that show: each of the two orders may have all of them.
    fn ask_visible(&self, queue: &EntityName, count: usize, missing: &mut Missing) {
        let Some((entity, queue)) = self.0.queues().find(self.catalogue(), queue) else {
            return;
        };
        let (backlog, now) = (&queue.backlog, self.now());
        if !backlog.table().has_cold() {
            return;
        }
        let is_there = |(_, entry): &Seen<'_>| {
            let message = entry.map(|entry| stored(entry).1);
            message.map(|message| !message.is_expired(now))
        };
        let fresh = backlog.table().ready_seen(now).take(SCAN_MAX);
        Walk::for_count(count).ask(backlog, entity, fresh, missing, is_there);
        let far_from = backlog.table().far_first();
        let shown = backlog.timed().iter();
        let shown = shown.take_while(|key| {
            let place = backlog.table().far_key(**key);
            key.0.has_passed(now) && far_from.is_none_or(|far| place < far)
        });
        let mut looks = 0;
        let shown = shown.take(SCAN_MAX).inspect(|_| looks += 1);
        let shown = shown.filter_map(|(_, number)| backlog.table().seen(*number));
        let walk = Walk::for_count(count).scattered();
        let wants_more = walk.ask(backlog, entity, shown, missing, is_there);
        if wants_more && looks < SCAN_MAX {
            backlog.table().ask_far(entity, (now, u64::MAX), missing);
        }
    }

    fn ask_named(&self, queue: &EntityName, message: Token, missing: &mut Missing) {
        let found = self.catalogue().find(queue);
        let place = self.cipher().open(TokenKind::MessageId, message);
        if let (Some(queue), Some(place)) = (found, place)
            && place.incarnation == queue
            && let Some(entity) = self.0.queues().get(&queue)
        {
            let number = place.sequence_number;
            entity.backlog.ask(queue, number, missing);
        }
    }

    /// What removing the expired messages of a run needs. A run that ends as a whole needs nothing.
    pub(crate) fn missing_to_expire(&self, entity: Incarnation, run: u64) -> Missing {
        let mut missing = Missing::default();
        let table = self.0.queues().get(&entity).map(|it| it.backlog.table());
        if let Some(table) = table.filter(|table| table.has_cold()) {
            let is_whole =
                |run: &crate::table::Run| run.is_all_ready() && run.has_expired(self.now());
            if !table.run(run).is_some_and(is_whole)
                && let Some(entity_of) = self.0.queues().get(&entity)
            {
                // If an event does not take all of them, the next one looks at the others.
                let (messages, now) = (table.seen_of(run), self.now());
                let walk = Walk::for_count(ENDED_COUNT_MAX);
                walk.ask(
                    &entity_of.backlog,
                    entity,
                    messages,
                    &mut missing,
                    |(_, entry)| entry.map(|entry| stored(entry).1.is_expired(now)),
                );
            }
        }
        missing
    }
}
