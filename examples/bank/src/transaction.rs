//! The core's one model: a transaction, and what became of it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::money::Money;
use crate::names::{AccountKey, TransactionId};
use crate::request::Kind;

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

/// The most that unknown fields may have as JSON, in bytes: what a message may have.
const UNKNOWN_SIZE_MAX: usize = 8 << 10;

/// How deep they may be nested. Half of what a reader of JSON accepts, because they are stored inside other objects.
const UNKNOWN_DEPTH_MAX: usize = 64;

/// Why unknown fields cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownRefused {
    /// There are too many, or they are too long.
    #[error(
        "the fields that the bank does not know have {0} bytes; {UNKNOWN_SIZE_MAX} are allowed"
    )]
    TooLarge(usize),
    /// Arrays and objects in others.
    #[error("the field {0:?} is nested deeper than {UNKNOWN_DEPTH_MAX} levels")]
    TooDeep(String),
}

impl Unknown {
    /// Whether everything was known.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.elements.is_empty()
    }

    /// Checks that the fields can be stored, and read again.
    pub fn check(&self) -> Result<(), UnknownRefused> {
        let mut size = 0;
        for (name, value) in &self.fields {
            if is_too_deep(value) {
                return Err(UnknownRefused::TooDeep(name.chars().take(64).collect()));
            }
            size += name.len() + value.to_string().len();
        }
        match size <= UNKNOWN_SIZE_MAX {
            true => Ok(()),
            false => Err(UnknownRefused::TooLarge(size)),
        }
    }
}

/// Whether a field is nested too deep to be stored.
pub fn is_too_deep(value: &Value) -> bool {
    is_deeper_than(value, UNKNOWN_DEPTH_MAX)
}

/// Whether arrays and objects are nested in more levels. It looks at no more.
fn is_deeper_than(value: &Value, levels: usize) -> bool {
    let mut inner: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(values) => Box::new(values.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return false,
    };
    levels == 0 || inner.any(|value| is_deeper_than(value, levels - 1))
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
    /// The balance would be a number that the bank cannot count. Nothing has changed.
    OutOfRange,
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
    /// What was asked for. `None`: an older version stored it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
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
