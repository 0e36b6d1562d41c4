//! Functions that Azure does not have, over HTTP with JSON, at `/$kew/v1`: see
//! `docs/operator-api.md`.
//!
//! All of it needs the right to manage the whole namespace. Changes leave a record in the audit
//! log.

mod deposit;
mod filter;
pub(super) mod jobs;
mod messages;
mod pages;
mod parameters;
mod purge;
mod resubmit;
mod topics;
mod view;

use std::sync::Arc;

use hyper::{Method, StatusCode};
use kew_engine::bus::{BusCommand, BusOutcome};
use kew_engine::{EntityName, Outcome};
use serde::Serialize;

use super::answers::AnswerRoom;
use super::answers::{Answer, HttpError};
use super::audit::Actor;
use super::call::Call;
use super::service::HttpService;
use crate::authorization::operation::HttpOperation;
use crate::ground::address::entity_named;
use crate::ground::constants::NAMESPACE;
use crate::ground::submit::Submitted;
use crate::shared::Shared;

use jobs::Job;
use parameters::{body_of, flag, json, optional_number};
use view::QueueView;

/// How many queues are listed by default, and at most.
const QUEUES_DEFAULT: u64 = 1000;
const QUEUES_MAX: u64 = 10_000;
/// How many queues are read at once: each comes with up to 64 KiB of stored data.
const QUEUES_AT_ONCE: u64 = 100;

/// About the largest size of a message in JSON, and of any other answer but a page.
const MESSAGE_SIZE_BYTES: usize = 2 << 20;
const SMALL_SIZE_BYTES: usize = 64 << 10;

/// Answers a request with this route.
pub(super) async fn answer(service: &HttpService, call: &Call) -> Result<Answer, HttpError> {
    call.require(HttpOperation::Operate, "")?;
    let (resource, entity) = resource_of(&call.head.path);
    // Before anything is read or done.
    let room = match resource.as_str() {
        "queues" | "topics" | "rules" | "messages" | "groups" => {
            AnswerRoom::of_page(service).await?
        }
        "message" => AnswerRoom::of(service, MESSAGE_SIZE_BYTES).await?,
        _ => AnswerRoom::of(service, SMALL_SIZE_BYTES).await?,
    };
    let answer = carry_out(service, call, &resource, entity).await?;
    Ok(room.hold_body(answer))
}

async fn carry_out(
    service: &HttpService,
    call: &Call,
    resource: &str,
    entity: &str,
) -> Result<Answer, HttpError> {
    let method = &call.head.method;
    match (method, resource) {
        (&Method::GET, "queues") if entity.is_empty() => list(&service.shared, call).await,
        (&Method::GET, "queues") => show(&service.shared, &entity_of(entity)?).await,
        (&Method::GET, "topics") if entity.is_empty() => topics::list(&service.shared, call).await,
        (&Method::GET, "topics") => topics::show(&service.shared, call, &entity_of(entity)?).await,
        (&Method::GET, "rules") => topics::rules(&service.shared, call, &entity_of(entity)?).await,
        (&Method::GET, "messages") => {
            messages::list(&service.shared, call, &entity_of(entity)?).await
        }
        (&Method::GET, "groups") => {
            messages::groups(&service.shared, call, &entity_of(entity)?).await
        }
        (&Method::GET | &Method::POST | &Method::DELETE, "message") => {
            let queue = entity_of(entity)?;
            let answered = messages::one(&service.shared, call, &queue).await;
            audit_one(service, call, &queue, &answered);
            answered
        }
        (&Method::DELETE, "lock") => {
            let queue = entity_of(entity)?;
            let answered = messages::break_lock(&service.shared, call, &queue).await;
            record(service, call, "break lock", &queue, &answered);
            answered
        }
        (&Method::POST, "deposit") => {
            let queue = entity_of(entity)?;
            let answered = deposit::put(&service.shared, call, &queue).await;
            let actor = Actor::of(&service.refused_acts, call);
            match &answered {
                Ok((_, count)) => actor.did("deposit", &queue.name, &format!("{count} messages")),
                Err(error) => actor.was_refused("deposit", &queue.name, error),
            }
            answered.map(|(answer, _)| answer)
        }
        (&Method::POST, "purge" | "resubmit") => {
            let queue = entity_of(entity)?;
            let begun = match resource {
                "purge" => start_purge(service, call, queue).await,
                _ => start_resubmit(service, call, queue).await,
            };
            // A job that has begun is recorded when it ends.
            if let Err(error) = &begun {
                Actor::of(&service.refused_acts, call).was_refused(resource, entity, error);
            }
            begun
        }
        (&Method::GET, "jobs") if entity.is_empty() => json(StatusCode::OK, &service.jobs.all()),
        (&Method::GET, "jobs") => json(StatusCode::OK, &service.jobs.find(entity)?.view()),
        (&Method::DELETE, "jobs") => {
            let job = service.jobs.find(entity)?;
            job.cancel();
            Actor::of(&service.refused_acts, call).did("cancel job", &job.entity, entity);
            json(StatusCode::OK, &job.view())
        }
        (
            _,
            "queues" | "topics" | "rules" | "messages" | "groups" | "message" | "lock" | "deposit"
            | "purge" | "resubmit" | "jobs",
        ) => {
            let text = format!("{method} is not allowed here");
            Err(HttpError::new(StatusCode::METHOD_NOT_ALLOWED, text))
        }
        _ => {
            let text = format!("there is nothing at '/{}'", call.head.path);
            Err(HttpError::new(StatusCode::NOT_FOUND, text))
        }
    }
}

