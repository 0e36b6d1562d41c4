//! Sends dead letters again, as they are or edited.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map, Raw, Symbol, Value};
use kew_amqp::message::{Properties, write_application_properties, write_data, write_head};
use kew_broker::Broker;
use kew_bus_message::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, SCHEDULED_ENQUEUE_TIME};
use kew_engine::bus::{
    BODIES_SIZE_BYTES_MAX, BusCommand, BusMessageState, BusOutcome, Resubmission, Resubmit,
    ResubmitVerdict,
};
use kew_engine::{EntityName, SequenceNumber};
use serde::Deserialize;
use serde_json::Value as Json;

use super::super::answers::HttpError;
use super::super::answers::Shown;
use super::super::data::property;
use super::filter::Filter;
use super::jobs::{Job, Progress};
use super::pages::{Walk, end_of, patiently};
use crate::ground::submit::Submitted;
use crate::messages::inbound::message_of;

/// How many messages one command moves: few enough to serve other clients in between.
const COUNT_AT_ONCE: usize = 100;

/// What to send again, and how to change it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Request {
    pub(super) filter: Filter,
    /// The queue or topic to send to. Default: the queue, topic or subscription of the dead letters.
    pub(super) to: Option<String>,
    message_id: MessageIds,
    edit: Edit,
    pub(super) dry_run: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MessageIds {
    /// Each message keeps its id.
    #[default]
    Keep,
    /// Each message gets a new id, so that no queue drops it as a duplicate.
    New,
}

/// The changes. Missing fields stay unchanged.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Edit {
    /// Application properties to set, or with `null` to remove.
    properties: serde_json::Map<String, Json>,
    subject: Option<String>,
    content_type: Option<String>,
    session_id: Option<String>,
    body: Option<String>,
    body_base64: Option<String>,
}

impl Request {
    /// Refuses edits that fit no message.
    pub(super) fn check(&self) -> Result<(), HttpError> {
        self.edit.body_bytes()?;
        self.edit.changes()?;
        if let Some(kind) = &self.edit.content_type {
            let wrong = "the content type is not ASCII";
            Symbol::new(kind).map_err(|_| HttpError::bad_request(wrong))?;
        }
        Ok(())
    }
}

impl Edit {
    fn body_bytes(&self) -> Result<Option<Bytes>, HttpError> {
        match (&self.body, &self.body_base64) {
            (Some(_), Some(_)) => Err(HttpError::bad_request(
                "an edit must have either body or body_base64",
            )),
            (Some(text), None) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
            (None, Some(text)) => match STANDARD.decode(text) {
                Ok(bytes) => Ok(Some(bytes.into())),
                Err(_) => Err(HttpError::bad_request("body_base64 is not Base64")),
            },
            (None, None) => Ok(None),
        }
    }

    /// The change of each named property: its new value, or `None` to remove it.
    fn changes(&self) -> Result<Vec<(&str, Option<Value>)>, HttpError> {
        let changes = self.properties.iter().map(|(name, value)| {
            let value = property(value).ok_or_else(|| {
                let text = format!(
                    "the property '{name}' must be a string, a number, true, false or null"
                );
                HttpError::bad_request(text)
            })?;
            Ok((
                name.as_str(),
                Some(value).filter(|value| *value != Value::Null),
            ))
        });
        changes.collect()
    }
}

/// Refuses a destination that accepts no message, before any message is sent.
pub(super) async fn check_destination(
    broker: &Broker,
    queue: &EntityName,
    request: &Request,
) -> Result<(), HttpError> {
    let nothing = command(queue, request, Vec::new());
    Submitted::new(broker, nothing).answer().await?;
    Ok(())
}

fn command(queue: &EntityName, request: &Request, messages: Vec<Resubmission>) -> BusCommand {
    BusCommand::Resubmit {
        queue: queue.clone(),
        resubmit: Resubmit {
            to: request.to.as_deref().map(|to| to.to_lowercase().into()),
            messages,
        },
    }
}

pub(super) async fn run(
    broker: &Broker,
    queue: &EntityName,
    request: &Request,
    job: &Job,
) -> Result<(), HttpError> {
    let mut walk = Walk {
        broker,
        queue,
        filter: &request.filter,
        job,
        until: end_of(broker, job, queue).await?,
        from: Some(request.filter.first()),
    };
    while let Some(messages) = walk.next().await? {
        let mut slice = Slice::default();
        for (message, shown) in &messages {
            let number = message.sequence_number;
            if matches!(message.state, BusMessageState::Locked { .. }) {
                job.note(|progress| progress.skip("locked", 1));
                continue;
            }
            let overlays = u32::try_from(message.overlays.len()).unwrap_or(u32::MAX);
            let Some(again) = as_new(number, overlays, shown, request) else {
                job.note(|progress| progress.skip("too_large", 1));
                continue;
            };
            if request.dry_run {
                job.note(|progress| progress.done += 1);
                continue;
            }
            if !slice.takes(&again) {
                slice.send(broker, queue, request, job).await?;
            }
            if job.is_cancelled() {
                return Ok(());
            }
            slice.push(again);
        }
        slice.send(broker, queue, request, job).await?;
    }
    Ok(())
}

/// Messages that one command moves.
#[derive(Default)]
struct Slice {
    messages: Vec<Resubmission>,
    size_bytes: u64,
}

