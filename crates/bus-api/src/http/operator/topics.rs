//! Topics with what each subscription holds, and the rules of a subscription.

use hyper::StatusCode;
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView, BusRuleView, EntityKind};
use kew_engine::{EntityName, Outcome};
use kew_filter::Definition;
use serde::Serialize;

use super::super::answers::times::rfc3339;
use super::super::answers::{Answer, HttpError};
use super::super::call::Call;
use super::parameters::{json, optional_number};
use super::view::QueueView;
use super::{QUEUES_AT_ONCE, QUEUES_DEFAULT, QUEUES_MAX};
use crate::configuration::file::RuleProperties;
use crate::configuration::rule::exported;
use crate::ground::constants::NAMESPACE;
use crate::ground::lookup::{RULES_SIZE_BYTES_MAX, rules_of};
use crate::ground::submit::Submitted;
use crate::shared::Shared;

/// How many rules are listed by default, and at most.
const RULES_DEFAULT: u64 = 100;
const RULES_MAX: u64 = 1000;

#[derive(Debug, Serialize)]
struct Topics {
    topics: Vec<QueueView>,
    /// How many to skip to continue, if there may be more.
    next: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Topic {
    topic: QueueView,
    subscriptions: Vec<QueueView>,
    next: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Rules {
    rules: Vec<RuleView>,
    next: Option<u64>,
}

#[derive(Debug, Serialize)]
struct RuleView {
    name: String,
    created_at: String,
    /// As the emulator's configuration file has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<RuleProperties>,
    /// What of it such a file has no place for.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_shown: Option<String>,
}

pub(super) async fn list(shared: &Shared, call: &Call) -> Result<Answer, HttpError> {
    let page = Page::of(call, QUEUES_DEFAULT, QUEUES_MAX)?;
    let topics = page
        .read(shared, |skip, limit| BusCommand::ListTopics {
            namespace: NAMESPACE.into(),
            skip,
            limit,
        })
        .await?;
    let next = page.next(topics.len());
    json(StatusCode::OK, &Topics { topics, next })
}

/// A topic and its subscriptions, with the counts of each.
pub(super) async fn show(
    shared: &Shared,
    call: &Call,
    topic: &EntityName,
) -> Result<Answer, HttpError> {
    let page = Page::of(call, QUEUES_DEFAULT, QUEUES_MAX)?;
    let view = read(shared, topic, EntityKind::Topic).await?;
    let subscriptions = page
        .read(shared, |skip, limit| BusCommand::ListSubscriptions {
            topic: topic.clone(),
            skip,
            limit,
        })
        .await?;
    let next = page.next(subscriptions.len());
    let topic = Topic {
        topic: QueueView::of(&view),
        subscriptions,
        next,
    };
    json(StatusCode::OK, &topic)
}

/// The rules of a subscription.
pub(super) async fn rules(
    shared: &Shared,
    call: &Call,
    subscription: &EntityName,
) -> Result<Answer, HttpError> {
    let page = Page::of(call, RULES_DEFAULT, RULES_MAX)?;
    read(shared, subscription, EntityKind::Subscription).await?;
    let (skip, limit) = (small(page.skip), small(page.limit));
    let found = rules_of(
        &shared.broker,
        subscription,
        skip,
        limit,
        RULES_SIZE_BYTES_MAX,
    );
    let found = found.await?.ok_or_else(HttpError::internal)?;
    // There may be fewer than asked for, because they are large.
    let count = found.len() as u64;
    let next = (count > 0).then_some(page.skip + count);
    let rules = found.iter().map(RuleView::of).collect();
    json(StatusCode::OK, &Rules { rules, next })
}

impl RuleView {
    fn of(rule: &BusRuleView) -> Self {
        let definition = Definition::decode(&rule.definition).map_err(|error| error.to_string());
        let exported = definition.and_then(|it| exported(&rule.name, &it).map_err(str::to_owned));
        let (definition, not_shown) = match exported {
            Ok(rule) => (Some(rule.properties), None),
            Err(what) => (None, Some(what)),
        };
        Self {
            name: rule.name.to_string(),
            created_at: rfc3339(rule.created_at),
            definition,
            not_shown,
        }
    }
}

async fn read(
    shared: &Shared,
    entity: &EntityName,
    kind: EntityKind,
) -> Result<BusQueueView, HttpError> {
    let read = BusCommand::ReadQueue {
        queue: entity.clone(),
    };
    match Submitted::new(&shared.broker, read).answer().await?.outcome {
        Outcome::Bus(BusOutcome::Queue(view)) if view.kind == kind => Ok(*view),
        Outcome::Bus(BusOutcome::Queue(_)) => Err(HttpError::not_found(&entity.name)),
        _ => Err(HttpError::internal()),
    }
}

/// A part of a list.
#[derive(Clone, Copy)]
struct Page {
    skip: u64,
    limit: u64,
}

impl Page {
    fn of(call: &Call, default: u64, max: u64) -> Result<Self, HttpError> {
        Ok(Self {
            skip: optional_number(call, "skip", 0, 0..=u64::from(u32::MAX))?,
            limit: optional_number(call, "limit", default, 1..=max)?,
        })
    }

    /// How many to skip to continue, if there may be more.
    fn next(self, count: usize) -> Option<u64> {
        (count as u64 == self.limit).then_some(self.skip + self.limit)
    }

    /// The entities of the page, a few at a time.
    async fn read(
        self,
        shared: &Shared,
        list: impl Fn(u32, u32) -> BusCommand,
    ) -> Result<Vec<QueueView>, HttpError> {
        let mut shown = Vec::new();
        loop {
            let seen = shown.len() as u64;
            let count = QUEUES_AT_ONCE.min(self.limit - seen);
            let list = list(small(self.skip + seen), small(count));
            let Outcome::Bus(BusOutcome::Queues(views)) =
                Submitted::new(&shared.broker, list).answer().await?.outcome
            else {
                return Err(HttpError::internal());
            };
            shown.extend(views.iter().map(QueueView::of));
            if (views.len() as u64) < count || shown.len() as u64 >= self.limit {
                return Ok(shown);
            }
        }
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