/// The part after `$kew/v1/`, and the part after that: usually the path of an entity.
fn resource_of(path: &str) -> (String, &str) {
    let rest = path.split_once('/').map_or("", |(_, rest)| rest);
    let rest = match rest.split_once('/') {
        Some((version, rest)) if version.eq_ignore_ascii_case("v1") => rest,
        _ => "",
    };
    let (resource, entity) = rest.split_once('/').unwrap_or((rest, ""));
    (resource.to_lowercase(), entity)
}

fn entity_of(path: &str) -> Result<EntityName, HttpError> {
    entity_named(&path.to_lowercase()).ok_or_else(|| HttpError::not_found(path))
}

#[derive(Debug, Serialize)]
struct Queues {
    queues: Vec<QueueView>,
    /// How many to skip to continue, if there may be more.
    next: Option<u64>,
}

async fn list(shared: &Shared, call: &Call) -> Result<Answer, HttpError> {
    let limit = optional_number(call, "limit", QUEUES_DEFAULT, 1..=QUEUES_MAX)?;
    let skip = optional_number(call, "skip", 0, 0..=u64::from(u32::MAX))?;
    let mut shown = Vec::new();
    let mut from = Some((Box::<str>::default(), skip));
    while let Some((name, skip)) = from.take() {
        let count = QUEUES_AT_ONCE.min(limit - shown.len() as u64);
        let list = BusCommand::ListQueues {
            namespace: NAMESPACE.into(),
            from: name,
            skip: u32::try_from(skip).unwrap_or(u32::MAX),
            limit: u32::try_from(count).unwrap_or(u32::MAX),
        };
        let Outcome::Bus(BusOutcome::Queues(queues)) =
            Submitted::new(&shared.broker, list).answer().await?.outcome
        else {
            return Err(HttpError::internal());
        };
        shown.extend(queues.iter().map(QueueView::of));
        if queues.len() as u64 == count && (shown.len() as u64) < limit {
            // The name with a zero byte added: no other name lies between.
            from = queues
                .last()
                .map(|last| (format!("{}\0", last.name).into(), 0));
        }
    }
    let is_full = shown.len() as u64 == limit;
    let queues = Queues {
        queues: shown,
        next: is_full.then_some(skip + limit),
    };
    json(StatusCode::OK, &queues)
}

async fn show(shared: &Shared, queue: &EntityName) -> Result<Answer, HttpError> {
    let read = BusCommand::ReadQueue {
        queue: queue.clone(),
    };
    match Submitted::new(&shared.broker, read).answer().await?.outcome {
        Outcome::Bus(BusOutcome::Queue(view)) => json(StatusCode::OK, &QueueView::of(&view)),
        _ => Err(HttpError::internal()),
    }
}

async fn start_purge(
    service: &HttpService,
    call: &Call,
    queue: EntityName,
) -> Result<Answer, HttpError> {
    let request: purge::Request = body_of(call)?;
    pages::check(&service.shared.broker, &queue).await?;
    let job = begin(service, "purge", &queue, request.dry_run)?;
    let broker = service.shared.broker.for_source();
    run(service, call, job, |job| async move {
        purge::run(&broker, &queue, &request, &job).await
    })
}

async fn start_resubmit(
    service: &HttpService,
    call: &Call,
    queue: EntityName,
) -> Result<Answer, HttpError> {
    let request: resubmit::Request = body_of(call)?;
    request.check()?;
    resubmit::check_destination(&service.shared.broker, &queue, &request).await?;
    let job = begin(service, "resubmit", &queue, request.dry_run)?;
    let broker = service.shared.broker.for_source();
    run(service, call, job, |job| async move {
        resubmit::run(&broker, &queue, &request, &job).await
    })
}

