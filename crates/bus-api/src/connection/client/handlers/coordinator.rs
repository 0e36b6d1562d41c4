//! The coordinator: a client declares transactions and discharges them over a link to it.
//!
//! Source: AMQP 1.0, 4.2 and 4.3.

use std::time::Duration;

use kew_amqp::codec::{Decode, Reader, Symbol, Symbols};
use kew_amqp::error::{Error, condition};
use kew_amqp::message::{BodyKind, Message};
use kew_amqp::performative::{
    Attach, Control, Coordinator, Declare, Declared, DeliveryState, Discharge, Outcome, Target,
};
use kew_amqp::{Delivery, DeliveryId, LinkId};
use kew_broker::{Answered, Rejection};
use kew_engine::Refusal;
use kew_engine::bus::{BusCommand, BusRefusal, TransactionPart};

use crate::connection::client::Client;
use crate::connection::client::links::link::Link;
use crate::connection::client::parts::orders::{Commit, Purpose};
use crate::connection::client::parts::transactions::{
    Bounds, Failure, Noted, Transaction, TransactionId,
};
use crate::ground::refusal::{error_of, rolled_back};
use crate::management::status_of;
use crate::memory::account::Sum;
use crate::metrics;

/// How many messages to the coordinator may arrive before it grants more credit.
pub(super) const CREDIT: u32 = 100;

/// The capabilities of the coordinator, among those that clients ask for.
const CAPABILITIES: [&str; 3] = [
    "amqp:local-transactions",
    "amqp:multi-txns-per-ssn",
    "amqp:multi-ssns-per-txn",
];

/// The name under which requests are counted and logged.
const NODE: &str = "$coordinator";
const UNKNOWN: &str = "unknown";
const DECLARE: &str = "declare";
const COMMIT: &str = "commit";
const ROLLBACK: &str = "rollback";

impl Client {
    /// Any client may attach it: an operation in a transaction needs the same rights as outside.
    /// .NET attaches it before its first token.
    pub(super) fn attach_coordinator(
        &mut self,
        link: LinkId,
        attach: &Attach,
        asked: &Coordinator,
    ) {
        let known = asked.capabilities.iter();
        let known = known.filter(|asked| CAPABILITIES.contains(&asked.as_str()));
        let known: Vec<Symbol> = known.collect();
        let mut answer = attach.answer();
        answer.target = Some(Target::Coordinator(Coordinator {
            capabilities: match known.is_empty() {
                true => Symbols::default(),
                false => Symbols::new(&known),
            },
        }));
        if self.connection.accept(link, answer) {
            self.links.insert(link, Link::Coordinator);
            self.connection.grant(link, CREDIT);
        }
    }

    /// The client gives credit for messages that it wants to receive in a transaction (AMQP 1.0, 4.4.3).
    pub(super) fn refuse_acquisition(&mut self, link: LinkId) {
        let text = "Receiving messages in a transaction is not supported: settle them in it.";
        self.detach(link, Error::new(condition::NOT_IMPLEMENTED, text));
    }

    pub(super) fn on_control(&mut self, delivery: &Delivery) {
        let (link, id) = (delivery.link, delivery.delivery);
        self.renew_credit(link, CREDIT);
        if delivery.is_settled {
            let text =
                "A message to the coordinator must be sent unsettled, because it needs an answer.";
            return self.detach(link, Error::new(condition::NOT_ALLOWED, text));
        }
        match control_of(delivery) {
            Ok(Control::Declare(Declare { global_id: None })) => {
                let declared = self.declare(link).map(|id| {
                    let txn_id = id.to_vec().into();
                    Outcome::Declared(Declared { txn_id })
                });
                self.answer_control(id, DECLARE, declared, Duration::ZERO);
            }
            Ok(Control::Declare(_)) => {
                let text = "Distributed transactions are not supported.";
                let error = Error::new(condition::NOT_IMPLEMENTED, text);
                self.answer_control(id, DECLARE, Err(error), Duration::ZERO);
            }
            Ok(Control::Discharge(discharge)) => self.discharge(id, &discharge),
            Err(error) => self.answer_control(id, UNKNOWN, Err(error), Duration::ZERO),
        }
    }

    /// A new transaction.
    fn declare(&mut self, coordinator: LinkId) -> Result<TransactionId, Error> {
        let count_max = self.shared.limits.transactions_max;
        let account = &self.load.account;
        self.transactions.declare(coordinator, count_max, account)
    }

    /// Adds a command to a transaction, for the commit. If it is refused, the transaction fails.
    pub(super) fn enlist(
        &mut self,
        id: &[u8],
        part: TransactionPart,
        noted: Noted,
    ) -> Result<(), Error> {
        let bounds = Bounds {
            limits: &self.shared.limits,
            all_size_bytes: self.load.account.value(Sum::TransactionBytes),
            is_crowded: !self.has_room_beside_others(),
            claims: &self.shared.claims,
        };
        self.transactions.enlist(id, part, noted, &bounds)
    }

    /// Takes a transaction out to commit it, or returns why it cannot be committed.
    fn end_transaction(&mut self, id: &[u8]) -> Result<Transaction, Failure> {
        let timeout = self.shared.limits.transaction_timeout;
        self.transactions.end(id, timeout)
    }

    fn answer_control(
        &mut self,
        delivery: DeliveryId,
        operation: &'static str,
        result: Result<Outcome, Error>,
        took: Duration,
    ) {
        let error = result.as_ref().err();
        let code = error.map(|error| error.condition.as_str());
        self.note_control(operation, code, took);
        self.tell_of_control(delivery, result);
    }

