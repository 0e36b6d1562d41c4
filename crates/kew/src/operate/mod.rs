//! `kew dlq`, and the parts of `kew bus` for queues and messages: a client of the operator's
//! interface at `/$kew/v1` (`docs/operator-api.md`), and of the service's own HTTP interface:
//! management by ATOM, and messages.

mod account;
mod connection;
mod description;
mod entity;
mod error;
mod jobs;
mod receive;
mod received;
mod send;
mod show;

use std::process::ExitCode;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::operate_args::{
    Common, DlqArgs, DlqCommand, FilterArgs, MessageCommand, OperateCommand,
};
use crate::queue_command::{Failure, Output, read_certificates};
use account::Account;
use connection::Client;
pub(crate) use error::Error;

/// Characters that are not encoded in the paths of entities.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b'$');

/// The suffix of a queue's name for its dead letters.
const DEAD_LETTERS: &str = "/$deadletterqueue";

/// The server to use, and the output.
struct Session {
    client: Client,
    output: Output,
}

pub(crate) fn run(command: &OperateCommand) -> ExitCode {
    use OperateCommand as It;
    match command {
        It::List(args) => with(&args.common, |it| show::list(it, false)),
        It::Show(args) => with(&args.common, |it| show::queue(it, args)),
        It::Create(args) => with(&args.common, |it| entity::create(it, args)),
        It::Update(args) => with(&args.common, |it| entity::update(it, args)),
        It::Delete(args) => with(&args.common, |it| entity::delete(it, args)),
        It::Send(args) => with(&args.common, |it| send::send(it, args)),
        It::Receive(args) => with(&args.common, |it| receive::receive(it, args)),
        It::Peek(args) => with(&args.common, |it| show::peek(it, args, &args.queue)),
        It::Purge(args) => with(&args.common, |it| jobs::purge(it, args, &args.queue)),
        It::Message(command) => run_message(command),
        It::BreakLock(args) => with(&args.common, |it| show::break_lock(it, args)),
        It::Jobs(args) => with(&args.common, jobs::list),
        It::Cancel(args) => with(&args.common, |it| jobs::cancel(it, args)),
    }
}

fn run_message(command: &MessageCommand) -> ExitCode {
    use MessageCommand as It;
    match command {
        It::Get(args) => with(&args.common, |it| show::message(it, args)),
        It::Delete(args) => with(&args.common, |it| show::delete(it, args)),
        It::Complete(args) => with(&args.common, |it| receive::complete(it, args)),
        It::Abandon(args) => with(&args.common, |it| receive::abandon(it, args)),
        It::Renew(args) => with(&args.common, |it| receive::renew(it, args)),
    }
}

pub(crate) fn run_dlq(args: &DlqArgs) -> ExitCode {
    use DlqCommand as It;
    match &args.command {
        It::List(args) => with(&args.common, |it| show::list(it, true)),
        It::Peek(args) => with(&args.common, |it| {
            show::peek(it, args, &dead_letters(&args.queue))
        }),
        It::Groups(args) => with(&args.common, |it| {
            show::groups(it, args, &dead_letters(&args.queue))
        }),
        It::Resubmit(args) => with(&args.common, |it| {
            jobs::resubmit(it, args, &dead_letters(&args.queue))
        }),
        It::Purge(args) => with(&args.common, |it| {
            jobs::purge(it, args, &dead_letters(&args.queue))
        }),
    }
}

/// The entity of a queue's dead letters. A sub-queue stays unchanged.
fn dead_letters(queue: &str) -> String {
    if queue.to_lowercase().ends_with(DEAD_LETTERS) {
        queue.to_owned()
    } else {
        format!("{queue}{DEAD_LETTERS}")
    }
}

fn with(common: &Common, work: impl FnOnce(&mut Session) -> Result<(), Failure>) -> ExitCode {
    let result = session(common).and_then(|mut session| {
        let result = work(&mut session);
        // Earlier output must come before the error.
        let flushed = session.output.flush();
        result.and(Ok(flushed?))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.tell(common.json)),
    }
}

fn session(common: &Common) -> Result<Session, Failure> {
    if common.timeout.is_zero() {
        return Err(Failure::Usage("--timeout must be longer than 0".into()));
    }
    let account = Account::find(common.connection_string.as_deref())?;
    let roots = read_certificates(common.ca_cert.as_deref())?;
    let client = Client::new(account, common.timeout, common.retries, roots.as_deref())?;
    Ok(Session {
        client,
        output: Output::new(common.json),
    })
}

/// An entity in a path.
fn in_path(entity: &str) -> String {
    utf8_percent_encode(entity, IN_PATH).to_string()
}

/// A text in a parameter.
fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl FilterArgs {
    /// As the server reads it: fields that are not set are left out.
    fn to_json(&self) -> Value {
        let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::from);
        let number = |number: Option<u64>| number.map_or(Value::Null, Value::from);
        let mut fields: serde_json::Map<String, Value> = [
            ("from", number(self.from)),
            ("to", number(self.until)),
            ("enqueued_after", text(&self.after)),
            ("enqueued_before", text(&self.before)),
            ("state", text(&self.state)),
            ("reason", text(&self.reason)),
            ("description", text(&self.description)),
            ("subject", text(&self.subject)),
            ("content_type", text(&self.content_type)),
            ("message_id", text(&self.message_id)),
            ("session_id", text(&self.session)),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        if !self.property.is_empty() {
            let properties = self.property.iter();
            let properties = properties.map(|(name, value)| (name.clone(), typed(value)));
            fields.insert("properties".into(), Value::Object(properties.collect()));
        }
        fields.into()
    }

    /// The same as parameters of a request.
    fn to_query(&self) -> String {
        let mut query = String::new();
        let Value::Object(fields) = self.to_json() else {
            return query;
        };
        for (name, value) in &fields {
            match value {
                Value::Object(properties) => {
                    for (name, value) in properties {
                        query += &format!("&property={}", encode(&format!("{name}={value}")));
                    }
                }
                Value::String(text) => query += &format!("&{name}={}", encode(text)),
                value => query += &format!("&{name}={value}"),
            }
        }
        query
    }
}

/// The value of a property: a scalar of JSON, or a text as it is.
fn typed(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Number(_) | Value::String(_))) => value,
        _ => Value::from(text),
    }
}
