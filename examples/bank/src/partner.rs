//! The data model of a partner, translated both ways at the edge. The core does not know it.
//!
//! The partner counts in minor units, has one field with client and product, and words of its own for states. Fields that
//! neither side knows pass through.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::contract::{Answer, Call, Direction, Status};
use crate::money::Money;
use crate::transaction::Decision;

/// A movement, as the partner sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Movement {
    /// Client and product: `client/product`.
    pub contract: String,
    /// Which way the money goes.
    pub side: Side,
    /// In cents, above zero.
    pub amount_minor: i64,
    /// Everything else.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// The partner's words for directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Credit.
    #[serde(rename = "CR")]
    Credit,
    /// Debit.
    #[serde(rename = "DR")]
    Debit,
}

/// The answer in the partner's words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Receipt {
    /// What became of the movement.
    pub state: ReceiptState,
    /// For people.
    pub text: String,
    /// The balance in cents, if the movement is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance_minor: Option<i64>,
    /// Everything else.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// The partner's words for states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ReceiptState {
    /// Nobody knows it.
    New,
    /// It will be done.
    Accepted,
    /// It is not accepted.
    Error,
    /// It is done.
    Done,
    /// It was refused for good.
    Rejected,
}

/// The partner's movement as a call of our contract. The name of the contract stays as it is if it has no separator; the
/// call is then refused for its missing account.
pub fn to_call(movement: Movement) -> (Call, Direction) {
    let (user, account) = movement
        .contract
        .split_once('/')
        .unwrap_or((&movement.contract, ""));
    let call = Call {
        user_id: user.to_owned(),
        account_id: account.to_owned(),
        amount: Money::from_cents(movement.amount_minor),
        // The partner's own fields need a shape that has a place for them.
        queue_as_xml: true,
        unknown: movement.unknown,
    };
    let direction = match movement.side {
        Side::Credit => Direction::Insert,
        Side::Debit => Direction::Withdraw,
    };
    (call, direction)
}

/// Our answer in the partner's words.
pub fn to_receipt(answer: Answer) -> Receipt {
    let decision = answer.details.as_ref().map(|it| it.decision);
    let state = match (answer.status, decision) {
        (Status::Proceed, _) => ReceiptState::New,
        (Status::Succeeded, _) => ReceiptState::Accepted,
        (Status::Failed, _) => ReceiptState::Error,
        (Status::Completed, Some(Decision::Declined | Decision::OutOfRange)) => {
            ReceiptState::Rejected
        }
        (Status::Completed, Some(Decision::Booked) | None) => ReceiptState::Done,
    };
    let mut unknown = answer.unknown;
    // They would be there twice.
    unknown.retain(|name, _| !["state", "text", "balance_minor"].contains(&name.as_str()));
    Receipt {
        state,
        text: answer.message,
        balance_minor: answer.details.map(|it| it.balance.cents()),
        unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::names::TransactionId;
    use crate::transaction::{Details, Unknown};

    fn details() -> Details {
        Details {
            kind: None,
            user_id: "ann".to_owned(),
            account_id: "giro".to_owned(),
            transaction_id: TransactionId::from_random([7; 16]),
            amount: "-12.30".parse().unwrap(),
            decision: Decision::Booked,
            balance: "-2.30".parse().unwrap(),
            booked_at_ms: 0,
            unknown: Unknown::default(),
        }
    }

    #[test]
    fn a_movement_is_translated_and_its_outcome_back() {
        for (side, direction) in [("CR", Direction::Insert), ("DR", Direction::Withdraw)] {
            let json = json!({"contract": "ann/giro", "side": side, "amount_minor": 1230,
                "purpose": {"code": 7}});
            let (call, found) = to_call(serde_json::from_value(json).unwrap());
            assert_eq!(found, direction);
            assert_eq!(call.amount.to_string(), "12.30");
            let account = (call.user_id.as_str(), call.account_id.as_str());
            assert_eq!(account, ("ann", "giro"));
            assert_eq!(call.unknown["purpose"], json!({"code": 7}));
        }
        for (decision, state) in [
            (Decision::Booked, "DONE"),
            (Decision::Declined, "REJECTED"),
            (Decision::OutOfRange, "REJECTED"),
        ] {
            let answer = Answer::completed(Details {
                decision,
                ..details()
            });
            let receipt = serde_json::to_value(to_receipt(answer)).unwrap();
            assert_eq!(receipt["state"], state);
            assert_eq!(receipt["balance_minor"], -230);
        }
    }

    #[test]
    fn every_status_has_a_word_of_the_partner() {
        for (status, state) in [
            (Status::Proceed, "NEW"),
            (Status::Succeeded, "ACCEPTED"),
            (Status::Failed, "ERROR"),
            (Status::Completed, "DONE"),
        ] {
            let receipt = to_receipt(Answer::new(status, "text"));
            let json = serde_json::to_value(receipt).unwrap();
            assert_eq!(json, json!({"state": state, "text": "text"}));
        }
    }
}
