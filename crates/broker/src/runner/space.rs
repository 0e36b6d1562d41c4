//! What the runner reports about space on the disk and about other machines: log lines, and whether the server is ready.

use std::sync::atomic::Ordering;

use super::mailbox::{Shared, Ticket};
use crate::Partition;

/// What was reported last. A line is logged when it changes.
#[derive(Debug, Default)]
pub(super) struct ToldSpace {
    was_out_of_space: bool,
    was_without_room: bool,
    was_without_snapshot: bool,
    was_without_quorum: bool,
}

impl ToldSpace {
    /// Updates readiness and logs a line when something is missing, and when it is there again.
    pub(super) fn tell(&mut self, partition: &Partition<Ticket>, shared: &Shared) {
        self.tell_quorum(partition, shared);
        self.tell_space(partition, shared);
    }

    fn tell_quorum(&mut self, partition: &Partition<Ticket>, shared: &Shared) {
        let is_without_quorum = partition.is_without_quorum();
        if is_without_quorum == self.was_without_quorum {
            return;
        }
        self.was_without_quorum = is_without_quorum;
        shared.note_quorum(is_without_quorum);
        if is_without_quorum {
            tracing::error!(
                "too few of the machines answer that keep the log: new requests are refused as busy; look at these \
                 machines and the network between them"
            );
        } else {
            tracing::info!("enough of the machines answer again that keep the log");
            // Receivers that were refused look again.
            shared.watchers.wake_all();
        }
    }

    fn tell_space(&mut self, partition: &Partition<Ticket>, shared: &Shared) {
        let snapshot_error = partition.log().snapshots().failed;
        let is_without_snapshot = snapshot_error.is_some();
        if let Some(error) = snapshot_error
            && !self.was_without_snapshot
        {
            tracing::warn!(%error, "cannot write a snapshot: the log grows until one is written");
        }
        self.was_without_snapshot = is_without_snapshot;
        let is_without_room = partition.is_without_room();
        if is_without_room && !self.was_without_room {
            tracing::error!(
                "the disk is full, and other files use the space that Kew had reserved: messages cannot \
                 even be received or deleted; free space on the disk"
            );
        }
        self.was_without_room = is_without_room;
        let is_out = partition.is_out_of_space();
        if is_out == self.was_out_of_space {
            return;
        }
        self.was_out_of_space = is_out;
        shared.out_of_space.store(is_out, Ordering::Relaxed);
        if is_out {
            tracing::error!(
                "the disk is full: messages can be received and deleted, but no new ones are accepted; \
                 free space on the disk"
            );
        } else {
            tracing::info!("the disk has space again");
        }
    }
}
