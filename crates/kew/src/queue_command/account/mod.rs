//! The part of `kew export` and `kew import` that speaks to Queue Storage.

mod definition;
mod export;
mod import;

pub(crate) use export::export_account;
pub(crate) use import::{AccountImport, check_line};

use super::client::Client;
use super::{Failure, client};
use crate::queue_args::CommonArgs;

/// An account, for an export or an import.
pub(crate) struct Account(Client);

impl Account {
    pub(crate) fn open(common: &CommonArgs) -> Result<Self, Failure> {
        client(common, 1).map(Self)
    }
}
