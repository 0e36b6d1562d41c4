//! A client's operations in progress, and the memory that they take.

use std::sync::Arc;

use crate::ground::limits::Limits;
use crate::memory::account::{Account, Sum};
use crate::memory::holdings::{Holdings, Room};
use crate::metrics::Observer;

pub(crate) struct Load {
    /// Size of messages that are being sent and of changes in settlements, in bytes.
    sending_size_bytes: usize,
    /// Transfers without an answer so far.
    pub(crate) sends: usize,
    /// Requests to the broker in progress, these included.
    requests: usize,
    /// Commands without a waiting client, and links that were given up while their entity was
    /// looked up.
    forgotten: usize,
    /// Entities of links that are being looked up.
    looks: usize,
    /// The memory of links and tasks.
    pub(crate) account: Account,
    pub(crate) holdings: Holdings,
    /// The room that there was when the limits of the connection were set.
    pub(crate) room: Room,
}

impl Load {
    pub(crate) fn new(observer: Arc<Observer>) -> Self {
        Self {
            sending_size_bytes: 0,
            sends: 0,
            requests: 0,
            forgotten: 0,
            looks: 0,
            account: Account::default(),
            holdings: Holdings::new(observer),
            room: Room::Much,
        }
    }

    /// A message or a change to properties is on its way to the broker.
    pub(crate) fn begin_sending(&mut self, size_bytes: usize) {
        self.sending_size_bytes += size_bytes;
    }

    /// The broker has answered it.
    pub(crate) fn end_sending(&mut self, size_bytes: usize) {
        self.sending_size_bytes = self.sending_size_bytes.saturating_sub(size_bytes);
    }

    /// A request is under way.
    pub(crate) fn begin_request(&mut self) {
        self.requests += 1;
    }

    pub(crate) fn end_request(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// Counts an operation in progress that has no waiting client.
    pub(crate) fn forget(&mut self) {
        self.forgotten += 1;
    }

    pub(crate) fn end_forgotten(&mut self) {
        self.forgotten = self.forgotten.saturating_sub(1);
    }

    /// The entity of a link is looked for.
    pub(crate) fn begin_look(&mut self) {
        self.looks += 1;
    }

    pub(crate) fn end_look(&mut self) {
        self.looks = self.looks.saturating_sub(1);
    }

    /// Whether more may be under way.
    pub(crate) fn has_room(&self, limits: &Limits) -> bool {
        let size_bytes = self.sending_size_bytes + self.account.value(Sum::RequestBytes);
        size_bytes < limits.sending_size_bytes_max
            && self.commands() < limits.requests_max
            && self.may_look(limits)
    }

    /// Whether more entities may be looked for.
    pub(crate) fn may_look(&self, limits: &Limits) -> bool {
        self.looks < limits.looks_max
    }

    /// Whether more messages may wait to be sent to the client.
    pub(crate) fn may_receive(&self, limits: &Limits) -> bool {
        self.account.value(Sum::ReadyBytes) < limits.ready_size_bytes_max
            && self.account.value(Sum::Deliveries) < limits.unsettled_max
    }

    /// Commands at the broker.
    pub(crate) fn commands(&self) -> usize {
        self.requests + self.forgotten
    }

    /// The memory of operations in progress, links and tasks.
    pub(crate) fn size_bytes(&self) -> usize {
        self.sending_size_bytes + self.account.size_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_in_progress_take_room_until_they_end() {
        let limits = Limits {
            requests_max: 2,
            looks_max: 1,
            sending_size_bytes_max: 10,
            ..Limits::default()
        };
        let mut load = Load::new(Arc::new(Observer::new()));
        load.begin_request();
        assert!(load.has_room(&limits));
        load.forget();
        assert!(!load.has_room(&limits) && load.may_look(&limits));
        load.end_forgotten();
        load.end_request();
        assert!(load.has_room(&limits));
        load.begin_look();
        assert!(!load.has_room(&limits) && !load.may_look(&limits));
        load.end_look();
        load.begin_sending(4);
        let request = load.account.fixed(Sum::RequestBytes, 6);
        assert!(!load.has_room(&limits) && load.size_bytes() == 10);
        drop(request);
        assert!(load.has_room(&limits));
        load.end_sending(4);
        assert_eq!((load.size_bytes(), load.commands()), (0, 0));
    }
}
