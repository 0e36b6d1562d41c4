//! The budget of a turn, and the work that waits for the next one.

use std::collections::VecDeque;
use std::ops::Bound;

use kew_amqp::{LinkId, Steps};
use kew_broker::Reply;

/// How many links, or tokens, are searched for one step: most of them do not match.
const LOOKED_AT: usize = 16;
/// How many bytes of changes to properties cost a step: each is read, compared and written again.
const CHANGED_SIZE_BYTES: usize = 64;
/// How many bytes of bodies cost a step: they are copied out of a file and verified.
const COPIED_SIZE_BYTES: u64 = 4096;
/// The cost of attaching a link: its names are copied, and a task looks up its entity.
pub(crate) const ATTACH_STEPS: usize = 4;
/// The cost of a request, which is a task.
pub(crate) const REQUEST_STEPS: usize = 4;
/// The cost of a receiver that begins to wait, and again when it ends: a turn of its task.
pub(crate) const WAIT_STEPS: usize = 16;
/// The cost of a token: a signature is checked.
pub(crate) const TOKEN_STEPS: usize = 32;

/// The steps for a number of links or tokens that are searched.
pub(crate) fn steps_to_look_at(count: usize) -> usize {
    1 + count / LOOKED_AT
}

/// The steps for a change to properties.
pub(crate) fn steps_to_change(size_bytes: usize) -> usize {
    size_bytes / CHANGED_SIZE_BYTES
}

/// The steps for bodies that are copied.
pub(crate) fn steps_to_copy(size_bytes: u64) -> usize {
    usize::try_from(size_bytes / COPIED_SIZE_BYTES).unwrap_or(usize::MAX)
}

/// Work that came all at once and is done in pieces.
#[derive(Default)]
pub(crate) struct Backlog {
    /// Links that ended with their session, or with the connection.
    pub(crate) gone: VecDeque<LinkId>,
    /// From which link on rights must be checked.
    pub(crate) unchecked: Option<Bound<LinkId>>,
    /// Links whose entity may have changed.
    pub(crate) changed: VecDeque<LinkId>,
    /// Answers of the broker.
    pub(crate) answers: VecDeque<(u64, Reply)>,
}

impl Backlog {
    /// Rights have changed: every link is checked before more input is read.
    pub(crate) fn check_all(&mut self) {
        self.unchecked = Some(Bound::Unbounded);
    }

    /// Frees memory that only a busy connection needs.
    pub(crate) fn shrink(&mut self) {
        self.gone.shrink_to_fit();
        self.changed.shrink_to_fit();
        self.answers.shrink_to_fit();
    }
}

/// A turn: the rest of its budget, and the backlog.
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