fn begin(
    service: &HttpService,
    act: &'static str,
    queue: &EntityName,
    is_dry_run: bool,
) -> Result<Arc<Job>, HttpError> {
    let now_s = service.shared.clock.now_s();
    service.jobs.begin(act, &queue.name, is_dry_run, now_s)
}

/// Runs a job in a task of its own, and answers with its current state.
fn run<F>(
    service: &HttpService,
    call: &Call,
    job: Arc<Job>,
    work: impl FnOnce(Arc<Job>) -> F,
) -> Result<Answer, HttpError>
where
    F: Future<Output = Result<(), HttpError>> + Send + 'static,
{
    let actor = Actor::of(&service.refused_acts, call);
    let answer = json(StatusCode::ACCEPTED, &job.view());
    let work = work(Arc::clone(&job));
    tokio::spawn(async move {
        // A job that panics, which is a bug, ends too.
        let result = tokio::spawn(work).await;
        let result = result.unwrap_or_else(|_| Err(HttpError::internal()));
        let told = job.end(&result);
        match result {
            _ if job.is_dry_run => {}
            Ok(()) => actor.did(job.act, &job.entity, &told),
            Err(error) => actor.was_refused(job.act, &job.entity, &error),
        }
    });
    answer
}

/// Records the result of an act.
fn record(
    service: &HttpService,
    call: &Call,
    act: &str,
    queue: &EntityName,
    answered: &Result<Answer, HttpError>,
) {
    let actor = Actor::of(&service.refused_acts, call);
    let detail = ["number", "session"].into_iter().find_map(|name| {
        let value = call.head.parameter(name)?;
        Some(format!("{name} {value}"))
    });
    match answered {
        Ok(_) => actor.did(act, &queue.name, &detail.unwrap_or_default()),
        Err(error) => actor.was_refused(act, &queue.name, error),
    }
}

fn audit_one(
    service: &HttpService,
    call: &Call,
    queue: &EntityName,
    answered: &Result<Answer, HttpError>,
) {
    let is_dry_run = flag(call, "dry_run", false).unwrap_or(false);
    match call.head.method {
        Method::POST => record(service, call, "take message", queue, answered),
        Method::DELETE if !is_dry_run => record(service, call, "delete message", queue, answered),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use kew_broker::Broker;
    use kew_engine::bus::{BusMessage, BusQueueOptions};

    use super::jobs::Jobs;
    use super::*;

    #[test]
    fn paths_name_a_resource_and_an_entity() {
        for (path, resource, entity) in [
            ("$kew/v1/Queues", "queues", ""),
            (
                "$kew/V1/purge/a/b/$DeadLetterQueue",
                "purge",
                "a/b/$DeadLetterQueue",
            ),
            ("$kew/v2/queues", "", ""),
            ("$kew", "", ""),
        ] {
            assert_eq!(resource_of(path), (resource.to_owned(), entity), "{path}");
        }
    }

    #[tokio::test]
    async fn a_cancelled_job_stops_where_it_is() {
        let broker = Broker::start_in_memory().unwrap();
        let submit = async |command| Submitted::new(&broker, command).answer().await.unwrap();
        let queue = entity_of("q").unwrap();
        submit(BusCommand::CreateQueue {
            queue: queue.clone(),
            options: BusQueueOptions::default(),
        })
        .await;
        let message = BusMessage {
            body: bytes::Bytes::from_static(b"\0\x53\x75\xa0\x01a"),
            message_id: None,
            session: None,
            time_to_live_ms: None,
            scheduled_at: None,
        };
        submit(BusCommand::Send {
            queue: queue.clone(),
            messages: vec![message],
        })
        .await;
        let jobs = Jobs::default();
        for filter in ["{}", r#"{"state": "active"}"#] {
            let job = jobs.begin("purge", "q", false, 1).unwrap();
            job.cancel();
            let request = format!(r#"{{"filter": {filter}}}"#);
            let request = serde_json::from_str(&request).unwrap();
            let result = purge::run(&broker, &queue, &request, &job).await;
            assert!(job.end(&result).ends_with("cancelled"));
        }
        let job = jobs.begin("resubmit", "q", false, 1).unwrap();
        job.cancel();
        let result = resubmit::run(&broker, &queue, &resubmit::Request::default(), &job).await;
        let told = job.end(&result);
        assert!(
            told.contains("0 of 0") && told.ends_with("cancelled"),
            "{told}"
        );
        let read = submit(BusCommand::ReadQueue { queue }).await;
        match read.outcome {
            Outcome::Bus(BusOutcome::Queue(view)) => assert_eq!(view.counts.active, 1),
            other => panic!("{other:?}"),
        }
        broker.stop();
    }
}
