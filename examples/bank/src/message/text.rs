//! `userid|accountid|transactionid|amount`

use super::InvalidMessage;
use crate::names::{AccountKey, TransactionId};
use crate::transaction::{Transaction, Unknown};

pub(super) fn write(transaction: &Transaction) -> String {
    let Transaction {
        key, id, amount, ..
    } = transaction;
    format!("{key}|{id}|{amount}")
}

pub(super) fn read(text: &str) -> Result<Transaction, InvalidMessage> {
    let fields: Vec<&str> = text.split('|').collect();
    let [user, account, id, amount] = fields[..] else {
        return Err(InvalidMessage::FieldCount(fields.len()));
    };
    Ok(Transaction {
        key: AccountKey::new(user, account)?,
        id: TransactionId::parse(id)?,
        amount: amount.parse()?,
        unknown: Unknown::default(),
    })
}
