//! What became of the messages of a topic, for metrics.

/// Counts since the partition was opened. They are no part of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicTally {
    /// Messages that were sent to it, without duplicates.
    pub published: u64,
    /// Copies that were made, with dead letters of failed rules.
    pub copies: u64,
    /// Messages of which no copy was made.
    pub unmatched: u64,
    /// How often rules of a subscription failed on a message.
    pub filter_failures: u64,
    /// Steps that comparing messages with rules took, also of commands that were refused.
    pub filter_steps: u64,
}

impl TopicTally {
    pub(crate) fn add(&mut self, more: &Self) {
        self.published += more.published;
        self.copies += more.copies;
        self.unmatched += more.unmatched;
        self.filter_failures += more.filter_failures;
        self.filter_steps += more.filter_steps;
    }
}
