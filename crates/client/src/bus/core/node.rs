//! One node: its two links, what waits for them, and what waits for an answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kew_amqp::{LinkId, Millis};

use super::after;
use super::requests::{Answer, Content};
use crate::bus::job::Job;
use crate::error::Error;

/// After what time without requests the links of a node are given up.
const IDLE_MAX: Duration = Duration::from_mins(1);

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Waiting {
    Caller(Job<Answer>),
    /// The token of an audience.
    Token(Arc<str>),
}

/// A request, until it has its answer.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) content: Content,
    pub(super) waiting: Waiting,
}

/// One of the two links of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Detached,
    Attaching(LinkId),
    Attached(LinkId),
}

/// The two links of a node, and what is asked of it.
#[derive(Debug)]
pub(super) struct Node {
    /// The entity whose token opens it. `$cbs` needs none.
    pub(super) audience: Option<Arc<str>>,
    pub(super) awaits_token: bool,
    pub(super) requests: End,
    pub(super) answers: End,
    pub(super) reply_to: String,
    pub(super) queue: VecDeque<Asked>,
    pub(super) pending: BTreeMap<u64, Asked>,
    pub(super) used_at: Millis,
}

impl Asked {
    pub(super) fn is_withdrawn(&self) -> bool {
        match &self.waiting {
            Waiting::Caller(job) => job.is_withdrawn(),
            Waiting::Token(_) => false,
        }
    }

    pub(super) fn is_abandoned(&self) -> bool {
        match &self.waiting {
            Waiting::Caller(job) => job.is_abandoned(),
            Waiting::Token(_) => false,
        }
    }

    pub(super) fn fail(self, error: &Error) {
        match self.waiting {
            Waiting::Caller(job) => job.lose(error),
            // The connection ends with its node for tokens.
            Waiting::Token(_) => {}
        }
    }
}

impl Node {
    pub(super) fn new(audience: Option<Arc<str>>) -> Self {
        Self {
            audience,
            awaits_token: false,
            requests: End::Detached,
            answers: End::Detached,
            reply_to: String::new(),
            queue: VecDeque::new(),
            pending: BTreeMap::new(),
            used_at: Millis(0),
        }
    }

    /// When its links are given up, unless it is used before. That for tokens keeps them.
    pub(super) fn given_up_at(&self) -> Option<Millis> {
        let is_idle = self.queue.is_empty() && self.pending.is_empty();
        let is_for_requests = self.audience.is_some();
        (is_idle && is_for_requests).then(|| after(self.used_at, IDLE_MAX))
    }

    pub(super) fn is_needed(&self) -> bool {
        self.queue.iter().any(|asked| !asked.is_withdrawn())
    }

    pub(super) fn audience(&self) -> Option<&str> {
        self.audience.as_deref()
    }

    pub(super) fn fail(self, error: &Error) {
        let pending = self.pending.into_values();
        for asked in self.queue.into_iter().chain(pending) {
            asked.fail(error);
        }
    }
}
