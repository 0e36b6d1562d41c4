//! Pages of queues.

use std::str::FromStr;

use hyper::StatusCode;
use kew_engine::bus::{BusCommand, BusOutcome};
use kew_engine::{Outcome, Timestamp};

use super::described;
use super::document::{Entry, Feed};
use crate::authorization::operation::HttpOperation;
use crate::ground::constants::NAMESPACE;
use crate::ground::submit::Submitted;
use crate::http::answers::{Answer, HttpError};
use crate::http::call::Call;
use crate::shared::Shared;

/// How many entries a page has by default, and at most.
const TOP_MAX: u32 = 100;

/// Source: Service Bus, *List Queues*; `$skip` and `$top` choose the page.
pub(super) async fn read(shared: &Shared, call: &Call, kind: &str) -> Result<Answer, HttpError> {
    call.require(HttpOperation::ListEntities, &call.head.path)?;
    let skip = number(call, "$skip", 0, 0..=u32::MAX)?;
    let top = number(call, "$top", TOP_MAX, 1..=u32::MAX)?.min(TOP_MAX);
    match kind {
        "queues" => queues(shared, call, skip, top).await,
        // There are none: topics cannot be created.
        "topics" => Ok(Feed::begin(call, "Topics", skip, top, None, now(shared)).answer()),
        _ => Err(HttpError::not_found(&call.head.path)),
    }
}

async fn queues(shared: &Shared, call: &Call, skip: u32, top: u32) -> Result<Answer, HttpError> {
    let list = BusCommand::ListQueues {
        namespace: NAMESPACE.into(),
        from: "".into(),
        skip,
        // One more shows whether another page follows.
        limit: top + 1,
    };
    let answer = Submitted::new(&shared.broker, list).answer().await?;
    let Outcome::Bus(BusOutcome::Queues(mut views)) = answer.outcome else {
        let detail = "The server was unable to list the queues.";
        return Err(HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, detail));
    };
    let is_full = views.len() > top as usize;
    views.truncate(top as usize);
    let next = is_full.then(|| (skip.saturating_add(top), top));
    let mut feed = Feed::begin(call, "Queues", skip, top, next, now(shared));
    for view in &views {
        let queue = described::Queue::of(view);
        let entry = Entry {
            title: queue.name(),
            path: queue.name(),
            published_at: view.created_at,
            updated_at: view.updated_at,
        };
        feed.entry(call, &entry, |out| queue.write(out, &call.head));
    }
    Ok(feed.answer())
}

fn now(shared: &Shared) -> Timestamp {
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
