//! What the broker has of a client's, without a task for each: sends and settlements.
//!
//! Answers of one commit come together, so that their dispositions leave in one write.

use kew_amqp::DeliveryId;
use kew_broker::{Answered, Rejection};
use kew_engine::Command;
use kew_engine::bus::BusCommand;
use tokio::time::Instant;

use super::Client;
use super::coordinator::Commit;
use super::settle::Settlement;
use crate::metrics::Sent;

/// What a command was for whose answer is still to come.
pub(super) enum Purpose {
    Send { delivery: DeliveryId, sent: Sent },
    Settle(Vec<Settlement>),
    Commit(Box<Commit>),
}

/// A command whose answer is still to come.
pub(super) struct UnderWay {
    purpose: Purpose,
    began: Instant,
}

impl Client {
    /// Hands a command over, behind those before it.
    pub(super) fn submit(&mut self, command: BusCommand, purpose: Purpose) {
        let key = self.next_key;
        self.next_key += 1;
        self.requests += 1;
        let under_way = UnderWay {
            purpose,
            began: Instant::now(),
        };
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
        let took = under_way.began.elapsed();
        match under_way.purpose {
            Purpose::Send { delivery, sent } => {
                self.on_sent(delivery, sent, took, reply.map(drop));
            }
            Purpose::Settle(settlements) => self.on_settled(settlements, reply, took),
            Purpose::Commit(commit) => self.on_committed(*commit, reply, took),
        }
    }
}
