//! The definitions of an export: queues, topics, and subscriptions with their rules.

use std::collections::BTreeSet;

use kew_client::{
    Entity, EntityDescription, QueueDescription, RuleDescription, SubscriptionDescription,
    TopicDescription, UnknownElements,
};

use super::definition::definition_of;
use super::export::Write;
use super::mark::{Owner, UNFINISHED};
use super::rule::content_of;
use super::topic_definition::{definition_of_subscription, definition_of_topic};
use crate::operate::Doors;
use crate::operate::entity::{Kind, entity_named};
use crate::operate::failing::not_found;
use crate::operate::rules::all_rules;
use crate::operate::topics::has_no_topics;
use crate::portable::{Defined, DefinedRule, DefinedSubscription, DefinedTopic, Line};
use crate::queue_command::{Failure, note};
use crate::queue_values::SubscriptionName;
use crate::transfer_args::ExportArgs;

/// An entity whose content is exported after all definitions.
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) has_sessions: bool,
    pub(super) has_failed_transfers: bool,
    /// `None`: the service does not say it.
    pub(super) scheduled_count: Option<u64>,
}

/// Writes definitions.
pub(super) struct Definitions<'a, 'w> {
    doors: &'a Doors,
    with_keys: bool,
    write: &'a mut Write<'w>,
    /// Names in lower case.
    written: BTreeSet<String>,
    pub(super) listed: Vec<Listed>,
    /// How many things were not exported.
    pub(super) unread: u64,
}

impl<'a, 'w> Definitions<'a, 'w> {
    pub(super) fn new(doors: &'a Doors, with_keys: bool, write: &'a mut Write<'w>) -> Self {
        Self {
            doors,
            with_keys,
            write,
            written: BTreeSet::new(),
            listed: Vec::new(),
            unread: 0,
        }
    }

    /// Those that are asked for: all, or some with what belongs to them.
    pub(super) fn write(&mut self, args: &ExportArgs) -> Result<(), Failure> {
        if args.queue.is_empty() {
            self.queues()?;
            return self.topics();
        }
        // A topic has its subscriptions with it, so it comes before one of them.
        let is_part = |name: &&String| Entity::new(name).subscription_names().is_some();
        let (parts, wholes): (Vec<_>, Vec<_>) = args.queue.iter().partition(is_part);
        wholes
            .into_iter()
            .chain(parts)
            .try_for_each(|name| self.named(name))
    }

    fn queues(&mut self) -> Result<(), Failure> {
        let mut skip = Some(0);
        while let Some(first) = skip {
            let page = self.doors.over_http(self.doors.admin.queues(first))?;
            page.items.into_iter().try_for_each(|it| self.queue(it))?;
            skip = page.next;
        }
        Ok(())
    }

    fn topics(&mut self) -> Result<(), Failure> {
        let mut skip = Some(0);
        while let Some(first) = skip {
            let page = match self.doors.over_http(self.doors.admin.topics(first)) {
                Err(failure) if first == 0 && has_no_topics(&failure) => return Ok(()),
                page => page?,
            };
            page.items
                .into_iter()
                .try_for_each(|it| self.topic_with_all(it))?;
            skip = page.next;
        }
        Ok(())
    }

    fn named(&mut self, name: &str) -> Result<(), Failure> {
        match entity_named(self.doors, name)? {
            Some(EntityDescription::Queue(queue)) => self.queue(queue),
            Some(EntityDescription::Topic(topic)) => self.topic_with_all(topic),
            Some(EntityDescription::Subscription(subscription)) => {
                let entity = Entity::new(name);
                let topic = entity.subscription_names().map_or(name, |(topic, _)| topic);
                let topic = self.doors.over_http(self.doors.admin.topic(topic))?;
                self.topic(&topic)?;
                self.subscription(&topic.name, subscription)
            }
            Some(_) | None => Err(not_found(format!(
                "there is no queue, topic or subscription '{name}'"
            ))),
        }
    }

    /// Whether this entity was not written before.
    fn is_new(&mut self, name: &str) -> bool {
        self.written.insert(name.to_lowercase())
    }

    fn queue(&mut self, queue: QueueDescription) -> Result<(), Failure> {
        if !self.is_new(&queue.name) {
            return Ok(());
        }
        note_unknown(&queue.name, &queue.settings.unknown);
        let owner = Owner::of(&queue.settings.user_metadata);
        self.count_unfinished(Kind::Queue, &queue.name, owner);
        let definition = definition_of(&queue.settings, self.with_keys);
        let line = Defined::of_bus(&queue.name, definition);
        (self.write)(Line::BusQueue(Box::new(line)))?;
        self.listed.push(Listed {
            kind: Kind::Queue,
            has_sessions: queue.settings.requires_session == Some(true),
            has_failed_transfers: queue.state.transfer_dead_letter_count.unwrap_or_default() > 0,
            scheduled_count: queue.state.scheduled_count,
            name: queue.name,
        });
        Ok(())
    }

