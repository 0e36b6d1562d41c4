//! What an import has done, and what it could not restore.

use std::collections::BTreeMap;

use serde::Serialize;

/// What no ordinary command can set, or what an import has left out. Each word is the name of a fact or a member of a
/// line (`docs/message-format.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lost {
    /// Messages get new numbers.
    SequenceNumber,
    EnqueuedSequenceNumber,
    /// Messages are enqueued when they are imported.
    EnqueuedAt,
    /// Times to live begin anew.
    ExpiresAt,
    /// Of messages that had failed deliveries.
    DeliveryCount,
    /// Of dead letters that were forwarded.
    DeadLetterSource,
    /// It became an ordinary dead letter.
    FailedTransfer,
    /// Of dead letters that were deferred.
    DeferredDeadLetter,
    /// Of dead letters that would expire before they are dead letters again.
    TimeToLive,
    /// The schedule had passed: the message is active.
    ScheduledAt,
    /// Messages of subscriptions, which get messages only through their topics, except in Kew.
    SubscriptionMessage,
    /// Messages that a topic has set aside.
    TopicDeadLetter,
    /// Of authorization rules: the service made new ones.
    Key,
    /// Queue Storage gives messages new ids.
    MessageId,
    Inserted,
    Expires,
    DequeueCount,
}

impl Lost {
    /// What a person reads after the count.
    fn words(self) -> &'static str {
        match self {
            Self::SequenceNumber => "sequence numbers (new ones were given)",
            Self::EnqueuedSequenceNumber => "numbers in the queue of the first send",
            Self::EnqueuedAt => "times of enqueueing (that of the import holds)",
            Self::ExpiresAt => "times of expiry (times to live began anew)",
            Self::DeliveryCount => "delivery counts (they are 0)",
            Self::DeadLetterSource => "sources of forwarded dead letters",
            Self::FailedTransfer => "failed transfers (they are dead letters of their queue)",
            Self::DeferredDeadLetter => "deferred dead letters (they are not deferred)",
            Self::TimeToLive => "times to live of dead letters (shorter than a minute)",
            Self::ScheduledAt => "schedules that had passed (the messages are active)",
            Self::SubscriptionMessage => {
                "messages of subscriptions (not sent: only Kew takes them there)"
            }
            Self::TopicDeadLetter => "failed transfers of topics (no command sets them aside)",
            Self::Key => "keys of authorization rules (new ones were made)",
            Self::MessageId => "message ids of Queue Storage (new ones were given)",
            Self::Inserted => "times of insertion (that of the import holds)",
            Self::Expires => "times of expiry (times to live began anew)",
            Self::DequeueCount => "dequeue counts (they are 0)",
        }
    }
}

/// Counts of one import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    pub(crate) queues_created: u64,
    pub(crate) queues_already_there: u64,
    pub(crate) topics_created: u64,
    pub(crate) topics_already_there: u64,
    pub(crate) subscriptions_created: u64,
    pub(crate) subscriptions_already_there: u64,
    pub(crate) rules_created: u64,
    pub(crate) rules_already_there: u64,
    pub(crate) session_states: u64,
    /// Of entities that are closed, as their lines say.
    pub(crate) session_states_already_there: u64,
    pub(crate) messages_sent: u64,
    /// Of those that were sent.
    pub(crate) dead_letters: u64,
    pub(crate) deferred: u64,
    pub(crate) scheduled: u64,
    pub(crate) messages_already_there: u64,
    /// Sent, and not there afterwards: dropped as duplicates, expired, or received by others.
    pub(crate) messages_missing: u64,
    pub(crate) not_restored: BTreeMap<Lost, u64>,
}

impl Report {
    /// Counts something that was not restored.
    pub(crate) fn lost(&mut self, what: Lost) {
        *self.not_restored.entry(what).or_default() += 1;
    }

    /// Kinds of entities that the lines had, and queues.
    fn entities(&self) -> Vec<String> {
        let kinds = [
            ("queues", self.queues_created, self.queues_already_there),
            ("topics", self.topics_created, self.topics_already_there),
            (
                "subscriptions",
                self.subscriptions_created,
                self.subscriptions_already_there,
            ),
            ("rules", self.rules_created, self.rules_already_there),
        ];
        let kinds = kinds.into_iter();
        kinds
            .filter(|(kind, created, there)| *kind == "queues" || created + there > 0)
            .map(|(kind, created, there)| {
                format!("{kind}: {created} created, {there} already there")
            })
            .collect()
    }

    /// For people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = self.entities();
        lines.extend([
            format!(
                "messages: {} sent ({} dead letters, {} deferred, {} scheduled), {} already there",
                self.messages_sent,
                self.dead_letters,
                self.deferred,
                self.scheduled,
                self.messages_already_there
            ),
            format!(
                "session states: {} set, {} already there",
                self.session_states, self.session_states_already_there
            ),
        ]);
        if self.messages_missing > 0 {
            lines.push(format!(
                "missing afterwards: {} messages, which were dropped as duplicates, expired or were received",
                self.messages_missing
            ));
        }
        lines.push(match self.not_restored.is_empty() {
            true => "not restored: nothing".to_owned(),
            false => "not restored, because no command of the service sets it:".to_owned(),
        });
        let lost = self.not_restored.iter();
        lines.extend(lost.map(|(what, count)| format!("  {count} {}", what.words())));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_what_was_lost() {
        let mut report = Report::default();
        assert_eq!(report.lines().last().unwrap(), "not restored: nothing");
        assert_eq!(report.lines()[0], "queues: 0 created, 0 already there");
        assert!(report.lines()[1].starts_with("messages:"));
        report.rules_already_there = 2;
        assert_eq!(report.lines()[1], "rules: 0 created, 2 already there");
        report.lost(Lost::DeliveryCount);
        report.lost(Lost::DeliveryCount);
        let lines = report.lines();
        assert_eq!(lines.last().unwrap(), "  2 delivery counts (they are 0)");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["not_restored"]["delivery_count"], 2);
    }
}
