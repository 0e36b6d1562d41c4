//! `kew bus create`, `update` and `delete`: management by ATOM.

use serde_json::json;
use ureq::http::Method;

use super::connection::Asked;
use super::description::Description;
use super::error::Error;
use super::{Client, Session, in_path};
use crate::bus_entity_args::{CreateArgs, DeleteQueueArgs, UpdateArgs};
use crate::queue_command::{Failure, confirm, printable};

/// A version in the request makes it one for management, whatever the name of the queue.
const VERSION: &str = "?api-version=2021-05";

const ENTRY: (&str, &str) = (
    "content-type",
    "application/atom+xml;type=entry;charset=utf-8",
);

pub(super) fn create(it: &mut Session, args: &CreateArgs) -> Result<(), Failure> {
    if args.settings.duplicate_window.is_some() && !args.detect_duplicates {
        let message = "--duplicate-window has no effect without --detect-duplicates";
        return Err(Failure::Usage(message.into()));
    }
    let mut description = Description::default();
    description.apply(&args.settings)?;
    description.set("RequiresSession", args.sessions.to_string());
    description.set(
        "RequiresDuplicateDetection",
        args.detect_duplicates.to_string(),
    );
    let created = match put(&it.client, &args.name, &description, &[ENTRY]) {
        Ok(()) => true,
        Err(failure) if args.if_not_exists && status_of(&failure) == Some(409) => false,
        Err(failure) => return Err(failure),
    };
    if it.output.json {
        let report = json!({"queue": args.name, "created": created});
        return Ok(it.output.object(&report)?);
    }
    let what = match created {
        true => "created",
        false => "already exists:",
    };
    Ok(it
        .output
        .line(&format!("{what} {}", printable(&args.name)))?)
}

pub(super) fn update(it: &mut Session, args: &UpdateArgs) -> Result<(), Failure> {
    // An update replaces everything, so unchanged settings must be sent again.
    let mut description = it.client.patiently(|| read(&it.client, &args.name))?;
    description.apply(&args.settings)?;
    put(
        &it.client,
        &args.name,
        &description,
        &[ENTRY, ("if-match", "*")],
    )?;
    if it.output.json {
        let report = json!({"queue": args.name, "updated": true});
        return Ok(it.output.object(&report)?);
    }
    Ok(it
        .output
        .line(&format!("updated {}", printable(&args.name)))?)
}

pub(super) fn delete(it: &mut Session, args: &DeleteQueueArgs) -> Result<(), Failure> {
    if !args.yes.yes {
        let queue = printable(&args.name);
        confirm(&format!("Delete queue {queue} with all its messages?"))?;
    }
    let path = path_of(&args.name);
    let deleted = match it.client.ask(Asked::new(Method::DELETE, &path)) {
        Ok(_) => true,
        Err(failure) if args.if_exists && status_of(&failure) == Some(404) => false,
        Err(failure) => return Err(failure),
    };
    if it.output.json {
        let report = json!({"queue": args.name, "deleted": deleted});
        return Ok(it.output.object(&report)?);
    }
    let what = match deleted {
        true => "deleted",
        false => "did not exist:",
    };
    Ok(it
        .output
        .line(&format!("{what} {}", printable(&args.name)))?)
}

fn path_of(queue: &str) -> String {
    format!("{}{VERSION}", in_path(queue))
}

fn read(client: &Client, queue: &str) -> Result<Description, Failure> {
    let answer = client.ask(Asked::new(Method::GET, &path_of(queue)))?;
    Description::read(&answer.body).map_err(|what| client.not_understood(&what))
}

fn put(
    client: &Client,
    queue: &str,
    description: &Description,
    headers: &[(&'static str, &str)],
) -> Result<(), Failure> {
    client.ask(Asked {
        headers,
        body: Some(description.to_document()),
        ..Asked::new(Method::PUT, &path_of(queue))
    })?;
    Ok(())
}

/// The status of a refusal.
fn status_of(failure: &Failure) -> Option<u16> {
    match failure {
        Failure::Client(Error::Refused(refusal)) => Some(refusal.status),
        _ => None,
    }
}
