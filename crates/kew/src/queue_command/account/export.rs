//! The lines of an account: definitions of queues, and then the messages of each.
//!
//! Peeking shows the first 32 visible messages of a queue, and nothing shows those that are hidden. So a queue with more
//! messages than were peeked at is read by receiving, which the command does only if it is asked to.

use std::collections::BTreeSet;

use kew_client::QueueMessage;

use super::super::export::{GET_MAX, Hidden, give_back, record};
use super::super::{Client, Failure, note};
use super::Account;
use super::definition::definition_of;
use crate::portable::{Defined, Line};
use crate::transfer_args::ExportArgs;

/// Where lines go.
type Write<'a> = dyn FnMut(Line) -> Result<(), Failure> + 'a;

/// Writes the lines of all queues, or of those that are named. Returns how many queues were not read as a whole, of
/// which notes tell.
pub(crate) fn export_account(
    account: &Account,
    args: &ExportArgs,
    write: &mut Write<'_>,
) -> Result<u64, Failure> {
    let client = &account.0;
    let mut names = args.queue.clone();
    if args.queue.is_empty() {
        for page in client.queues("", false) {
            names.extend(page?.into_iter().map(|it| it.name));
        }
    }
    for name in &names {
        define(client, name, write)?;
    }
    if args.definitions_only {
        return Ok(0);
    }
    let mut unread = 0;
    for name in &names {
        unread += u64::from(!messages(client, name, args, write)?);
    }
    Ok(unread)
}

fn define(client: &Client, name: &str, write: &mut Write<'_>) -> Result<(), Failure> {
    let properties = client.ask(|it| it.queue_properties(name))?;
    let policies = match client.ask(|it| it.access_policies(name)) {
        Ok(policies) => policies,
        // The right to read them is apart from that to read messages.
        Err(error) if error.status() == Some(403) => {
            note(&format!(
                "the access policies of {name} were not exported: {error}"
            ));
            Vec::new()
        }
        Err(error) => return Err(error.into()),
    };
    let definition = definition_of(&properties.metadata, &policies);
    write(Line::StorageQueue(Box::new(Defined::of_storage(
        name, definition,
    ))))
}

/// Writes the messages of a queue, and says whether these were all.
fn messages(
    client: &Client,
    name: &str,
    args: &ExportArgs,
    write: &mut Write<'_>,
) -> Result<bool, Failure> {
    let peeked = client.ask(|it| it.peek(name, GET_MAX))?;
    let holds = client
        .ask(|it| it.queue_properties(name))?
        .approximate_message_count;
    let seen = peeked.len() as u64;
    if seen >= holds {
        write_all(name, &peeked, write)?;
        return Ok(true);
    }
    if !args.receive {
        note(&format!(
            "the messages of {name} were not exported: it holds {holds}, and {seen} can be peeked at; --receive receives \
             them and releases them at the end"
        ));
        return Ok(false);
    }
    let received = receive(client, name, args.visibility, write)?;
    if received < holds {
        let hidden = holds - received;
        note(&format!(
            "{hidden} messages of {name} were not exported: they are hidden, and no command shows them"
        ));
    }
    Ok(received >= holds)
}

fn write_all(name: &str, messages: &[QueueMessage], write: &mut Write<'_>) -> Result<(), Failure> {
    let mut records = messages.iter().map(|it| record(name, it));
    records.try_for_each(|record| write(Line::Message(Box::new(record))))
}

/// Receives all visible messages and releases them at the end, whatever happened. Returns how many they were.
fn receive(
    client: &Client,
    name: &str,
    visibility: u32,
    write: &mut Write<'_>,
) -> Result<u64, Failure> {
    let mut hidden = Vec::new();
    let received = receive_all(client, name, visibility, write, &mut hidden);
    let given_back = give_back(client, name, &hidden);
    received.and(given_back)?;
    Ok(hidden.len() as u64)
}

fn receive_all(
    client: &Client,
    name: &str,
    visibility: u32,
    write: &mut Write<'_>,
    hidden: &mut Vec<Hidden>,
) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    loop {
        let messages = client.ask(|it| it.get(name, GET_MAX, Some(visibility)))?;
        if messages.is_empty() {
            return Ok(());
        }
        for message in &messages {
            let receipt = message.receipt.as_ref();
            let receipt = receipt.map_or_else(String::new, |it| it.value.clone());
            hidden.push((message.id.clone(), receipt));
            if !seen.insert(message.id.clone()) {
                return Err(Failure::Refused {
                    message: format!(
                        "--visibility is shorter than the export of {name}: messages came again"
                    ),
                    code: None,
                });
            }
        }
        write_all(name, &messages, write)?;
    }
}
