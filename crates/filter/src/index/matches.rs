//! How far the evaluation of a message's rules has come, and what it found.

use super::RuleId;
use crate::error::EvaluationError;

/// The rules that select a message, and those that failed. One value serves many messages.
///
/// It knows rules by their numbers only. So rules may be added and removed between two parts of an evaluation: one that
/// was removed is left out, and one that was added is not evaluated.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    pub(super) candidates: Vec<RuleId>,
    /// How many candidates are done.
    pub(super) done: usize,
    pub(super) matching: Vec<RuleId>,
    pub(super) failed: Vec<(RuleId, EvaluationError)>,
}

impl Matches {
    /// The rules that select the message, in the order of their numbers, as far as they are found.
    pub fn matching(&self) -> &[RuleId] {
        &self.matching
    }

    /// The rules that failed, in the order of their numbers, as far as they are found.
    pub fn failed(&self) -> &[(RuleId, EvaluationError)] {
        &self.failed
    }

    /// How many rules were evaluated.
    pub fn evaluated(&self) -> usize {
        self.done
    }

    /// Whether all rules that could select the message were evaluated.
    pub fn is_done(&self) -> bool {
        self.done == self.candidates.len()
    }

    /// Prepares for another message.
    pub(super) fn clear(&mut self) {
        self.candidates.clear();
        self.done = 0;
        self.matching.clear();
        self.failed.clear();
    }
}
