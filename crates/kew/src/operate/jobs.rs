//! Purges and resubmissions: jobs on the server that the command waits for.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::filter::typed;
use super::own::{Access, in_path};
use super::send::values_of;
use super::{Session, resubmit};
use crate::operate_args::{CancelArgs, PurgeArgs, ResubmitArgs};
use crate::queue_command::{Align, Failure, confirm, note, printable, table};

/// How often to ask for a job's progress: at first, and at most.
const POLL_FIRST: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_secs(1);

/// A job as the server reports it.
#[derive(Debug, Deserialize, Serialize)]
struct Job {
    id: String,
    act: String,
    entity: String,
    dry_run: bool,
    looked_at: u64,
    matched: u64,
    done: u64,
    skipped: BTreeMap<String, u64>,
    session_states: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    state: String,
}

pub(super) fn purge(it: &mut Session, args: &PurgeArgs, entity: &str) -> Result<(), Failure> {
    if args.caution.asks() {
        confirm(&format!("Delete messages of {}?", printable(entity)))?;
    }
    let body = json!({
        "filter": args.filter.to_json(),
        "with_locked": args.with_locked,
        "session_states": args.session_states,
        "dry_run": args.caution.dry_run,
    });
    run(it, "purge", entity, &body, "deleted")
}

pub(super) fn resubmit(it: &mut Session, args: &ResubmitArgs, entity: &str) -> Result<(), Failure> {
    if args.caution.asks() {
        let to = args.to.as_deref().unwrap_or("where they came from");
        confirm(&format!(
            "Send messages of {} to {}?",
            printable(entity),
            printable(to)
        ))?;
    }
    values_of("--set", &args.set)?;
    // Where Kew's own interface cannot be used, the public protocols do the same, without its atomic move.
    if it.doors.own().access()? != Access::Open {
        return resubmit::resubmit(it, args, entity);
    }
    let set = args
        .set
        .iter()
        .map(|(name, value)| (name.clone(), typed(value)));
    let removed = args.remove.iter().map(|name| (name.clone(), Value::Null));
    let mut edit = Map::new();
    edit.insert(
        "properties".into(),
        Value::Object(set.chain(removed).collect()),
    );
    for (name, text) in [
        ("subject", &args.set_subject),
        ("content_type", &args.set_content_type),
        ("session_id", &args.set_session),
        ("body", &args.set_body),
    ] {
        if let Some(text) = text {
            edit.insert(name.into(), text.as_str().into());
        }
    }
    let body = json!({
        "filter": args.filter.to_json(),
        "to": args.to,
        "message_id": if args.new_ids { "new" } else { "keep" },
        "edit": edit,
        "dry_run": args.caution.dry_run,
    });
    run(it, "resubmit", entity, &body, "resubmitted")
}

/// Starts a job, waits for its end and prints what it did.
fn run(it: &mut Session, act: &str, entity: &str, body: &Value, done: &str) -> Result<(), Failure> {
    let path = format!("{act}/{}", in_path(entity));
    let mut job: Job = it.doors.own().call("POST", &path, Some(body))?;
    let id = job.id.clone();
    follow(it, &mut job).map_err(|failure| {
        failure.after(format!(
            "job {id} goes on at the server: kew bus jobs shows it, and kew bus cancel {id} stops it"
        ))
    })?;
    tell(it, &job, done)?;
    match (job.state.as_str(), job.error) {
        ("done", _) => Ok(()),
        (state, error) => Err(Failure::Refused {
            message: error.unwrap_or_else(|| format!("the job was {state}")),
            code: None,
        }),
    }
}

/// Waits for the end of a job.
fn follow(it: &Session, job: &mut Job) -> Result<(), Failure> {
    let mut pause = POLL_FIRST;
    while job.state == "running" {
        std::thread::sleep(pause);
        if pause < POLL_MAX && pause.saturating_mul(2) >= POLL_MAX {
            // Ending the wait does not stop the job.
            note(&format!(
                "job {} keeps running on the server: kew bus cancel {0} stops it",
                job.id
            ));
        }
        pause = pause.saturating_mul(2).min(POLL_MAX);
        let path = format!("jobs/{}", in_path(&job.id));
        *job = it.doors.own().get(&path)?;
    }
    Ok(())
}

fn tell(it: &mut Session, job: &Job, done: &str) -> Result<(), Failure> {
    if it.output.json {
        return Ok(it.output.object(job)?);
    }
    let would = if job.dry_run { "would be " } else { "" };
    let mut line = format!("{} of {} messages {would}{done}", job.done, job.matched);
    for (why, count) in &job.skipped {
        line += &format!(", {count} left ({})", printable(why));
    }
    if job.session_states > 0 {
        line += &format!(", {} session states {would}cleared", job.session_states);
    }
    Ok(it.output.line(&line)?)
}

pub(super) fn list(it: &mut Session) -> Result<(), Failure> {
    let jobs: Vec<Job> = it.doors.own().get("jobs")?;
    if it.output.json {
        return Ok(it.output.object(&jobs)?);
    }
    let columns = [
        ("ID", Align::Left),
        ("ACT", Align::Left),
        ("STATE", Align::Left),
        ("DONE", Align::Right),
        ("MATCHED", Align::Right),
        ("QUEUE", Align::Left),
    ];
    let rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            let (done, matched) = (job.done.to_string(), job.matched.to_string());
            let texts = [&job.id, &job.act, &job.state, &done, &matched, &job.entity];
            texts.map(Clone::clone).to_vec()
        })
        .collect();
    for line in table(&columns, &rows) {
        it.output.line(&line)?;
    }
    Ok(())
}

pub(super) fn cancel(it: &mut Session, args: &CancelArgs) -> Result<(), Failure> {
    let path = format!("jobs/{}", in_path(&args.id));
    let job: Job = it.doors.own().call("DELETE", &path, None)?;
    if it.output.json {
        return Ok(it.output.object(&job)?);
    }
    Ok(it
        .output
        .line(&format!("cancelled {}", printable(&job.id)))?)
}
