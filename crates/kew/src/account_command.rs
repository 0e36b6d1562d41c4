//! `kew account`: the accounts of a server that runs, or of a data directory that none uses.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use kew_broker::{Broker, BrokerOptions};
use kew_log::{DataDir, DataDirError};
use kew_queue_api::{AccountStore, ServedAccounts};

use crate::admin::client::Connection;
use crate::admin::{
    AccountAnswer, AccountView, Act, Answer, Change, Endpoint, Failure, NewAccount, SecretText,
    carry_out,
};
use crate::cli::{AccountArgs, AccountCommand, print_line};
use crate::settings;

/// Where a server is that is not asked: its default.
const ENDPOINT_DEFAULT: &str = "127.0.0.1:10001";

pub(crate) fn run(args: AccountArgs) -> Result<()> {
    let AccountArgs {
        command,
        data_dir,
        admin_socket,
        json,
    } = args;
    let act = act(command)?;
    let answered = match (data_dir, admin_socket) {
        // A socket without a directory is one of a server that keeps nothing, or is elsewhere.
        (None, Some(socket)) => match Connection::open(&socket)? {
            Some(server) => server.ask(&act)?,
            None => bail!("no server answers at {}", socket.display()),
        },
        (data_dir, socket) => {
            let path = settings::data_dir_or_default(data_dir)?;
            let socket = socket.unwrap_or_else(|| path.join(settings::ADMIN_SOCKET));
            match Connection::open(&socket)? {
                Some(server) => server.ask(&act)?,
                None => in_directory(&path, act)?,
            }
        }
    };
    match answered {
        Ok(answer) => print(&answer, json),
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

/// Carries out an act on a data directory that no server uses.
fn in_directory(path: &Path, act: Act) -> Result<Result<Answer, Failure>> {
    let data_dir = DataDir::open_existing(path).map_err(|error| {
        let why = match &error {
            DataDirError::InUse { .. } => {
                "a process uses the data directory, and does not answer at its admin.sock"
            }
            DataDirError::Missing { .. } => "no server answers, and there is no data directory",
            _ => "no server answers, and the data directory cannot be used",
        };
        anyhow::Error::new(error).context(why)
    })?;
    let storage = Arc::new(data_dir.storage()?);
    let (broker, _) = Broker::start(storage, BrokerOptions::default())
        .with_context(|| format!("cannot start with the data directory {}", path.display()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let answered = runtime.block_on(async {
        let store = AccountStore::open(broker.clone(), ServedAccounts::default(), false).await?;
        let endpoint = Endpoint(ENDPOINT_DEFAULT.parse()?);
        anyhow::Ok(carry_out(&store, &endpoint, act, "command line").await)
    });
    broker.stop();
    answered
}

fn print(answer: &Answer, json: bool) -> Result<()> {
    if json {
        print_line(&serde_json::to_string(answer)?);
        return Ok(());
    }
    match answer {
        Answer::Accounts { accounts } => {
            print_line("account                   served    most queues      most bytes");
            accounts.iter().for_each(print_account);
        }
        Answer::Account(answer) => print_keys(answer),
        Answer::Removed { removed } => print_line(&format!("removed {removed}")),
    }
    Ok(())
}

fn print_account(account: &AccountView) {
    let served = if account.disabled { "disabled" } else { "yes" };
    let limit = |limit: Option<u64>| limit.map_or("-".into(), |limit| limit.to_string());
    print_line(&format!(
        "{:<25} {served:<9} {:>11} {:>15}",
        account.name,
        limit(account.quota_queues),
        limit(account.quota_bytes)
    ));
}

fn print_keys(answer: &AccountAnswer) {
    let name = &answer.account.name;
    if answer.keys.is_empty() {
        print_line("account                   served    most queues      most bytes");
        print_account(&answer.account);
        return;
    }
    print_line(&format!("account {name}; what follows is not shown again"));
    for key in &answer.keys {
        print_line(&format!("{:?} key: {}", key.key, key.value.0));
        print_line(&format!(
            "{:?} connection string: {}",
            key.key, key.connection_string.0
        ));
    }
}
