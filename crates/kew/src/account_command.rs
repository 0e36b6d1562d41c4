//! `kew account`: the accounts of a server that runs, or of a data directory that none uses.

use std::io::Read as _;

use anyhow::{Context as _, Result, bail};

use crate::admin::reach::ask;
use crate::admin::{
    AccountAnswer, AccountView, Act, Answer, Change, Failure, NewAccount, SecretText,
};
use crate::cli::{AccountArgs, AccountCommand, print_line, print_table};
use crate::queue_command::Align;
use crate::safe_json;

pub(crate) fn run(args: AccountArgs) -> Result<()> {
    let AccountArgs { command, of } = args;
    let act = act(command)?;
    match ask(of.of.data_dir, of.admin_socket, act)? {
        Ok(answer) => print(&answer, of.json),
        Err(Failure { message, .. }) => bail!("{message}"),
    }
}

fn act(command: AccountCommand) -> Result<Act> {
    Ok(match command {
        AccountCommand::List => Act::ListAccounts,
        AccountCommand::Add {
            name,
            quota_queues,
            quota_bytes,
            key_from_stdin,
        } => Act::AddAccount(NewAccount {
            name,
            quota_queues,
            quota_bytes,
            key: key_from_stdin.then(read_key).transpose()?,
        }),
        AccountCommand::Rotate { name, key } => Act::RotateKey { name, key },
        AccountCommand::Set {
            name,
            quota_queues,
            quota_bytes,
            disable,
            enable,
        } => Act::ChangeAccount {
            name,
            change: Change {
                quota_queues,
                quota_bytes,
                disabled: (disable || enable).then_some(disable),
            },
        },
        AccountCommand::Remove { name, with_queues } => Act::RemoveAccount { name, with_queues },
    })
}

/// A key on standard input. On the command line others could see it.
fn read_key() -> Result<SecretText> {
    let mut text = String::new();
    let input = std::io::stdin().lock();
    input
        .take(1024)
        .read_to_string(&mut text)
        .context("cannot read the key from standard input")?;
    Ok(SecretText(text.trim().to_owned()))
}

fn print(answer: &Answer, json: bool) -> Result<()> {
    if json {
        print_line(&safe_json::to_string(answer)?);
        return Ok(());
    }
    match answer {
        Answer::Accounts { accounts } => print_accounts(accounts),
        Answer::Account(answer) => print_keys(answer),
        Answer::Removed { removed } => print_line(&format!("removed {removed}")),
        _ => bail!("the server sent an unexpected answer"),
    }
    Ok(())
}

fn print_accounts(accounts: &[AccountView]) {
    let columns = [
        ("account", Align::Left),
        ("served", Align::Left),
        ("most queues", Align::Right),
        ("most bytes", Align::Right),
    ];
    let limit = |limit: Option<u64>| limit.map_or("-".into(), |limit| limit.to_string());
    let row = |account: &AccountView| {
        let served = if account.disabled { "disabled" } else { "yes" };
        vec![
            account.name.clone(),
            served.into(),
            limit(account.quota_queues),
            limit(account.quota_bytes),
        ]
    };
    let rows: Vec<_> = accounts.iter().map(row).collect();
    print_table(&columns, &rows);
}

fn print_keys(answer: &AccountAnswer) {
    let name = &answer.account.name;
    if answer.keys.is_empty() {
        print_accounts(std::slice::from_ref(&answer.account));
        return;
    }
    print_line(&format!(
        "account {name}: Kew does not show these keys again"
    ));
    for key in &answer.keys {
        print_line(&format!("{:?} key: {}", key.key, key.value.0));
        print_line(&format!(
            "{:?} connection string: {}",
            key.key, key.connection_string.0
        ));
    }
}
