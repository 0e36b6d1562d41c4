//! Who receives from a queue whose records may not be in memory.

use crate::vocabulary::Incarnation;

/// A receive of messages from the head of an entity, or of a session, of which records may not be in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiving {
    pub(crate) entity: Incarnation,
    /// 0 without one.
    pub(crate) session: u32,
    pub(crate) count: usize,
}

impl Receiving {
    /// The entity, and the number of the session. Receives from the same place have the same.
    pub fn place(&self) -> (Incarnation, u32) {
        (self.entity, self.session)
    }
}