    fn note_control(&self, operation: &'static str, code: Option<&str>, took: Duration) {
        let answered = metrics::Answered {
            operation,
            status: code.map_or(200, status_of),
            code,
            took,
        };
        self.shared
            .observer
            .note_request(&self.peer.origin, NODE, &answered);
    }

    fn tell_of_control(&mut self, delivery: DeliveryId, result: Result<Outcome, Error>) {
        let state = result.map_or_else(DeliveryState::rejected, DeliveryState::from);
        self.connection.settle(delivery, Some(state));
    }

    fn discharge(&mut self, delivery: DeliveryId, discharge: &Discharge) {
        let id = &discharge.txn_id;
        let is_commit = discharge.fail != Some(true);
        // It was discharged before, and that is not answered yet.
        if self.transactions.is_put_off(id) {
            let operation = if is_commit { COMMIT } else { ROLLBACK };
            let error = Failure::Unknown.of_commit();
            return self.answer_control(delivery, operation, Err(error), Duration::ZERO);
        }
        if !is_commit {
            let result = match self.end_transaction(id) {
                Err(failure @ Failure::Unknown) => Err(failure.of_commit()),
                // A rollback succeeds also if the transaction has failed before.
                Ok(_) | Err(Failure::TimedOut(_) | Failure::Refused(_)) => Ok(Outcome::Accepted),
            };
            return self.answer_control(delivery, ROLLBACK, result, Duration::ZERO);
        }
        if !self.transactions.put_off(id, delivery) {
            self.commit(delivery, id);
        }
    }

    /// Forgets a detached link to the coordinator, and the transactions that were declared over it.
    pub(super) fn forget_coordinator(&mut self, link: LinkId) {
        for discharge in self.transactions.forget(link) {
            let error = Failure::Unknown.of_commit();
            self.answer_control(discharge, COMMIT, Err(error), Duration::ZERO);
        }
    }

    pub(super) fn commit(&mut self, delivery: DeliveryId, id: &[u8]) {
        match self.end_transaction(id) {
            Ok(mut transaction) => {
                let parts = std::mem::take(&mut transaction.parts);
                let commit = Commit {
                    delivery,
                    transaction,
                };
                let commit = Purpose::Commit(Box::new(commit));
                self.submit(BusCommand::Transact { parts }, commit);
            }
            Err(failure) => {
                let error = Err(failure.of_commit());
                self.answer_control(delivery, COMMIT, error, Duration::ZERO);
            }
        }
    }

    /// The transaction is durable, or none of it was done.
    pub(super) fn on_committed(
        &mut self,
        commit: Commit,
        reply: Result<Answered, Rejection>,
        took: Duration,
    ) {
        let refused = reply.err().map(RefusedCommit::of);
        let code = refused.as_ref().map(RefusedCommit::code);
        let Commit {
            delivery,
            transaction,
        } = commit;
        self.turn.steps.charge(transaction.noted.len());
        for noted in transaction.noted {
            let instruments = &self.shared.observer.instruments;
            match noted {
                Noted::Sent(sent) => instruments.note_send(sent, code, took),
                Noted::Settled(settled) => instruments.note_settlement(settled, code),
                Noted::Cancelled => {}
            }
        }
        self.note_control(COMMIT, code, took);
        let result = refused.map_or(Ok(Outcome::Accepted), |it| Err(it.told()));
        self.tell_of_control(delivery, result);
    }
}

fn control_of(delivery: &Delivery) -> Result<Control, Error> {
    if let Some(DeliveryState::Transactional(_)) = delivery.state {
        let text = "A message to the coordinator cannot be part of a transaction.";
        return Err(Error::new(condition::NOT_ALLOWED, text));
    }
    let message = Message::scan(delivery.payload.clone())?;
    let body = match message.body_kind() {
        BodyKind::Value => message.body_values().next(),
        _ => None,
    };
    let body = body.ok_or_else(|| {
        let text = "The body of a message to the coordinator must be declare or discharge.";
        Error::new(condition::DECODE_ERROR, text)
    })?;
    Ok(Control::decode(&mut Reader::new(body.as_bytes()))?)
}

/// Why a transaction was not committed.
#[derive(Debug)]
enum RefusedCommit {
    /// A part of it failed; the error names the part.
    Part(Error),
    /// The broker had no room for it; the error says why.
    Busy(Error),
    /// The transaction may have been committed, so the client must not be told that it was not. The
    /// text says why.
    Unknown(&'static str),
}

impl RefusedCommit {
    fn of(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Busy | Rejection::NotOwner | Rejection::Full | Rejection::ReadFailed => {
                Self::Busy(error_of(&rejection))
            }
            Rejection::Stopped => Self::Unknown(
                "The server is stopping: it is not known whether the transaction was committed.",
            ),
            Rejection::Unknown => Self::Unknown(
                "Another server has taken over the namespace: it is not known whether the \
                 transaction was committed.",
            ),
            Rejection::Refused(Refusal::Bus(BusRefusal::Transaction { .. })) => {
                Self::Part(error_of(&rejection))
            }
            Rejection::Refused(_) => Self::Part(rolled_back(&error_of(&rejection).to_string())),
        }
    }

    /// The code under which it is counted and logged.
    fn code(&self) -> &str {
        match self {
            Self::Part(error) => error.condition.as_str(),
            Self::Busy(error) => error.condition.as_str(),
            Self::Unknown(_) => condition::INTERNAL_ERROR,
        }
    }

    /// The error for the client. If the transaction is over, the error must not ask the client to
    /// retry: SDKs would send the discharge again, and learn only that the transaction does not
    /// exist.
    fn told(self) -> Error {
        match self {
            Self::Part(error) => error,
            Self::Busy(error) => rolled_back(&error.to_string()),
            Self::Unknown(text) => Error::new(condition::INTERNAL_ERROR, text),
        }
    }
}
