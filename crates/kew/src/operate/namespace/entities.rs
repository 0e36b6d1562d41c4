//! The entities of an import: queues, topics, and subscriptions with their rules. They are created, or found and
//! compared.
//!
//! What the import creates has a mark until it is finished (`mark`), and gets some settings at the end (`finish`). So
//! a repeated import knows that it has to continue with an entity. All others keep their settings.

use std::collections::{BTreeMap, BTreeSet};

use kew_client::{EntityStatus, SubscriptionSettings};

use super::definition::{differences, settings_of, while_it_is_filled};
use super::finish::Unfinished;
use super::mark::{Owner, first_rule};
use super::ruled::Ruled;
use super::topic_definition::{
    settings_of_subscription, settings_of_topic, subscription_differences,
    subscription_while_filled, topic_differences, topic_while_filled,
};
use crate::operate::Doors;
use crate::operate::entity::{Kind, done};
use crate::operate::own::Access;
use crate::portable::{BusDefinition, DefinedRule, DefinedSubscription, DefinedTopic, Rule};
use crate::queue_command::{Failure, note};
use crate::queue_values::SubscriptionName;
use crate::transfer::{Lost, Report};

/// The status of HTTP that says that an entity of that name is there.
const IS_THERE: u16 = 409;

/// What an import has defined.
pub(super) struct Entities<'a> {
    doors: &'a Doors,
    /// `None`: not asked so far.
    access: Option<Access>,
    unfinished: Unfinished<'a>,
    /// Topics that this import has created, by their names in lower case.
    new_topics: BTreeSet<String>,
    /// Entities that were there and belong to others, by their names in lower case.
    others: BTreeMap<String, Status>,
    /// The subscription whose rules come now.
    open: Option<(Ruled<'a>, SubscriptionSettings)>,
}

/// The status of an entity that was there.
struct Status {
    now: EntityStatus,
    /// Of its line.
    wanted: EntityStatus,
}

/// What an entity can be closed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Send,
    Receive,
}

impl Use {
    fn is_closed(self, status: &EntityStatus) -> bool {
        let closed = match self {
            Self::Send => EntityStatus::SendDisabled,
            Self::Receive => EntityStatus::ReceiveDisabled,
        };
        *status == EntityStatus::Disabled || *status == closed
    }
}

impl<'a> Entities<'a> {
    pub(super) fn new(doors: &'a Doors) -> Self {
        Self {
            doors,
            access: None,
            unfinished: Unfinished::new(doors),
            new_topics: BTreeSet::new(),
            others: BTreeMap::new(),
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
            let owner = Owner::of(&now.user_metadata);
            note_settings(Kind::Queue, name, &differences(&now, definition, owner));
            if owner == Owner::Other {
                self.found(name, now.status, settings.status);
                return Ok(());
            }
        }
        self.unfinished.queues.push((name.to_owned(), settings));
        Ok(())
    }

    pub(super) fn topic(&mut self, it: &DefinedTopic, report: &mut Report) -> Result<(), Failure> {
        let settings = settings_of_topic(&it.definition).map_err(Failure::Usage)?;
        let doors = self.doors;
        let first = topic_while_filled(&settings, self.is_kew()?);
        let created = doors.over_http(doors.admin.create_topic(&it.topic, &first));
        if done(created.map(drop), true, IS_THERE)? {
            report.topics_created += 1;
            self.new_topics.insert(it.topic.to_lowercase());
            count_keys(&it.definition.authorization_rules, report);
        } else {
            report.topics_already_there += 1;
            let now = doors.over_http(doors.admin.topic(&it.topic))?.settings;
            let owner = Owner::of(&now.user_metadata);
            let others = topic_differences(&now, &it.definition, owner);
            note_settings(Kind::Topic, &it.topic, &others);
            if owner == Owner::Other {
                self.found(&it.topic, now.status, settings.status);
                return Ok(());
            }
        }
        self.unfinished.topics.push((it.topic.clone(), settings));
        Ok(())
    }

