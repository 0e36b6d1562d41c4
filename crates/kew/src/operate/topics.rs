//! `kew bus topic` and `kew bus subscription`: management by ATOM.

use kew_client::{NewRule, SubscriptionSettings, TopicSettings};
use serde_json::json;

use super::entity::{Kind, must_be, print, shown, tell, tell_created, tell_deleted};
use super::failing::status_of_failure;
use super::rules::settings_of;
use super::settings::{EntityView, apply_to_subscription, apply_to_topic};
use super::{Doors, Session, show};
use crate::bus_rule_args::DefaultRuleArgs;
use crate::bus_topic_args::{
    CreateSubscriptionArgs, CreateTopicArgs, DeleteSubscriptionArgs, DeleteTopicArgs,
    SubscriptionArgs, TopicArgs, UpdateSubscriptionArgs, UpdateTopicArgs,
};
use crate::queue_command::{Align, Failure, confirm, printable, shortened, table};
use crate::queue_values::SubscriptionName;

/// How many characters of a name a list shows.
const LISTED_CHARS_MAX: usize = 80;

/// The service's name of the rule that a subscription begins with.
const DEFAULT_RULE: &str = "$Default";

pub(super) fn create_topic(it: &mut Session, args: &CreateTopicArgs) -> Result<(), Failure> {
    if args.settings.sending.duplicate_window.is_some() && !args.detect_duplicates {
        let message = "--duplicate-window has no effect without --detect-duplicates";
        return Err(Failure::Usage(message.into()));
    }
    let mut settings = TopicSettings {
        requires_duplicate_detection: Some(args.detect_duplicates),
        ..TopicSettings::default()
    };
    apply_to_topic(&mut settings, &args.settings)?;
    let doors = &it.doors;
    let created = doors.over_http(doors.admin.create_topic(&args.name, &settings));
    tell_created(
        it,
        Kind::Topic,
        &args.name,
        created.map(drop),
        args.if_not_exists,
    )
}

pub(super) fn show_topic(it: &mut Session, args: &TopicArgs) -> Result<(), Failure> {
    must_be(&it.doors, Kind::Topic, &args.name)?;
    let topic = it.doors.over_http(it.doors.admin.topic(&args.name))?;
    show::object(&mut it.output, &json!(EntityView::of_topic(topic)))
}

