//! The core's one model: a transaction, and what became of it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::money::Money;
use crate::names::{AccountKey, TransactionId};

/// Fields that this version does not know. They are kept, so that newer callers and workers find them again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unknown {
    /// Of JSON.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
    /// Of XML messages: whole elements, as they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elements: Vec<String>,
}

impl Unknown {
    /// Whether everything was known.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.elements.is_empty()
    }
}

/// Money that goes to an account, or leaves it.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// Which account.
    pub key: AccountKey,
    /// Its id, which is unique in the account.
    pub id: TransactionId,
    /// Above zero for an insert, below zero for a withdrawal.
    pub amount: Money,
    /// What else came with it.
    pub unknown: Unknown,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// The balance has changed.
    Booked,
    /// A card payment that the balance did not cover. Nothing has changed.
    Declined,
}

/// The stored details of a transaction that is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The user.
    pub user_id: String,
    /// The account.
    pub account_id: String,
    /// The transaction.
    pub transaction_id: TransactionId,
    /// With its sign.
    pub amount: Money,
    /// How it ended.
    pub decision: Decision,
    /// The balance of the account after it.
    pub balance: Money,
    /// When, in milliseconds since 1970.
    pub booked_at_ms: i64,
    /// What else came with it.
    #[serde(default, skip_serializing_if = "Unknown::is_empty")]
    pub unknown: Unknown,
}
