//! Looks up whether an entity exists.

use kew_broker::{Broker, Rejection};
use kew_engine::bus::{BusCommand, BusOutcome, BusRefusal, BusRuleView, EntityKind};
use kew_engine::{EntityName, Outcome, Refusal};

use crate::ground::address::{entity_named, is_queue_name};
use crate::ground::submit::Submitted;

/// Whether an entity or sub-queue of that name exists.
pub(crate) async fn is_there(broker: &Broker, entity: EntityName) -> Result<bool, Rejection> {
    Ok(kind_of(broker, entity).await?.is_some())
}

/// What the entity of that name is, or what it is a sub-queue of, if it exists.
pub(crate) async fn kind_of(
    broker: &Broker,
    entity: EntityName,
) -> Result<Option<EntityKind>, Rejection> {
    let read = BusCommand::ReadQueue { queue: entity };
    match Submitted::new(broker, read).answer().await {
        Ok(answer) => Ok(match answer.outcome {
            Outcome::Bus(BusOutcome::Queue(view)) => Some(view.kind),
            _ => None,
        }),
        Err(Rejection::Refused(Refusal::Bus(BusRefusal::QueueNotFound { .. }))) => Ok(None),
        Err(rejection) => Err(rejection),
    }
}

/// Whether a queue of that name, in lower case, exists.
pub(crate) async fn is_queue(broker: &Broker, name: &str) -> Result<bool, Rejection> {
    match entity_named(name).filter(|_| is_queue_name(name)) {
        Some(queue) => is_there(broker, queue).await,
        None => Ok(false),
    }
}

/// The most bytes of rules that one answer shows: a hundred of the largest rules.
pub(crate) const RULES_SIZE_BYTES_MAX: usize = 4 << 20;

/// The bytes of a list of rules, from which on it may be one that the broker has cut.
const CUT_SIZE_BYTES_MIN: usize = 512 << 10;

/// The rules of a subscription, as many as there are up to a limit or to about so many bytes. `None` if the broker
/// answered something else, which is a bug.
pub(crate) async fn rules_of(
    broker: &Broker,
    subscription: &EntityName,
    skip: u32,
    limit: u32,
    size_bytes_max: usize,
) -> Result<Option<Vec<BusRuleView>>, Rejection> {
    let mut rules = Vec::new();
    let mut size_bytes = 0;
    loop {
        let count = u32::try_from(rules.len()).unwrap_or(u32::MAX);
        let list = BusCommand::ListRules {
            subscription: subscription.clone(),
            skip: skip.saturating_add(count),
            limit: limit.saturating_sub(count),
        };
        let answer = Submitted::new(broker, list).answer().await?;
        let Outcome::Bus(BusOutcome::Rules(listed)) = answer.outcome else {
            return Ok(None);
        };
        let sizes = listed.iter().map(|it| it.name.len() + it.definition.len());
        let listed_size_bytes = sizes.sum::<usize>();
        let is_whole = listed_size_bytes < CUT_SIZE_BYTES_MIN;
        size_bytes += listed_size_bytes;
        rules.extend(listed);
        if is_whole || rules.len() >= limit as usize || size_bytes >= size_bytes_max {
            return Ok(Some(rules));
        }
    }
}
