//! `kew account`: the accounts of a running server, or of a data directory that no server uses.

use anyhow::Result;
use kew_queue_api::StorageAccounts;

use crate::admin::Act;
use crate::admin::account::AccountSettings;
use crate::admin::verb::{Asked, New, Verb};
use crate::cli::{AccountArgs, AccountCommand};
use crate::principal_command::{self, read_key};
use crate::quota::Limit;

pub(crate) fn run(args: AccountArgs) -> Result<()> {
    let AccountArgs { command, of } = args;
    let verb = verb(command)?;
    principal_command::run(Act::Account(Asked { scope: (), verb }), of)
}

fn verb(command: AccountCommand) -> Result<Verb<StorageAccounts>> {
    Ok(match command {
        AccountCommand::Add {
            name,
            quota_queues,
            quota_bytes,
            key_from_stdin,
        } => Verb::Add(New {
            name,
            key: read_key(key_from_stdin)?,
            settings: AccountSettings {
                quota_queues: quota_queues.map(Limit::At),
                quota_bytes: quota_bytes.map(Limit::At),
                disabled: None,
            },
        }),
        AccountCommand::List => Verb::List,
        AccountCommand::Show { name } => Verb::Show { name },
        AccountCommand::Keys { name } => Verb::Keys { name },
        AccountCommand::Rotate { name, key } => Verb::Rotate { name, key },
        AccountCommand::Set {
            name,
            quota_queues,
            quota_bytes,
            disable,
            enable,
        } => Verb::Set {
            name,
            settings: AccountSettings {
                quota_queues,
                quota_bytes,
                disabled: (disable || enable).then_some(disable),
            },
        },
        AccountCommand::Remove { name, with_queues } => Verb::Remove {
            name,
            removal: with_queues,
        },
    })
}
