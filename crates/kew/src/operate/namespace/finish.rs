//! The end of an import: its entities get the settings that they could not have while they were filled, and lose their
//! mark.
//!
//! A refusal concerns one entity. The others are finished nevertheless, and the import fails at the end.

use std::collections::BTreeSet;

use kew_client::{QueueSettings, SubscriptionSettings, TopicSettings};

use super::definition::{MEGABYTE, completed, definition_of, differences};
use super::mark::Owner;
use super::ruled::{Ruled, some};
use super::topic_definition::{
    completed_subscription, completed_topic, definition_of_subscription, definition_of_topic,
    subscription_differences, topic_differences,
};
use crate::operate::Doors;
use crate::operate::entity::Kind;
use crate::queue_command::{Failure, note};

/// The entities that an import has created, with what they get at the end.
pub(super) struct Unfinished<'a> {
    doors: &'a Doors,
    pub(super) queues: Vec<(String, QueueSettings)>,
    pub(super) topics: Vec<(String, TopicSettings)>,
    pub(super) subscriptions: Vec<(Ruled<'a>, SubscriptionSettings)>,
}

impl<'a> Unfinished<'a> {
    pub(super) fn new(doors: &'a Doors) -> Self {
        Self {
            doors,
            queues: Vec::new(),
            topics: Vec::new(),
            subscriptions: Vec::new(),
        }
    }

    /// The file may lack lines: they stay as they are, so that the whole file continues with them.
    pub(super) fn leave(&self) -> Result<(), Failure> {
        let queues = self.queues.iter().map(|(name, _)| name.clone());
        let topics = self.topics.iter().map(|(name, _)| name.clone());
        let subscriptions = self.subscriptions.iter();
        let subscriptions = subscriptions.map(|(ruled, _)| ruled.name.to_string());
        let names: Vec<String> = queues.chain(topics).chain(subscriptions).collect();
        match names.is_empty() {
            true => Ok(()),
            false => Err(Failure::Refused {
                message: format!(
                    "the last line is not the end of an export, so the import has not finished what it created: {}; \
                     import the whole file, or add --allow-partial",
                    some(&names)
                ),
                code: None,
            }),
        }
    }

    /// A topic comes after its subscriptions: it may be closed then, and their rules could not change any more.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let mut count = 0_u64;
        let mut open_topics = BTreeSet::new();
        for (name, wanted) in &self.queues {
            let is_done = ended(Kind::Queue, name, self.queue(name, wanted))?;
            count += u64::from(!is_done);
        }
        for (ruled, wanted) in &self.subscriptions {
            let name = ruled.name.to_string();
            if !ended(Kind::Subscription, &name, self.subscription(ruled, wanted))? {
                count += 1;
                open_topics.insert(ruled.name.topic.to_lowercase());
            }
        }
        for (name, wanted) in &self.topics {
            let finished = match open_topics.contains(&name.to_lowercase()) {
                true => Err(Failure::Refused {
                    message: "a subscription of it is not finished".into(),
                    code: None,
                }),
                false => self.topic(name, wanted),
            };
            count += u64::from(!ended(Kind::Topic, name, finished)?);
        }
        match count {
            0 => Ok(()),
            _ => Err(Failure::Refused {
                message: format!(
                    "{count} entities did not get their last settings: the notes name them"
                ),
                code: None,
            }),
        }
    }

    fn queue(&self, name: &str, wanted: &QueueSettings) -> Result<(), Failure> {
        let admin = &self.doors.admin;
        let now = self.doors.over_http(admin.queue(name))?.settings;
        let last = completed(&now, wanted);
        let updated = self.doors.over_http(admin.update_queue(name, &last));
        updated.map(drop).map_err(|failure| {
            let wanted = definition_of(wanted, false);
            without(failure, &differences(&now, &wanted, Owner::Other))
        })
    }

    fn subscription(
        &self,
        ruled: &Ruled<'_>,
        wanted: &SubscriptionSettings,
    ) -> Result<(), Failure> {
        ruled.finish()?;
        let admin = &self.doors.admin;
        let (topic, name) = (&ruled.name.topic, &ruled.name.name);
        let now = self
            .doors
            .over_http(admin.subscription(topic, name))?
            .settings;
        let last = completed_subscription(&now, wanted);
        let update = admin.update_subscription(topic, name, &last);
        self.doors.over_http(update).map(drop).map_err(|failure| {
            let wanted = definition_of_subscription(wanted);
            without(
                failure,
                &subscription_differences(&now, &wanted, Owner::Other),
            )
        })
    }

    fn topic(&self, name: &str, wanted: &TopicSettings) -> Result<(), Failure> {
        let admin = &self.doors.admin;
        let found = self.doors.over_http(admin.topic(name))?;
        let now = found.settings;
        let last = completed_topic(&now, wanted);
        let updated = self.doors.over_http(admin.update_topic(name, &last));
        updated.map(drop).map_err(|failure| {
            let wanted = definition_of_topic(wanted, false);
            without(failure, &topic_differences(&now, &wanted, Owner::Other))
        })?;
        note_if_full(name, found.state.size_bytes, last.max_size_megabytes);
        Ok(())
    }
}

/// Says that a topic has more than its maximum: an import gives each copy a body of its own, where those of a publish
/// share one.
fn note_if_full(topic: &str, size_bytes: Option<u64>, max_megabytes: Option<u64>) {
    let (Some(size), Some(max)) = (
        size_bytes,
        max_megabytes.map(|it| it.saturating_mul(MEGABYTE)),
    ) else {
        return;
    };
    if size > max {
        note(&format!(
            "the topic {topic} has {size} bytes, and at most {max} are allowed: imported copies share no bodies. It refuses \
             sends until enough of them are received. kew bus topic update {topic} --max-size raises the limit"
        ));
    }
}

/// Names the settings that an entity did not get.
fn without(failure: Failure, names: &[String]) -> Failure {
    match names.is_empty() {
        true => failure,
        false => failure.after(format!("it did not get {}", names.join(", "))),
    }
}

/// Whether an entity is finished. If the service refuses it, a note says so. An error that may not come again ends the import.
fn ended(kind: Kind, name: &str, finished: Result<(), Failure>) -> Result<bool, Failure> {
    let kind = kind.word();
    match finished {
        Ok(()) => Ok(true),
        Err(failure) if failure.is_temporary() => {
            Err(failure.after(format!("the {kind} {name} is not finished")))
        }
        Err(failure) => {
            let why = failure.message();
            note(&format!("the {kind} {name} is not finished: {why}"));
            Ok(false)
        }
    }
}
