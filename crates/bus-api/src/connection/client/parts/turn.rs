//! What a turn may take, and what waits for the next one.

use std::collections::VecDeque;
use std::ops::Bound;

use kew_amqp::{LinkId, Steps};
use kew_broker::Reply;

/// How many links, or tokens, are looked at for one step: most are not what is looked for.
const LOOKED_AT: usize = 16;
/// How many bytes of changes to properties are worth a step: each is read, compared and written anew.
const CHANGED_SIZE_BYTES: usize = 64;
/// What a link that is attached costs: its names are copied, and a task looks for its entity.
pub(crate) const ATTACH_STEPS: usize = 4;
/// What a request costs, which is a task.
pub(crate) const REQUEST_STEPS: usize = 4;
/// What a receiver costs that begins to wait, and again when it ends: a turn of its task.
pub(crate) const WAIT_STEPS: usize = 16;
/// What a token costs: a signature is checked.
pub(crate) const TOKEN_STEPS: usize = 32;

/// The steps for so many links or tokens that are looked at.
pub(crate) fn steps_to_look_at(count: usize) -> usize {
    1 + count / LOOKED_AT
}

/// The steps for a change to properties.
pub(crate) fn steps_to_change(size_bytes: usize) -> usize {
    size_bytes / CHANGED_SIZE_BYTES
}

/// What came all at once and is worked off in pieces.
#[derive(Default)]
pub(crate) struct Backlog {
    /// Links that are gone with their session, or with the connection.
    pub(crate) gone: VecDeque<LinkId>,
    /// From where on rights are to be looked at.
    pub(crate) unchecked: Option<Bound<LinkId>>,
    /// Links whose entity may have changed.
    pub(crate) changed: VecDeque<LinkId>,
    /// Answers of the broker.
    pub(crate) answers: VecDeque<(u64, Reply)>,
}

impl Backlog {
    /// What is allowed has changed: every link is looked at, before anything more is taken from the client.
    pub(crate) fn check_all(&mut self) {
        self.unchecked = Some(Bound::Unbounded);
    }

    /// Gives back memory that only a busy connection needs.
    pub(crate) fn shrink(&mut self) {
        self.gone.shrink_to_fit();
        self.changed.shrink_to_fit();
        self.answers.shrink_to_fit();
    }
}

/// A turn: what is left of it, and what came before.
pub(crate) struct Turn {
    pub(crate) steps: Steps,
    pub(crate) backlog: Backlog,
}

impl Turn {
    pub(crate) fn new(steps_max: u32) -> Self {
        Self {
            steps: Steps::of(steps_max),
            backlog: Backlog::default(),
        }
    }
}
