//! The room that is taken by what is sent via an entity.

use kew_engine::bus::BusMessage;

use crate::bus::checker::life::{Entity, Surroundings as _};
use crate::bus::checker::queues::{CHANGE_SIZE_BYTES, size_of_all};
use crate::bus::checker::{Checker, QUEUES};
use crate::checker::{Violation, violated};

/// The sizes of messages, by where they take room.
#[derive(Debug, Default)]
struct Needed {
    at_destination: u64,
    /// Among the failed transfers.
    failed: u64,
    /// In one of both.
    either: u64,
}

impl Checker {
    /// Messages were accepted, so there was room for each: at its destination, or among the failed transfers.
    pub(super) fn check_room_for_transfers(
        &self,
        (via, to): (Entity, Entity),
        messages: &[BusMessage],
    ) -> Result<(), Violation> {
        let needed = self.needed(to, messages);
        let [at_destination, failed] = [to, via].map(|it| self.room_bytes(it));
        let together = needed.either + needed.at_destination + needed.failed;
        if needed.at_destination > at_destination
            || needed.failed > failed
            || together > at_destination.saturating_add(failed)
        {
            return violated!(
                QUEUES,
                "{needed:?} bytes were taken, with room for {at_destination} and for {failed}"
            );
        }
        Ok(())
    }

    fn needed(&self, to: Entity, messages: &[BusMessage]) -> Needed {
        let is_refused_perhaps = self.queues.may_not_take(to.queue);
        let open = || self.queues.of(to).filter(|it| it.status.allows_send());
        let mut all = self.queues.of(to);
        let detects = all.any(|it| it.duplicate_window_ms.is_some());
        let mut needed = Needed::default();
        for message in messages {
            let lacks_session = message.session.is_none();
            let may_arrive = open().any(|it| !(lacks_session && it.requires_session));
            let may_fail =
                is_refused_perhaps || open().any(|it| lacks_session && it.requires_session);
            let size_bytes = size_of_all([&message.body]);
            match (may_arrive, may_fail) {
                // A duplicate has arrived and takes no room, even if its destination takes nothing any more.
                _ if detects && message.message_id.is_some() => {}
                (true, true) => needed.either += size_bytes,
                (true, false) => needed.at_destination += size_bytes,
                (false, _) => needed.failed += size_bytes + CHANGE_SIZE_BYTES,
            }
        }
        needed
    }

    /// The room that a queue or topic has at most.
    fn room_bytes(&self, entity: Entity) -> u64 {
        let limits = self.queues.of(entity).map(|it| it.size_bytes_max);
        let limit_bytes = limits.max().unwrap_or(0);
        limit_bytes.saturating_sub(self.size_bytes(entity.queue).least)
    }
}