pub(super) fn list_topics(it: &mut Session) -> Result<(), Failure> {
    let topics = all_topics(&it.doors)?;
    if it.output.json {
        return Ok(it.output.object(&topics)?);
    }
    let columns = [
        ("TOPIC", Align::Left),
        ("SUBSCRIPTIONS", Align::Right),
        ("WAITING", Align::Right),
        ("SCHEDULED", Align::Right),
        ("FAILED", Align::Right),
        ("BYTES", Align::Right),
        ("STATUS", Align::Left),
    ];
    let row = |topic: &EntityView| {
        vec![
            shortened(&topic.name, LISTED_CHARS_MAX),
            shown(topic.subscriptions),
            shown(topic.active_messages),
            shown(topic.scheduled_messages),
            shown(topic.failed_transfers),
            shown(topic.size_bytes),
            topic.status.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = topics.iter().map(row).collect();
    for line in table(&columns, &rows) {
        it.output.line(&line)?;
    }
    Ok(())
}

/// All topics with their counts and settings.
pub(super) fn all_topics(doors: &Doors) -> Result<Vec<EntityView>, Failure> {
    let mut topics = Vec::new();
    let mut skip = Some(0);
    while let Some(first) = skip {
        let page = doors.over_http(doors.admin.topics(first))?;
        topics.extend(page.items.into_iter().map(EntityView::of_topic));
        skip = page.next;
    }
    Ok(topics)
}

/// The same, if the namespace can have topics. One of the basic tier refuses to list them.
pub(super) fn topics_if_any(doors: &Doors) -> Result<Vec<EntityView>, Failure> {
    match all_topics(doors) {
        Err(failure) if has_no_topics(&failure) => Ok(Vec::new()),
        topics => topics,
    }
}

/// Whether a list of topics was refused because the namespace cannot have any.
pub(super) fn has_no_topics(failure: &Failure) -> bool {
    matches!(status_of_failure(failure), Some(400 | 404 | 405))
}

/// The topics whose names are wanted, each with its subscriptions behind it.
pub(super) fn topics_with_subscriptions(
    doors: &Doors,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<EntityView>, Failure> {
    let mut all = Vec::new();
    let topics = topics_if_any(doors)?.into_iter();
    for topic in topics.filter(|it| is_wanted(&it.name)) {
        let (name, has_some) = (topic.name.clone(), topic.subscriptions != Some(0));
        all.push(topic);
        if !has_some {
            continue;
        }
        match all_subscriptions(doors, &name) {
            // It was deleted meanwhile.
            Err(failure) if status_of_failure(&failure) == Some(404) => {}
            subscriptions => all.extend(subscriptions?),
        }
    }
    Ok(all)
}

pub(super) fn update_topic(it: &mut Session, args: &UpdateTopicArgs) -> Result<(), Failure> {
    let doors = &it.doors;
    must_be(doors, Kind::Topic, &args.name)?;
    // An update replaces everything, so unchanged settings must be sent again.
    let mut settings = doors.over_http(doors.admin.topic(&args.name))?.settings;
    apply_to_topic(&mut settings, &args.settings)?;
    // As for queues.
    settings.authorization_rules = None;
    doors.over_http(doors.admin.update_topic(&args.name, &settings))?;
    tell(it, Kind::Topic, &args.name, "updated", true, "")
}

pub(super) fn delete_topic(it: &mut Session, args: &DeleteTopicArgs) -> Result<(), Failure> {
    if !args.yes.yes {
        let topic = printable(&args.name);
        confirm(&format!(
            "Delete topic {topic} with its subscriptions and all their messages?"
        ))?;
    }
    // The same request would delete a queue.
    must_be(&it.doors, Kind::Topic, &args.name)?;
    let deleted = it.doors.over_http(it.doors.admin.delete_topic(&args.name));
    tell_deleted(it, Kind::Topic, &args.name, deleted, args.if_exists)
}

pub(super) fn create_subscription(
    it: &mut Session,
    args: &CreateSubscriptionArgs,
) -> Result<(), Failure> {
    let mut settings = SubscriptionSettings {
        requires_session: Some(args.sessions),
        default_rule: first_rule(&args.rule)?,
        ..SubscriptionSettings::default()
    };
    apply_to_subscription(&mut settings, &args.settings);
    let SubscriptionName { topic, name } = &args.name;
    let create = it.doors.admin.create_subscription(topic, name, &settings);
    let created = it.doors.over_http(create);
    let name = args.name.to_string();
    tell_created(
        it,
        Kind::Subscription,
        &name,
        created.map(drop),
        args.if_not_exists,
    )
}

fn first_rule(args: &DefaultRuleArgs) -> Result<Option<NewRule>, Failure> {
    let name = args.rule_name.as_deref().unwrap_or(DEFAULT_RULE);
    let settings = settings_of(&args.rule)?;
    Ok(settings.map(|settings| NewRule {
        name: name.to_owned(),
        settings,
    }))
}

pub(super) fn show_subscription(it: &mut Session, args: &SubscriptionArgs) -> Result<(), Failure> {
    let SubscriptionName { topic, name } = &args.name;
    let found = it
        .doors
        .over_http(it.doors.admin.subscription(topic, name))?;
    let view = EntityView::of_subscription(args.name.to_string(), found);
    show::object(&mut it.output, &json!(view))
}

pub(super) fn list_subscriptions(it: &mut Session, args: &TopicArgs) -> Result<(), Failure> {
    let subscriptions = all_subscriptions(&it.doors, &args.name)?;
    print(it, "SUBSCRIPTION", &subscriptions)
}

/// All subscriptions of a topic with their counts and settings.
pub(super) fn all_subscriptions(doors: &Doors, topic: &str) -> Result<Vec<EntityView>, Failure> {
    let mut subscriptions = Vec::new();
    let mut skip = Some(0);
    while let Some(first) = skip {
        let page = doors.over_http(doors.admin.subscriptions(topic, first))?;
        subscriptions.extend(page.items.into_iter().map(|it| {
            let name = SubscriptionName {
                topic: topic.to_owned(),
                name: it.name.clone(),
            };
            EntityView::of_subscription(name.to_string(), it)
        }));
        skip = page.next;
    }
    Ok(subscriptions)
}

pub(super) fn update_subscription(
    it: &mut Session,
    args: &UpdateSubscriptionArgs,
) -> Result<(), Failure> {
    let SubscriptionName { topic, name } = &args.name;
    let doors = &it.doors;
    let found = doors.over_http(doors.admin.subscription(topic, name))?;
    let mut settings = found.settings;
    apply_to_subscription(&mut settings, &args.settings);
    doors.over_http(doors.admin.update_subscription(topic, name, &settings))?;
    let name = args.name.to_string();
    tell(it, Kind::Subscription, &name, "updated", true, "")
}

pub(super) fn delete_subscription(
    it: &mut Session,
    args: &DeleteSubscriptionArgs,
) -> Result<(), Failure> {
    let name = args.name.to_string();
    if !args.yes.yes {
        let subscription = printable(&name);
        confirm(&format!(
            "Delete subscription {subscription} with its rules and all its messages?"
        ))?;
    }
    // A queue of an earlier version may have such a name.
    must_be(&it.doors, Kind::Subscription, &name)?;
    let delete = it
        .doors
        .admin
        .delete_subscription(&args.name.topic, &args.name.name);
    let deleted = it.doors.over_http(delete);
    tell_deleted(it, Kind::Subscription, &name, deleted, args.if_exists)
}
