//! One link of a handle: what is known of it, and what waits for it.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kew_amqp::codec::Value;
use kew_amqp::performative::Attach;
use kew_amqp::{LinkId, Millis};
use tokio::sync::mpsc;

use super::after;
use super::spec::{LOCKED_UNTIL, LinkSpec, SESSION_FILTER};
use super::transfers::{Inbound, Outbound};
use crate::bus::job::Job;
use crate::error::Error;

/// Where the messages of a receiver go. There is always room for what it has credit for.
pub(in crate::bus) type InboxSender = mpsc::Sender<Result<Inbound, Error>>;

/// How long a link may leave all that is under way without an outcome before it counts as dead.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// From the year 1 to 1970, in ticks of .NET.
const TICKS_TO_1970: i64 = 621_355_968_000_000_000;

/// What a service says of a link.
#[derive(Clone, Debug)]
pub(in crate::bus) struct Attached {
    /// The largest message that it takes, in bytes.
    pub(in crate::bus) message_size_max: Option<u64>,
    /// The session that was locked, and until when.
    pub(in crate::bus) session: Option<(String, Option<SystemTime>)>,
}

/// How far a link is.
#[derive(Debug)]
pub(super) enum Phase {
    Detached,
    AwaitsToken,
    Attaching(LinkId),
    Attached(LinkId),
    /// It cannot be attached again.
    Over(Error),
}

/// A link of a handle.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) spec: LinkSpec,
    pub(super) name: String,
    pub(super) phase: Phase,
    pub(super) attaching: Option<Job<Attached>>,
    pub(super) queue: VecDeque<Outbound>,
    pub(super) inbox: Option<InboxSender>,
    /// Messages that may still come in.
    pub(super) wanted: u32,
    pub(super) draining: Option<Job<()>>,
    /// How many messages and settlements went out and have no outcome.
    pub(super) under_way: usize,
    /// When the first of them went out, or the last outcome came.
    pub(super) progress_at: Millis,
    /// Nobody has it any more: it goes when nothing is under way.
    pub(super) is_leaving: bool,
}

impl Link {
    /// Whether it has to be attached.
    pub(super) fn is_needed(&self) -> bool {
        let waits = match self.phase {
            Phase::Detached | Phase::AwaitsToken => true,
            Phase::Attaching(_) | Phase::Attached(_) | Phase::Over(_) => false,
        };
        let has_work = self.queue.iter().any(|it| !it.job.is_withdrawn());
        waits && (has_work || self.wanted > 0 || self.attaching.is_some())
    }

    pub(super) fn audience(&self) -> &str {
        &self.spec.audience
    }

    /// Whether it is attached, or on the way to.
    pub(super) fn is_up(&self) -> bool {
        match self.phase {
            Phase::AwaitsToken | Phase::Attaching(_) | Phase::Attached(_) => true,
            Phase::Detached | Phase::Over(_) => false,
        }
    }

    /// Whether messages come in over it.
    pub(super) fn receives(&self) -> bool {
        self.spec.purpose.receives()
    }

    pub(super) fn is_attached(&self) -> bool {
        match self.phase {
            Phase::Attached(_) => true,
            Phase::Detached | Phase::AwaitsToken | Phase::Attaching(_) | Phase::Over(_) => false,
        }
    }

    /// Until when it may say nothing of what is under way.
    pub(super) fn silent_until(&self) -> Millis {
        after(self.progress_at, SILENCE_MAX)
    }

    /// Something goes out.
    pub(super) fn begin_one(&mut self, now: Millis) {
        if self.under_way == 0 {
            self.progress_at = now;
        }
        self.under_way += 1;
    }

    pub(super) fn id(&self) -> Option<LinkId> {
        match self.phase {
            Phase::Attaching(id) | Phase::Attached(id) => Some(id),
            Phase::Detached | Phase::AwaitsToken | Phase::Over(_) => None,
        }
    }
}

/// The session that an attach says was locked, and until when.
pub(super) fn session_of(answer: &Attach) -> Option<(String, Option<SystemTime>)> {
    let filter = answer.source.as_ref()?.filter.as_ref()?;
    let id = match filter.get(SESSION_FILTER)?.value() {
        Value::String(id) => id.as_str().to_owned(),
        _ => return None,
    };
    let ticks = answer
        .properties
        .as_ref()
        .and_then(|it| it.get(LOCKED_UNTIL));
    let ticks = ticks.and_then(|ticks| ticks.value().as_integer());
    Some((id, ticks.and_then(time_of_ticks)))
}

fn time_of_ticks(ticks: i64) -> Option<SystemTime> {
    let ms = u64::try_from(ticks.checked_sub(TICKS_TO_1970)?).ok()? / 10_000;
    UNIX_EPOCH.checked_add(Duration::from_millis(ms))
}
