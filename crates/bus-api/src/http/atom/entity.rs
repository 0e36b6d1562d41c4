//! One queue, topic or subscription: read, create, change, delete.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::IF_MATCH;
use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView, EntityKind};
use kew_engine::{EntityName, Outcome};

use super::asked::Asked;
use super::described::Described;
use super::document::Entry;
use super::forward::{Targets, check_targets};
use super::version::ApiVersion;
use crate::authorization::operation::HttpOperation;
use crate::ground::address::{entity_named, is_queue_name, topic_of, why_reserved};
use crate::ground::submit::Submitted;
use crate::http::answers::{Answer, HttpError, answer_of};
use crate::http::call::Call;
use crate::shared::Shared;

/// Source: Service Bus, *Get Queue*.
pub(super) async fn read(shared: &Arc<Shared>, call: &Call) -> Result<Answer, HttpError> {
    call.require(HttpOperation::ReadQueue, &call.head.path)?;
    // An impossible name means that the queue does not exist.
    let name = name_of(call).ok_or_else(|| HttpError::not_found(&call.head.path))?;
    let view = view_of(shared, name).await?;
    Ok(entry(call, StatusCode::OK, &view))
}

/// Creates a queue, topic or subscription, or changes it if the request has `If-Match: *`.
///
/// Source: Service Bus, *Create Queue* and *Update Queue*, and the same for topics and subscriptions.
pub(super) async fn put(shared: &Arc<Shared>, call: &Call) -> Result<Answer, HttpError> {
    call.require(HttpOperation::PutQueue, &call.head.path)?;
    let name = name_of(call).ok_or_else(|| {
        HttpError::bad_request(format!(
            "The entity name or path '{}' is not valid: it must have up to 260 letters, digits and \
             . - _ /, with a letter or digit at both ends.",
            call.head.path
        ))
    })?;
    let is_update = is_update(call)?;
    let mut asked = Asked::read(&call.body)?;
    check_path(asked.kind, &name, is_update, &call.head.path)?;
    let version = ApiVersion::of(&call.head);
    version.check(&asked)?;
    let targets = asked.targets(&shared.names, &call.head)?;
    check_targets(shared, call, &targets).await?;
    if is_update {
        asked.check_has_no_first_rule()?;
        asked.keeps_message_size = !version.has_message_size();
        let view = update(shared, name, &asked, &targets).await?;
        return Ok(entry(call, StatusCode::OK, &view));
    }
    let options = asked.created(&call.head.path, &targets, shared.clock.now_ms())?;
    let create = match asked.kind {
        EntityKind::Queue => BusCommand::CreateQueue {
            queue: name,
            options,
        },
        EntityKind::Topic => BusCommand::CreateTopic {
            topic: name,
            options,
        },
        EntityKind::Subscription => {
            let topic = topic_of(&name).ok_or_else(HttpError::internal)?;
            BusCommand::CreateSubscription {
                topic,
                subscription: name,
                options,
                rule: asked.first_rule(),
            }
        }
    };
    let view = view(alone(shared, create).await)?;
    Ok(entry(call, StatusCode::CREATED, &view))
}

/// Whether a request changes what is there.
pub(super) fn is_update(call: &Call) -> Result<bool, HttpError> {
    match call.head.header(IF_MATCH) {
        None => Ok(false),
        Some("*") => Ok(true),
        Some(other) => Err(HttpError::bad_request(format!(
            "The header If-Match is '{other}', and must be * to update an entity."
        ))),
    }
}

async fn update(
    shared: &Shared,
    queue: EntityName,
    asked: &Asked,
    targets: &Targets,
) -> Result<BusQueueView, HttpError> {
    let _changing = shared.authority.rules.lock().await;
    // It writes back what it does not change, such as rules, so another owner must not change that in between.
    let epoch = shared.broker.ownership().epoch();
    let epoch = Some(epoch.ok_or(Rejection::NotOwner)?);
    let read = BusCommand::ReadQueue {
        queue: queue.clone(),
    };
    let before = view(
        Submitted::within(&shared.broker, epoch, read)
            .answer()
            .await,
    )?;
    if before.kind != asked.kind {
        return Err(HttpError::not_found(&queue.name));
    }
    let options = asked.updated(&before, targets, shared.clock.now_ms())?;
    let update = BusCommand::UpdateQueue { queue, options };
    let update = Submitted::within(&shared.broker, epoch, update);
    let updated = update.answer().await;
    if asked.rules.is_some() {
        note_if_changed(shared, &updated);
    }
    view(updated)
}

