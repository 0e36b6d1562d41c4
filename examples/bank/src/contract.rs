//! The contract of the web service, in JSON. The transaction id is not in it: it travels in the header `MessageId`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::{Message, Shape};
use crate::money::{InvalidMoney, Money};
use crate::names::{AccountKey, InvalidName, TransactionId};
use crate::transaction::{Details, Transaction, Unknown};

/// The header with the transaction id.
pub const MESSAGE_ID: &str = "MessageId";

/// What a call is about: insert, withdrawal and card payment have the same fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// The user.
    pub user_id: String,
    /// The account.
    pub account_id: String,
    /// How much, above zero.
    pub amount: Money,
    /// Whether to queue the transaction as XML, and not as text.
    #[serde(default)]
    pub queue_as_xml: bool,
    /// Fields of newer callers.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// Which way the money goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the account.
    Insert,
    /// From it.
    Withdraw,
}

/// Why a call cannot become a transaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCall {
    /// A name of it.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Its amount, which is 0.00 or less.
    #[error("the amount is {0}; expected more than 0.00")]
    NotPositive(Money),
    /// Its amount, which is too large.
    #[error(transparent)]
    Money(#[from] InvalidMoney),
}

impl Call {
    /// Checks the call, and translates it.
    pub fn into_message(
        self,
        id: TransactionId,
        direction: Direction,
    ) -> Result<Message, InvalidCall> {
        if !self.amount.is_positive() {
            return Err(InvalidCall::NotPositive(self.amount));
        }
        let amount = self.amount.as_amount()?;
        let amount = match direction {
            Direction::Insert => amount,
            Direction::Withdraw => amount.negated(),
        };
        let unknown = Unknown {
            fields: self.unknown,
            elements: Vec::new(),
        };
        let transaction = Transaction {
            key: AccountKey::new(&self.user_id, &self.account_id)?,
            id,
            amount,
            unknown,
        };
        let shape = match self.queue_as_xml {
            true => Shape::Xml,
            false => Shape::Text,
        };
        Ok(Message { transaction, shape })
    }
}

/// What is known of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Its id is unknown: go ahead.
    Proceed,
    /// It is queued, and will be booked. It is not booked yet.
    Succeeded,
    /// It is not confirmed. Repeat the call with the same id.
    Failed,
    /// It is done. The details are those that were stored.
    Completed,
}

/// The answer to every call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// What is known.
    pub status: Status,
    /// The same for people. After a failure it names the ids.
    pub message: String,
    /// The stored details of a transaction that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
    /// Fields that the caller sent and this version does not know, or the reverse.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// The names of an answer's own fields.
const OWN_FIELDS: [&str; 3] = ["status", "message", "details"];

impl Answer {
    /// An answer without details.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            details: None,
            unknown: Map::new(),
        }
    }

    /// Of a transaction that is done.
    pub fn completed(details: Details) -> Self {
        let Details {
            transaction_id: id,
            decision,
            ..
        } = &details;
        let text = format!("transaction {id} is done: {decision:?}");
        let unknown = details.unknown.fields.clone();
        Self {
            details: Some(Box::new(details)),
            ..Self::new(Status::Completed, text)
        }
        .with_unknown(unknown)
    }

    /// Of a transaction that is not confirmed, with its ids.
    pub fn failed(transaction: &Transaction, why: &str) -> Self {
        let Transaction { key, id, .. } = transaction;
        let (user, account) = (key.user(), key.account());
        let text = format!("user {user}, account {account}, transaction {id}: {why}");
        Self::new(Status::Failed, text)
    }

    /// With fields that the caller sent. Those with a name of the answer's own stay out: they would be there twice.
    #[must_use]
    pub fn with_unknown(self, mut unknown: Map<String, Value>) -> Self {
        unknown.retain(|name, _| !OWN_FIELDS.contains(&name.as_str()));
        Self { unknown, ..self }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id() -> TransactionId {
        TransactionId::from_random([7; 16])
    }

    fn call(json: Value) -> Call {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_call_becomes_a_message_with_its_unknown_fields() {
        let json = json!({"userId": "ann", "accountId": "giro", "amount": "5.00",
            "queueAsXml": true, "branch": {"city": "Bonn"}});
        let read = call(json.clone());
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
        let message = read.into_message(id(), Direction::Withdraw).unwrap();
        assert_eq!(message.shape, Shape::Xml);
        let Transaction {
            amount, unknown, ..
        } = message.transaction;
        assert_eq!(amount, "-5".parse().unwrap());
        assert_eq!(unknown.fields["branch"]["city"], "Bonn");
    }

    #[test]
    fn a_call_needs_names_and_an_amount_above_zero() {
        for (user, amount, expected) in [
            ("a|b", "5", "user id"),
            ("ann", "0", "expected more than 0.00"),
            ("ann", "-1", "the amount is -1.00"),
            ("ann", "10000000000.01", "is not between 0.01 and"),
        ] {
            let call = call(json!({"userId": user, "accountId": "giro", "amount": amount}));
            let refused = call.into_message(id(), Direction::Insert).unwrap_err();
            assert!(refused.to_string().contains(expected), "{refused}");
        }
    }

    #[test]
    fn fields_of_the_caller_never_replace_those_of_the_answer() {
        let fields = json!({"status": "Completed", "message": "x", "details": {}, "note": 1});
        let Value::Object(fields) = fields else {
            panic!("it is an object");
        };
        let answer = Answer::new(Status::Succeeded, "queued").with_unknown(fields);
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(
            text,
            r#"{"status":"Succeeded","message":"queued","note":1}"#
        );
    }
}