    /// Whether this client may put messages into subscriptions here. It is asked once.
    fn is_kew(&mut self) -> Result<bool, Failure> {
        let access = match self.access {
            Some(access) => access,
            None => self.doors.own().access()?,
        };
        self.access = Some(access);
        Ok(access == Access::Open)
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
            default_rule: Some(first_rule()),
            ..subscription_while_filled(&settings)
        };
        let create = doors
            .admin
            .create_subscription(&name.topic, &name.name, &first);
        let created = doors.over_http(create).map(drop);
        let ruled = if done(created, true, IS_THERE)? {
            report.subscriptions_created += 1;
            Ruled::created(doors, name)
        } else {
            report.subscriptions_already_there += 1;
            let read = doors.admin.subscription(&name.topic, &name.name);
            let now = doors.over_http(read)?.settings;
            let owner = Owner::of(&now.user_metadata);
            let others = subscription_differences(&now, &it.definition, owner);
            note_settings(Kind::Subscription, &name.to_string(), &others);
            if owner == Owner::Other {
                self.found(&name.to_string(), now.status, settings.status.clone());
            }
            Ruled::found(doors, name, owner)?
        };
        self.open = Some((ruled, settings));
        Ok(())
    }

    /// Adds a rule to the subscription before it, or compares it.
    pub(super) fn rule(&mut self, it: &DefinedRule, report: &mut Report) -> Result<(), Failure> {
        let Some((open, _)) = &mut self.open else {
            let what = "the line of its subscription is not before it";
            return Err(Failure::Usage(what.into()));
        };
        let topic = self.others.get(&it.topic.to_lowercase());
        open.add(it, report).map_err(|failure| match topic {
            Some(topic) if !failure.is_temporary() && topic.now != EntityStatus::Active => failure
                .after(format!(
                    "the topic {} was there, and is {}: kew bus topic update --status active opens it",
                    it.topic,
                    topic.now.as_str()
                )),
            Some(_) | None => failure,
        })
    }

    /// No more rules of the last subscription come.
    pub(super) fn end_rules(&mut self) {
        let Some((ruled, settings)) = self.open.take() else {
            return;
        };
        ruled.end();
        if ruled.is_own() {
            self.unfinished.subscriptions.push((ruled, settings));
        }
    }

    /// An entity that was there and stays as it is. Lines need not have a status.
    fn found(&mut self, name: &str, now: Option<EntityStatus>, wanted: Option<EntityStatus>) {
        let now = now.unwrap_or(EntityStatus::Active);
        let wanted = wanted.unwrap_or(EntityStatus::Active);
        self.others
            .insert(name.to_lowercase(), Status { now, wanted });
    }

    /// Whether this import has created a topic. Then nothing is scheduled there.
    pub(super) fn is_new_topic(&self, name: &str) -> bool {
        self.new_topics.contains(&name.to_lowercase())
    }

    /// Whether an entity is closed as its line says. An import closes an entity when all lines have been taken, so
    /// nothing is missing there.
    pub(super) fn is_complete(&self, name: &str, closed_for: Use) -> bool {
        let status = self.others.get(&name.to_lowercase());
        status.is_some_and(|it| it.now == it.wanted && closed_for.is_closed(&it.now))
    }

    /// Gives entities the settings that they could not have while they were filled.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.take_unfinished().finish()
    }

    /// Does not, because lines may be missing.
    pub(super) fn leave(&mut self) -> Result<(), Failure> {
        self.take_unfinished().leave()
    }

    fn take_unfinished(&mut self) -> Unfinished<'a> {
        std::mem::replace(&mut self.unfinished, Unfinished::new(self.doors))
    }
}

/// Authorization rules without keys get new ones.
fn count_keys(rules: &[Rule], report: &mut Report) {
    let without = rules.iter().filter(|rule| rule.primary_key.is_none());
    without.for_each(|_| report.lost(Lost::Key));
}

fn note_settings(kind: Kind, name: &str, others: &[String]) {
    if !others.is_empty() {
        let (kind, others) = (kind.word(), others.join(", "));
        note(&format!(
            "the {kind} {name} exists, and keeps its own settings: {others}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_closes_an_entity_for_some_uses() {
        for (status, send, receive) in [
            (EntityStatus::Active, false, false),
            (EntityStatus::SendDisabled, true, false),
            (EntityStatus::ReceiveDisabled, false, true),
            (EntityStatus::Disabled, true, true),
        ] {
            assert_eq!(Use::Send.is_closed(&status), send, "{status:?}");
            assert_eq!(Use::Receive.is_closed(&status), receive, "{status:?}");
        }
    }
}