/// Source: Service Bus, *Delete Queue*.
pub(super) async fn delete(shared: &Arc<Shared>, call: &Call) -> Result<Answer, HttpError> {
    call.require(HttpOperation::DeleteQueue, &call.head.path)?;
    let queue = name_of(call).ok_or_else(|| HttpError::not_found(&call.head.path))?;
    alone(shared, BusCommand::DeleteQueue { queue }).await?;
    Ok(answer_of(StatusCode::OK))
}

/// Creates or deletes a queue while no rule is changed. Otherwise the rules of a deleted queue
/// could be written to a new one with the same name. It must run to its end.
async fn alone(shared: &Shared, command: BusCommand) -> Result<kew_broker::Answer, Rejection> {
    let _changing = shared.authority.rules.lock().await;
    let done = Submitted::new(&shared.broker, command).answer().await;
    // Tokens signed by a rule of a deleted queue, perhaps the caller's own, are no longer valid.
    note_if_changed(shared, &done);
    done
}

/// Notes that rules have changed, also if that is not known.
fn note_if_changed(shared: &Shared, done: &Result<kew_broker::Answer, Rejection>) {
    match done {
        Ok(_) | Err(Rejection::Stopped | Rejection::Unknown) => {
            shared.authority.rules.note_change()
        }
        Err(
            Rejection::Refused(_)
            | Rejection::Busy
            | Rejection::NotOwner
            | Rejection::Full
            | Rejection::ReadFailed,
        ) => {}
    }
}

/// Refuses a description whose kind does not fit the path: `topic/subscriptions/name` is the path of a subscription, and
/// no new queue or topic has such a name.
fn check_path(
    kind: EntityKind,
    name: &EntityName,
    is_update: bool,
    path: &str,
) -> Result<(), HttpError> {
    let detail = match kind {
        EntityKind::Subscription if topic_of(name).is_none() => Some(format!(
            "The path '{path}' is not one of a subscription: it must be TOPIC/Subscriptions/NAME, with a NAME of up to \
             50 letters, digits and . - _, and a letter or digit at both ends."
        )),
        EntityKind::Queue | EntityKind::Topic if !is_update => why_reserved(&name.name),
        EntityKind::Queue | EntityKind::Topic | EntityKind::Subscription => None,
    };
    detail.map_or(Ok(()), |detail| Err(HttpError::bad_request(detail)))
}

/// The queue of the path, if the name is possible. Sub-queues are not managed separately.
fn name_of(call: &Call) -> Option<EntityName> {
    let name = call.head.path.to_lowercase();
    entity_named(&name).filter(|_| is_queue_name(&name))
}

pub(super) async fn view_of(shared: &Shared, queue: EntityName) -> Result<BusQueueView, HttpError> {
    let read = BusCommand::ReadQueue { queue };
    view(Submitted::new(&shared.broker, read).answer().await)
}

fn view(answer: Result<kew_broker::Answer, Rejection>) -> Result<BusQueueView, HttpError> {
    match answer?.outcome {
        Outcome::Bus(
            BusOutcome::Queue(view)
            | BusOutcome::QueueCreated(view)
            | BusOutcome::QueueUpdated(view),
        ) => Ok(*view),
        _ => Err(internal("The server was unable to describe the queue.")),
    }
}

fn internal(detail: &str) -> HttpError {
    HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
}