impl Slice {
    fn takes(&self, message: &Resubmission) -> bool {
        let size_bytes = self.size_bytes + message.body.len() as u64;
        self.messages.len() < COUNT_AT_ONCE && size_bytes <= BODIES_SIZE_BYTES_MAX
    }

    fn push(&mut self, message: Resubmission) {
        self.size_bytes += message.body.len() as u64;
        self.messages.push(message);
    }

    async fn send(
        &mut self,
        broker: &Broker,
        queue: &EntityName,
        request: &Request,
        job: &Job,
    ) -> Result<(), HttpError> {
        let slice = std::mem::take(self);
        if slice.messages.is_empty() || job.is_cancelled() {
            return Ok(());
        }
        let resubmit = command(queue, request, slice.messages.clone());
        let BusOutcome::Resubmitted(mut verdicts) = patiently(broker, job, resubmit).await? else {
            return Err(HttpError::internal());
        };
        for (message, verdict) in slice.messages.into_iter().zip(&mut verdicts) {
            if *verdict != ResubmitVerdict::NotCompared || job.is_cancelled() {
                continue;
            }
            // The rules for those before it took all steps. Alone it has them all.
            let alone = command(queue, request, vec![message]);
            let BusOutcome::Resubmitted(alone) = patiently(broker, job, alone).await? else {
                return Err(HttpError::internal());
            };
            *verdict = alone.first().copied().unwrap_or(*verdict);
        }
        let is_full = verdicts.contains(&ResubmitVerdict::Full);
        job.note(|progress| {
            verdicts
                .into_iter()
                .for_each(|verdict| note(progress, verdict))
        });
        if is_full {
            // The next messages would find no room either.
            let text = "the destination is full";
            return Err(HttpError::new(hyper::StatusCode::FORBIDDEN, text));
        }
        Ok(())
    }
}

fn note(progress: &mut Progress, verdict: ResubmitVerdict) {
    let why = match verdict {
        ResubmitVerdict::Resubmitted(_) => {
            progress.done += 1;
            return;
        }
        ResubmitVerdict::NotFound => "gone",
        ResubmitVerdict::Locked => "locked",
        ResubmitVerdict::Changed => "changed",
        ResubmitVerdict::Duplicate => "duplicate",
        ResubmitVerdict::TooLarge => "too_large",
        ResubmitVerdict::SessionRequired => "session_required",
        ResubmitVerdict::Full => "full",
        ResubmitVerdict::Unselected => "unselected",
        ResubmitVerdict::NotCompared => "not_compared",
    };
    progress.skip(why, 1);
}

/// A message to send: edited, and without the reason for its dead-lettering. `None` if it exceeds
/// the size limit.
fn as_new(
    sequence_number: SequenceNumber,
    overlay_count: u32,
    shown: &Shown,
    request: &Request,
) -> Option<Resubmission> {
    let edit = &request.edit;
    let mut properties = Properties {
        absolute_expiry_time: None,
        ..shown.properties.clone()
    };
    if request.message_id == MessageIds::New {
        // A message without an id gets one.
        properties.message_id = None;
    }
    let text = |new: &Option<String>, old| new.as_deref().map(Into::into).or(old);
    properties.subject = text(&edit.subject, properties.subject);
    properties.group_id = text(&edit.session_id, properties.group_id);
    if let Some(kind) = edit.content_type.as_deref() {
        properties.content_type = Symbol::new(kind).ok();
    }
    let mut out = BytesMut::new();
    write_head(
        &mut out,
        &shown.sent_header(),
        &shown.delivery_annotations(),
        &annotations(&shown.annotations),
    );
    properties.encode(&mut out);
    write_application_properties(&mut out, &edited(shown, edit));
    match edit.body_bytes().ok()? {
        Some(body) => write_data(&mut out, &body),
        None => out.extend_from_slice(&shown.encoded_body()),
    }
    out.extend_from_slice(&shown.footer());
    let message = message_of(&out.freeze()).ok()?;
    (message.body.len() as u64 <= BODIES_SIZE_BYTES_MAX).then_some(Resubmission {
        sequence_number,
        overlay_count,
        body: message.body,
        message_id: message.message_id,
        session: message.session,
        time_to_live_ms: message.time_to_live_ms,
    })
}

/// The sender's annotations, without those that the broker writes and the scheduled time.
fn annotations(annotations: &Map) -> Map {
    let is_kept = |key: &Raw| match key.value().as_str() {
        Some(key) => {
            key != SCHEDULED_ENQUEUE_TIME
                && !crate::messages::outbound::OWN_ANNOTATIONS.contains(&key)
        }
        None => true,
    };
    Map::build(|map| {
        for (key, value) in annotations.iter().filter(|(key, _)| is_kept(key)) {
            map.entry(&key, &value);
        }
    })
}

fn edited(shown: &Shown, edit: &Edit) -> Map {
    // They were checked before the job began.
    let changes = edit.changes().unwrap_or_default();
    Map::build(|map| {
        for (name, value) in shown.application_properties() {
            let is_cause = name == DEAD_LETTER_REASON || name == DEAD_LETTER_DESCRIPTION;
            if !is_cause && !changes.iter().any(|(changed, _)| *changed == name) {
                map.entry(name.as_str(), &value);
            }
        }
        for (name, value) in &changes {
            if let Some(value) = value {
                map.entry(*name, value);
            }
        }
    })
}
