//! What the broker has of a client's, without a task for each: sends and settlements.
//!
//! Answers of one commit come together, so that their dispositions leave in one write.

use kew_amqp::DeliveryId;
use kew_broker::{Answered, Rejection};
use kew_engine::Command;
use kew_engine::bus::BusCommand;

use super::Client;
use super::settle::Settlement;

/// A command whose answer is still to come.
pub(super) enum UnderWay {
    Send {
        delivery: DeliveryId,
        size_bytes: usize,
    },
    Settle(Vec<Settlement>),
}

impl Client {
    /// Hands a command over, behind those before it.
    pub(super) fn submit(&mut self, command: BusCommand, under_way: UnderWay) {
        let key = self.next_key;
        self.next_key += 1;
        self.requests += 1;
        let command = Command::Bus(command);
        let broker = &self.shared.broker;
        match broker.submit_among(command, &self.answers, key) {
            Ok(()) => {
                self.under_way.insert(key, under_way);
            }
            Err(rejection) => self.on_answer(under_way, Err(rejection)),
        }
    }

    /// Takes the answers that have come.
    pub(crate) fn on_answers(&mut self) {
        let mut came = std::mem::take(&mut self.came);
        self.answers.take(&mut came);
        for (key, reply) in came.drain(..) {
            if let Some(under_way) = self.under_way.remove(&key) {
                self.on_answer(under_way, reply);
            }
        }
        self.came = came;
    }

    fn on_answer(&mut self, under_way: UnderWay, reply: Result<Answered, Rejection>) {
        self.requests = self.requests.saturating_sub(1);
        match under_way {
            UnderWay::Send {
                delivery,
                size_bytes,
            } => self.on_sent(delivery, size_bytes, reply.map(drop)),
            UnderWay::Settle(settlements) => self.on_settled(settlements, reply),
        }
    }
}
