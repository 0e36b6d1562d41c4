//! Pages of queues, topics and subscriptions.

use std::str::FromStr;

use hyper::StatusCode;
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueView};
use kew_engine::{EntityName, Outcome, Timestamp};

use super::described::Described;
use super::document::{Entry, Feed};
use crate::authorization::operation::HttpOperation;
use crate::ground::constants::NAMESPACE;
use crate::ground::submit::Submitted;
use crate::http::answers::{Answer, HttpError};
use crate::http::call::Call;
use crate::shared::Shared;

/// How many entries a page has by default, and at most.
const TOP_MAX: u32 = 100;

/// Which entries a request asks for.
#[derive(Clone, Copy)]
pub(super) struct Page {
    pub(super) skip: u32,
    pub(super) top: u32,
}

impl Page {
    pub(super) fn of(call: &Call) -> Result<Self, HttpError> {
        Ok(Self {
            skip: number(call, "$skip", 0, 0..=u32::MAX)?,
            top: number(call, "$top", TOP_MAX, 1..=u32::MAX)?.min(TOP_MAX),
        })
    }

    /// How many to read: one more shows whether another page follows.
    pub(super) fn limit(self) -> u32 {
        self.top + 1
    }

    /// Cuts off what does not belong to the page. Returns what to skip and to show at most on the next page.
    pub(super) fn cut<T>(self, found: &mut Vec<T>) -> Option<(u32, u32)> {
        let is_full = found.len() > self.top as usize;
        found.truncate(self.top as usize);
        is_full.then(|| (self.skip.saturating_add(self.top), self.top))
    }
}

/// Source: Service Bus, *List Queues* and *List Topics*; `$skip` and `$top` choose the page.
pub(super) async fn read(shared: &Shared, call: &Call, kind: &str) -> Result<Answer, HttpError> {
    call.require(HttpOperation::ListEntities, &call.head.path)?;
    let page = Page::of(call)?;
    let (title, list): (_, fn(u32, u32) -> BusCommand) = match kind {
        "queues" => ("Queues", |skip, limit| BusCommand::ListQueues {
            namespace: NAMESPACE.into(),
            from: "".into(),
            skip,
            limit,
        }),
        "topics" => ("Topics", |skip, limit| BusCommand::ListTopics {
            namespace: NAMESPACE.into(),
            skip,
            limit,
        }),
        _ => return Err(HttpError::not_found(&call.head.path)),
    };
    let views = listed(shared, list(page.skip, page.limit())).await?;
    Ok(feed(shared, call, title, page, views))
}

/// Source: Service Bus, *List Subscriptions*; `$skip` and `$top` choose the page.
pub(super) async fn subscriptions(
    shared: &Shared,
    call: &Call,
    topic: EntityName,
) -> Result<Answer, HttpError> {
    call.require(HttpOperation::ListEntities, &call.head.path)?;
    let page = Page::of(call)?;
    let list = BusCommand::ListSubscriptions {
        topic,
        skip: page.skip,
        limit: page.limit(),
    };
    let views = listed(shared, list).await?;
    Ok(feed(shared, call, "Subscriptions", page, views))
}

async fn listed(shared: &Shared, list: BusCommand) -> Result<Vec<BusQueueView>, HttpError> {
    let answer = Submitted::new(&shared.broker, list).answer().await?;
    match answer.outcome {
        Outcome::Bus(BusOutcome::Queues(views)) => Ok(views),
        _ => {
            let detail = "The server was unable to list the entities.";
            Err(HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
        }
    }
}

fn feed(
    shared: &Shared,
    call: &Call,
    title: &str,
    page: Page,
    mut views: Vec<BusQueueView>,
) -> Answer {
    let next = page.cut(&mut views);
    let mut feed = Feed::begin(call, title, page.skip, page.top, next, now(shared));
    for view in &views {
        let entity = Described::of(view);
        let entry = Entry::of(view, &entity);
        feed.entry(call, &entry, |out| entity.write(out, &call.head));
    }
    feed.answer()
}

pub(super) fn now(shared: &Shared) -> Timestamp {
    Timestamp::from_ms(shared.clock.now_ms())
}

fn number(
    call: &Call,
    name: &str,
    default: u32,
    range: std::ops::RangeInclusive<u32>,
) -> Result<u32, HttpError> {
    let Some(text) = call.head.parameter(name) else {
        return Ok(default);
    };
    let number = u32::from_str(text).ok();
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            let (from, to) = (range.start(), range.end());
            HttpError::bad_request(format!("{name} is '{text}', and must be {from} to {to}."))
        })
}