fn entry(call: &Call, status: StatusCode, view: &BusQueueView) -> Answer {
    let entity = Described::of(view);
    let entry = Entry::of(view, &entity);
    entry.answer(call, status, |out| entity.write(out, &call.head))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use bytes::Bytes;
    use hyper::Request;
    use kew_broker::Broker;
    use tokio::io::AsyncWriteExt as _;
    use tokio::sync::watch;

    use super::*;
    use crate::authorization::grant::Grant;
    use crate::http::call::{Head, Stopped};
    use crate::{AuthorizationRule, BusApi, BusApiOptions, Origin, Rights, RuleScope, sign_token};

    fn call(method: &str) -> Call {
        let origin = Origin {
            peer: ([127, 0, 0, 1], 1).into(),
            is_secure: false,
            public_key: Err(kew_listen::Barred::Listener),
        };
        let request = Request::builder()
            .method(method)
            .uri("/q")
            .body(())
            .unwrap();
        let (_, stopped) = watch::channel(false);
        Call {
            head: Head::new(origin, request.into_parts().0).unwrap(),
            grant: Grant::of_everything("rule r"),
            body: Bytes::from_static(
                b"<entry><content><QueueDescription></QueueDescription></content></entry>",
            ),
            stopped: Stopped(stopped),
        }
    }

    /// Whether a queue exists while rules are being changed, although another command runs.
    async fn is_there_meanwhile(
        shared: &Arc<Shared>,
        asked: impl Future<Output = Result<Answer, HttpError>>,
    ) -> bool {
        let mut asked = pin!(asked);
        let changing = shared.authority.rules.lock().await;
        // A command that was submitted before this one would be carried out before it.
        let read = async {
            tokio::task::yield_now().await;
            view_of(shared, entity_named("q").unwrap()).await
        };
        let view = tokio::select! {
            biased;
            answered = &mut asked => panic!("{:?}", answered.map(|it| it.status())),
            view = read => view,
        };
        drop(changing);
        asked.await.unwrap();
        view.is_ok()
    }

    #[tokio::test]
    async fn no_queue_is_created_or_deleted_while_a_rule_is_changed() {
        let broker = Broker::start_in_memory().unwrap();
        let api = BusApi::open(broker.clone(), BusApiOptions::default());
        let api = api.await.unwrap();
        let shared = Arc::clone(&api.parts.shared);
        let changes = shared.authority.rules.watch();
        let (put_call, delete_call) = (call("PUT"), call("DELETE"));
        assert!(!is_there_meanwhile(&shared, put(&shared, &put_call)).await);
        assert!(is_there_meanwhile(&shared, delete(&shared, &delete_call)).await);
        assert!(view_of(&shared, entity_named("q").unwrap()).await.is_err());
        assert!(changes.has_changed().unwrap());
        broker.stop();
    }

    #[tokio::test]
    async fn a_change_is_completed_although_its_client_has_gone() {
        let broker = Broker::start_in_memory().unwrap();
        let api = BusApi::open(broker.clone(), BusApiOptions::default());
        let api = api.await.unwrap();
        let shared = Arc::clone(&api.parts.shared);
        put(&shared, &call("PUT")).await.unwrap();
        let rule = AuthorizationRule::generate("r", Rights::ALL, 1).unwrap();
        let rules = api.rules();
        rules
            .add(&RuleScope::Namespace, rule.clone())
            .await
            .unwrap();
        let token = sign_token("sb://h/", &rule.name, &rule.primary_key, u64::MAX / 2);
        let changing = shared.authority.rules.lock().await;
        let (mut ours, theirs) = tokio::io::duplex(4096);
        let origin = call("GET").head.origin;
        let permit = api.admit(origin.peer).unwrap();
        let serving = async {
            api.serve(theirs, origin, permit, std::future::pending())
                .await;
        };
        let room = shared.answers.0.available_permits();
        let asking = async {
            let request =
                format!("DELETE /q HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\n\r\n");
            ours.write_all(request.as_bytes()).await.unwrap();
            // When it has taken room, the deletion is its next step.
            while shared.answers.0.available_permits() == room {
                tokio::task::yield_now().await;
            }
            drop(ours);
        };
        tokio::join!(serving, asking);
        drop(changing);
        let gone = async { while view_of(&shared, entity_named("q").unwrap()).await.is_ok() {} };
        let gone = tokio::time::timeout(Duration::from_secs(60), gone);
        gone.await.expect("it is deleted");
        broker.stop();
    }
}
