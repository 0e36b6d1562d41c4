//! Submits commands to the broker, and takes its answers.

use kew_broker::{Answered, Rejection, Reply};
use kew_engine::bus::BusCommand;

use crate::connection::client::Client;
use crate::connection::client::parts::orders::{Purpose, UnderWay};

impl Client {
    /// Submits all sends and settlements so far, so that the following commands come after them.
    pub(super) fn hand_over(&mut self) {
        self.flush_settlements();
        self.flush_outbox();
    }

    /// Submits a command at the end of the turn, behind those before it. Returns its key.
    pub(super) fn submit(&mut self, command: BusCommand, purpose: Purpose) -> u64 {
        self.load.begin_request();
        self.orders.add(command, purpose)
    }

    /// Submits the outbox: at the end of a turn, and before any later command is submitted in
    /// another way. Returns whether some commands were refused at once.
    pub(super) fn flush_outbox(&mut self) -> bool {
        if self.orders.is_outbox_empty() {
            return false;
        }
        let refused = self.orders.hand_over(&self.broker);
        let is_any_refused = !refused.is_empty();
        for (key, rejection) in refused {
            if let Some(under_way) = self.orders.remove(key) {
                self.on_answer(under_way, Err(rejection));
            }
        }
        is_any_refused
    }

    /// Takes one answer.
    pub(super) fn take_answer(&mut self, key: u64, reply: Reply) {
        if let Some(under_way) = self.orders.remove(key) {
            self.on_answer(under_way, reply);
        }
    }

    fn on_answer(&mut self, under_way: UnderWay, reply: Result<Answered, Rejection>) {
        self.load.end_request();
        let took = under_way.began.elapsed();
        match under_way.purpose {
            Purpose::Send { delivery, sent } => {
                self.on_sent(delivery, sent, took, reply.map(drop));
            }
            Purpose::Settle(settlements) => match reply {
                Err(
                    Rejection::Busy | Rejection::NotOwner | Rejection::Full | Rejection::ReadFailed,
                ) => self.settle_patiently(settlements, under_way.began),
                reply => self.on_settled(settlements, reply.map(|it| it.outcome), took),
            },
            Purpose::Receive(look) => self.on_first_look(*look, reply),
            Purpose::Commit(commit) => self.on_committed(*commit, reply, took),
        }
    }
}
