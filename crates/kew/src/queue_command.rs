//! `kew queue`: a client of Queue Storage, for this server or any other.

mod account;
mod client;
mod export;
mod failure;
mod import;
mod messages;
mod output;
mod progress;
mod queues;
mod sas;
mod send;
mod show;
mod watch;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kew_client::{QueueAccount, QueueOptions, Retry};

pub(crate) use account::{Account, AccountImport, check_line, export_account};
use client::Client;
pub(crate) use failure::Failure;
pub(crate) use output::{
    Align, Output, is_active, printable, printable_lines, rfc3339, shortened, table,
};
pub(crate) use watch::{INTERVAL_MIN, draw, end_signal, growth};

use crate::proxy;
use crate::queue_args::{CommonArgs, QueueArgs, QueueCommand};

/// The variables for a connection string, in this order, if the command line has none.
const VARIABLES: [&str; 2] = ["KEW_CONNECTION_STRING", "AZURE_STORAGE_CONNECTION_STRING"];

/// Certificate files are no larger than this.
const CERTIFICATES_SIZE_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(crate) fn run(args: &QueueArgs) -> ExitCode {
    let mut output = Output::new(args.common.json);
    let result = dispatch(args, &mut output).and_then(|()| Ok(output.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Earlier output comes before the error. If it fails, that was reported already.
            let _ = output.flush();
            ExitCode::from(failure.tell(args.common.json))
        }
    }
}

fn dispatch(args: &QueueArgs, output: &mut Output) -> Result<(), Failure> {
    let common = &args.common;
    let client = &client(common, connections(&args.command))?;
    match &args.command {
        QueueCommand::List(args) => queues::list(client, args, common, output),
        QueueCommand::Create(args) => queues::create(client, args, output),
        QueueCommand::Delete(args) => queues::delete(client, args, output),
        QueueCommand::Send(args) => send::send(client, args, common, output),
        QueueCommand::Receive(args) => messages::receive(client, args, output),
        QueueCommand::Peek(args) => messages::peek(client, args, output),
        QueueCommand::Update(args) => messages::update(client, args, output),
        QueueCommand::DeleteMessage(args) => messages::delete(client, args, output),
        QueueCommand::Purge(args) => queues::purge(client, args, common, output),
        QueueCommand::Show(args) => show::show(client, args, common, output),
        QueueCommand::Watch(args) => watch::watch(client, args, output),
        QueueCommand::Export(args) => export::export(client, args, output),
        QueueCommand::Import(args) => import::import(client, args, output),
        QueueCommand::Sas(args) => sas::sas(&account(common)?, args, output),
    }
}

fn connections(command: &QueueCommand) -> usize {
    match command {
        QueueCommand::Send(args) => usize::from(args.parallel),
        _ => 1,
    }
}

fn client(common: &CommonArgs, connections: usize) -> Result<Client, Failure> {
    if common.timeout.is_zero() {
        return Err(Failure::Usage("--timeout must be longer than 0".into()));
    }
    let retry = Retry {
        retries: common.retries,
        ..Retry::default()
    };
    let account = account(common)?;
    let options = QueueOptions {
        // Only attempts have a limit, and their number.
        timeout: Duration::MAX,
        attempt_timeout: Some(common.timeout),
        connect_timeout: common.timeout,
        retry,
        connections_max: connections,
        extra_roots_pem: read_certificates(common.ca_cert.as_deref())?,
        user_agent: concat!("kew/", env!("CARGO_PKG_VERSION")).to_owned(),
        dial: proxy::of_environment(&account.endpoint().url()),
        ..QueueOptions::default()
    };
    Client::new(account, options)
}

fn account(common: &CommonArgs) -> Result<QueueAccount, Failure> {
    if let Some(text) = &common.connection_string {
        return Ok(QueueAccount::parse(text)?);
    }
    for name in VARIABLES {
        let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
            continue;
        };
        let text = value
            .to_str()
            .ok_or_else(|| Failure::Usage(format!("{name} is not UTF-8")))?;
        return QueueAccount::parse(text)
            .map_err(|error| Failure::Usage(format!("{name}: {error}")));
    }
    Ok(QueueAccount::development())
}

/// Certificate authorities of a file, if one is named.
pub(crate) fn read_certificates(path: Option<&Path>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = path else {
        return Ok(None);
    };
    let read = || {
        let file = std::fs::File::open(path)?;
        let mut pem = Vec::new();
        io::Read::read_to_end(
            &mut io::Read::take(file, CERTIFICATES_SIZE_BYTES_MAX),
            &mut pem,
        )?;
        Ok::<_, io::Error>(pem)
    };
    let pem = read()
        .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", path.display())))?;
    Ok(Some(pem))
}

/// Asks on the terminal, and without a terminal does not ask. Only a clear yes counts.
pub(crate) fn confirm(question: &str) -> Result<(), Failure> {
    let (stdin, stderr) = (io::stdin(), io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return Ok(());
    }
    write!(stderr.lock(), "{question} [y/N] ")?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes" | "Yes") {
        return Ok(());
    }
    Err(Failure::Refused {
        message: "not confirmed, nothing was done".into(),
        code: None,
    })
}

/// Prints a note for people that is not part of the result.
pub(crate) fn note(text: &str) {
    // If standard error is closed, nothing else is lost.
    let _ = writeln!(io::stderr().lock(), "kew: {}", printable(text));
}
