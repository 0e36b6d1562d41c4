//! `kew bus session`: message sessions and their states.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kew_client::{ReceiverOptions, SessionChoice, SessionReceiver};
use serde_json::json;

use super::{Doors, Session};
use crate::bus_session_args::{SessionListArgs, SessionNameArgs, SetStateArgs};
use crate::input::Input;
use crate::queue_command::{Failure, printable};

pub(super) fn list(it: &mut Session, args: &SessionListArgs) -> Result<(), Failure> {
    let doors = &it.doors;
    let mut sessions = Vec::new();
    let mut skip = Some(0);
    while let Some(first) = skip {
        let (page, next) = doors.over_amqp(doors.bus.sessions(&args.queue, first))?;
        sessions.extend(page);
        skip = next;
    }
    if it.output.json {
        return Ok(it.output.object(&sessions)?);
    }
    for session in &sessions {
        it.output.line(&printable(session))?;
    }
    Ok(())
}

/// Locks a session for the time of the command.
fn lock(doors: &Doors, args: &SessionNameArgs) -> Result<SessionReceiver, Failure> {
    let choice = SessionChoice::named(&args.session);
    doors.over_amqp(
        doors
            .bus
            .session(&args.queue, choice, ReceiverOptions::default()),
    )
}

pub(super) fn state(it: &mut Session, args: &SessionNameArgs) -> Result<(), Failure> {
    let session = lock(&it.doors, args)?;
    let state = it.doors.over_amqp(session.state())?;
    it.doors.over_amqp(session.close())?;
    if it.output.json {
        let mut report =
            json!({"queue": args.queue, "session": args.session, "has_state": state.is_some()});
        if let (Some(state), Some(report)) = (&state, report.as_object_mut()) {
            match std::str::from_utf8(state) {
                Ok(text) => report.insert("state".into(), text.into()),
                Err(_) => report.insert("state_base64".into(), STANDARD.encode(state).into()),
            };
            report.insert("size_bytes".into(), state.len().into());
        }
        return Ok(it.output.object(&report)?);
    }
    match state {
        Some(state) => Ok(it.output.body(&state)?),
        None => Ok(it.output.line("the session has no state")?),
    }
}

pub(super) fn set_state(it: &mut Session, args: &SetStateArgs) -> Result<(), Failure> {
    let state: Option<Bytes> = match (args.clear, &args.text) {
        (true, _) => None,
        (false, Some(text)) => Some(text.clone().into()),
        (false, None) => Some(Input::open(args.file.as_deref())?.whole()?.into()),
    };
    let is_set = state.is_some();
    let session = lock(&it.doors, &args.of)?;
    it.doors.over_amqp(session.set_state(state))?;
    it.doors.over_amqp(session.close())?;
    let (queue, id) = (&args.of.queue, &args.of.session);
    if it.output.json {
        let report = json!({"queue": queue, "session": id, "has_state": is_set});
        return Ok(it.output.object(&report)?);
    }
    let done = if is_set { "set" } else { "cleared" };
    Ok(it
        .output
        .line(&format!("{done} the state of session {}", printable(id)))?)
}
