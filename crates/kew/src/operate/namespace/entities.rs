//! The entities of an import: queues, topics, and subscriptions with their rules. They are created, or found and
//! compared.
//!
//! Some settings come at the end (`Entities::finish`). The rules of a subscription are exactly those of the lines: it
//! begins with a rule that selects nothing, which goes when the others are there. So a repeated import knows that it
//! has to go on.

use std::collections::BTreeMap;

use kew_client::{
    Filter, NewRule, QueueSettings, RuleSettings, SubscriptionSettings, TopicSettings,
};

use super::definition::{completed, differences, settings_of, while_it_is_filled};
use super::rule::{UNFINISHED, content_of, settings_of_rule};
use super::topic_definition::{
    completed_subscription, completed_topic, settings_of_subscription, settings_of_topic,
    subscription_differences, subscription_while_filled, topic_differences, topic_while_filled,
};
use crate::operate::Doors;
use crate::operate::entity::done;
use crate::operate::rules::all_rules;
use crate::portable::{BusDefinition, DefinedRule, DefinedSubscription, DefinedTopic, Rule};
use crate::queue_command::{Failure, note};
use crate::queue_values::SubscriptionName;
use crate::transfer::{Lost, Report};

/// How many names a note has.
const NAMES_MAX: usize = 10;

/// The status of HTTP that says that an entity or a rule of that name is there.
const IS_THERE: u16 = 409;

/// What an import has defined.
pub(super) struct Entities<'a> {
    doors: &'a Doors,
    /// What they get at the end.
    queues: BTreeMap<String, QueueSettings>,
    topics: BTreeMap<String, TopicSettings>,
    /// By topic and name.
    subscriptions: BTreeMap<(String, String), SubscriptionSettings>,
    /// The subscription whose rules come now.
    open: Option<Ruled>,
}

/// A subscription whose rules come now.
struct Ruled {
    name: SubscriptionName,
    /// An import has created it, this one or one before.
    is_unfinished: bool,
    /// Rules that were there and no line has had so far, by their names in lower case.
    existing: BTreeMap<String, (String, RuleSettings)>,
    /// Rules that are not as the lines say.
    different: Vec<String>,
}

impl<'a> Entities<'a> {
    pub(super) fn new(doors: &'a Doors) -> Self {
        Self {
            doors,
            queues: BTreeMap::new(),
            topics: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            open: None,
        }
    }

    pub(super) fn queue(
        &mut self,
        name: &str,
        definition: &BusDefinition,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let settings = settings_of(definition).map_err(Failure::Usage)?;
        let doors = self.doors;
        let first = while_it_is_filled(&settings);
        let created = doors.over_http(doors.admin.create_queue(name, &first));
        if done(created.map(drop), true, IS_THERE)? {
            report.queues_created += 1;
            count_keys(&definition.authorization_rules, report);
        } else {
            report.queues_already_there += 1;
            let now = doors.over_http(doors.admin.queue(name))?.settings;
            note_settings("queue", name, &differences(&now, definition));
        }
        self.queues.insert(name.to_owned(), settings);
        Ok(())
    }

    pub(super) fn topic(&mut self, it: &DefinedTopic, report: &mut Report) -> Result<(), Failure> {
        let settings = settings_of_topic(&it.definition).map_err(Failure::Usage)?;
        let doors = self.doors;
        let first = topic_while_filled(&settings);
        let created = doors.over_http(doors.admin.create_topic(&it.topic, &first));
        if done(created.map(drop), true, IS_THERE)? {
            report.topics_created += 1;
            count_keys(&it.definition.authorization_rules, report);
        } else {
            report.topics_already_there += 1;
            let now = doors.over_http(doors.admin.topic(&it.topic))?.settings;
            let others = topic_differences(&now, &it.definition);
            note_settings("topic", &it.topic, &others);
        }
        self.topics.insert(it.topic.clone(), settings);
        Ok(())
    }