    fn topic_with_all(&mut self, topic: TopicDescription) -> Result<(), Failure> {
        // Pages can shift while they are read, and a command can name a topic twice.
        if !self.topic(&topic)? {
            return Ok(());
        }
        self.listed.push(Listed {
            name: topic.name.clone(),
            kind: Kind::Topic,
            has_sessions: false,
            has_failed_transfers: topic.state.transfer_dead_letter_count.unwrap_or_default() > 0,
            scheduled_count: topic.state.scheduled_count,
        });
        let mut skip = Some(0);
        while let Some(first) = skip {
            let page = self.doors.admin.subscriptions(&topic.name, first);
            let page = self.doors.over_http(page)?;
            page.items
                .into_iter()
                .try_for_each(|it| self.subscription(&topic.name, it))?;
            skip = page.next;
        }
        Ok(())
    }

    /// Writes the definition of a topic, unless that was done. Whether it was not.
    fn topic(&mut self, topic: &TopicDescription) -> Result<bool, Failure> {
        if !self.is_new(&topic.name) {
            return Ok(false);
        }
        note_unknown(&topic.name, &topic.settings.unknown);
        let owner = Owner::of(&topic.settings.user_metadata);
        self.count_unfinished(Kind::Topic, &topic.name, owner);
        let definition = definition_of_topic(&topic.settings, self.with_keys);
        let line = DefinedTopic::new(&topic.name, definition);
        (self.write)(Line::Topic(Box::new(line)))?;
        Ok(true)
    }

    fn subscription(&mut self, topic: &str, it: SubscriptionDescription) -> Result<(), Failure> {
        let name = SubscriptionName {
            topic: topic.to_owned(),
            name: it.name,
        };
        let shown = name.to_string();
        if !self.is_new(&shown) {
            return Ok(());
        }
        note_unknown(&shown, &it.settings.unknown);
        let definition = definition_of_subscription(&it.settings);
        let line = DefinedSubscription::new((topic, &name.name), definition);
        (self.write)(Line::Subscription(Box::new(line)))?;
        let mut rules = all_rules(self.doors, &name)?;
        // A list has them by name. An import creates them one after the other, and the copies that they make come in the
        // order of their creation.
        rules.sort_by_key(|rule| rule.state.created_at);
        let is_mark = |rule: &RuleDescription| rule.name.eq_ignore_ascii_case(UNFINISHED);
        let owner = match rules.iter().any(is_mark) {
            true => Owner::Import,
            false => Owner::of(&it.settings.user_metadata),
        };
        self.count_unfinished(Kind::Subscription, &shown, owner);
        // Rules of an unfinished subscription would look like all of them.
        if owner == Owner::Other {
            rules.iter().try_for_each(|rule| self.rule(&name, rule))?;
        }
        self.listed.push(Listed {
            name: shown,
            kind: Kind::Subscription,
            has_sessions: it.settings.requires_session == Some(true),
            has_failed_transfers: it.state.transfer_dead_letter_count.unwrap_or_default() > 0,
            scheduled_count: it.state.scheduled_count,
        });
        Ok(())
    }

    /// Counts an entity that an import has not finished.
    fn count_unfinished(&mut self, kind: Kind, name: &str, owner: Owner) {
        if owner == Owner::Import {
            self.unread += 1;
            let kind = kind.word();
            note(&format!(
                "the {kind} {name} was not exported as it will be: an import has not finished it, so repeat the import \
                 first"
            ));
        }
    }

    fn rule(&mut self, of: &SubscriptionName, rule: &RuleDescription) -> Result<(), Failure> {
        match content_of(&rule.settings) {
            Ok(content) => {
                let names = (of.topic.as_str(), of.name.as_str());
                let line = DefinedRule::new(names, &rule.name, content);
                (self.write)(Line::Rule(Box::new(line)))
            }
            Err(why) => {
                self.unread += 1;
                let rule = &rule.name;
                note(&format!("the rule {rule} of {of} was not exported: {why}"));
                Ok(())
            }
        }
    }
}

fn note_unknown(name: &str, unknown: &UnknownElements) {
    for setting in unknown.names() {
        note(&format!(
            "the setting {setting} of {name} is unknown and was not exported"
        ));
    }
}