    /// Creates a subscription, or finds it. The lines of its rules come next.
    pub(super) fn subscription(
        &mut self,
        it: &DefinedSubscription,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let settings = settings_of_subscription(&it.definition).map_err(Failure::Usage)?;
        let doors = self.doors;
        let name = SubscriptionName {
            topic: it.topic.clone(),
            name: it.subscription.clone(),
        };
        let first = SubscriptionSettings {
            default_rule: Some(unfinished()),
            ..subscription_while_filled(&settings)
        };
        let create = doors
            .admin
            .create_subscription(&name.topic, &name.name, &first);
        let created = doors.over_http(create).map(drop);
        let mut open = Ruled {
            name: name.clone(),
            is_unfinished: done(created, true, IS_THERE)?,
            existing: BTreeMap::new(),
            different: Vec::new(),
        };
        if open.is_unfinished {
            report.subscriptions_created += 1;
        } else {
            report.subscriptions_already_there += 1;
            let read = doors.admin.subscription(&name.topic, &name.name);
            let now = doors.over_http(read)?.settings;
            let others = subscription_differences(&now, &it.definition);
            note_settings("subscription", &name.to_string(), &others);
            let rules = all_rules(doors, &name)?.into_iter();
            let rules = rules.map(|it| (it.name.to_ascii_lowercase(), (it.name, it.settings)));
            open.existing = rules.collect();
            open.is_unfinished = open.existing.remove(UNFINISHED).is_some();
        }
        self.open = Some(open);
        self.subscriptions.insert((name.topic, name.name), settings);
        Ok(())
    }

    /// Adds a rule to the subscription before it, or compares it.
    pub(super) fn rule(&mut self, it: &DefinedRule, report: &mut Report) -> Result<(), Failure> {
        let settings = settings_of_rule(it).map_err(Failure::Usage)?;
        let Some(open) = &mut self.open else {
            let what = "the line of its subscription is not before it";
            return Err(Failure::Usage(what.into()));
        };
        match open.existing.remove(&it.rule.to_ascii_lowercase()) {
            Some((_, found)) => {
                report.rules_already_there += 1;
                let (found, wanted) = (content_of(&found), content_of(&settings));
                if found.is_err() || found != wanted {
                    open.different.push(it.rule.clone());
                }
            }
            None if open.is_unfinished => {
                let SubscriptionName { topic, name } = &open.name;
                let admin = &self.doors.admin;
                let create = admin.create_rule(topic, name, &it.rule, &settings);
                self.doors.over_http(create)?;
                report.rules_created += 1;
            }
            None => open.different.push(it.rule.clone()),
        }
        Ok(())
    }

    /// No more rules of the last subscription come.
    pub(super) fn end_rules(&mut self) -> Result<(), Failure> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        if open.is_unfinished {
            let SubscriptionName { topic, name } = &open.name;
            let remove = self.doors.admin.delete_rule(topic, name, UNFINISHED);
            self.doors.over_http(remove)?;
        }
        let others = open.existing.into_values().map(|(name, _)| name);
        open.different.extend(others);
        if !open.different.is_empty() {
            note(&format!(
                "the subscription {} exists, and keeps its own rules, which differ: {}",
                open.name,
                some(&open.different)
            ));
        }
        Ok(())
    }

    /// Gives entities the settings that they could not have while they were filled.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        let doors = self.doors;
        for (name, wanted) in std::mem::take(&mut self.queues) {
            let now = doors.over_http(doors.admin.queue(&name))?.settings;
            if let Some(settings) = completed(&now, &wanted) {
                doors.over_http(doors.admin.update_queue(&name, &settings))?;
            }
        }
        for ((topic, name), wanted) in std::mem::take(&mut self.subscriptions) {
            let read = doors.admin.subscription(&topic, &name);
            let now = doors.over_http(read)?.settings;
            if let Some(settings) = completed_subscription(&now, &wanted) {
                let update = doors.admin.update_subscription(&topic, &name, &settings);
                doors.over_http(update)?;
            }
        }
        for (name, wanted) in std::mem::take(&mut self.topics) {
            let now = doors.over_http(doors.admin.topic(&name))?.settings;
            if let Some(settings) = completed_topic(&now, &wanted) {
                doors.over_http(doors.admin.update_topic(&name, &settings))?;
            }
        }
        Ok(())
    }
}

/// The rule that a subscription begins with.
fn unfinished() -> NewRule {
    NewRule {
        name: UNFINISHED.to_owned(),
        settings: RuleSettings {
            filter: Filter::False,
            ..RuleSettings::default()
        },
    }
}

/// Authorization rules without keys get new ones.
fn count_keys(rules: &[Rule], report: &mut Report) {
    let without = rules.iter().filter(|rule| rule.primary_key.is_none());
    without.for_each(|_| report.lost(Lost::Key));
}

fn note_settings(kind: &str, name: &str, others: &[String]) {
    if !others.is_empty() {
        let others = others.join(", ");
        note(&format!(
            "the {kind} {name} exists, and keeps its own settings: {others}"
        ));
    }
}

/// The first of many names.
fn some(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    match names.len().saturating_sub(NAMES_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_some_names() {
        let names = |count: usize| (0..count).map(|it| it.to_string()).collect::<Vec<_>>();
        assert_eq!(some(&names(2)), "0, 1");
        assert!(some(&names(12)).ends_with("8, 9 and 2 more"));
    }
}
